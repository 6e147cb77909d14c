"""Resolves offsets given by number, as the first or last one, or by time; and the topic's position.

`TopicPosition` is the next offset of each partition.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from my_datasets.errors import InvalidOptionError, LostMessagesError, PlanError
from my_datasets.kafka.connection import ANSWER_SECONDS, Connection, kafka

if TYPE_CHECKING:
    from confluent_kafka import Consumer

# Offsets by partition; the first one available; the one after the last; the first since a time.
When = Mapping[int, int] | Literal["earliest", "latest"] | datetime


def watermarks(connection: Connection, consumer: "Consumer", partition: int) -> tuple[int, int]:
    """Returns the first available offset of a partition, and the one after its last."""
    module = kafka()
    place = module.TopicPartition(connection.address.topic, partition)
    try:
        low, high = consumer.get_watermark_offsets(place, timeout=ANSWER_SECONDS, cached=False)
    except module.KafkaException as error:
        raise connection.failed(error, f"Partition {partition}") from None
    return int(low), int(high)


def resolved(
    connection: Connection, consumer: "Consumer", when: When, partitions: Iterable[int]
) -> dict[int, int]:
    """Returns the offset for each partition.

    Raises:
      InvalidOptionError: `when` is invalid, or lacks a partition.
      StreamError: The brokers do not answer.
    """
    partitions = list(partitions)
    if isinstance(when, Mapping):
        missing = sorted(set(partitions) - set(when))
        if missing or any(offset < 0 for offset in when.values()):
            raise InvalidOptionError(
                f"The offsets do not cover all partitions: {dict(when)}.",
                f"Missing partitions: {missing}" if missing else "",
                fix="give an offset of 0 or more for each partition",
            )
        return {one: when[one] for one in partitions}
    if isinstance(when, datetime):
        return _since(connection, consumer, when, partitions)
    if when not in ("earliest", "latest"):
        raise InvalidOptionError(
            f"{when!r} is not a place in a topic.",
            "Expected 'earliest', 'latest', a datetime, or {partition: offset, ...}",
            fix="give one of those",
        )
    which = 0 if when == "earliest" else 1
    return {one: watermarks(connection, consumer, one)[which] for one in partitions}


def _since(
    connection: Connection, consumer: "Consumer", when: datetime, partitions: list[int]
) -> dict[int, int]:
    if when.tzinfo is None:
        raise InvalidOptionError(
            f"{when} has no time zone.", fix="give one: 2026-01-31T12:00:00+00:00"
        )
    module = kafka()
    name = connection.address.topic
    asked = [module.TopicPartition(name, one, int(when.timestamp() * 1000)) for one in partitions]
    try:
        found = consumer.offsets_for_times(asked, timeout=ANSWER_SECONDS)
    except module.KafkaException as error:
        raise connection.failed(error) from None
    for one in found:
        if one.error is not None:
            raise connection.failed(one.error, f"Partition {one.partition}")
    # A negative offset means that there is no message since then.
    return {
        one.partition: one.offset if one.offset >= 0
        else watermarks(connection, consumer, one.partition)[1]
        for one in found
    }  # fmt: skip


def lost(topic: str, partition: int, offset: int, low: int, high: int) -> LostMessagesError:
    """Returns the error for an offset whose message does not exist, or no longer exists."""
    if offset > high:
        why = "It is beyond the end: the topic was recreated, or truncated"
    else:
        why = f"{low - offset:,} messages from there on were removed by retention or by hand"
    return LostMessagesError(
        f"Messages of {topic} that were to be read no longer exist.",
        f"Partition {partition}, offset {offset}; available: {low} to before {high}",
        why,
        fix="use another start (and group), or continue with the remaining messages by "
        "on_lost='skip'; and raise the topic's retention",
    )


@dataclass(frozen=True)
class TopicPosition:
    """What is needed to resume reading a topic exactly where an iteration stopped.

    Attributes:
      cluster: Kafka's cluster ID.
      topic: The topic's name.
      offsets: The offset of the next message, by partition.
      shard: Which shard of the partitions is read, and the number of shards: see `stream`.
    """

    cluster: str
    topic: str
    offsets: Mapping[int, int]
    shard: tuple[int, int] = (0, 1)

    def check(self, cluster: str, topic: str, shard: tuple[int, int]) -> None:
        """Raises `PlanError` if this is a position in another topic, cluster or shard."""
        pairs = {
            "cluster": (self.cluster, cluster),
            "topic": (self.topic, topic),
            "shard": (tuple(self.shard), shard),
        }
        differing = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
        if differing:
            raise PlanError(
                "The saved position belongs to another stream.",
                f"Expected: {', '.join(f'{name} {b!r}' for name, (_, b) in differing.items())}",
                f"Found: {', '.join(f'{name} {a!r}' for name, (a, _) in differing.items())}",
                fix="read the topic that it was saved with, or start over",
            )

    def to_json(self) -> str:
        """Serializes the position as a short text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "TopicPosition":
        """Parses the position that `to_json` wrote.

        Raises:
          PlanError: The text is not a position.
        """
        try:
            found = json.loads(text)
            offsets = {int(p): int(offset) for p, offset in found["offsets"].items()}
            which, of = found["shard"]
            return cls(str(found["cluster"]), str(found["topic"]), offsets, (int(which), int(of)))
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise PlanError(
                f"The text is not a position in a topic: {error}", fix="start over"
            ) from error


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
      max_wait: Seconds after which an incomplete batch is returned; None to wait until it is full.
      group: The consumer group that assigns partitions; None to read those of the shard.
      start: Where to begin partitions without a known position.
      until: Whether to stop at the end that a partition has when reading it begins.
      shard: (index, count): the partitions to read without a group.
      idle_timeout: Seconds without a message after which the stream ends; None for never.
      patience: Seconds without a broker after which to fail.
      commit_seconds: Seconds between commits to the group.
      memory: The maximum number of bytes to read ahead.
    """

    batch_size: int = 32
    max_wait: float | None = None
    drop_remainder: bool = False
    group: str | None = None
    start: When = "earliest"
    until: Literal["end"] | None = None
    shard: tuple[int, int] = (0, 1)
    on_lost: Literal["fail", "skip"] = "fail"
    idle_timeout: float | None = None
    patience: float = 600.0
    commit_seconds: float = 1.0
    memory: int = 128 << 20
    workers: int = 1

    def __post_init__(self) -> None:
        """Raises `InvalidOptionError` for an invalid value."""
        idle = self.idle_timeout
        self._require(self.batch_size >= 1, "batch_size", "1 or more")
        self._require(self.group is None or bool(self.group), "group", "a name, or None")
        self._require(self.until in (None, "end"), "until", "None or 'end'")
        self._require(self.on_lost in ("fail", "skip"), "on_lost", "'fail' or 'skip'")
        self._require(idle is None or idle > 0, "idle_timeout", "seconds above 0, or None")
        self._require(self.patience > 0, "patience", "seconds above 0")
        self._require(self.commit_seconds > 0, "commit_seconds", "above 0")
        self._require(self.workers >= 1, "workers", "1 or more")
        self._require(self.memory >= _LEAST_MEMORY, "memory", f"{_LEAST_MEMORY:,} or more")
        which, of = self.shard
        self._require(0 <= which < of, "shard", "(which, of how many), from 0")
        self._require(self.group is None or of == 1, "shard", "none: a group shares by itself")

    def _require(self, is_valid: bool, name: str, expected: str) -> None:
        if not is_valid:
            raise InvalidOptionError(
                f"The option {name} is {getattr(self, name)!r}.",
                f"Expected: {expected}",
                fix=f"pass another {name}, or leave it out for the default",
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
