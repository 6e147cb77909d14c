"""What the engine's tests share."""

import pytest

from tests.building.engines import dask_processes, toys
from tests.building.engines.builds import build, hashes


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

    from my_datasets.building.engines.beam import driving

    monkeypatch.setattr(driving, "_LATE", 5.0)

    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address


@pytest.fixture(scope="session")
def dask_cluster(tmp_path_factory):
    """A real Dask cluster: a scheduler and two workers, each a process."""
    with dask_processes.started(tmp_path_factory.mktemp("dask")) as cluster:
        yield cluster
