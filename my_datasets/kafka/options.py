"""What is to be read of a topic, and how."""

from dataclasses import dataclass
from typing import Any, Literal

from my_datasets.errors import InvalidOptionError, explain
from my_datasets.kafka.consumer.offsets import When

# Messages that are decoded at once, about, and their bytes: with fewer, threads hand over more
# often; more is not quicker, as the processor's cache does not hold it. But of long ones a few.
_AT_ONCE, _BYTES_AT_ONCE, _LEAST_AT_ONCE = 8192, 2 << 20, 16
_FIRST = 64
# How much more than before may be read at once: the next messages may be larger.
_GROWTH = 4
# Half of the memory is for what was fetched and not read, half for what was read.
_LEAST_MEMORY = 8 << 20
# Of the second half, the part of what is decoded at once.
_PARTS = 16
# Of the first half, the part that one answer of a broker may have; and librdkafka's own most.
_ANSWERS, _LARGEST_ANSWER = 4, 50 << 20


@dataclass(frozen=True)
class TopicRange:
    """What is to be read of a topic.

    Attributes:
      batch_size: Examples in a batch.
      group: Whose partitions are read; None for those of the shard.
      start: Where partitions are begun of which nobody knows.
      until: Whether to stop at the end that a partition has when it is begun.
      shard: (which, of how many): the partitions that are read without a group.
      on_lost: What to do if messages that were to be read are not there any more.
      idle_timeout: Seconds without a message after which there are no more; None for never.
      patience: Seconds without a broker after which that is an error.
      commit_seconds: How often a group is told what was consumed.
      memory: Bytes that may be held ahead.
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
        """Checks the values.

        Raises:
          InvalidOptionError: One of them cannot be.
        """
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
        """Whether it goes on for ever."""
        return self.until is None and self.idle_timeout is None

    @property
    def settings(self) -> dict[str, Any]:
        """The options of librdkafka that follow."""
        fetched = self.memory // 2
        found: dict[str, Any] = {
            "partition.assignment.strategy": "cooperative-sticky",
            "queued.max.messages.kbytes": fetched >> 10,
            "fetch.max.bytes": min(_LARGEST_ANSWER, fetched // _ANSWERS),
            "auto.offset.reset": "error" if self.on_lost == "fail" else "earliest",
            "enable.partition.eof": self.until is not None,
        }
        return found if self.group is None else {**found, "group.id": self.group}

    @property
    def first_rows(self) -> int:
        """How many messages are read at once as long as their size is not known."""
        return min(_FIRST, self._most_rows)

    def rows_of(self, size: float, before: int) -> int:
        """Returns how many messages are to be read at once.

        Args:
          size: Bytes of one, about.
          before: How many it were before.
        """
        each = max(1.0, size)
        quick = max(_LEAST_AT_ONCE, int(_BYTES_AT_ONCE / each))
        fitting = int(self.memory / 2 / _PARTS / each)
        rows = max(1, min(self._most_rows, quick, fitting, before * _GROWTH))
        # Of whole batches none has to be put together.
        return rows - rows % self.batch_size if rows > self.batch_size else rows

    @property
    def _most_rows(self) -> int:
        return self.batch_size * max(1, _AT_ONCE // self.batch_size)


def _require(is_right: bool, name: str, value: object, expected: str) -> None:
    if not is_right:
        raise InvalidOptionError(
            explain(
                f"The option {name} is {value!r}.",
                f"Expected: {expected}",
                fix=f"pass another {name}, or leave it out for the default",
            )
        )
