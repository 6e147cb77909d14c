"""Iterates over a topic's messages in batches of NumPy arrays, and tracks the position."""

import time
import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType

import numpy as np

from my_datasets.input_pipeline.decode import pytree
from my_datasets.kafka.connection import Connection
from my_datasets.kafka.consumer_thread import ConsumerThread, Counts
from my_datasets.kafka.decoder import Decoded, Decoding, MessageBlock, Quarantine
from my_datasets.kafka.offsets import TopicPosition, TopicRange
from my_datasets.kafka.partitions import Offsets
from my_datasets.kafka.payloads import Columns

# Waits are split into intervals of this many seconds, so that signals are handled.
_NOTICE = 0.5


@dataclass(frozen=True)
class MessageForm:
    """The shape of batches.

    Attributes:
      size: The number of examples in a batch.
      max_wait: Seconds after which an incomplete batch is returned; None to wait until it is full.
      drop_remainder: Whether to drop an incomplete batch at the end.
    """

    size: int
    max_wait: float | None = None
    drop_remainder: bool = False


@dataclass(frozen=True)
class Recipe:
    """Everything that defines an iteration. Without a quarantine file, bad messages are errors."""

    connection: Connection
    reading: TopicRange
    decoding: Decoding
    form: MessageForm
    quarantine: str | None = None
    max_quarantined: float = 0.01


@dataclass
class _Part:
    """A block, the first example not returned yet, and the number of messages that are done."""

    block: MessageBlock
    decoded: Decoded
    begin: int = 0
    gone: int = 0

    def __len__(self) -> int:
        return len(self.decoded.rows) - self.begin

    def go(self, end: int) -> Offsets:
        """Advances to an example; returns the next offset of each partition it passed messages of.

        Args:
          end: The example to stop before. Messages that cannot be decoded are passed with the
            example before them; those before the first example, with the first one.
        """
        rows, first = self.decoded.rows, self.gone
        self.begin = end
        self.gone = int(rows[end]) if end < len(rows) else len(self.block.offsets)
        partitions = self.block.partitions[first : self.gone]
        if not len(partitions):
            return {}
        if (partitions == partitions[0]).all():  # usual: Kafka delivers many of one at once
            return {int(partitions[0]): int(self.block.offsets[self.gone - 1]) + 1}
        ends = np.flatnonzero(np.diff(partitions, append=-1))
        nexts = self.block.offsets[first + ends] + 1
        return dict(zip(partitions[ends].tolist(), nexts.tolist(), strict=True))


class MessageBatches(Iterator[Columns]):
    """The batches of a topic: an iterator, and a context manager that closes it.

    A batch counts as consumed when the next one is requested, or on `commit`.
    """

    def __init__(self, recipe: Recipe, position: TopicPosition | None = None) -> None:
        """Initializes the iterator; it connects to the cluster when the first batch is requested.

        Raises:
          InvalidOptionError: The quarantine options are invalid, or its file cannot be written.
        """
        self._recipe, self._begin = recipe, position
        self._quarantine = Quarantine(recipe.quarantine, recipe.max_quarantined)
        self._feed: ConsumerThread | None = None
        self._parts: deque[_Part] = deque()
        self._rows = 0
        self._epoch = 0
        self._after: Offsets = {}
        self._in_hand: tuple[int, Offsets] | None = None
        self._waits_since = 0.0
        self._is_done = self._is_closed = False
        self._closing: weakref.finalize[[], MessageBatches] | None = None

    def __iter__(self) -> "MessageBatches":
        return self

    def __next__(self) -> Columns:
        """Returns the next batch: columns nested like the features.

        Raises:
          StopIteration: The iterator was closed, or reached the requested end.
          StreamError: The topic cannot be read.
          ExampleError, QuarantineError: Messages cannot be decoded.
        """
        if self._is_closed:
            raise StopIteration
        feed = self._opened()
        self.commit()
        while not self._is_done:
            batch = self._batch(feed, self._recipe.form.size)
            if batch is not None:
                return batch
            try:
                block = feed.take(self._patience())
            except StopIteration:
                self._is_done = True
                break
            except BaseException:
                self.close()
                raise
            if block is not None:
                self._add(block)
            elif self._is_late():
                batch = self._batch(feed, 1)
                if batch is not None:
                    return batch
        return self._last(feed)

    def commit(self) -> None:
        """Marks the last returned batch as consumed, so that its messages are not delivered again.

        Requesting the next batch does this, too.
        """
        if self._in_hand is not None and self._feed is not None:
            self._feed.ledger.consume(*self._in_hand)
            self._in_hand = None

    def state(self) -> TopicPosition:
        """Returns the position after the last returned batch."""
        return self._opened().position()

    @property
    def counts(self) -> Counts:
        """What was read so far."""
        return Counts() if self._feed is None else self._feed.counts

    @property
    def quarantined(self) -> int:
        """The number of messages quarantined so far."""
        return self._quarantine.count

    @property
    def held(self) -> int:
        """The approximate number of bytes read but not returned yet."""
        return 0 if self._feed is None else self._feed.held

    def close(self) -> None:
        """Commits what was consumed, and leaves the group.

        The last returned batch is not committed unless `commit` was called.
        """
        self._is_closed = self._is_done = True
        self._parts.clear()
        self._rows = 0
        if self._closing is not None:
            self._closing()

    def __enter__(self) -> "MessageBatches":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _opened(self) -> ConsumerThread:
        if self._feed is None:
            recipe = self._recipe
            self._feed = ConsumerThread(
                recipe.connection, recipe.reading, recipe.decoding, self._quarantine, self._begin
            )
            # Closes the feed also when the iterator is garbage-collected, and when Python shuts
            # down.
            self._closing = weakref.finalize(self, self._feed.close)
        return self._feed

    def _add(self, block: MessageBlock) -> None:
        if block.epoch != self._epoch:
            # What is left of an earlier epoch is read again, by the consumer that now owns its
            # partitions.
            self._parts.clear()
            self._rows, self._after, self._epoch = 0, {}, block.epoch
        if block.decoded is None:
            return
        if not self._rows:
            self._waits_since = time.monotonic()
        self._parts.append(_Part(block, block.decoded))
        self._rows += len(block.decoded.rows)

    def _patience(self) -> float:
        wait = self._recipe.form.max_wait
        if wait is None or not self._rows:
            return _NOTICE
        return min(_NOTICE, max(0.0, self._waits_since + wait - time.monotonic()))

    def _is_late(self) -> bool:
        wait = self._recipe.form.max_wait
        return wait is not None and time.monotonic() >= self._waits_since + wait

    def _batch(self, feed: ConsumerThread, least: int) -> "Columns | None":
        """Returns a batch if there are at least `least` examples; otherwise None."""
        if self._rows < least or not self._rows:
            return None
        wanted = min(self._rows, self._recipe.form.size)
        pieces = []
        while wanted:
            part = self._parts[0]
            end = part.begin + min(wanted, len(part))
            if end > part.begin:
                pieces.append(pytree.rows(part.decoded.columns, part.begin, end))
            wanted -= end - part.begin
            self._rows -= end - part.begin
            self._after |= part.go(end)
            if not len(part):
                self._parts.popleft()
        self._waits_since = time.monotonic()
        return self._given(feed, pieces)

    def _given(self, feed: ConsumerThread, pieces: list[Columns]) -> "Columns | None":
        """Returns pieces as a batch; None if they may no longer be delivered."""
        after, self._after = self._after, {}
        if not feed.ledger.give(self._epoch, after):
            self._parts.clear()
            self._rows = 0
            return None
        self._in_hand = (self._epoch, after)
        batch: Columns = pytree.concatenated(pieces)
        return batch

    def _last(self, feed: ConsumerThread) -> Columns:
        """Returns the examples left at the end.

        Raises:
          StopIteration: There are none, or they are dropped.
        """
        if self._rows and not self._recipe.form.drop_remainder:
            batch = self._batch(feed, 1)
            if batch is not None:
                return batch
        if not self._rows:
            # Messages after the last example that could not be decoded are consumed as well.
            for part in self._parts:
                self._after |= part.go(len(part.decoded.rows))
            self._parts.clear()
            if self._after and feed.ledger.give(self._epoch, self._after):
                feed.ledger.consume(self._epoch, self._after)
        self.close()
        raise StopIteration
