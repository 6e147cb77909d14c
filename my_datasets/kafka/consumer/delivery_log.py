"""Which messages were given out, and which of those were consumed: who may be told what, and when.

Two threads write into it: the one that polls Kafka, and the one that takes batches. Each loss of a
partition begins a new epoch, and what was read in an old one is not given out any more: others may
have read it since.
"""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Offsets = dict[int, int]


@dataclass
class DeliveryLog:
    """The offsets of this consumer's partitions.

    Attributes:
      epoch: Changes when a partition is lost.
    """

    epoch: int = 0
    _given: Offsets = field(default_factory=dict)
    _consumed: Offsets = field(default_factory=dict)
    _committed: Offsets = field(default_factory=dict)
    _since: dict[int, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def assign(self, offsets: Mapping[int, int], *, to_commit: Iterable[int] = ()) -> None:
        """Partitions came to this consumer.

        Args:
          offsets: The next offset of each.
          to_commit: Those whose offset is known to nobody else yet.
        """
        new = set(to_commit)
        with self._lock:
            for partition, offset in offsets.items():
                self._given[partition] = self._consumed[partition] = offset
                self._since[partition] = self.epoch
                self._committed[partition] = -1 if partition in new else offset

    def revoke(self, partitions: Iterable[int]) -> None:
        """Partitions go to another consumer."""
        with self._lock:
            self.epoch += 1
            for partition in partitions:
                for offsets in (self._given, self._consumed, self._committed, self._since):
                    offsets.pop(partition, None)

    def give(self, epoch: int, offsets: Mapping[int, int]) -> bool:
        """Notes that messages are given out; returns whether they may be.

        Args:
          epoch: In which they were read.
          offsets: The next ones after them.
        """
        with self._lock:
            if epoch != self.epoch:
                return False
            self._given.update(offsets)
            return True

    def consume(self, epoch: int, offsets: Mapping[int, int]) -> None:
        """Notes that messages were consumed.

        Args:
          epoch: In which they were given out.
          offsets: The next ones after them. Partitions that were lost since are left out.
        """
        with self._lock:
            for partition, offset in offsets.items():
                if self._since.get(partition, epoch + 1) <= epoch:
                    self._consumed[partition] = offset

    def given(self) -> Offsets:
        """Returns the next offset of each partition after what was given out."""
        with self._lock:
            return dict(self._given)

    def to_commit(self) -> Offsets:
        """Returns what was consumed and is not committed."""
        with self._lock:
            return {p: o for p, o in self._consumed.items() if self._committed[p] != o}

    def committed(self, offsets: Mapping[int, int]) -> None:
        """Notes that offsets are committed, or that this was asked for."""
        with self._lock:
            for partition, offset in offsets.items():
                if partition in self._committed:
                    self._committed[partition] = offset

    def forget_commits(self) -> None:
        """What was asked for may not have been done: all is to be committed again."""
        with self._lock:
            self._committed = dict.fromkeys(self._committed, -1)
