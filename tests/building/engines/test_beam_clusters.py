"""Real clusters of Flink and Spark on this machine, with Python workers beside them."""

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from my_datasets import errors
from my_datasets.storage.backends import open_store
from tests.building.engines import flink_processes, spark_processes
from tests.building.engines.builds import build, hashes
from tests.building.engines.test_beam_faults import KillingItself, Slow
from tests.conftest import ROOT

BEAM_FILES = ROOT / ".beam"
# Seconds: a build on a cluster takes minutes where two cores do all of it.
_LONG = 900.0

# Options of runners that do the work inside of their job servers.
_INSIDE = {
    "prism": {"prism_location": BEAM_FILES / "prism"},
    "flink": {"flink_job_server_jar": BEAM_FILES / "flink-job-server.jar"},
    "spark": {
        "spark_job_server_jar": BEAM_FILES / "spark-job-server.jar",
        "spark_master_url": "local[2]",
    },
}

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def _server(name: str) -> str:
    """Returns the file that a job server is started with."""
    return str(next(iter(_INSIDE[name].values())))


def _needs(name: str) -> pytest.MarkDecorator:
    """Leaves a test out where `make` has not fetched what it needs."""
    return pytest.mark.skipif(
        not Path(_server(name)).exists(),
        reason=f"there is no {_server(name)}: run `make {name}` first",
    )


class Waiting(Slow, skip_registration=True):
    """Half-way through unit 3 it waits, once, until something has happened to the cluster."""

    name = "toy_engine"

    def _slowly(self, unit: int) -> Any:
        place = Path(self._data_dir_root)
        for i, pair in enumerate(super()._slowly(unit)):
            if (unit, i) == (3, 200):
                (place / "half-way").touch()
                _wait_for(place / "happened")
            yield pair


def _wait_for(path: Path) -> None:
    until = time.monotonic() + _LONG
    while not path.exists():
        assert time.monotonic() < until, f"there is no {path}"
        time.sleep(0.05)


def _options(cluster: flink_processes.FlinkProcesses) -> dict[str, Any]:
    return {
        "runner": "flink", **_INSIDE["flink"], "flink_master": cluster.address, "parallelism": 4,
    }  # fmt: skip


@_needs("flink")
@pytest.mark.parametrize("restarts", [True, False])
def test_flink_loses_a_task_manager(reference, tmp_path, worker_pool, restarts):
    """It does the work again and ends in the same bytes, or fails and goes on when asked to."""
    pool = {"environment_type": "EXTERNAL", "environment_config": worker_pool}
    data_dir, place = tmp_path / "data", tmp_path / "flink"
    data_dir.mkdir()
    place.mkdir()
    with flink_processes.started(BEAM_FILES / "flink", place, restarts=restarts) as cluster:

        def strike() -> None:
            _wait_for(data_dir / "half-way")
            cluster.replace_a_task_manager()
            (data_dir / "happened").touch()

        options = {**_options(cluster), **pool}
        striking = threading.Thread(target=strike)
        striking.start()
        if not restarts:
            with pytest.raises(errors.BuildInterruptedError, match="failed while generating"):
                build(Waiting, data_dir, beam_options=options)
            assert not (data_dir / "toy_engine/1.0.0").exists()
        version_dir = build(Waiting, data_dir, beam_options=options)
        striking.join()
    assert hashes(version_dir) == reference
    assert sorted(path.name for path in version_dir.parent.iterdir()) == [".1.0.0.lock", "1.0.0"]


@_needs("flink")
def test_flink_loses_a_worker(reference, tmp_path, environment):
    """One process dies; Flink asks for another one and does the job again."""
    place = tmp_path / "flink"
    place.mkdir()
    with flink_processes.started(BEAM_FILES / "flink", place, restarts=True) as cluster:
        options = {**_options(cluster), **environment}
        version_dir = build(KillingItself, tmp_path / "data", beam_options=options)
    assert (tmp_path / "data/killed").exists()
    assert hashes(version_dir) == reference


@_needs("flink")
def test_flink_cannot_start_its_workers(tmp_path):
    """The program is one that can be run, and ends at once."""
    place = tmp_path / "flink"
    place.mkdir()
    environment = {"environment_type": "PROCESS", "environment_config": '{"command": "false"}'}
    with flink_processes.started(BEAM_FILES / "flink", place, restarts=False) as cluster:
        options = {**_options(cluster), **environment}
        with pytest.raises(errors.BuildInterruptedError, match="cannot start workers with false"):
            build(Slow, tmp_path / "data", beam_options=options)
    assert not (tmp_path / "data/toy_engine/1.0.0").exists()


@_needs("flink")
def test_flink_builds_in_a_bucket(reference, tmp_path, s3_bucket, environment, monkeypatch):
    """Its workers have nothing in common but the bucket."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MY_DATASETS_HOME", str(tmp_path / "home"))
    place = tmp_path / "flink"
    place.mkdir()
    url = f"{s3_bucket}/{tmp_path.name}"
    with flink_processes.started(BEAM_FILES / "flink", place, restarts=True) as cluster:
        options = {**_options(cluster), **environment}
        build(Slow, tmp_path / "data", beam_options=options, destination=url)
    store, folder = open_store(url), "toy_engine/1.0.0"
    shards = {
        path.name: b"".join(store.read(f"{folder}/{path.name}"))
        for path in (Path(one.path) for one in store.list(folder))
        if path.name in reference
    }
    found = {name: hashlib.sha256(data).hexdigest() for name, data in shards.items()}
    assert found == reference
    assert all(one.path.startswith(f"{folder}/") for one in store.list(""))
    assert not (tmp_path / "data/toy_engine/1.0.0").exists()


@_needs("spark")
def test_spark_loses_an_executor(reference, tmp_path, environment):
    """It starts another one, and does the tasks again."""
    data_dir, place = tmp_path / "data", tmp_path / "spark"
    data_dir.mkdir()
    place.mkdir()
    with spark_processes.started(BEAM_FILES / "spark", place) as cluster:

        def strike() -> None:
            _wait_for(data_dir / "half-way")
            cluster.kill_an_executor()
            (data_dir / "happened").touch()

        striking = threading.Thread(target=strike)
        striking.start()
        options = {
            "runner": "spark", **_INSIDE["spark"], "spark_master_url": cluster.address,
            **environment,
        }  # fmt: skip
        version_dir = build(Waiting, data_dir, beam_options=options)
        striking.join()
    assert hashes(version_dir) == reference


_BUILDING = """
import json, sys
from tests.building.engines.builds import build
from tests.building.engines.test_beam_clusters import Waiting
build(Waiting, sys.argv[1], beam_options=json.loads(sys.argv[2]))
"""


@pytest.mark.parametrize("name", [pytest.param(name, marks=_needs(name)) for name in _INSIDE])
def test_a_job_server_ends_with_a_build_that_is_killed(reference, tmp_path, name):
    """Nothing of the build is left after SIGKILL; the same again ends in the same bytes."""
    options = {"runner": name, **_INSIDE[name]}
    process = subprocess.Popen(
        [sys.executable, "-c", _BUILDING, str(tmp_path), json.dumps(options, default=str)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _wait_for(tmp_path / "half-way")
        children = psutil.Process(process.pid).children(recursive=True)
        assert any(_server(name) in child.cmdline() for child in children)
    finally:
        process.kill()
        process.wait()
    _, left = psutil.wait_procs(children, timeout=_LONG)
    assert not left
    (tmp_path / "happened").touch()
    assert hashes(build(Waiting, tmp_path, beam_options=options)) == reference
