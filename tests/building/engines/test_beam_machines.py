"""Builds on several machines, which have a network in common and no directory."""

import contextlib
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from my_datasets import errors
from my_datasets.stores.opening import open_store
from tests import machines, servers
from tests.building.engines import flink_processes
from tests.building.engines.builds import build
from tests.building.engines.test_beam_clusters import _INSIDE, BEAM_FILES, _needs
from tests.building.engines.test_beam_faults import Slow
from tests.conftest import ROOT

pytestmark = pytest.mark.slow
FOLDER = "toy_engine/1.0.0"


@pytest.fixture
def others(tmp_path, monkeypatch):
    """Three machines beside this one, each with data and home directories of its own."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    own = [tmp_path / name for name in ("data", "home", "tmp")]
    with machines.started(3, own) as found:
        yield found


@pytest.fixture
def bucket(others):
    """A bucket that all machines reach."""
    with servers.s3("releases", others.here) as (url, _):
        yield url


@pytest.fixture
def dask(others, tmp_path):
    """Options that lead to a scheduler on this machine, with a worker on each other one."""
    with contextlib.ExitStack() as stack:

        def start(begin, name, *command):
            log = stack.enter_context((tmp_path / f"{name}.log").open("w"))
            command = [sys.executable, "-m", "dask", *command, "--no-dashboard"]
            process = begin(command, cwd=tmp_path, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.terminate)

        address = f"tcp://{others.here}:8786"
        start(subprocess.Popen, "scheduler", "scheduler", "--host", others.here, "--port", "8786")
        for one in others.others[:2]:
            start(
                one.start, one.name, "worker", address, "--host", one.address, "--nthreads", "1",
                "--local-directory", os.environ["TMPDIR"],
            )  # fmt: skip
        yield {"runner": "dask", "dask_client_address": address}


def shards(url, reference):
    """The hashes of a version's shards in a store."""
    store = open_store(url)
    return {
        name: hashlib.sha256(b"".join(store.read(f"{FOLDER}/{name}"))).hexdigest()
        for name in (Path(one.path).name for one in store.list(FOLDER))
        if name in reference
    }


def test_machines_have_nothing_in_common_but_a_network(others, tmp_path):
    (tmp_path / "data/here").touch()
    script = "hostname; ls $1; touch $1/there; ip -o -4 addr show eth0 | awk '{print $4}'"
    for one in others.others:
        process = one.start(
            ["sh", "-c", script, "sh", tmp_path / "data"], stdout=subprocess.PIPE, text=True
        )
        assert process.communicate()[0].split() == [one.name, f"{one.address}/24"]
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["here"]


def test_dask_builds_in_a_bucket(reference, tmp_path, bucket, dask):
    build(Slow, tmp_path / "data", beam_options=dask, destination=bucket)
    assert shards(bucket, reference) == reference


def test_workers_that_do_not_share_the_data_directory_are_told(tmp_path, dask):
    with pytest.raises(errors.BuildInterruptedError, match="A worker does not see "):
        build(Slow, tmp_path / "data", beam_options=dask)


@_needs("flink")
def test_flink_builds_in_a_bucket(reference, tmp_path, others, bucket):
    place = tmp_path / "flink"
    place.mkdir()
    jars = BEAM_FILES / "flink"
    with flink_processes.started(jars, place, restarts=False, machines=others.others) as cluster:
        options = {
            "runner": "flink", **_INSIDE["flink"], "flink_master": cluster.address,
            "parallelism": 4, "environment_type": "PROCESS",
        }  # fmt: skip
        build(Slow, tmp_path / "data", beam_options=options, destination=bucket)
    assert shards(bucket, reference) == reference
