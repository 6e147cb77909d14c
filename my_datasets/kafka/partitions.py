"""The partitions of a consumer: their ends, which messages were delivered, and what is committed.

Two threads write to it: the one that polls Kafka, and the one that takes batches. Each loss of a
partition begins a new epoch. Messages read in an earlier epoch are not delivered any more, because
another consumer may have read them since. Kafka invokes its callbacks in the polling thread, from
within `poll`.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from my_datasets.core.logs import get_logger
from my_datasets.kafka import offsets
from my_datasets.kafka.connection import ANSWER_SECONDS, Connection, Topic, kafka
from my_datasets.kafka.offsets import TopicRange

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

Offsets = dict[int, int]

_log = get_logger(__name__)
Numbers = npt.NDArray[np.int64]


@dataclass
class DeliveryLog:
    """A consumer's offsets; thread-safe. Losing partitions begins an epoch."""

    epoch: int = 0
    _delivered: Offsets = field(default_factory=dict)
    _consumed: Offsets = field(default_factory=dict)
    _committed: Offsets = field(default_factory=dict)
    _since: dict[int, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def assign(self, offsets: Mapping[int, int], *, to_commit: Iterable[int] = ()) -> None:
        """Adds partitions with their next offsets; those in `to_commit` are uncommitted."""
        new = set(to_commit)
        with self._lock:
            for partition, offset in offsets.items():
                self._delivered[partition] = self._consumed[partition] = offset
                self._since[partition] = self.epoch
                self._committed[partition] = -1 if partition in new else offset

    def revoke(self, partitions: Iterable[int]) -> None:
        """Removes partitions that move to another consumer."""
        with self._lock:
            self.epoch += 1
            for partition in partitions:
                for offsets in (self._delivered, self._consumed, self._committed, self._since):
                    offsets.pop(partition, None)

    def deliver(self, epoch: int, offsets: Mapping[int, int]) -> bool:
        """Records the next offsets after delivered messages; returns False in a later epoch."""
        with self._lock:
            if epoch != self.epoch:
                return False
            self._delivered.update(offsets)
            return True

    def consume(self, epoch: int, offsets: Mapping[int, int]) -> None:
        """Records the next offsets after consumed messages; skips partitions lost since."""
        with self._lock:
            for partition, offset in offsets.items():
                if self._since.get(partition, epoch + 1) <= epoch:
                    self._consumed[partition] = offset

    def delivered(self) -> Offsets:
        """Returns the next offset of each partition after the delivered messages."""
        with self._lock:
            return dict(self._delivered)

    def to_commit(self) -> Offsets:
        """Returns the offsets that were consumed but not committed."""
        with self._lock:
            return {p: o for p, o in self._consumed.items() if self._committed[p] != o}

    def committed(self, offsets: Mapping[int, int]) -> None:
        """Records that offsets were committed, or that a commit was requested."""
        with self._lock:
            for partition, offset in offsets.items():
                if partition in self._committed:
                    self._committed[partition] = offset

    def forget_commits(self) -> None:
        """Marks all offsets as uncommitted, because a requested commit may have failed."""
        with self._lock:
            self._committed = dict.fromkeys(self._committed, -1)


class Partitions:
    """The partitions assigned to a consumer. `failure` is the error of a callback, if any."""

    def __init__(
        self,
        connection: Connection,
        consumer: "Consumer",
        topic: Topic,
        reading: TopicRange,
        first: Mapping[int, int],
    ) -> None:
        """Initializes without partitions; `first` says where to begin those assigned first."""
        self.deliveries = DeliveryLog()
        self.failure: Exception | None = None
        self._connection, self._consumer = connection, consumer
        self._topic, self._reading = topic, reading
        self._first = dict(first)
        self._is_continued = bool(first)
        self._ends: dict[int, int] = {}
        self._unfinished: set[int] = set()
        self._was_assigned = False

    @property
    def is_finished(self) -> bool:
        """Whether all partitions were read to their ends, if the reading has an end."""
        return self._reading.until is not None and self._was_assigned and not self._unfinished

    def begin(self) -> None:
        """Assigns the shard's partitions, or subscribes as a member of the group."""
        if self._reading.group is not None:
            self._consumer.subscribe(
                [self._topic.name],
                on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost,
            )  # fmt: skip
            return
        which, of = self._reading.shard
        places = self._places(dict.fromkeys(self._topic.partitions[which::of], 0))
        self._consumer.assign(self._begun(places, {}))

    def read_again(self) -> None:
        """Seeks back to the end of what was delivered."""
        delivered = self.deliveries.delivered()
        self._unfinished |= {
            p for p, at in delivered.items() if p in self._ends and at < self._ends[p]
        }
        for place in self._places(delivered):
            self._consumer.seek(place)

    def before_the_end(self, partitions: Numbers, places: Numbers) -> Numbers | None:
        """Records which messages arrived; returns the rows before the ends, or None for all."""
        if not self._ends:
            return None
        ends = np.array([self._ends.get(one, 0) for one in partitions.tolist()], np.int64)
        self._unfinished -= set(partitions[places >= ends - 1].tolist())
        return np.flatnonzero(places < ends)

    def at_the_end(self, partition: int, offset: int) -> None:
        """Records that a partition has no messages at an offset or after it."""
        if offset >= self._ends.get(partition, 0):
            self._unfinished.discard(partition)

    def lost_at(self, partition: int, offset: int) -> Exception:
        """Returns the error for a partition whose next message is gone."""
        low, high = offsets.watermarks(self._connection, self._consumer, partition)
        at = max(offset, self.deliveries.delivered().get(partition, 0))
        return offsets.lost(self._topic.name, partition, at, low, high)

    def commit(self, *, wait: bool, only: set[int] | None = None) -> None:
        """Commits what was consumed of some partitions; None for all. Failures are only logged."""
        if self._reading.group is None:
            return
        if wait:
            self.deliveries.forget_commits()
        found = {p: o for p, o in self.deliveries.to_commit().items() if only is None or p in only}
        if not found:
            return
        try:
            self._consumer.commit(  # type: ignore[call-overload]
                offsets=self._places(found), asynchronous=not wait
            )
            self.deliveries.committed(found)
        except kafka().KafkaException as error:
            said = self._connection.redact(error)
            _log.warning("offsets were not committed, and may be read again: %s", said)

    def _assigned(self, consumer: "Consumer", places: Sequence["TopicPartition"]) -> None:
        try:
            known = {
                one.partition: one.offset
                for one in consumer.committed(list(places), timeout=ANSWER_SECONDS)
                if one.offset >= 0
            }
            consumer.incremental_assign(self._begun(places, known))
        except kafka().KafkaException as error:
            self.failure = self._connection.failed(error)
        except Exception as error:
            self.failure = error

    def _revoked(self, consumer: "Consumer", places: Sequence["TopicPartition"]) -> None:
        """Commits partitions before they move to other members, which continue from there."""
        self.commit(wait=True, only={one.partition for one in places})
        self._lost(consumer, places)

    def _lost(self, _consumer: "Consumer", places: Sequence["TopicPartition"]) -> None:
        """Handles partitions that have moved to other members without waiting for this one."""
        lost = {one.partition for one in places}
        self.deliveries.revoke(lost)
        self._unfinished -= lost

    def _begun(
        self, places: Sequence["TopicPartition"], committed: Mapping[int, int]
    ) -> list["TopicPartition"]:
        """Returns partitions with the offsets where they begin.

        Raises:
          LostMessagesError: Messages to be read are gone.
        """
        assigned = [one.partition for one in places]
        known = {**committed, **{p: self._first.pop(p) for p in assigned if p in self._first}}
        new = [one for one in assigned if one not in known]
        # Partitions created after the start are read from their first message.
        start = "earliest" if self._is_continued else self._reading.start
        begins = {p: known[p] for p in assigned if p in known}
        if new:
            begins |= offsets.resolved(self._connection, self._consumer, start, new)
        found = {p: self._available(p, at) for p, at in begins.items()}
        # The next owner of a new partition must know where it began.
        self.deliveries.assign(found, to_commit=[p for p in assigned if p not in committed])
        self._is_continued = True
        self._was_assigned = self._was_assigned or bool(found)
        for one, at in found.items() if self._reading.until is not None else ():
            self._ends[one] = offsets.watermarks(self._connection, self._consumer, one)[1]
            if at < self._ends[one]:
                self._unfinished.add(one)
        return self._places(found)

    def _available(self, partition: int, offset: int) -> int:
        """Returns the offset; or the nearest available one if lost messages are to be skipped."""
        low, high = offsets.watermarks(self._connection, self._consumer, partition)
        if low <= offset <= high:
            return offset
        error = offsets.lost(self._topic.name, partition, offset, low, high)
        if self._reading.on_lost == "fail":
            raise error
        _log.warning("%s", error)
        return min(max(low, offset), high)

    def _places(self, found: Mapping[int, int]) -> list["TopicPartition"]:
        place = kafka().TopicPartition
        return [place(self._topic.name, partition, at) for partition, at in found.items()]
