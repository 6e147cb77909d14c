"""Builds on several machines, which have a network in common and no directory."""

import contextlib
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import tensorflow_datasets as tfds

import my_datasets
from my_datasets import errors, sources
from my_datasets.storage.backends import open_store
from tests import machines, servers
from tests.building.engines import flink_processes
from tests.building.engines.builds import build
from tests.building.engines.test_beam_clusters import _INSIDE, BEAM_FILES, _needs
from tests.building.engines.test_beam_faults import Slow
from tests.conftest import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.slow]
FOLDER = "toy_engine/1.0.0"


@pytest.fixture
def others(tmp_path, monkeypatch):
    """Three machines beside this one, each with data and home directories of its own."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MY_DATASETS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    own = [tmp_path / name for name in ("data", "home", "tmp")]
    with machines.started(3, own) as found:
        yield found


@pytest.fixture
def served(others):
    """A bucket that all machines reach, and what writes to it."""
    # Another name each time: connections to a bucket are kept, and the server is another one.
    with servers.s3(f"bucket-{others.others[0].name}", others.here) as found:
        yield found


@pytest.fixture
def bucket(served):
    return served[0]


@pytest.fixture
def dask(others, bucket, tmp_path):
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


class FromBucket(my_datasets.Builder, skip_registration=True):
    """Its input is in a bucket."""

    VERSION = tfds.core.Version("1.0.0")
    name = "from_bucket"
    folder: ClassVar[str] = ""

    def _info(self) -> Any:
        features = {"number": np.int64, "text": tfds.features.Text()}
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager: Any) -> Any:
        return {"train": sources.csv(f"{self.folder}/*.csv", key="number")}


def test_workers_read_in_a_bucket_what_they_build_there(tmp_path, served, dask, monkeypatch):
    url, put = served
    for part in range(3):
        rows = [f"{part * 100 + i},text {i}" for i in range(100)]
        put(f"raw/{part}.csv", "\n".join(["number,text", *rows]).encode())
    monkeypatch.setattr(FromBucket, "folder", f"{url}/raw")
    build(FromBucket, tmp_path / "data", beam_options=dask, destination=f"{url}/datasets")
    made = my_datasets.batches(
        "from_bucket", split="train", data_dir=f"{url}/datasets", batch_size=50, epochs=1
    )
    found = sorted(number for batch in made for number in batch["number"].tolist())
    assert found == list(range(300))


def test_workers_that_do_not_share_the_data_directory_are_reported(tmp_path, dask):
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
