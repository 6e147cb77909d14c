"""Nothing is lost, and what may come twice is what is said: on a real broker, with real kills."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from my_datasets.kafka.stream import stream
from tests.conftest import ROOT
from tests.kafka.examples import FEATURES, ids, numbered
from tests.kafka.kafka import DEADLINE, produce
from tests.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.kafka]


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    directory = tmp_path_factory.mktemp("features")
    FEATURES.save_config(str(directory))
    return directory


class Consumer:
    """A process of `consumer.py`."""

    def __init__(self, url, features, group, file):
        self.file = file
        command = [sys.executable, "-m", "tests.kafka.consumer", url, features, group, file]
        self._process = subprocess.Popen(
            list(map(str, command)), cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )

    def batches(self):
        with contextlib.suppress(FileNotFoundError):
            lines = self.file.read_text().split("\n")[:-1]
            return [json.loads(line) for line in lines]
        return []

    def seen(self):
        return [one for batch in self.batches() for one in batch]

    def end(self, how=signal.SIGKILL):
        self._process.send_signal(how)
        self._process.wait(DEADLINE)


def committed(broker, group, url):
    from confluent_kafka import ConsumerGroupTopicPartitions

    topic = url.rpartition("/")[2]
    admin = broker.admin()
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    places = asked[group].result(DEADLINE).topic_partitions
    return {one.partition: one.offset for one in places if one.topic == topic}


def grouped(url, group, **options):
    return stream(url, features=FEATURES, group=group, as_numpy=True, **options)


def test_offsets_are_committed_only_after_a_batch_was_consumed(topic, broker):
    url = topic(1)
    produce(url, {0: numbered(range(100))})
    batches = grouped(url, "one", batch_size=10, commit_seconds=0.05)
    next(batches)
    # The start is known to the group at once, and nothing else while the batch is in hand.
    until(lambda: committed(broker, "one", url) == {0: 0}, "the start is not committed")
    next(batches)
    until(lambda: committed(broker, "one", url) == {0: 10}, "the first batch is not committed")
    time.sleep(0.3)  # several times as long as commits take turns
    assert committed(broker, "one", url) == {0: 10}
    batches.commit()
    until(lambda: committed(broker, "one", url) == {0: 20}, "commit() does not commit")
    next(batches)
    batches.close()
    assert committed(broker, "one", url) == {0: 20}
    rest = grouped(url, "one", batch_size=10, until="end")
    assert ids(rest) == list(range(20, 100))
    assert committed(broker, "one", url) == {0: 100}


def test_a_new_group_that_begins_with_the_latest_misses_nothing_after_that(topic, broker):
    url = topic(1)
    produce(url, {0: numbered(range(10))})
    with grouped(url, "latest", start="latest", commit_seconds=0.05) as batches:
        batches.state()
        until(lambda: committed(broker, "latest", url) == {0: 10}, "no start")
    produce(url, {0: numbered(range(10, 20))})
    assert ids(grouped(url, "latest", start="latest", until="end")) == list(range(10, 20))


def test_a_killed_consumer_repeats_what_was_not_committed_and_loses_nothing(
    topic, features, tmp_path
):
    url = topic(2)
    produce(url, {0: numbered(range(1500)), 1: numbered(range(1500, 3000))})
    runs = []
    for run in range(3):
        consumer = Consumer(url, features, "killed", tmp_path / str(run))
        enough = 2 if run < 2 else 20

        def has_enough(consumer=consumer, enough=enough):
            return len(consumer.batches()) >= enough and (enough < 20 or complete(runs, consumer))

        until(has_enough, f"run {run} does not come on")
        consumer.end()
        runs.append(consumer.seen())
    everything = [one for run in runs for one in run]
    assert set(everything) == set(range(3000))
    # Commits take turns of 0.2 s, in which a consumer that waits 10 ms takes 20 batches of 10.
    assert len(everything) - 3000 <= 2 * 30 * 10
    for run in runs:
        for part in (range(1500), range(1500, 3000)):
            mine = [one for one in run if one in part]
            assert mine == list(range(mine[0], mine[0] + len(mine))) if mine else True


def complete(runs, consumer):
    return {one for run in [*runs, consumer.seen()] for one in run} == set(range(3000))


def test_two_consumers_share_partitions_and_lose_nothing(topic, features, tmp_path):
    url = topic(4)
    values = {p: numbered(range(p * 500, p * 500 + 500)) for p in range(4)}
    produce(url, values)
    consumers = [Consumer(url, features, "pair", tmp_path / "0")]
    until(lambda: len(consumers[0].batches()) >= 3, "the first does not begin")
    consumers.append(Consumer(url, features, "pair", tmp_path / "1"))
    # The first may have read all by the time that the second takes part.
    sent = 2000

    def second_takes_part():
        nonlocal sent
        produce(url, {p: numbered([sent + p]) for p in range(4)})
        sent += 4
        return consumers[1].seen()

    until(second_takes_part, "the second has nothing")
    both = sent
    produce(url, {p: numbered(range(sent + p * 500, sent + p * 500 + 500)) for p in range(4)})
    sent += 2000
    until(lambda: all_of(consumers, sent), "messages are lost")
    # Both have some of what was sent when both were there.
    late = [{one for one in c.seen() if one >= both} for c in consumers]
    assert all(late)
    # One goes away, and the other takes over.
    consumers[0].end()
    produce(url, {p: numbered(range(sent + p * 10, sent + p * 10 + 10)) for p in range(4)})
    sent += 40
    until(lambda: all_of(consumers, sent), "the partitions of the one that died are not read")
    consumers[1].end()
    counts = {}
    for consumer in consumers:
        for one in consumer.seen():
            counts[one] = counts.get(one, 0) + 1
    repeated = sum(count - 1 for count in counts.values())
    # At the hand-over the batch in hand, and after the kill what was not committed.
    assert repeated <= 40 * 10


def all_of(consumers, n):
    return {one for consumer in consumers for one in consumer.seen()} == set(range(n))


def test_a_rebalance_in_the_middle_of_a_batch_gives_its_messages_to_one_of_both(topic):
    url = topic(2)
    produce(url, {0: numbered(range(200)), 1: numbered(range(200, 400))})
    first = grouped(url, "middle", batch_size=32, commit_seconds=0.05)
    seen = [next(first)["id"].tolist() for _ in range(3)]
    second = grouped(url, "middle", batch_size=32, max_wait=0.2, commit_seconds=0.05)
    second.state()
    # The first one has a batch in hand all the time, and must let go of a partition all the same.
    until(lambda: first.counts.rebalances, "no partition changes hands")
    took = []
    end = time.monotonic() + DEADLINE
    import threading

    def drain(batches, into):
        with contextlib.suppress(StopIteration):
            while True:
                into.append(next(batches)["id"].tolist())

    threads = [
        threading.Thread(target=drain, args=pair, daemon=True)
        for pair in ((first, seen), (second, took))
    ]
    for thread in threads:
        thread.start()
    while {one for batch in [*seen, *took] for one in batch} != set(range(400)):
        # The last few of the first consumer do not fill a batch: another one is sent behind them.
        assert time.monotonic() < end
        produce(url, {p: numbered(range(p * 200, p * 200 + 32)) for p in range(2)})
        time.sleep(0.2)
    first.close()
    second.close()
    early = [one for batch in seen[:3] for one in batch]
    assert len(set(early)) == len(early)


def test_exactly_once_into_a_checkpoint(topic, tmp_path):
    """The sum of all that a model saw is right, although it is stopped after any step."""
    import tensorflow as tf

    url = topic(3)
    produce(url, {p: numbered(range(p * 100, p * 100 + 100)) for p in range(3)})
    data = stream(url, features=FEATURES, batch_size=7, until="end")
    total, count = tf.Variable(0, dtype=tf.int64), tf.Variable(0)
    path = None
    for steps in (5, 1, 11, 1000):
        iterator = data.iterator()
        checkpoint = tf.train.Checkpoint(total=total, count=count, data=iterator)
        if path is not None:
            checkpoint.restore(path).assert_consumed()
        for step, batch in enumerate(iterator):
            total.assign_add(tf.reduce_sum(batch["id"]))
            count.assign_add(len(batch["id"]))
            if step + 1 == steps:
                path = checkpoint.save(str(tmp_path / "checkpoint"))
                # These steps are forgotten, with the model.
                total.assign_add(sum(next(iterator)["id"].numpy()))
                break
        iterator.close()
    assert int(count) == 300
    assert int(total) == sum(range(300))


def test_a_state_of_a_group_resumes_where_the_state_is_not_the_group(topic):
    url = topic(1)
    produce(url, {0: numbered(range(50))})
    first = grouped(url, "restored", batch_size=10)
    next(first)
    state = first.state()
    for _ in range(3):
        next(first)
    first.close()
    again = grouped(url, "restored", batch_size=10, state=state, until="end")
    assert ids(again) == list(range(10, 50))


def test_memory_is_bounded_when_nobody_takes_and_the_member_stays_in_the_group(topic, broker):
    url = topic(1)
    produce(url, {0: numbered(range(8000), padding=3000)})
    memory = 8 << 20
    batches = grouped(
        url, "slow", batch_size=10, memory=memory,
        options={"max.poll.interval.ms": 6000, "session.timeout.ms": 6000},
    )  # fmt: skip
    seen = ids([next(batches)])
    until(lambda: batches.counts.pauses, "reading is not paused")
    # Longer than a member may be silent.
    end = time.monotonic() + 9
    while time.monotonic() < end:
        assert batches.buffered < memory
        time.sleep(0.1)
    assert batches.counts.rebalances == 0
    assert batches.counts.messages < 8000, "all were read ahead"
    while len(seen) < 8000:
        seen += ids([next(batches)])
    batches.close()
    assert seen == list(range(8000))
