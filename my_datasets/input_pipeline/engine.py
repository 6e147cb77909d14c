"""Makes the batches of a plan, and works ahead of who wants them."""

import itertools
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from my_datasets.input_pipeline import trees
from my_datasets.input_pipeline.batching import Batching, Piece
from my_datasets.input_pipeline.opening import opened
from my_datasets.input_pipeline.plan import Plan
from my_datasets.input_pipeline.stages import Prefetch
from my_datasets.input_pipeline.state import State
from my_datasets.input_pipeline.stopwatch import timed


class Engine:
    """Makes batches.

    Attributes:
      plan: The plan.
      batching: Which examples are in which batch.
      tree: The leaves of a batch, nested as its columns are.
    """

    def __init__(self, plan: Plan, state: State | None = None, *, single: bool = False) -> None:
        """Opens the data of a plan.

        Args:
          plan: The plan.
          state: Where to begin; None for the beginning. It may come from another number of hosts,
            or another batch size.
          single: Whether each batch is made for itself.

        Raises:
          PlanError: The state belongs to other data or another order, or the data changed.
        """
        self.plan = plan
        self._source, order = opened(plan)
        self.batching = Batching.of(plan, order, state, single=single)
        self.tree = self._source.tree

    def load(self, piece: Piece) -> Any:
        """Returns the columns of a piece."""
        with timed("order"):
            numbers = self.batching.numbers(piece)
        return self._source.columns(numbers, piece.epoch)

    @property
    def skipped(self) -> int:
        """How many different examples were passed over, as their images cannot be decoded."""
        return self._source.skipped

    def __iter__(self) -> Iterator[Any]:
        """Yields the batches: made ahead in threads, or when they are asked for."""
        prefetch = self.plan.the(Prefetch)
        if not prefetch.ahead:
            yield from self._made_when_asked_for()
            return
        total = self.batching.total_pieces
        numbers = iter(itertools.count() if total is None else range(total))
        with ThreadPoolExecutor(prefetch.workers, thread_name_prefix="my_datasets") as pool:
            pending: deque[tuple[Piece, Future[Any]]] = deque()

            def begin(count: int) -> None:
                for number in itertools.islice(numbers, count):
                    piece = self.batching.piece(number)
                    pending.append((piece, pool.submit(self.load, piece)))

            try:
                begin(prefetch.workers + prefetch.ahead)
                while pending:
                    piece, future = pending.popleft()
                    columns = future.result()
                    begin(1)
                    for i in range(piece.batches):
                        yield trees.rows(columns, i * piece.rows, (i + 1) * piece.rows)
            finally:
                for _, future in pending:
                    future.cancel()

    def _made_when_asked_for(self) -> Iterator[Any]:
        total = self.batching.total_pieces
        for number in itertools.count() if total is None else range(total):
            piece = self.batching.piece(number)
            columns = self.load(piece)
            for i in range(piece.batches):
                yield trees.rows(columns, i * piece.rows, (i + 1) * piece.rows)


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

    @property
    def steps_per_epoch(self) -> int:
        """How many batches a whole epoch has."""
        return self._engine.batching.steps_per_epoch

    def __len__(self) -> int:
        total = self._engine.batching.total_steps
        if total is None:
            raise TypeError("these batches have no end: epochs=None")
        return total

    def __iter__(self) -> Iterator[Any]:
        """Yields the batches from the beginning, or from the state given."""
        self._given = 0
        for batch in self._engine:
            self._given += 1
            yield batch

    @property
    def skipped(self) -> int:
        """How many different examples were skipped so far: see `undecodable` of `plan`."""
        return self._engine.skipped

    def state(self) -> State:
        """Returns where the iteration that was begun last is."""
        return self._engine.batching.state_after(self._given)
