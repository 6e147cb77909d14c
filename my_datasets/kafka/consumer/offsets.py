"""Resolves offsets given by number, as the first or last one, or by time; and the topic's position.

`TopicPosition` is the next offset of each partition.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from my_datasets.errors import InvalidOptionError, LostMessagesError, PlanError
from my_datasets.kafka.consumer.connection import ANSWER_SECONDS, Connection, Topic, kafka

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
    wanted = list(partitions)
    if isinstance(when, Mapping):
        return _named(when, wanted)
    if isinstance(when, datetime):
        return _since(connection, consumer, when, wanted)
    if when not in ("earliest", "latest"):
        raise InvalidOptionError(
            f"{when!r} is not a place in a topic.",
            "Expected 'earliest', 'latest', a datetime, or {partition: offset, ...}",
            fix="give one of those",
        )
    which = 0 if when == "earliest" else 1
    return {one: watermarks(connection, consumer, one)[which] for one in wanted}


def _named(when: Mapping[int, int], partitions: list[int]) -> dict[int, int]:
    missing = sorted(set(partitions) - set(when))
    if missing or any(offset < 0 for offset in when.values()):
        raise InvalidOptionError(
            f"The offsets do not cover all partitions: {dict(when)}.",
            f"Missing partitions: {missing}" if missing else "",
            fix="give an offset of 0 or more for each partition",
        )
    return {one: when[one] for one in partitions}


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
        one.partition: one.offset
        if one.offset >= 0
        else watermarks(connection, consumer, one.partition)[1]
        for one in found
    }


def lost(topic: Topic | str, partition: int, offset: int, low: int, high: int) -> LostMessagesError:
    """Returns the error for an offset whose message does not exist, or no longer exists."""
    name = topic if isinstance(topic, str) else topic.name
    if offset > high:
        why = "It is beyond the end: the topic was recreated, or truncated"
    else:
        why = f"{low - offset:,} messages from there on were removed by retention or by hand"
    return LostMessagesError(
        f"Messages of {name} that were to be read no longer exist.",
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
        mine = (self.cluster, self.topic, tuple(self.shard))
        other = (cluster, topic, shard)
        names = ("cluster", "topic", "shard")
        messages = [
            (f"{name} {a!r}", f"{name} {b!r}")
            for name, a, b in zip(names, mine, other, strict=True)
            if a != b
        ]
        if messages:
            raise PlanError(
                "The saved position belongs to another stream.",
                f"Expected: {', '.join(theirs for _, theirs in messages)}",
                f"Found: {', '.join(ours for ours, _ in messages)}",
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
