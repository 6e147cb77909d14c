"""Decodes messages into columns in threads, from a bounded queue, and reports undecodable ones."""

import base64
import json
import os
import queue
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from my_datasets.building.units import InvalidValue
from my_datasets.errors import ExampleError, InvalidOptionError, QuarantineError
from my_datasets.input_pipeline.decode import pytree
from my_datasets.input_pipeline.decode.decoder import Decoder, FeatureMismatchError
from my_datasets.input_pipeline.decode.pytree import Ragged
from my_datasets.kafka.payloads import Columns, MessageValues, Pieces, Transcoder
from my_datasets.storage import addresses

# The limit applies to the latest messages, this many.
WINDOW = 10_000
# Bytes to keep of a longer message.
_MOST_KEPT = 64 << 10


@dataclass(frozen=True)
class Poison:
    """A message that cannot be decoded; `feature` is empty if the whole message is at fault."""

    topic: str
    partition: int
    offset: int
    feature: str
    expected: str
    found: str
    value: bytes

    @property
    def facts(self) -> tuple[str, ...]:
        """Its description, in lines."""
        return (
            f"Topic {self.topic}, partition {self.partition}, offset {self.offset}",
            f"Feature: {self.feature}" if self.feature else "",
            f"Expected: {self.expected}",
            f"Found: {self.found}",
        )

    def as_error(self) -> ExampleError:
        """Returns the exception for it."""
        return ExampleError(
            "A message cannot be decoded.",
            *self.facts,
            fix="correct features or payload; or keep such messages with quarantine='FILE'",
        )

    def to_json(self) -> str:
        """Returns its line in the quarantine file."""
        entry = {**vars(self), "bytes": len(self.value)}
        del entry["value"]
        value = base64.b64encode(self.value[:_MOST_KEPT]).decode()
        return json.dumps({**entry, "value": value})


class Quarantine:
    """A file of JSON lines, to which messages that cannot be decoded are appended.

    They are on disk before any later message is returned. A message that is read again after a
    restart is in the file twice, with the same partition and offset.
    """

    def __init__(self, path: str | os.PathLike[str] | None, limit: float) -> None:
        """Creates the file, if it does not exist; without one, such messages are errors.

        `limit` is the fraction of the latest 10,000 messages that may be quarantined.

        Raises:
          InvalidOptionError: The limit is not above 0 and at most 1, or the file cannot be written.
        """
        if not 0 < limit <= 1:
            raise InvalidOptionError(
                f"max_quarantined={limit!r} is not a fraction of the messages.",
                fix="give a number above 0, up to 1",
            )
        self._path = None if path is None else addresses.local_path(path, "quarantine")
        self._most = max(1, int(limit * WINDOW))
        self._recent: deque[int] = deque()
        self._lock = threading.Lock()
        self.count = 0
        if self._path is not None:
            self._append([])

    def add(self, found: Sequence[Poison], seen: int) -> None:
        """Quarantines messages; `seen` is the number of messages so far, good and bad.

        Raises:
          ExampleError: There is no quarantine file.
          QuarantineError: There are too many.
        """
        if not found:
            return
        if self._path is None:
            raise found[0].as_error()
        with self._lock:
            self._append(found)
            self.count += len(found)
            self._recent.extend([seen] * len(found))
            while self._recent[0] <= seen - WINDOW:
                self._recent.popleft()
            if len(self._recent) <= self._most:
                return
        raise QuarantineError(
            f"More than {self._most} of {WINDOW:,} messages cannot be decoded.",
            *found[-1].facts,
            f"They are in {self._path}",
            fix="correct features or payload, or give a higher max_quarantined",
        )

    def _append(self, found: Sequence[Poison]) -> None:
        """Appends lines to the file as a whole, because other processes may append to it, too."""
        text = "".join(one.to_json() + "\n" for one in found)
        try:
            file = os.open(str(self._path), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                left = text.encode()
                while left:
                    left = left[os.write(file, left) :]
                if text:
                    os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            raise InvalidOptionError(
                f"The quarantine file {self._path} cannot be written: {error.strerror}.",
                fix="name a file in a writable directory",
            ) from error


Numbers = npt.NDArray[np.int64]
# The maximum number of waiting blocks, whatever their size.
_MOST_BLOCKS = 16


@dataclass(frozen=True)
class UndecodableMessage:
    """A message that cannot be decoded: its index among those given, and why."""

    row: int
    feature: str
    expected: str
    found: str


@dataclass(frozen=True)
class Decoded:
    """Decoded messages.

    Attributes:
      columns: Their values: arrays of shape [n, ...] and `Ragged`s, nested like the features.
      rows: The indices of the decoded messages, in order; shape [n].
      undecodable: The messages that cannot be decoded.
    """

    columns: Columns
    rows: Numbers
    undecodable: tuple[UndecodableMessage, ...] = ()


@dataclass(frozen=True)
class Decoding:
    """Decodes many messages at a time: converts them to records, and those to columns.

    Attributes:
      transcoder: Converts messages to records; None if they are `tf.Example`s.
    """

    decoder: Decoder
    transcoder: Transcoder | None = None

    def __call__(self, values: MessageValues) -> Decoded:
        """Decodes messages; skips those without a value."""
        if values.are_present.all():
            return self._all(values)
        present = np.flatnonzero(values.are_present)
        found = self._all(values[present])
        undecodable = [replace(one, row=int(present[one.row])) for one in found.undecodable]
        return Decoded(found.columns, present[found.rows], tuple(undecodable))

    def _all(self, values: MessageValues) -> Decoded:
        undecodable: list[UndecodableMessage] = []
        parts = self._parts(values, 0, undecodable)
        if not parts:
            return Decoded(self.nothing, np.zeros(0, np.int64), tuple(undecodable))
        rows = np.concatenate([rows for _, rows in parts])
        columns = pytree.concatenated([columns for columns, _ in parts])
        return Decoded(columns, rows, tuple(undecodable))

    @property
    def nothing(self) -> Columns:
        """Empty columns of the same types as all others."""
        return self._decoded(MessageValues.of([]))

    def _decoded(self, values: MessageValues) -> Columns:
        found: Columns = self.decoder(
            values.records if self.transcoder is None else self.transcoder.records(values)
        )
        return found

    def _parts(
        self, values: MessageValues, first: int, undecodable: list[UndecodableMessage]
    ) -> list[tuple[Columns, Numbers]]:
        """Returns columns and their rows; halves a batch that cannot be decoded, and retries.

        The error does not reliably name the record at fault: if two records are inconsistent, it
        may name the valid one.
        """
        try:
            return [(self._decoded(values), np.arange(first, first + len(values)))]
        except (InvalidValue, FeatureMismatchError) as error:
            if len(values) == 1:
                found = error.found
                if error.__cause__ is not None and isinstance(error, InvalidValue):
                    found = f"{found} ({error.__cause__})" if found else str(error.__cause__)
                undecodable.append(UndecodableMessage(first, error.feature, error.expected, found))
                return []
        half = len(values) // 2
        return [
            *self._parts(values[:half], first, undecodable),
            *self._parts(values[half:], first + half, undecodable),
        ]


@dataclass(eq=False)
class MessageBlock:
    """Messages that were read together.

    Attributes:
      pieces: Their values; emptied after decoding.
      partitions: The partition of each message; shape [n].
      offsets: The offset of each message; shape [n].
      seen: The number of messages read so far, including these.
      cost: Their approximate size in bytes.
    """

    epoch: int
    pieces: Pieces
    partitions: Numbers
    offsets: Numbers
    seen: int
    cost: int
    decoded: Decoded | None = None
    failure: Exception | None = None

    @property
    def is_ready(self) -> bool:
        """Whether decoding has succeeded or failed."""
        return self.decoded is not None or self.failure is not None


class DecodeQueue:
    """The queue of blocks, in order, and the threads that decode them."""

    def __init__(
        self, topic: str, decoding: Decoding, quarantine: Quarantine, *, memory: int, workers: int
    ) -> None:
        """Starts the decoding threads; `memory` is the maximum size of waiting blocks in bytes."""
        self._topic, self._decoding, self._quarantine = topic, decoding, quarantine
        self._memory = memory
        self._changed = threading.Condition()
        self._blocks: deque[MessageBlock] = deque()
        # The approximate number of bytes waiting.
        self.buffered = 0
        self._ends = self._is_closed = False
        self._failure: BaseException | None = None
        self._jobs: queue.SimpleQueue[MessageBlock | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._decode, name=f"my_datasets-decode-{i}", daemon=True)
            for i in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def put(self, block: MessageBlock) -> None:
        """Adds a block, and queues it for decoding."""
        with self._changed:
            self._blocks.append(block)
            self.buffered += block.cost
        self._jobs.put(block)

    def take(self, timeout: float | None) -> MessageBlock | None:
        """Returns the next block; None after a timeout, in seconds.

        Raises:
          StopIteration: There are no more.
          MyDatasetsError: They cannot be read or decoded.
        """
        with self._changed:
            if not self._changed.wait_for(self._is_next_ready, timeout):
                return None
            if self._is_closed:
                raise StopIteration
            if self._blocks:
                block = self._blocks.popleft()
                self.buffered -= block.cost
                self._changed.notify_all()
                if block.failure is not None:
                    raise block.failure
                return block
            if self._failure is not None:
                raise self._failure
            raise StopIteration

    def wait_for_room(self, timeout: float) -> bool:
        """Waits until the queue has room or is closed; returns False after a timeout."""
        with self._changed:
            return self._changed.wait_for(self._has_room, timeout)

    def drop(self) -> None:
        """Drops all waiting blocks."""
        with self._changed:
            self._blocks.clear()
            self.buffered = 0
            self._changed.notify_all()

    def end(self, failure: BaseException | None = None) -> None:
        """Marks the end of the queue after the waiting blocks, or the error that ended it."""
        with self._changed:
            self._ends = True
            self._failure = self._failure or failure
            self._changed.notify_all()

    def close(self) -> None:
        """Stops the threads; `take` then raises StopIteration."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for _ in self._threads:
            self._jobs.put(None)

    def _is_next_ready(self) -> bool:
        if self._is_closed:
            return True
        return self._blocks[0].is_ready if self._blocks else self._ends

    def _has_room(self) -> bool:
        is_below_limits = len(self._blocks) < _MOST_BLOCKS and self.buffered < self._memory
        return self._is_closed or not self._blocks or is_below_limits

    def _decode(self) -> None:
        while (block := self._jobs.get()) is not None:
            if self._is_closed:
                return
            decoded: Decoded | None = None
            failure: Exception | None = None
            try:
                values = block.pieces.together()
                decoded = self._decoding(values)
                self._quarantine.add(self._poison(block, decoded, values), block.seen)
            except Exception as error:
                failure = error
            more = 0 if decoded is None else _size(decoded.columns)
            with self._changed:
                block.pieces = Pieces()
                block.decoded, block.failure = decoded, failure
                if block in self._blocks:
                    block.cost += more
                    self.buffered += more
                self._changed.notify_all()

    def _poison(self, block: MessageBlock, decoded: Decoded, values: MessageValues) -> list[Poison]:
        rows = np.array([one.row for one in decoded.undecodable], np.int64)
        poison = values[rows]
        return [
            Poison(
                self._topic, int(block.partitions[one.row]), int(block.offsets[one.row]),
                one.feature, one.expected, one.found, value,
            )
            for one, value in zip(decoded.undecodable, poison, strict=True)
        ]  # fmt: skip


def _size(columns: Columns) -> int:
    """Returns the approximate bytes of columns, without texts, which count as message bytes."""
    total = 0
    for column in pytree.columns_of(columns):
        values = column.values if isinstance(column, Ragged) else column
        total += values.nbytes
        if values.dtype == object and values.size and isinstance(values.flat[0], np.ndarray):
            total += sum(one.nbytes for one in values.flat)
    return total
