"""What the engine's tests share."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from my_datasets.building.engines.beam.tied_process import command_for
from tests.building.engines import dask_processes, toys
from tests.building.engines.builds import build, hashes
from tests.conftest import ROOT


@pytest.fixture(scope="session")
def reference(tmp_path_factory):
    """The hashes of a build with units in one process."""
    return hashes(build(toys.InUnits, tmp_path_factory.mktemp("reference"), workers=1))


@pytest.fixture(autouse=True)
def steer(monkeypatch):
    """`steer(before)` says what happens before each example; see `toys._Toy.before`."""

    def steer(before):
        monkeypatch.setattr(toys._Toy, "before", staticmethod(before))

    steer(lambda unit, i: None)
    return steer


@pytest.fixture
def dask_in_process(monkeypatch):
    """The address of a Dask cluster within this process, whose tasks see what tests change."""
    import distributed

    from my_datasets.building.engines.beam import workspace

    monkeypatch.setattr(workspace, "_VISIBILITY_DELAY", 5.0)

    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address


@pytest.fixture(scope="session")
def dask_cluster(tmp_path_factory):
    """A real Dask cluster: a scheduler and two workers, each a process."""
    with dask_processes.started(tmp_path_factory.mktemp("dask")) as cluster:
        yield cluster


@pytest.fixture
def worker_pool_process(tmp_path):
    """A pool of workers, started by the command: its address and its process."""
    script = Path(sys.executable).parent / "my-datasets"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    process = subprocess.Popen(
        command_for([str(script), "beam-worker", "--port", "0"]),
        env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        yield re.search(r"127\.0\.0\.1:\d+", process.stdout.readline()).group(), process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)


@pytest.fixture
def worker_pool(worker_pool_process):
    """The address of a pool of workers."""
    return worker_pool_process[0]


@pytest.fixture(params=["EXTERNAL", "PROCESS"])
def environment(request):
    """Options for workers: a pool has them, or the runner starts them."""
    if request.param == "PROCESS":
        config = json.dumps({"env": {"PYTHONPATH": str(ROOT)}})
    else:
        config = request.getfixturevalue("worker_pool")
    return {"environment_type": request.param, "environment_config": config}
