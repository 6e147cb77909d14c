"""Reads complete ranges of offsets reproducibly: the units of a snapshot."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from my_datasets.building.units import InvalidValue
from my_datasets.errors import LostMessagesError, StreamUnavailableError
from my_datasets.input_pipeline.decode.pytree import Ragged
from my_datasets.kafka import offsets
from my_datasets.kafka.connection import Connection, kafka, name_of
from my_datasets.kafka.decoder import Decoding
from my_datasets.kafka.payloads import Avro, Columns, Json, MessageValues

if TYPE_CHECKING:
    from confluent_kafka import Consumer

# Messages to read at once, and seconds to wait for them at a time.
_AT_ONCE, _WAIT = 1000, 1.0
# Seconds without a message after which to fail: all messages to be read exist already.
_PATIENCE = 60.0
# Bits of a key for the offset within a partition.
_OFFSET_BITS = 44


@dataclass(frozen=True)
class OffsetRange:
    """Consecutive messages of a partition: a unit of a build.

    `payload` has the format, and everything else that determines how messages are read.
    """

    cluster: str
    topic: str
    partition: int
    begin: int
    end: int
    payload: str

    def __str__(self) -> str:
        return f"{self.topic}, partition {self.partition}, offsets {self.begin} to {self.end - 1}"


def cut(
    cluster: str, topic: str, ends: Mapping[int, tuple[int, int]], payload: str, size: int = 100_000
) -> list[OffsetRange]:
    """Splits ranges of offsets into units of at most `size` offsets."""
    return [
        OffsetRange(cluster, topic, partition, at, min(at + size, end), payload)
        for partition, (begin, end) in sorted(ends.items())
        for at in range(begin, end, size)
    ]


@dataclass(frozen=True)
class RangeReader:
    """Yields the examples of a range; it can be pickled.

    Attributes:
      parser: Parses messages into examples; None if they are `tf.Example`s.
      decoding: Decodes `tf.Example`s, leaving images encoded.
      allow_gaps: Whether to accept offsets without a message, such as transaction markers;
        otherwise they are an error.
    """

    connection: Connection
    parser: Json | Avro | None
    decoding: Decoding | None
    allow_gaps: bool

    def __call__(self, unit: OffsetRange) -> Iterator[tuple[int, object]]:
        """Yields the examples of a range with their keys, made of partition and offset.

        Raises:
          LostMessagesError: Some messages are gone.
          StreamError: They cannot be read.
        """
        count = 0
        for messages in self._messages(unit):
            count += len(messages)
            values = [(one.offset(), one.value()) for one in messages]
            present = [(at, value) for at, value in values if value is not None]
            keys = [(unit.partition << _OFFSET_BITS) + at for at, _ in present]
            yield from zip(keys, self._examples([value for _, value in present]), strict=True)
        if count < unit.end - unit.begin and not self.allow_gaps:
            raise LostMessagesError(
                f"{unit.end - unit.begin - count:,} messages of {unit.topic} are missing.",
                f"Range: partition {unit.partition}, offsets {unit.begin} to before {unit.end}",
                "The topic is compacted: replaced messages are removed at unknown times",
                fix="freeze a topic with cleanup.policy=delete; or freeze what is available, which "
                "cannot be reproduced: --allow-gaps",
            )

    def _examples(self, values: Sequence[bytes]) -> Iterator[object]:
        """Yields examples, and an `InvalidValue` for each undecodable message."""
        if self.decoding is None:
            for value in values:
                try:
                    yield self.parser.example(value) if self.parser else value
                except InvalidValue as error:
                    yield error
            return
        decoded = self.decoding(MessageValues.of(values))
        found: list[object] = [None] * len(values)
        for row, example in zip(
            decoded.rows.tolist(), _rows(decoded.columns, len(decoded.rows)), strict=True
        ):
            found[row] = example
        for one in decoded.undecodable:
            found[one.row] = InvalidValue(one.feature, one.expected, one.found)
        yield from found

    def _messages(self, unit: OffsetRange) -> Iterator[list[Any]]:
        """Yields the messages of a range, in batches."""
        module = kafka()
        consumer = self.connection.consumer({"enable.partition.eof": True})
        try:
            low, high = offsets.watermarks(self.connection, consumer, unit.partition)
            if unit.begin < low or unit.end > high:
                raise lost(unit, low, high)
            consumer.assign([module.TopicPartition(unit.topic, unit.partition, unit.begin)])
            at, last = unit.begin, time.monotonic()
            while at < unit.end:
                found: list[Any] = consumer.consume(_AT_ONCE, _WAIT)
                messages = []
                for one in found:
                    if one.error() is None:
                        messages.append(one)
                        at = one.offset() + 1
                    else:
                        at = max(at, self._after(one, unit, consumer))
                yield [one for one in messages if one.offset() < unit.end]
                now = time.monotonic()
                last = now if found else last
                if now - last > _PATIENCE:
                    raise StreamUnavailableError(
                        f"{self.connection.address} returned nothing for {_PATIENCE:.0f} seconds.",
                        f"At {unit}, offset {at}",
                        fix="check that the brokers run; then run the command again, which resumes",
                    )
        finally:
            consumer.close()

    def _after(self, message: Any, unit: OffsetRange, consumer: "Consumer") -> int:
        """Returns the offset of the log's end, if that is what the message reports; 0 to retry.

        Raises:
          StreamError: It reports another error.
        """
        error = message.error()
        name = name_of(error)
        if name == "_PARTITION_EOF":
            return int(message.offset())
        if name in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
            raise lost(unit, *offsets.watermarks(self.connection, consumer, unit.partition))
        if error.retriable():
            return 0
        raise self.connection.failed(error, f"At {unit}")


def lost(unit: OffsetRange, low: int, high: int) -> LostMessagesError:
    """Returns the error for a range of which only the offsets from `low` to before `high` exist."""
    return LostMessagesError(
        f"A range of {unit.topic} is not completely available.",
        f"Requested: partition {unit.partition}, offsets {unit.begin} to before {unit.end}",
        f"Available: {low} to before {high}",
        "Earlier messages were removed by retention or by hand" if unit.begin < low else "",
        fix="freeze what is available: --from-offsets earliest; raise the topic's retention",
    )


def _rows(columns: Columns, n: int) -> list[object]:
    """Returns the rows of columns, in the form that `_generate_examples` yields."""
    if isinstance(columns, Mapping):
        split = {name: _rows(values, n) for name, values in columns.items()}
        return [dict(zip(split, row, strict=True)) for row in zip(*split.values(), strict=True)]
    if isinstance(columns, Ragged):
        return [_plain(one) for one in columns.rows()]
    if isinstance(columns, tuple) or columns.ndim > 1:
        return [_plain(one) for one in columns]
    return list(columns.tolist())


def _plain(value: object) -> object:
    """Returns a value in a form that TFDS accepts: lists of texts, not arrays of them."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, np.ndarray) and value.dtype == object:
        return value.tolist()
    return value
