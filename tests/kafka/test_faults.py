"""Brokers that die and come back, and messages that are gone."""

import logging
import threading

import pytest
from confluent_kafka import TopicPartition

import my_datasets
from my_datasets.errors import LostMessagesError, StreamUnavailableError
from my_datasets.kafka import consumer_thread
from my_datasets.kafka.stream import stream
from tests.kafka.examples import FEATURES, ids, numbered
from tests.kafka.kafka import DEADLINE, produce
from tests.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.kafka]


def read(url, **options):
    return stream(url, **{"features": FEATURES, "as_numpy": True, **options})


class Taking:
    """Takes batches in a thread, so that a test sees when there are none."""

    def __init__(self, batches):
        self.seen, self.error = [], None
        self._batches = batches
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            for batch in self._batches:
                self.seen += batch["id"].tolist()
        except Exception as error:
            self.error = error

    def until(self, numbers):
        until(lambda: self.error or set(self.seen) == set(numbers), "not all messages came")
        assert self.error is None, self.error


@pytest.mark.parametrize("group", [None, "killed-broker"])
def test_a_broker_that_is_killed_and_comes_back_costs_nothing(own_broker, group, caplog):
    caplog.set_level(logging.WARNING)
    url = own_broker.topic("t", 2)
    # What is not flushed to the disk dies with a machine, not with the process.
    produce(url, {p: numbered(range(p * 500, p * 500 + 500)) for p in range(2)})
    batches = read(url, group=group, batch_size=10, commit_seconds=0.05, max_wait=0.1)
    taking = Taking(batches)
    taking.until(range(1000))
    own_broker.kill()
    until(lambda: "does not answer" in caplog.text, "the outage is not reported")
    own_broker.start()
    produce(url, {p: numbered(range(1000 + p * 50, 1050 + p * 50)) for p in range(2)})
    taking.until(range(1100))
    batches.close()
    if group is None:
        assert len(taking.seen) == 1100  # exactly once
    assert "does not answer" in caplog.text
    assert "answers again after" in caplog.text
    assert caplog.text.count("does not answer") == 1
    # ... and the group knows where it was.
    if group is not None:
        assert ids(read(url, group=group, until="end")) == []


def test_a_broker_that_stays_away_is_an_error_in_the_end(own_broker, monkeypatch):
    monkeypatch.setattr(consumer_thread, "_EVERY", 0.2)
    url = own_broker.topic("t", 1)
    produce(url, {0: numbered(range(100))})
    batches = read(url, batch_size=10, patience=3)
    taking = Taking(batches)
    taking.until(range(100))
    own_broker.kill()
    until(lambda: taking.error)
    assert isinstance(taking.error, StreamUnavailableError)
    assert f"{url} cannot be read" in str(taking.error)
    assert "For 3 seconds" in str(taking.error)
    assert "check that the brokers run" in str(taking.error)


def delete_before(broker, url, partition, offset):
    admin = broker.admin()
    place = TopicPartition(url.rpartition("/")[2], partition, offset)
    for one in admin.delete_records([place]).values():
        one.result(DEADLINE)


def test_a_state_whose_messages_are_gone_is_an_error_or_skipped_if_wanted(topic, broker, caplog):
    url = topic(1)
    produce(url, {0: numbered(range(100))})
    first = read(url, batch_size=10)
    next(first)
    state = first.state()
    first.close()
    delete_before(broker, url, 0, 30)
    with pytest.raises(LostMessagesError, match="Partition 0, offset 10; available: 30"):
        next(read(url, state=state))
    caplog.set_level(logging.WARNING)
    assert ids(read(url, state=state, on_lost="skip", until="end")) == list(range(30, 100))
    assert "20 messages from there on were removed" in caplog.text
    # A start is where there is something.
    assert ids(read(url, until="end")) == list(range(30, 100))


def test_messages_that_go_while_they_are_waited_for_are_an_error(topic, broker):
    url = topic(1)
    produce(url, {0: numbered(range(8000), padding=3000)})
    batches = read(url, batch_size=10, memory=8 << 20)
    seen = ids([next(batches)])
    until(lambda: batches.counts.pauses)
    delete_before(broker, url, 0, 8000)
    taking = Taking(batches)
    until(lambda: taking.error)
    assert isinstance(taking.error, LostMessagesError)
    assert "that were to be read no longer exist" in str(taking.error)
    seen += taking.seen
    # All that was read before is given out, in order.
    assert seen == list(range(len(seen)))


def test_a_position_beyond_the_end_is_one_in_a_topic_that_was_made_anew(topic):
    url = topic(1)
    produce(url, {0: numbered(range(5))})
    with pytest.raises(LostMessagesError, match="was recreated"):
        next(read(url, start={0: 50}))


def test_a_topic_that_is_not_there_is_an_error_at_once(broker):
    with pytest.raises(my_datasets.errors.StreamError, match="correct the topic's name"):
        next(read(f"kafka://{broker.address}/no-such-topic"))
