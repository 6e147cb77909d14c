"""Tracks which messages were delivered, and which of those were consumed.

Two threads write to it: the one that polls Kafka, and the one that takes batches. Each loss of a
partition begins a new epoch. Messages read in an earlier epoch are not delivered any more, because
another consumer may have read them since.
"""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Offsets = dict[int, int]


@dataclass
class DeliveryLog:
    """The offsets of this consumer's partitions; thread-safe.

    Attributes:
      epoch: Incremented when partitions are lost.
    """

    epoch: int = 0
    _given: Offsets = field(default_factory=dict)
    _consumed: Offsets = field(default_factory=dict)
    _committed: Offsets = field(default_factory=dict)
    _since: dict[int, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def assign(self, offsets: Mapping[int, int], *, to_commit: Iterable[int] = ()) -> None:
        """Adds partitions assigned to this consumer.

        Args:
          offsets: The next offset of each.
          to_commit: Partitions whose offset is not committed yet.
        """
        new = set(to_commit)
        with self._lock:
            for partition, offset in offsets.items():
                self._given[partition] = self._consumed[partition] = offset
                self._since[partition] = self.epoch
                self._committed[partition] = -1 if partition in new else offset

    def revoke(self, partitions: Iterable[int]) -> None:
        """Removes partitions that move to another consumer."""
        with self._lock:
            self.epoch += 1
            for partition in partitions:
                for offsets in (self._given, self._consumed, self._committed, self._since):
                    offsets.pop(partition, None)

    def give(self, epoch: int, offsets: Mapping[int, int]) -> bool:
        """Records that messages are delivered; returns False if that is no longer allowed.

        Args:
          epoch: The epoch in which they were read.
          offsets: The next offset after them, by partition.
        """
        with self._lock:
            if epoch != self.epoch:
                return False
            self._given.update(offsets)
            return True

    def consume(self, epoch: int, offsets: Mapping[int, int]) -> None:
        """Records that messages were consumed.

        Args:
          epoch: The epoch in which they were delivered.
          offsets: The next offset after them, by partition. Partitions lost since are skipped.
        """
        with self._lock:
            for partition, offset in offsets.items():
                if self._since.get(partition, epoch + 1) <= epoch:
                    self._consumed[partition] = offset

    def given(self) -> Offsets:
        """Returns the next offset of each partition after the delivered messages."""
        with self._lock:
            return dict(self._given)

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
