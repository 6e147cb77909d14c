"""A plan as a PyTorch `DataLoader`."""

import itertools
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch.utils.data

from my_datasets.errors import InvalidOptionError, explain
from my_datasets.input_pipeline import trees
from my_datasets.input_pipeline.engine import Engine
from my_datasets.input_pipeline.plan import Plan
from my_datasets.input_pipeline.ragged import Ragged
from my_datasets.input_pipeline.stages import Cache, Mix
from my_datasets.input_pipeline.state import State


class TorchBatches(torch.utils.data.IterableDataset[Any]):
    """The batches of a plan as tensors, in the same order for any number of worker processes.

    Attributes:
      plan: The plan.
    """

    def __init__(self, plan: Plan, state: State | None = None) -> None:
        """Opens nothing yet: each worker process does so for itself.

        Args:
          plan: The plan.
          state: Where to begin; None for the beginning.
        """
        self.plan = plan
        self._state = state
        self._engines: dict[tuple[int, bool], Engine] = {}

    def __len__(self) -> int:
        total = self._engine(single=False).batching.total_steps
        if total is None:
            raise TypeError("these batches have no end: epochs=None")
        return total

    def __iter__(self) -> Iterator[Any]:
        """Yields this worker's batches: every n-th, as `DataLoader` asks its workers in turn."""
        worker = torch.utils.data.get_worker_info()
        if worker is None:
            yield from map(_tensors, self._engine(single=False))
            return
        engine = self._engine(single=True)
        total = engine.batching.total_steps
        numbers = itertools.count(worker.id, worker.num_workers)
        for number in itertools.takewhile(lambda n: total is None or n < total, numbers):
            yield _tensors(engine.load(engine.batching.piece(number)))

    def state_after(self, steps: int) -> State:
        """Returns where an iteration is after so many batches, to go on there another time."""
        return self._engine(single=False).batching.state_after(steps)

    def _engine(self, *, single: bool) -> Engine:
        """Returns the engine of this process, which keeps its files open, and its cache."""
        key = (os.getpid(), single)
        if key not in self._engines:
            self._engines[key] = Engine(self.plan, self._state, single=single)
        return self._engines[key]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_engines": {}}


def torch_loader(plan: Plan, *, state: State | None = None, workers: int = 0) -> Any:
    """Returns a `torch.utils.data.DataLoader` of a plan's batches.

    Args:
      plan: The plan.
      state: Where to begin; None for the beginning.
      workers: How many processes make batches; none for threads of this one.

    Raises:
      InvalidOptionError: Each of several processes would have a cache in memory of its own.
    """
    mix = plan.get(Mix)
    parts = mix.parts if mix is not None else (plan.stages,)
    caches = [stage for part in parts for stage in part if isinstance(stage, Cache)]
    if workers and any(cache.kind == "memory" for cache in caches):
        raise InvalidOptionError(
            explain(
                f"Each of {workers} processes would keep a part of the examples in its memory, and "
                "forget it with the epoch.",
                mend="use cache='disk', which they share, or workers=0",
            )
        )
    return torch.utils.data.DataLoader(
        TorchBatches(plan, state), batch_size=None, num_workers=workers
    )


def _tensors(batch: Any) -> Any:
    return trees.map_columns(_tensor, batch)


def _tensor(column: Any) -> Any:
    if isinstance(column, Ragged):
        values = _tensor(column.values)
        if len(column.lengths) > 1 or not isinstance(values, torch.Tensor):
            return column.rows()
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(column.lengths[0])])
        return torch.nested.nested_tensor_from_jagged(values, torch.from_numpy(offsets))
    if column.dtype == object:
        return list(column)
    # What PyTorch cannot hold becomes what it can without loss.
    if column.dtype in (np.uint16, np.uint32):
        column = column.astype(np.int64)
    return torch.from_numpy(np.require(column, requirements=["C", "W"]))
