"""Real clusters of Flink and Spark on this machine, with Python workers beside them."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from my_datasets import errors
from tests.building.engines import flink_processes, spark_processes
from tests.building.engines.builds import build, hashes
from tests.building.engines.test_beam_faults import KillingItself, Slow
from tests.conftest import ROOT

BEAM_FILES = ROOT / ".beam"
# Seconds: a build on a cluster takes minutes where two cores do all of it.
_LONG = 900.0

pytestmark = pytest.mark.slow


def _needs(name: str) -> pytest.MarkDecorator:
    """Leaves a test out where `make` has not fetched what it needs."""
    return pytest.mark.skipif(
        not (BEAM_FILES / f"{name}-job-server.jar").exists(),
        reason=f"there is no .beam/{name}-job-server.jar: run `make {name}` first",
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


def _options(cluster: flink_processes.FlinkProcesses, worker_pool: str) -> dict[str, Any]:
    return {
        "runner": "flink", "flink_job_server_jar": BEAM_FILES / "flink-job-server.jar",
        "flink_master": cluster.address, "parallelism": 4,
        "environment_type": "EXTERNAL", "environment_config": worker_pool,
    }  # fmt: skip


@_needs("flink")
@pytest.mark.parametrize("restarts", [True, False])
def test_flink_loses_a_task_manager(reference, tmp_path, worker_pool, restarts):
    """It does the work again and ends in the same bytes, or fails and goes on when asked to."""
    data_dir, place = tmp_path / "data", tmp_path / "flink"
    data_dir.mkdir()
    place.mkdir()
    with flink_processes.started(BEAM_FILES / "flink", place, restarts=restarts) as cluster:

        def strike() -> None:
            _wait_for(data_dir / "half-way")
            cluster.replace_a_task_manager()
            (data_dir / "happened").touch()

        options = _options(cluster, worker_pool)
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
def test_flink_loses_a_worker(reference, tmp_path, worker_pool):
    """Of a pool one process dies; Flink asks for another one and does the job again."""
    place = tmp_path / "flink"
    place.mkdir()
    with flink_processes.started(BEAM_FILES / "flink", place, restarts=True) as cluster:
        options = _options(cluster, worker_pool)
        version_dir = build(KillingItself, tmp_path / "data", beam_options=options)
    assert (tmp_path / "data/killed").exists()
    assert hashes(version_dir) == reference


@_needs("spark")
def test_spark_loses_an_executor(reference, tmp_path, worker_pool):
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
            "runner": "spark", "spark_job_server_jar": BEAM_FILES / "spark-job-server.jar",
            "spark_master_url": cluster.address,
            "environment_type": "EXTERNAL", "environment_config": worker_pool,
        }  # fmt: skip
        version_dir = build(Waiting, data_dir, beam_options=options)
        striking.join()
    assert hashes(version_dir) == reference
