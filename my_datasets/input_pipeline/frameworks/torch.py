"""A plan as a PyTorch `DataLoader`."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch.utils.data

from my_datasets.input_pipeline import trees
from my_datasets.input_pipeline.engine import Engine
from my_datasets.input_pipeline.plan import Plan
from my_datasets.input_pipeline.ragged import Ragged
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

    def __len__(self) -> int:
        total = Engine(self.plan, self._state).total_steps
        if total is None:
            raise TypeError("these batches have no end: epochs=None")
        return total

    def __iter__(self) -> Iterator[Any]:
        """Yields this worker's batches: every n-th, as `DataLoader` asks its workers in turn."""
        worker = torch.utils.data.get_worker_info()
        engine = Engine(self.plan, self._state, rows=1)
        if worker is None:
            for batch in Engine(self.plan, self._state):
                yield _tensors(batch)
            return
        number = worker.id
        total = engine.total_steps
        while total is None or number < total:
            yield _tensors(engine.finished(engine.load(engine.piece(number))))
            number += worker.num_workers

    def state_after(self, steps: int) -> State:
        """Returns where an iteration is after so many batches, to go on there another time."""
        return Engine(self.plan, self._state).state_after(steps)


def torch_loader(plan: Plan, *, state: State | None = None, workers: int = 0) -> Any:
    """Returns a `torch.utils.data.DataLoader` of a plan's batches.

    Args:
      plan: The plan.
      state: Where to begin; None for the beginning.
      workers: How many processes make batches; none for threads of this one.
    """
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
