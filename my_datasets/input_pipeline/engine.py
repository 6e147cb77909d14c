"""Makes the batches of a plan, and works ahead of who wants them."""

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from my_datasets.errors import UnknownMethodError, explain
from my_datasets.input_pipeline.decode import pytree
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
      plan: The plan.
      batching: Which examples are in which batch, of the first iteration.
      tree: The leaves of a batch, nested as its columns are.
    """

    def __init__(
        self,
        plan: Plan,
        state: State | None = None,
        *,
        single: bool = False,
        versions: OpenedVersions | None = None,
    ) -> None:
        """Opens the data of a plan.

        Args:
          plan: The plan.
          state: Where to begin; None for the beginning. It may come from another number of hosts,
            or another batch size.
          single: Whether each batch is made for itself.
          versions: What the caller has opened already; None for nothing.

        Raises:
          PlanError: The state belongs to other data or another order, or the data changed.
        """
        self.plan = plan
        version = ORDER_VERSION if state is None else state.order_version
        self._source, order = opened(plan, versions, version=version)
        self.batching = Batching.of(plan, order, state, single=single)
        self.tree = self._source.tree

    def load(self, piece: Piece) -> Any:
        """Returns the columns of a piece."""
        with timed("order"):
            numbers = self.batching.numbers(piece)
        return self.columns(numbers, piece.epoch)

    def columns(self, numbers: Places, epoch: int) -> Any:
        """Returns the columns of some examples, as they are in an epoch."""
        return self._source.columns(numbers, epoch)

    @property
    def skipped(self) -> int:
        """How many different examples were passed over, as their images cannot be decoded."""
        return self._source.skipped

    def batches(self, start: State) -> Iterator[Any]:
        """Yields the batches of an iteration: made ahead in threads, or when they are asked for.

        Args:
          start: Where it begins.
        """
        batching = self.batching.at(start)
        prefetch = self.plan.the(Prefetch)
        if not prefetch.ahead:
            yield from self._made_when_asked_for(batching)
            return
        total = batching.total_pieces
        numbers = iter(itertools.count() if total is None else range(total))
        with ThreadPoolExecutor(prefetch.workers, thread_name_prefix="my_datasets") as pool:
            pending: deque[tuple[Piece, Future[Any]]] = deque()

            def begin(count: int) -> None:
                for number in itertools.islice(numbers, count):
                    piece = batching.piece(number)
                    pending.append((piece, pool.submit(self.load, piece)))

            try:
                begin(prefetch.workers + prefetch.ahead)
                while pending:
                    piece, future = pending.popleft()
                    columns = future.result()
                    begin(1)
                    for i in range(piece.batches):
                        yield pytree.rows(columns, i * piece.rows, (i + 1) * piece.rows)
            finally:
                for _, future in pending:
                    future.cancel()

    def _made_when_asked_for(self, batching: Batching) -> Iterator[Any]:
        total = batching.total_pieces
        for number in itertools.count() if total is None else range(total):
            piece = batching.piece(number)
            columns = self.load(piece)
            for i in range(piece.batches):
                yield pytree.rows(columns, i * piece.rows, (i + 1) * piece.rows)


class Position:
    """How far an iteration is.

    Attributes:
      batching: Its batches.
      given: How many of them were given.
    """

    def __init__(self, batching: Batching) -> None:
        """Begins with none."""
        self.batching = batching
        self.given = 0

    @property
    def state(self) -> State:
        """What the iteration can be resumed from."""
        return self.batching.state_after(self.given)


class BatchIterator(Iterator[Any]):
    """Goes through the batches of one iteration, which begins when the first one is asked for."""

    def __init__(self, engine: Engine, begin: Callable[[], Position], following: Position) -> None:
        """Opens nothing yet.

        Args:
          engine: Makes the batches.
          begin: Returns where the iteration begins, when it does.
          following: Where it would begin now.
        """
        self._engine, self._begin, self._position = engine, begin, following
        self._batches: Iterator[Any] | None = None

    def __next__(self) -> Any:
        if self._batches is None:
            self._position = self._begin()
            self._batches = self._engine.batches(self._position.batching.start)
        batch = next(self._batches)
        self._position.given += 1
        return batch

    def state(self) -> State:
        """Returns where this iteration is."""
        return self._position.state


# Methods of tf.data.Dataset, and what is given to `batches` in their place.
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
    """The batches of a plan as NumPy arrays; each iteration begins at the epoch after the last one.

    Attributes:
      plan: The plan.
    """

    def __init__(
        self, plan: Plan, state: State | None = None, versions: OpenedVersions | None = None
    ) -> None:
        """Opens the data; the arguments are those of `Engine`."""
        self.plan = plan
        self._engine = Engine(plan, state, versions=versions)
        batching = self._engine.batching
        self._iterations = Iterations(batching.start, batching.epochs)
        self._begun_last: Position | None = None

    @property
    def steps_per_epoch(self) -> int:
        """How many batches a whole epoch has."""
        return self._engine.batching.steps_per_epoch

    def __len__(self) -> int:
        """Returns how many batches an iteration has; one from a saved position has fewer."""
        total = self._engine.batching.steps_per_iteration
        if total is None:
            raise TypeError("these batches have no end: epochs=None")
        return total

    def __iter__(self) -> BatchIterator:
        """Returns an iterator over the next epochs, or from the state given.

        An iterator has a `state()` of its own.
        """
        return BatchIterator(self._engine, self._begin, self._following())

    def set_epoch(self, epoch: int) -> None:
        """Lets the next iteration begin at an epoch, from 0: for example to repeat one.

        Raises:
          InvalidOptionError: It is no multiple of the plan's `epochs`.
        """
        self._iterations.set_epoch(epoch)

    def __getattr__(self, name: str) -> Any:
        if name in _OF_DATASETS:
            raise UnknownMethodError(
                explain(
                    f"batches(...) has no method {name}().",
                    fix=f"{_OF_DATASETS[name]}; or use pipeline(...), which has it",
                )
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def skipped(self) -> int:
        """How many different examples were skipped so far: see `undecodable` of `plan`."""
        return self._engine.skipped

    def state(self) -> State:
        """Returns where the iteration is of which a first batch was asked for last.

        Before the first one, it is where that begins. Where several iterators are used at a time,
        ask them: each has a `state()`.
        """
        return (self._begun_last or self._following()).state

    def _following(self) -> Position:
        return Position(self._engine.batching.at(self._iterations.next))

    def _begin(self) -> Position:
        # The position alone is kept: an iterator that is dropped ends its threads.
        found = self._begun_last = Position(self._engine.batching.at(self._iterations.begin()))
        return found
