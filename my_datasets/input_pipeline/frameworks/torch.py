"""A plan as a PyTorch `DataLoader`."""

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch.utils.data

from my_datasets.core.processes import PerProcess
from my_datasets.errors import InvalidOptionError
from my_datasets.input_pipeline.decode import pytree
from my_datasets.input_pipeline.decode.pytree import Column, Columns, Ragged, Tree
from my_datasets.input_pipeline.engine import Engine
from my_datasets.input_pipeline.order.state import Iterations, State
from my_datasets.input_pipeline.plan.plan import Plan
from my_datasets.input_pipeline.plan.stages import Cache, Mix, Repeat


class TorchBatches(torch.utils.data.IterableDataset[Any]):
    """The batches of a plan as tensors, in the same order for any number of worker processes.

    Each iteration yields the epochs after those of the one before.
    """

    def __init__(self, plan: Plan, state: State | None = None) -> None:
        """Opens no data yet: each worker process does so for itself."""
        self.plan = plan
        self._state = state
        self._iterations = Iterations(state or plan.beginning, plan.the(Repeat).epochs)
        self._engines = PerProcess[dict[bool, Engine]]()
        # State for worker processes: the start of the iteration they are launched for; the start of
        # the latest iteration in this process; and what persistent workers read from shared memory:
        # the number of iterations begun, and the epoch and position at which the last one begins.
        self._launched_for: State | None = None
        self._latest: State | None = None
        self._seen = 0
        self._shared: torch.Tensor | None = None

    def __len__(self) -> int:
        """Returns the number of batches in a full iteration; a resumed one has fewer."""
        total = self._engine(single=False).batching.steps_per_iteration
        if total is None:
            raise TypeError("these batches have no end: epochs=None")
        return total

    def __iter__(self) -> Iterator[Any]:
        """Returns this worker's batches: every n-th, as `DataLoader` polls its workers in turn."""
        worker = torch.utils.data.get_worker_info()
        if worker is None:
            return self._in_process()
        return self._in_worker(self._start_in_worker(), worker.id, worker.num_workers)

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration begin at this epoch, from 0; for example to repeat one.

        Raises:
          InvalidOptionError: It is not a multiple of the plan's `epochs`.
        """
        self._iterations.set_epoch(epoch)

    def state_after(self, steps: int) -> State:
        """Returns the state after this many batches, to resume training from there.

        Batches are counted over all iterations; each must have run to its end.
        """
        return self._engine(single=False).batching.state_after(steps)

    @contextlib.contextmanager
    def beginning(self, *, persistent: bool) -> Iterator[None]:
        """Begins an iteration whose worker processes are launched, or continue, within the context.

        Persistent workers outlive the iteration.
        """
        self._launched_for = start = self._iterations.begin()
        if persistent:
            if self._shared is None:
                self._shared = torch.zeros(3, dtype=torch.int64).share_memory_()
            self._shared[1:] = torch.tensor([start.epoch, start.position])
            self._shared[0] += 1
        try:
            yield
        finally:
            self._launched_for = None

    def _start_in_worker(self) -> State:
        """Returns where an iteration begins in this worker process."""
        begun = 0 if self._shared is None else int(self._shared[0])
        if self._latest is None:
            found = self._launched_for or self._iterations.next
        elif self._shared is not None and begun != self._seen:
            _, epoch, position = self._shared.tolist()
            found = dataclasses.replace(self._latest, epoch=epoch, position=position)
        else:  # a DataLoader other than TorchLoader
            found = self._latest.following(self.plan.the(Repeat).epochs)
        self._latest, self._seen = found, begun
        return found

    def _in_process(self) -> Iterator[Any]:
        yield from map(_tensors, self._engine(single=False).batches(self._iterations.begin()))

    def _in_worker(self, start: State, worker: int, workers: int) -> Iterator[Any]:
        engine = self._engine(single=True)
        batching = engine.batching.at(start)
        for number in itertools.islice(itertools.count(), worker, batching.total_steps, workers):
            yield _tensors(engine.load(batching.piece(number)))

    def _engine(self, *, single: bool) -> Engine:
        """Returns the engine of this process, which keeps its open files and its cache."""
        engines = self._engines.get(dict)
        if single not in engines:
            engines[single] = Engine(self.plan, self._state, single=single)
        return engines[single]


class TorchLoader(torch.utils.data.DataLoader[Any]):
    """A `DataLoader` of a plan's batches; each iteration yields the next epochs."""

    dataset: TorchBatches

    def __iter__(self) -> Any:
        """Returns an iterator over the next epochs."""
        if not self.num_workers:
            return super().__iter__()
        with self.dataset.beginning(persistent=self.persistent_workers):
            return super().__iter__()

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration begin at an epoch; see `TorchBatches.set_epoch`."""
        self.dataset.set_epoch(epoch)

    def state_after(self, steps: int) -> State:
        """Returns the state after this many batches; see `TorchBatches.state_after`."""
        return self.dataset.state_after(steps)


def torch_loader(plan: Plan, *, state: State | None = None, workers: int = 0) -> TorchLoader:
    """Returns a plan's batches, made by worker processes, or with 0 by threads of this process.

    Raises:
      InvalidOptionError: Several processes would each have an in-memory cache of their own.
    """
    mix = plan.get(Mix)
    parts = mix.parts if mix is not None else (plan.stages,)
    caches = [stage for part in parts for stage in part if isinstance(stage, Cache)]
    if workers and any(cache.kind == "memory" for cache in caches):
        raise InvalidOptionError(
            f"Each of {workers} processes would cache a part of the examples, and lose it at "
            "the end of the epoch.",
            fix="use cache='disk', which they share, or workers=0",
        )
    return TorchLoader(TorchBatches(plan, state), batch_size=None, num_workers=workers)


def _tensors(batch: Columns) -> Tree[torch.Tensor | list[object]]:
    return pytree.map_columns(_tensor, batch)


def _tensor(column: Column) -> torch.Tensor | list[Any]:
    if isinstance(column, Ragged):
        values = _tensor(column.values)
        if len(column.lengths) > 1 or not isinstance(values, torch.Tensor):
            return column.rows()
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(column.lengths[0])])
        return torch.nested.nested_tensor_from_jagged(values, torch.from_numpy(offsets))
    if column.dtype == object:
        return list(column)
    # Types that PyTorch does not support are converted to a type that holds them without loss.
    if column.dtype in (np.uint16, np.uint32):
        column = column.astype(np.int64)
    return torch.from_numpy(np.require(column, requirements=["C", "W"]))
