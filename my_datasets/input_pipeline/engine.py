"""Makes the batches of a plan, ahead of their consumer."""

import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from my_datasets.errors import UnknownMethodError
from my_datasets.input_pipeline.decode import pytree
from my_datasets.input_pipeline.decode.pytree import Columns, Leaves
from my_datasets.input_pipeline.order.batching import Batching, Piece
from my_datasets.input_pipeline.order.permutation import ORDER_VERSION, Places
from my_datasets.input_pipeline.order.state import Iterations, State
from my_datasets.input_pipeline.plan.plan import Plan
from my_datasets.input_pipeline.plan.stages import Prefetch
from my_datasets.input_pipeline.read.opening import opened
from my_datasets.input_pipeline.read.prepared import OpenedVersions
from my_datasets.input_pipeline.stopwatch import timed


class Engine:
    """Makes batches.

    Attributes:
      batching: Maps the batches of the first iteration to examples.
      tree: The leaves of a batch, nested like its columns.
    """

    def __init__(
        self,
        plan: Plan,
        state: State | None = None,
        *,
        single: bool = False,
        versions: OpenedVersions | None = None,
    ) -> None:
        """Opens the data of a plan; `versions` has what the caller has opened already.

        Raises:
          PlanError: The state belongs to other data or another order, or the data changed.
        """
        self.plan = plan
        version = ORDER_VERSION if state is None else state.order_version
        self._source, order = opened(plan, versions, version=version)
        self.batching = Batching.of(plan, order, state, single=single)
        self.tree: Leaves = self._source.tree

    def load(self, piece: Piece) -> Columns:
        """Returns the columns of a piece."""
        with timed("order"):
            numbers = self.batching.numbers(piece)
        return self.columns(numbers, piece.epoch)

    def columns(self, numbers: Places, epoch: int) -> Columns:
        """Returns the columns of the examples with these numbers, as they are in an epoch."""
        columns: Columns = self._source.columns(numbers, epoch)
        return columns

    @property
    def skipped(self) -> int:
        """The number of distinct examples skipped because they cannot be decoded."""
        return self._source.skipped

    def batches(self, start: State) -> Iterator[Columns]:
        """Yields the batches of an iteration, made ahead in threads, or when they are requested."""
        batching = self.batching.at(start)
        total = batching.total_pieces
        pieces = map(batching.piece, itertools.count() if total is None else range(total))
        is_ahead = self.plan.the(Prefetch).ahead > 0
        loaded = self._loaded_ahead(pieces) if is_ahead else ((p, self.load(p)) for p in pieces)
        with contextlib.closing(loaded):
            for piece, columns in loaded:
                for i in range(piece.batches):
                    yield pytree.rows(columns, i * piece.rows, (i + 1) * piece.rows)

    def _loaded_ahead(self, pieces: Iterator[Piece]) -> Generator[tuple[Piece, Columns]]:
        prefetch = self.plan.the(Prefetch)
        with ThreadPoolExecutor(prefetch.workers, thread_name_prefix="my_datasets") as pool:
            futures = ((piece, pool.submit(self.load, piece)) for piece in pieces)
            pending = deque(itertools.islice(futures, prefetch.workers + prefetch.ahead))
            try:
                while pending:
                    piece, future = pending.popleft()
                    columns = future.result()
                    pending.extend(itertools.islice(futures, 1))
                    yield piece, columns
            finally:
                for _, future in pending:
                    future.cancel()


@dataclass
class Position:
    """The position of an iteration: its batches, and how many of them were delivered."""

    batching: Batching
    delivered: int = 0

    def state(self) -> State:
        """Returns the state from which the iteration can be resumed."""
        return self.batching.state_after(self.delivered)


# Batches are `Columns`; they are Any for users, who know which features their dataset has.
class BatchIterator(Iterator[Any]):
    """Iterates over the batches of one iteration, which begins when the first is requested."""

    def __init__(self, engine: Engine, begin: Callable[[], Position], following: Position) -> None:
        """Opens nothing yet; `following` is the position if the iteration began now."""
        self._engine, self._begin, self._position = engine, begin, following
        self._batches: Iterator[Columns] | None = None

    def __next__(self) -> Any:
        if self._batches is None:
            self._position = self._begin()
            self._batches = self._engine.batches(self._position.batching.start)
        batch = next(self._batches)
        self._position.delivered += 1
        return batch

    def state(self) -> State:
        """Returns the state of this iteration."""
        return self._position.state()


# Methods of tf.data.Dataset, and what to do with `batches` instead.
_OF_DATASETS = {
    "shuffle": "give shuffle=True", "batch": "give batch_size=", "repeat": "give epochs=",
    "prefetch": "give prefetch=", "cache": "give cache='memory'", "shard": "give shard=",
    "take": "use itertools.islice(batches, n)", "skip": "give state=",
    "map": "apply the function to each batch", "filter": "test each batch",
    "padded_batch": "give batch_size=", "ragged_batch": "give batch_size=",
    "as_numpy_iterator": "use iter(batches): they are NumPy arrays",
    "cardinality": "use len(batches)", "iterator": "use iter(batches), which has a state()",
    "state_after": "ask iter(batches), which has a state()", "with_options": "leave it out",
}  # fmt: skip


class Batches:
    """The batches of a `plan` as NumPy arrays; each iteration yields the next epochs."""

    def __init__(
        self, plan: Plan, state: State | None = None, versions: OpenedVersions | None = None
    ) -> None:
        """Opens the data; the arguments are those of `Engine`."""
        self.plan = plan
        self._engine = Engine(plan, state, versions=versions)
        batching = self._engine.batching
        self._iterations = Iterations(batching.start, batching.epochs)
        self._latest: Position | None = None

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches in a full epoch."""
        return self._engine.batching.steps_per_epoch

    def __len__(self) -> int:
        """Returns the number of batches in a full iteration; a resumed one has fewer."""
        total = self._engine.batching.steps_per_iteration
        if total is None:
            raise TypeError("these batches have no end: epochs=None")
        return total

    def __iter__(self) -> BatchIterator:
        """Returns an iterator over the next epochs, which has a `state()` of its own."""
        return BatchIterator(self._engine, self._begin, self._following())

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration begin at this epoch, from 0; for example to repeat one.

        Raises:
          InvalidOptionError: It is not a multiple of the plan's `epochs`.
        """
        self._iterations.set_epoch(epoch)

    def __getattr__(self, name: str) -> Any:
        if name in _OF_DATASETS:
            raise UnknownMethodError(
                f"batches(...) has no method {name}().",
                fix=f"{_OF_DATASETS[name]}; or use pipeline(...), which has it",
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def skipped(self) -> int:
        """The number of distinct examples skipped so far: see `undecodable` of `plan`."""
        return self._engine.skipped

    def state(self) -> State:
        """Returns the state of the iteration that began last, or of the next if none has begun.

        With several iterators at a time, use the `state()` of each.
        """
        return (self._latest or self._following()).state()

    def _following(self) -> Position:
        return Position(self._engine.batching.at(self._iterations.next))

    def _begin(self) -> Position:
        # Keep the position only: a dropped iterator must be able to end its threads.
        self._latest = Position(self._engine.batching.at(self._iterations.begin()))
        return self._latest
