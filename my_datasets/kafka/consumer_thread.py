"""The thread that owns the consumer: it polls Kafka, queues messages for decoding, and commits.

Messages pass in batches, without the Python objects they arrive as. During an outage of the brokers
the thread waits, warns once, and fails in the end.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from my_datasets.core.logs import get_logger
from my_datasets.kafka.connection import Connection, Topic, is_outage, is_permanent, kafka, name_of
from my_datasets.kafka.decoder import DecodeQueue, Decoding, MessageBlock, Quarantine
from my_datasets.kafka.offsets import TopicPosition, TopicRange
from my_datasets.kafka.partitions import Partitions
from my_datasets.kafka.payloads import Pieces

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message

Numbers = npt.NDArray[np.int64]

# Message objects alive at the same time. Python's garbage collector runs over them, and now and
# then over all other objects, whenever there are 700 more than before; this many are freed before
# that.
AT_ONCE = 512

_log = get_logger(__name__)
# Seconds between probes during an outage, and the timeout of a probe.
_EVERY, _ANSWER = 1.0, 1.0
# Seconds before an outage is logged: idle connections are closed now and then.
_WARN_AFTER = 5.0

# Seconds to wait for messages at a time.
_WAIT = 0.1
# Seconds to wait for room before reading is paused: pausing discards fetched messages.
_PATIENCE = 1.0
# Seconds to wait for the thread when closing.
_CLOSING = 30.0
_END = "_PARTITION_EOF"
_GONE = frozenset({"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE", "_LOG_TRUNCATION"})


class MessageBatch:
    """The contents of messages, and their partitions and offsets."""

    def __init__(self) -> None:
        self.pieces = Pieces()
        self._partitions: list[Numbers] = []
        self._offsets: list[Numbers] = []

    def add(self, messages: Sequence["Message"]) -> None:
        """Adds messages, none of which may be an error."""
        message, n = kafka().Message, len(messages)
        self._partitions.append(np.fromiter(map(message.partition, messages), np.int64, n))
        self._offsets.append(np.fromiter(map(message.offset, messages), np.int64, n))
        self.pieces.add(list(map(message.value, messages)))

    def __len__(self) -> int:
        return len(self.pieces)

    @property
    def partitions(self) -> Numbers:
        """The partition of each message; shape [n]."""
        return np.concatenate([np.zeros(0, np.int64), *self._partitions])

    @property
    def offsets(self) -> Numbers:
        """The offset of each message; shape [n]."""
        return np.concatenate([np.zeros(0, np.int64), *self._offsets])


class Outage:
    """Monitors whether brokers answer."""

    def __init__(
        self,
        connection: Connection,
        consumer: "Consumer",
        reported: deque["KafkaError"],
        patience: float,
    ) -> None:
        """Monitors a consumer; `reported` receives its errors, `patience` is in seconds."""
        self._connection, self._consumer = connection, consumer
        self._reported, self._patience = reported, patience
        self._begin = self._next = 0.0
        self._reason: KafkaError | None = None
        self._is_logged = False

    @property
    def is_on(self) -> bool:
        """Whether there is an outage."""
        return self._reason is not None

    @staticmethod
    def is_temporary(error: "KafkaError") -> bool:
        """Returns whether an error may be temporary, due to an outage."""
        return is_outage(error) or is_permanent(error)

    def end(self) -> None:
        """Ends the outage, because a message arrived."""
        if self._is_logged:
            away = time.monotonic() - self._begin
            _log.warning("%s answers again after %.0f s", self._connection.address, away)
        self._reason, self._is_logged = None, False
        self._reported.clear()

    def check(self) -> None:
        """Handles reported errors; during an outage, probes whether the brokers answer again.

        Raises:
          StreamError: The outage has lasted too long, or an error is permanent.
        """
        while self._reported:
            error = self._reported.popleft()
            if error.fatal():
                raise self._connection.failed(error)
            if self.is_temporary(error) and self._reason is None:
                self._begin, self._next, self._reason = time.monotonic(), 0.0, error
            elif is_permanent(error):
                self._reason = error
        now = time.monotonic()
        if self._reason is None or now < self._next:
            return
        self._next = now + _EVERY
        if self._answers():
            self.end()
        elif now - self._begin > self._patience:
            raise self._connection.failed(self._reason, f"For {now - self._begin:.0f} seconds")
        elif not self._is_logged and now - self._begin > _WARN_AFTER:
            self._is_logged = True
            _log.warning(
                "%s does not answer; waiting at most %.0f s: %s",
                self._connection.address, self._patience, self._connection.redact(self._reason),
            )  # fmt: skip

    def _answers(self) -> bool:
        name = self._connection.address.topic
        try:
            topic = self._consumer.list_topics(name, timeout=_ANSWER).topics.get(name)
        except kafka().KafkaException:
            return False
        return topic is not None and topic.error is None


@dataclass
class Counts:
    """The numbers of messages read, of tombstones (without a value), rebalances and pauses."""

    messages: int = 0
    tombstones: int = 0
    rebalances: int = 0
    pauses: int = 0


class ConsumerThread:
    """Reads messages ahead."""

    def __init__(
        self,
        connection: Connection,
        reading: TopicRange,
        decoding: Decoding,
        quarantine: Quarantine,
        position: TopicPosition | None,
    ) -> None:
        """Connects to the cluster, and starts reading.

        Raises:
          StreamError: The topic cannot be read.
          PlanError: The position belongs to another stream.
        """
        self.counts = Counts()
        self._connection, self._reading = connection, reading
        self._reported: deque[KafkaError] = deque(maxlen=100)
        settings = {**reading.settings, "on_commit": self._on_commit}
        self._consumer = connection.consumer(settings, self._reported.append)
        self._stops = self._is_over = self._is_paused = False
        self._epoch = 0
        self._at_once = reading.first_rows
        self._commit_at = 0.0
        try:
            self.topic: Topic = connection.describe(self._consumer, self._reported)
            if position is not None:
                position.check(self.topic.cluster, self.topic.name, reading.shard)
            first = {} if position is None else position.offsets
            self._partitions = Partitions(connection, self._consumer, self.topic, reading, first)
            self.deliveries = self._partitions.deliveries
            self._outage = Outage(connection, self._consumer, self._reported, reading.patience)
            self._partitions.begin()
        except BaseException:
            self._consumer.close()
            raise
        self._last = time.monotonic()
        self.queue = DecodeQueue(
            self.topic.name, decoding, quarantine,
            memory=reading.memory // 2, workers=reading.workers,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._run, name="my_datasets-kafka", daemon=True)
        self._thread.start()

    def position(self) -> TopicPosition:
        """Returns the position after the delivered messages."""
        offsets = self.deliveries.delivered()
        return TopicPosition(self.topic.cluster, self.topic.name, offsets, self._reading.shard)

    def close(self) -> None:
        """Commits what was consumed, leaves the group, and stops the threads."""
        self._stops = True
        self.queue.close()
        if self._thread is not threading.current_thread():
            self._thread.join(_CLOSING)

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            while not self._stops:
                self._turn()
        except BaseException as error:
            failure = error
        if isinstance(failure, kafka().KafkaException):
            failure = self._connection.failed(failure)
        self.queue.end(failure)
        with contextlib.suppress(Exception):
            self._partitions.commit(wait=True)
        self._consumer.close()

    def _turn(self) -> None:
        """Runs one step of the loop: commits if it is time to, then polls."""
        if time.monotonic() >= self._commit_at:
            self._commit_at = time.monotonic() + self._reading.commit_seconds
            self._partitions.commit(wait=False)
        if self._is_over or not self.queue.wait_for_room(0 if self._is_paused else _PATIENCE):
            self._pause()
            self._poll(1)
            return
        self._resume()
        self._poll(self._at_once)
        self._outage.check()
        idle = self._reading.idle_timeout
        is_idle = idle is not None and time.monotonic() - self._last > idle
        if self._partitions.is_finished or (is_idle and not self._outage.is_on):
            self._is_over = True
            self.queue.end()

    def _poll(self, most: int) -> None:
        """Reads messages, and queues them for decoding."""
        batch = MessageBatch()
        end = time.monotonic() + _WAIT
        while len(batch) < most:
            asked = min(most - len(batch), AT_ONCE)
            count = self._take(batch, asked, max(0.0, end - time.monotonic()))
            if self._epoch != self.deliveries.epoch:
                self._start_epoch()
                return
            if count < asked:
                break
        if len(batch) and not self._is_over:
            self._enqueue(batch)

    def _take(self, batch: MessageBatch, most: int, timeout: float) -> int:
        """Adds messages to a batch; returns how many arrived, including errors.

        No message objects are left when it returns: see `AT_ONCE`.
        """
        messages = self._consumer.consume(most, timeout)
        if self._partitions.failure is not None:
            raise self._partitions.failure
        if self._epoch == self.deliveries.epoch:
            batch.add(self._without_errors(messages))
        return len(messages)

    def _start_epoch(self) -> None:
        """Drops what was read: another consumer may have continued reading those partitions."""
        self._epoch = self.deliveries.epoch
        self.counts.rebalances += 1
        self.queue.drop()
        self._partitions.read_again()

    def _without_errors(self, messages: list["Message"]) -> list["Message"]:
        """Returns the messages without errors; handles the errors."""
        if not any(map(kafka().Message.error, messages)):
            return messages
        good = []
        for one in messages:
            error = one.error()
            if error is None:
                good.append(one)
            else:
                self._handle_error(one, error)
        return good

    def _enqueue(self, batch: MessageBatch) -> None:
        partitions, offsets, pieces = batch.partitions, batch.offsets, batch.pieces
        each = pieces.size / len(pieces)
        in_range = self._partitions.before_the_end(partitions, offsets)
        if in_range is not None and len(in_range) < len(pieces):
            partitions, offsets = partitions[in_range], offsets[in_range]
            pieces = pieces.only(in_range)
        self._last = time.monotonic()
        self._outage.end()
        if not len(pieces):
            return
        self.counts.messages += len(pieces)
        self.counts.tombstones += pieces.deletions
        self._at_once = self._reading.rows_of(each, self._at_once)
        block = MessageBlock(
            self._epoch, pieces, partitions, offsets, self.counts.messages, pieces.size
        )
        self.queue.put(block)

    def _handle_error(self, message: Any, error: "KafkaError") -> None:
        """Handles an error in place of a message; StreamError if waiting does not fix it."""
        name = name_of(error)
        if name == _END:
            self._partitions.at_the_end(message.partition(), message.offset())
        elif name in _GONE:
            raise self._partitions.lost_at(message.partition(), message.offset())
        elif error.fatal() or not (error.retriable() or self._outage.is_temporary(error)):
            raise self._connection.failed(error)
        else:
            self._reported.append(error)

    def _pause(self) -> None:
        """Stops fetching, but continues to answer the group."""
        self._consumer.pause(self._consumer.assignment())  # may include new partitions
        self.counts.pauses += not (self._is_paused or self._is_over)
        self._is_paused = True

    def _resume(self) -> None:
        if self._is_paused:
            self._consumer.resume(self._consumer.assignment())
            self._is_paused = False
            self._last = time.monotonic()

    def _on_commit(self, error: object, _places: object) -> None:
        if error is not None:
            _log.info("a commit failed and is repeated: %s", self._connection.redact(error))
            self.deliveries.forget_commits()
