"""The service on several machines, which have a network in common, a bucket, and no directory."""

import pytest

import my_datasets
from tests import machines, servers
from tests.conftest import ROOT
from tests.input_pipeline.service.conftest import ROWS, START, Process
from tests.input_pipeline.service.test_guarantees import KILLED_AT, OPTIONS, expected, same, shown

pytestmark = [pytest.mark.integration, pytest.mark.slow]
_PORT = 5050


@pytest.fixture
def others(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MY_DATASETS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    with machines.started(3, [tmp_path / name for name in ("home", "tmp")]) as found:
        yield found


@pytest.fixture
def data_dir(others, rows_dir):
    """The data in a bucket: a machine has none of its own."""
    # Another name each time: connections to a bucket are kept, and the server is another one.
    with servers.s3(f"served-{others.others[0].name}", others.here) as (url, put):
        for path in rows_dir.rglob("*"):
            if path.is_file():
                put(f"data/{path.relative_to(rows_dir)}", path.read_bytes())
        yield f"{url}/data"


@pytest.fixture
def service(others, data_dir):
    """The address of a dispatcher, which has two workers, each on a machine of its own."""
    one, *rest = others.others
    address = f"{one.address}:{_PORT}"
    names = [f"--worker={other.address}:{_PORT}" for other in rest]
    processes = [
        Process("dispatcher", f"--port={_PORT}", f"--host={one.address}", *names, begin=one.start)
    ]
    processes += [
        Process(
            "worker", f"--port={_PORT}", f"--host={other.address}", f"--dispatcher={address}",
            f"--wait={START}", begin=other.start,
        )
        for other in rest
    ]  # fmt: skip
    try:
        for process in processes:
            process.ready()
        yield f"grpc://{address}"
    finally:
        for process in processes:
            process.end_for_good()


def served(service, data_dir, sharding, **options):
    return my_datasets.pipeline(
        "served_rows", data_dir=data_dir, service=service, sharding=sharding,
        **OPTIONS, **{"deadline": 300, **options},
    )  # fmt: skip


@pytest.mark.parametrize("sharding", ["exact", "static"])
def test_batches_are_those_made_here(service, others, data_dir, rows_dir, sharding):
    train = served(service, data_dir, sharding)
    assert same([shown(batch) for batch in train], expected(rows_dir))
    (epoch,) = train.stats().epochs
    assert (epoch.given, epoch.lost, epoch.repeated) == (ROWS, (), ())
    assert set(train.stats().workers) == {f"{other.address}:{_PORT}" for other in others.others[1:]}


def test_a_machine_whose_network_is_gone_costs_no_example(service, others, data_dir, rows_dir):
    """No connection is closed, so nobody is told of it."""
    train, found = served(service, data_dir, "exact"), []
    for batch in train:
        found.append(shown(batch))
        if len(found) == KILLED_AT:
            others.others[1].unplug()
    assert same(found, expected(rows_dir))
    assert train.stats().workers["here"] < 40  # what the worker had; the other one made the rest
    (epoch,) = train.stats().epochs
    assert (epoch.given, epoch.lost, epoch.repeated) == (ROWS, (), ())
