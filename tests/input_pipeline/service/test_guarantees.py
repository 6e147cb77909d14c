"""What each way of sharding promises, with processes that are killed in the middle of an epoch.

The table of docs/feeding.md, line by line. The oracle is the pipeline that makes batches here.
"""

import collections
import contextlib
import os
import signal

import pytest
import tensorflow as tf

import my_datasets
from tests.input_pipeline.service.conftest import ROWS
from tests.waiting import until

pytestmark = pytest.mark.faults

# Lists make each batch a piece: 375 of them, of which a worker has a few ahead.
OPTIONS = {"columns": ["id", "list"], "batch_size": 8, "seed": 3}
KILLED_AT = 60
ORDERED = ["exact", "static"]


def expected(rows_dir, **options):
    made = my_datasets.batches("served_rows", data_dir=rows_dir, **OPTIONS, **options)
    return [(batch["id"].tolist(), batch["list"].rows()) for batch in made]


def shown(batch):
    return batch["id"].numpy().tolist(), batch["list"].to_list()


def same(found, wanted):
    return [(ids, [list(map(int, row)) for row in rows]) for ids, rows in found] == [
        (ids, [row.tolist() for row in rows]) for ids, rows in wanted
    ]


def received(pipeline, process=None):
    """Returns an epoch's batches, in whose middle a process is killed."""
    found = []
    for batch in pipeline:
        found.append(shown(batch))
        if len(found) == KILLED_AT and process is not None:
            process.kill()
    return found


def counts(found):
    return collections.Counter(i for ids, _ in found for i in ids)


def served(cluster, rows_dir, sharding, **options):
    options = {"deadline": 300, **options}
    return my_datasets.pipeline(
        "served_rows", data_dir=rows_dir, service=cluster.url, sharding=sharding,
        **OPTIONS, **options,
    )  # fmt: skip


def settle(cluster, rows_dir):
    """Waits until both workers work: one that was started again is told of work after a while."""
    train = served(cluster, rows_dir, "exact", epochs=None)
    source = iter(train)
    until(lambda: next(source) and len(train.stats().workers) == 2)


def begun(train, source, worker):
    """Returns batches, until a worker gave some: then it has made more of them than it gave."""
    found, name = [], worker.told["address"]
    until(lambda: found.append(shown(next(source))) or train.stats().workers.get(name, 0) >= 8)
    return found


@pytest.mark.parametrize("sharding", ORDERED)
def test_batches_are_those_made_here_in_their_order(cluster, rows_dir, sharding):
    train = served(cluster, rows_dir, sharding, epochs=2)
    assert isinstance(train, tf.data.Dataset)
    assert len(train) == 2 * train.steps_per_epoch
    assert same(received(train), expected(rows_dir, epochs=2))
    stats = train.stats()
    assert [one.epoch for one in stats.epochs] == [0, 1]
    for one in stats.epochs:
        assert (one.expected, one.given, one.lost, one.repeated) == (ROWS, ROWS, (), ())
    assert set(stats.workers) == {one.told["address"] for one in cluster.workers}


@pytest.mark.parametrize(
    ("dies", "sharding"),
    [
        ("worker", "exact"), ("worker", "dynamic"), ("dispatcher", "exact"),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in [
            ("worker", "static"), ("dispatcher", "static"), ("dispatcher", "dynamic")
        ]),
    ],
)  # fmt: skip
def test_each_example_exactly_once_or_at_most_once(cluster, rows_dir, sharding, dies):
    process = cluster.dispatcher if dies == "dispatcher" else cluster.workers[0]
    train = served(cluster, rows_dir, sharding)
    found = received(train, process)
    process.ready()
    (account,) = train.stats().epochs
    seen = counts(found)
    assert max(seen.values()) == 1
    lost = {example for example in range(ROWS) if example not in seen}
    ids = [
        n
        for batch in my_datasets.batches(
            "served_rows", data_dir=rows_dir, columns=["id"], shuffle=False
        )
        for n in batch["id"]
    ]
    assert {ids[number] for number in account.lost} == lost
    assert account.given == len(seen) == ROWS - len(lost)
    if dies == "dispatcher" or sharding != "dynamic":
        assert not lost
    if sharding != "dynamic":
        assert same(found, expected(rows_dir))


@pytest.mark.parametrize(
    "dies", ["worker", *(pytest.param(one, marks=pytest.mark.slow) for one in (None, "dispatcher"))]
)
def test_each_example_at_least_once(cluster, rows_dir, dies):
    process = {"worker": cluster.workers[0], "dispatcher": cluster.dispatcher}.get(dies)
    train = served(cluster, rows_dir, "off")
    found = received(train, process)
    if process is not None:
        process.ready()
    seen = counts(found)
    assert len(seen) == ROWS
    (account,) = train.stats().epochs
    assert not account.lost
    assert account.given == sum(seen.values()) >= 2 * ROWS
    assert len(account.repeated) == account.given - ROWS


def test_what_is_lost_is_known_and_made_again(cluster, rows_dir):
    """A worker that is held still has pieces when it is killed: TensorFlow never makes them."""
    victim = cluster.workers[0]

    def go(sharding):
        settle(cluster, rows_dir)
        train = served(cluster, rows_dir, sharding)
        source = iter(train)
        found = begun(train, source, victim)
        os.kill(victim.told["pid"], signal.SIGSTOP)
        victim.kill()
        found += [shown(batch) for batch in source]
        victim.ready()
        return found, train.stats()

    found, stats = go("dynamic")
    (account,) = stats.epochs
    assert 0 < len(account.lost) < ROWS / 2
    assert len(counts(found)) == ROWS - len(account.lost)
    found, stats = go("exact")
    assert same(found, expected(rows_dir))
    assert stats.made_again > 0


@pytest.mark.parametrize(
    "sharding",
    ["exact", "dynamic", *(pytest.param(one, marks=pytest.mark.slow) for one in ("static", "off"))],
)
def test_a_worker_that_never_comes_back(cluster, rows_dir, sharding):
    settle(cluster, rows_dir)
    # All but exact wait for the deadline, some of which a slow machine needs for a batch.
    train = served(cluster, rows_dir, sharding, deadline=300 if sharding == "exact" else 20)
    source = iter(train)
    found = begun(train, source, cluster.workers[0])
    with cluster.without(0):
        if sharding == "static":
            with pytest.raises(tf.errors.OpError, match="Nothing new came from the service"):
                list(source)
            return
        found += [shown(batch) for batch in source]
    (account,) = train.stats().epochs
    if sharding == "exact":
        assert same(found, expected(rows_dir))
        assert train.stats().made_again > 0
    elif sharding == "dynamic":
        assert account.given == len(counts(found)) == ROWS - len(account.lost)
    else:
        assert account.given > len(counts(found)) == ROWS


@contextlib.contextmanager
def hanging(worker):
    os.kill(worker.told["pid"], signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(worker.told["pid"], signal.SIGCONT)


def test_a_worker_that_hangs_costs_no_example(cluster, rows_dir):
    """It holds up the dispatcher, too, when that has new work: the trainer makes what it had."""
    settle(cluster, rows_dir)
    victim = cluster.workers[1]
    train = served(cluster, rows_dir, "exact")
    source = iter(train)
    found = begun(train, source, victim)
    with hanging(victim):
        found += [shown(batch) for batch in source]
    assert same(found, expected(rows_dir))
    assert train.stats().workers["here"] >= 1
    (epoch,) = train.stats().epochs
    assert (epoch.given, epoch.lost, epoch.repeated) == (ROWS, (), ())


def test_a_worker_that_hangs_and_has_a_part_of_its_own(cluster, rows_dir):
    """There is an error, not a hang."""
    settle(cluster, rows_dir)
    victim = cluster.workers[1]
    train = served(cluster, rows_dir, "static", deadline=20)
    source = iter(train)
    begun(train, source, victim)
    with (
        hanging(victim),
        pytest.raises(tf.errors.OpError, match="Nothing new came from the service"),
    ):
        list(source)
