"""Iterates over a topic's messages in batches of NumPy arrays, and tracks the position."""

import time
import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

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
class Recipe:
    """Everything that defines an iteration. Without a quarantine file, bad messages are errors."""

    connection: Connection
    reading: TopicRange
    decoding: Decoding
    quarantine: str | None = None
    max_quarantined: float = 0.01


@dataclass
class _Part:
    """A block, the first example not returned yet, and the number of messages that are done."""

    block: MessageBlock
    decoded: Decoded
    begin: int = 0
    done: int = 0

    def __len__(self) -> int:
        return len(self.decoded.rows) - self.begin

    def advance(self, end: int) -> Offsets:
        """Advances to an example; returns the next offset of each partition it passed messages of.

        Messages that cannot be decoded are passed with the example before them; those before the
        first example, with the first one.
        """
        rows, first = self.decoded.rows, self.done
        self.begin = end
        self.done = int(rows[end]) if end < len(rows) else len(self.block.offsets)
        partitions = self.block.partitions[first : self.done]
        if not len(partitions):
            return {}
        if (partitions == partitions[0]).all():  # usual: Kafka delivers many of one at once
            return {int(partitions[0]): int(self.block.offsets[self.done - 1]) + 1}
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
        self._consumer: ConsumerThread | None = None
        self._parts: deque[_Part] = deque()
        self._rows = 0
        self._epoch = 0
        self._after: Offsets = {}
        self._unconsumed: tuple[int, Offsets] | None = None
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
        consumer = self._opened()
        self.commit()
        max_wait = self._recipe.reading.max_wait
        while not self._is_done:
            batch = self._batch(consumer, self._recipe.reading.batch_size)
            if batch is not None:
                return batch
            timeout = _NOTICE
            if max_wait is not None and self._rows:
                timeout = min(_NOTICE, max(0.0, self._waits_since + max_wait - time.monotonic()))
            try:
                block = consumer.queue.take(timeout)
            except StopIteration:
                self._is_done = True
                break
            except BaseException:
                self.close()
                raise
            if block is not None:
                self._add(block)
            elif max_wait is not None and time.monotonic() >= self._waits_since + max_wait:
                batch = self._batch(consumer, 1)
                if batch is not None:
                    return batch
        return self._last(consumer)

    def commit(self) -> None:
        """Marks the last returned batch as consumed, so that its messages are not delivered again.

        Requesting the next batch does this, too.
        """
        if self._unconsumed is not None and self._consumer is not None:
            self._consumer.deliveries.consume(*self._unconsumed)
            self._unconsumed = None

    def state(self) -> TopicPosition:
        """Returns the position after the last returned batch."""
        return self._opened().position()

    @property
    def counts(self) -> Counts:
        """What was read so far."""
        return Counts() if self._consumer is None else self._consumer.counts

    @property
    def quarantined(self) -> int:
        """The number of messages quarantined so far."""
        return self._quarantine.count

    @property
    def buffered(self) -> int:
        """The approximate number of bytes read but not returned yet."""
        return 0 if self._consumer is None else self._consumer.queue.buffered

    def close(self) -> None:
        """Commits what was consumed, and leaves the group.

        The last returned batch is not committed unless `commit` was called.
        """
        self._is_closed = self._is_done = True
        self._clear()
        if self._closing is not None:
            self._closing()

    def __enter__(self) -> "MessageBatches":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _opened(self) -> ConsumerThread:
        if self._consumer is None:
            recipe = self._recipe
            self._consumer = ConsumerThread(
                recipe.connection, recipe.reading, recipe.decoding, self._quarantine, self._begin
            )
            # Closes the consumer also when the iterator is garbage-collected, and when Python shuts
            # down.
            self._closing = weakref.finalize(self, self._consumer.close)
        return self._consumer

    def _add(self, block: MessageBlock) -> None:
        if block.epoch != self._epoch:
            # What is left of an earlier epoch is read again, by the consumer that now owns its
            # partitions.
            self._clear()
            self._after, self._epoch = {}, block.epoch
        if block.decoded is None:
            return
        if not self._rows:
            self._waits_since = time.monotonic()
        self._parts.append(_Part(block, block.decoded))
        self._rows += len(block.decoded.rows)

    def _clear(self) -> None:
        self._parts.clear()
        self._rows = 0

    def _batch(self, consumer: ConsumerThread, least: int) -> "Columns | None":
        """Returns a batch of at least `least` examples; None if they cannot be delivered (yet)."""
        if self._rows < least or not self._rows:
            return None
        missing = min(self._rows, self._recipe.reading.batch_size)
        pieces = []
        while missing:
            part = self._parts[0]
            end = part.begin + min(missing, len(part))
            if end > part.begin:
                pieces.append(pytree.rows(part.decoded.columns, part.begin, end))
            missing -= end - part.begin
            self._rows -= end - part.begin
            self._after |= part.advance(end)
            if not len(part):
                self._parts.popleft()
        self._waits_since = time.monotonic()
        after, self._after = self._after, {}
        if not consumer.deliveries.deliver(self._epoch, after):
            self._clear()
            return None
        self._unconsumed = (self._epoch, after)
        batch: Columns = pytree.concatenated(pieces)
        return batch

    def _last(self, consumer: ConsumerThread) -> Columns:
        """Returns the examples left at the end; StopIteration if there are none, or dropped."""
        if self._rows and not self._recipe.reading.drop_remainder:
            batch = self._batch(consumer, 1)
            if batch is not None:
                return batch
        if not self._rows:
            # Messages after the last example that could not be decoded are consumed as well.
            for part in self._parts:
                self._after |= part.advance(len(part.decoded.rows))
            self._parts.clear()
            if self._after and consumer.deliveries.deliver(self._epoch, self._after):
                consumer.deliveries.consume(self._epoch, self._after)
        self.close()
        raise StopIteration
