"""Options for reading a topic."""

from dataclasses import dataclass
from typing import Literal

from my_datasets.errors import InvalidOptionError
from my_datasets.kafka.consumer.offsets import When

# The approximate number of messages, and of bytes, to decode at once: with fewer, threads hand over
# more often; more is not faster, because they do not fit into the processor's cache. The last
# number is the minimum for long messages.
_AT_ONCE, _BYTES_AT_ONCE, _LEAST_AT_ONCE = 8192, 2 << 20, 16
_FIRST = 64
# The largest growth of a read over the previous one, because the next messages may be larger.
_GROWTH = 4
# The minimum memory. Half of it is for fetched messages not read yet, half for messages read.
_LEAST_MEMORY = 8 << 20
# A single decode uses this fraction (1/n) of the second half.
_PARTS = 16
# A broker's response may use this fraction (1/n) of the first half; and librdkafka's default
# maximum.
_ANSWERS, _LARGEST_ANSWER = 4, 50 << 20


@dataclass(frozen=True)
class TopicRange:
    """What to read from a topic, and how.

    Attributes:
      batch_size: Examples in a batch.
      group: The consumer group that assigns partitions; None to read those of the shard.
      start: Where to begin partitions without a known position.
      until: Whether to stop at the end that a partition has when reading it begins.
      shard: (index, count): the partitions to read without a group.
      on_lost: What to do if messages to be read are gone.
      idle_timeout: Seconds without a message after which the stream ends; None for never.
      patience: Seconds without a broker after which to fail.
      commit_seconds: Seconds between commits to the group.
      memory: The maximum number of bytes to read ahead.
      workers: Threads that decode.
    """

    batch_size: int
    group: str | None
    start: When
    until: Literal["end"] | None
    shard: tuple[int, int]
    on_lost: Literal["fail", "skip"]
    idle_timeout: float | None
    patience: float
    commit_seconds: float
    memory: int
    workers: int

    def __post_init__(self) -> None:
        """Raises `InvalidOptionError` for an invalid value."""
        _require(self.batch_size >= 1, "batch_size", self.batch_size, "1 or more")
        _require(self.group is None or bool(self.group), "group", self.group, "a name, or None")
        _require(self.until in (None, "end"), "until", self.until, "None or 'end'")
        _require(self.on_lost in ("fail", "skip"), "on_lost", self.on_lost, "'fail' or 'skip'")
        idle = self.idle_timeout
        _require(idle is None or idle > 0, "idle_timeout", idle, "seconds above 0, or None")
        _require(self.patience > 0, "patience", self.patience, "seconds above 0")
        _require(self.commit_seconds > 0, "commit_seconds", self.commit_seconds, "above 0")
        _require(self.workers >= 1, "workers", self.workers, "1 or more")
        _require(self.memory >= _LEAST_MEMORY, "memory", self.memory, f"{_LEAST_MEMORY:,} or more")
        which, of = self.shard
        _require(0 <= which < of, "shard", self.shard, "(which, of how many), from 0")
        _require(
            self.group is None or of == 1, "shard", self.shard, "none: a group shares by itself"
        )

    @property
    def is_endless(self) -> bool:
        """Whether the stream never ends."""
        return self.until is None and self.idle_timeout is None

    @property
    def settings(self) -> dict[str, object]:
        """The librdkafka options for these values."""
        fetched = self.memory // 2
        found: dict[str, object] = {
            "partition.assignment.strategy": "cooperative-sticky",
            "queued.max.messages.kbytes": fetched >> 10,
            "fetch.max.bytes": min(_LARGEST_ANSWER, fetched // _ANSWERS),
            "auto.offset.reset": "error" if self.on_lost == "fail" else "earliest",
            "enable.partition.eof": self.until is not None,
        }
        return found if self.group is None else {**found, "group.id": self.group}

    @property
    def first_rows(self) -> int:
        """The number of messages to read at once before their size is known."""
        return min(_FIRST, self._most_rows)

    def rows_of(self, size: float, before: int) -> int:
        """Returns the number of messages to read at once, given their mean size in bytes."""
        each = max(1.0, size)
        quick = max(_LEAST_AT_ONCE, int(_BYTES_AT_ONCE / each))
        fitting = int(self.memory / 2 / _PARTS / each)
        rows = max(1, min(self._most_rows, quick, fitting, before * _GROWTH))
        # Reads of whole batches need no concatenation.
        return rows - rows % self.batch_size if rows > self.batch_size else rows

    @property
    def _most_rows(self) -> int:
        return self.batch_size * max(1, _AT_ONCE // self.batch_size)


def _require(is_right: bool, name: str, value: object, expected: str) -> None:
    if not is_right:
        raise InvalidOptionError(
            f"The option {name} is {value!r}.",
            f"Expected: {expected}",
            fix=f"pass another {name}, or leave it out for the default",
        )
