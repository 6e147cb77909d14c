"""Values of which each example has as many as it likes."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Lengths = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Ragged:
    """A column of lists, or of lists of lists.

    Attributes:
      values: All innermost values, one example's after the other's; shape [total, ...].
      lengths: How long the lists are, the outermost first: of those of one level there are as many
        as the lengths above it add up to.
    """

    values: npt.NDArray[Any]
    lengths: tuple[Lengths, ...]

    def __len__(self) -> int:
        return len(self.lengths[0])

    def __getitem__(self, row: int) -> Any:
        """Returns one example's values: an array, or a list of them."""
        ends = np.cumsum(self.lengths[0])
        end = int(ends[row])
        begin = end - int(self.lengths[0][row])
        if len(self.lengths) == 1:
            return self.values[begin:end]
        inner = Ragged(self.values, self.lengths[1:])
        return [inner[i] for i in range(begin, end)]

    def rows(self) -> list[Any]:
        """Returns all examples' values."""
        if len(self.lengths) == 1:
            return np.split(self.values, np.cumsum(self.lengths[0])[:-1]) if len(self) else []
        inner = Ragged(self.values, self.lengths[1:]).rows()
        ends = np.cumsum(self.lengths[0]).tolist()
        return [inner[a:b] for a, b in zip([0, *ends], ends, strict=False)]
