"""Makes the batches of a plan: which examples a batch has is a function of its number alone."""

import dataclasses
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from my_datasets.input_pipeline import trees
from my_datasets.input_pipeline.cache import open_cache
from my_datasets.input_pipeline.order import Order, Places
from my_datasets.input_pipeline.plan import Plan
from my_datasets.input_pipeline.stages import (
    Batch,
    Cache,
    Decode,
    Prefetch,
    Read,
    Repeat,
    Shard,
    Shuffle,
)
from my_datasets.input_pipeline.state import State


@dataclass(frozen=True)
class Piece:
    """Batches that are made together.

    Attributes:
      epoch: Their epoch.
      first: The place of their first example in this host's part of the epoch.
      batches: How many they are.
      rows: How many examples each of them has.
    """

    epoch: int
    first: int
    batches: int
    rows: int


class Engine:
    """Makes batches."""

    def __init__(self, plan: Plan, state: State | None = None, *, rows: int | None = None) -> None:
        """Opens the data of a plan.

        Args:
          plan: The plan.
          state: Where to begin; None for the beginning. It may come from another number of hosts,
            or another batch size.
          rows: How many examples are made at once; None for as many as the plan says.

        Raises:
          PlanError: The state belongs to other data or another order, or the data changed.
        """
        self.plan = plan
        self.start = state or plan.beginning
        self.start.check(plan.beginning)
        shuffle = plan.get(Shuffle)
        self._batch = plan.the(Batch)
        self._shard = plan.get(Shard) or Shard(0, 1)
        self._epochs = plan.the(Repeat).epochs
        self._rows = plan.the(Prefetch).rows if rows is None else rows
        self._size = plan.the(Read).examples
        self._order = Order(self._size, None if shuffle is None else shuffle.seed)
        self.source = plan.source()
        cache = plan.get(Cache)
        self._columns: Callable[[Places], Any] = self.source.columns
        if cache is not None:
            self._columns = open_cache(cache, plan, self.source).columns

    def examples(self, epoch: int) -> int:
        """Returns how many examples this host has in an epoch."""
        left = self._size - (self.start.position if epoch == self.start.epoch else 0)
        return self._shard.examples(left)

    def steps(self, epoch: int) -> int:
        """Returns how many batches an epoch has."""
        full, rest = divmod(self.examples(epoch), self._batch.size)
        return full + (rest > 0 and not self._batch.drop_remainder)

    @property
    def makes_single_batches(self) -> bool:
        """Whether each piece is one batch."""
        return self._rows < 2 * self._batch.size

    @property
    def steps_per_epoch(self) -> int:
        """How many batches a whole epoch has."""
        return self.steps(self.start.epoch + 1)

    @property
    def total_steps(self) -> int | None:
        """How many batches there are; None for ever."""
        if self._epochs is None:
            return None
        left = self._epochs - self.start.epoch
        return (
            self.steps(self.start.epoch) + max(0, left - 1) * self.steps_per_epoch
            if left > 0
            else 0
        )

    def state_after(self, steps: int) -> State:
        """Returns where an iteration is after so many batches."""
        epoch, done = self.start.epoch, self.steps(self.start.epoch)
        begin = self.start.position
        if steps >= done:
            more, steps = divmod(steps - done, max(1, self.steps_per_epoch))
            epoch, begin = epoch + 1 + more, 0
        position = begin + steps * self._batch.size * self._shard.count
        return dataclasses.replace(self.start, epoch=epoch, position=min(position, self._size))

    def pieces(self) -> Iterator[Piece]:
        """Yields the pieces of all epochs, in order; without an end if they have none."""
        epoch = self.start.epoch
        while self._epochs is None or epoch < self._epochs:
            yield from self.pieces_of(epoch)
            epoch += 1

    def pieces_of(self, epoch: int) -> Iterator[Piece]:
        """Yields the pieces of an epoch."""
        size = self._batch.size
        full, rest = divmod(self.examples(epoch), size)
        at_once = max(1, self._rows // size)
        for begin in range(0, full, at_once):
            yield Piece(epoch, begin * size, min(at_once, full - begin), size)
        if rest and not self._batch.drop_remainder:
            yield Piece(epoch, full * size, 1, rest)

    def piece(self, number: int) -> Piece:
        """Returns the number-th piece, from 0, without going through those before it."""
        epoch = self.start.epoch
        first = self._count_pieces(epoch)
        if number >= first:
            each = max(1, self._count_pieces(epoch + 1))
            more, number = divmod(number - first, each)
            epoch += 1 + more
        size = self._batch.size
        full, rest = divmod(self.examples(epoch), size)
        at_once = max(1, self._rows // size)
        begin = number * at_once
        if begin < full:
            return Piece(epoch, begin * size, min(at_once, full - begin), size)
        return Piece(epoch, full * size, 1, rest)

    def count_pieces(self) -> int | None:
        """Returns how many pieces there are; None for ever."""
        if self._epochs is None:
            return None
        left = self._epochs - self.start.epoch
        if left <= 0:
            return 0
        return self._count_pieces(self.start.epoch) + (left - 1) * self._count_pieces(
            self.start.epoch + 1
        )

    def _count_pieces(self, epoch: int) -> int:
        full, rest = divmod(self.examples(epoch), self._batch.size)
        at_once = max(1, self._rows // self._batch.size)
        return -(-full // at_once) + (rest > 0 and not self._batch.drop_remainder)

    def numbers(self, piece: Piece) -> Places:
        """Returns the numbers of a piece's examples."""
        begin = self.start.position if piece.epoch == self.start.epoch else 0
        mine = np.arange(piece.first, piece.first + piece.batches * piece.rows)
        places = begin + mine * self._shard.count + self._shard.index
        # Beyond the end are those that make the parts equal: the epoch's first ones.
        return self._order(piece.epoch, places % self._size)

    def load(self, piece: Piece) -> Any:
        """Returns the columns of a piece; images as they are stored."""
        return self._columns(self.numbers(piece))

    def _made(self, piece: Piece) -> Any:
        return self.finished(self.load(piece))

    def finished(self, columns: Any) -> Any:
        """Returns columns with images of the type that the plan asks for."""
        if self.plan.the(Decode).image_dtype is None:
            return columns
        return trees.map_columns(_scaled, columns)

    def __iter__(self) -> Iterator[Any]:
        """Yields the batches, made ahead in threads."""
        workers, ahead = self.plan.the(Prefetch).workers, self.plan.the(Prefetch).ahead
        with ThreadPoolExecutor(workers, thread_name_prefix="my_datasets") as pool:
            pending: list[Future[Any]] = []
            pieces = self.pieces()
            made: list[Piece] = []
            try:
                while True:
                    while len(pending) < workers + ahead and (piece := next(pieces, None)):
                        made.append(piece)
                        pending.append(pool.submit(self._made, piece))
                    if not pending:
                        return
                    piece, columns = made.pop(0), pending.pop(0).result()
                    for i in range(piece.batches):
                        yield trees.rows(columns, i * piece.rows, (i + 1) * piece.rows)
            finally:
                for future in pending:
                    future.cancel()


class Batches:
    """The batches of a plan as NumPy arrays, to be gone through once or often.

    Attributes:
      plan: The plan.
    """

    def __init__(self, plan: Plan, state: State | None = None) -> None:
        """Opens the data; the arguments are those of `Engine`."""
        self.plan = plan
        self._engine = Engine(plan, state)
        self._given = 0
        self._lock = threading.Lock()

    @property
    def steps_per_epoch(self) -> int:
        """How many batches a whole epoch has."""
        return self._engine.steps_per_epoch

    def __len__(self) -> int:
        total = self._engine.total_steps
        if total is None:
            raise TypeError("these batches have no end: epochs=None")
        return total

    def __iter__(self) -> Iterator[Any]:
        """Yields the batches from the beginning, or from the state given."""
        self._given = 0
        for batch in self._engine:
            self._given += 1
            yield batch

    def state(self) -> State:
        """Returns where the iteration that was begun last is."""
        return self._engine.state_after(self._given)


def _scaled(column: Any) -> Any:
    """Returns images from 0 to 1, and anything else as it is."""
    if not trees.is_of_images(column) or column.dtype.kind == "f":
        return column
    return np.multiply(column, np.float32(1 / np.iinfo(column.dtype).max), dtype=np.float32)
