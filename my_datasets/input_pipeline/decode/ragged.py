"""Values of which each example has as many as it likes."""

from collections.abc import Sequence
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

    @property
    def shape(self) -> tuple[int | None, ...]:
        """How many examples there are; None for what differs; the shape of a value."""
        return (len(self), *(None for _ in self.lengths), *self.values.shape[1:])

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

    def take(self, rows: npt.NDArray[np.int64]) -> "Ragged":
        """Returns some examples, in any order; shape [n]."""
        lengths = self.lengths[0][rows]
        begins = (np.cumsum(self.lengths[0]) - self.lengths[0])[rows]
        places = runs(begins, lengths)
        if len(self.lengths) == 1:
            return Ragged(self.values[places], (lengths,))
        inner = Ragged(self.values, self.lengths[1:]).take(places)
        return Ragged(inner.values, (lengths, *inner.lengths))

    def padded(self, value: Any = 0, *, multiple: int = 1) -> npt.NDArray[Any]:
        """Returns lists as one array, of the longest one's length.

        Args:
          value: What comes after lists that are shorter.
          multiple: The length is rounded up to a multiple of this.

        Returns:
          Shape [n, length, ...].
        """
        lengths = self.lengths[0]
        longest = int(lengths.max(initial=0))
        longest += -longest % multiple
        if len(self.lengths) > 1:
            inner = Ragged(self.values, self.lengths[1:]).padded(value, multiple=multiple)
            return Ragged(inner, (lengths,)).padded(value, multiple=multiple)
        shape = (len(lengths), longest, *self.values.shape[1:])
        found = np.full(shape, value, self.values.dtype)
        found[np.arange(longest) < lengths[:, None]] = self.values
        return found


def joined(columns: Sequence[Ragged]) -> Ragged:
    """Returns the examples of several columns, one column's after the other's."""
    levels = range(len(columns[0].lengths))
    return Ragged(
        np.concatenate([column.values for column in columns]),
        tuple(np.concatenate([column.lengths[i] for column in columns]) for i in levels),
    )


def runs(begins: Lengths, lengths: Lengths) -> Lengths:
    """Returns the numbers of some runs of consecutive ones: those of [3, 7] and [2, 1] are 3, 4, 7.

    Args:
      begins: The first of each; shape [n].
      lengths: How many each has; shape [n].
    """
    before = np.cumsum(lengths) - lengths
    return np.repeat(begins - before, lengths) + np.arange(int(lengths.sum()))
