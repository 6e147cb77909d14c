"""Columns nested in dicts and tuples: what is done to each of them."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


def map_columns(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Returns a tree with each of its columns changed.

    Args:
      function: Takes a column, and those in the same place of the other trees.
      tree: The tree.
      others: Others of the same form.
    """
    if isinstance(tree, np.ndarray):  # the most frequent, and the other questions are slow
        return function(tree, *others)
    if isinstance(tree, Mapping):
        return {
            name: map_columns(function, node, *(other[name] for other in others))
            for name, node in tree.items()
        }
    if isinstance(tree, tuple):
        return tuple(map_columns(function, *nodes) for nodes in zip(tree, *others, strict=True))
    return function(tree, *others)


def columns_of(tree: Any) -> list[Any]:
    """Returns the columns of a tree, in its order."""
    if isinstance(tree, (Mapping, tuple)):
        nodes = tree.values() if isinstance(tree, Mapping) else tree
        return [column for node in nodes for column in columns_of(node)]
    return [tree]


def in_order_of(template: Any, tree: Any) -> Any:
    """Returns a tree with its columns in the order of another one of the same form."""
    return map_columns(lambda _, column: column, template, tree)


def rebuilt(tree: Any, columns: list[Any]) -> Any:
    """Returns a tree of the same form with other columns, which are taken from the list's front."""
    rest = iter(columns)
    return map_columns(lambda _: next(rest), tree)


def rows(tree: Any, begin: int, end: int) -> Any:
    """Returns some rows of all columns, without a copy."""
    return map_columns(lambda column: _rows(column, begin, end), tree)


def concatenated(trees: Sequence[Any]) -> Any:
    """Returns the rows of several trees of one form, one tree's after the other's."""

    def join(*columns: Any) -> Any:
        return joined(columns) if isinstance(columns[0], Ragged) else np.concatenate(columns)

    return trees[0] if len(trees) == 1 else map_columns(join, *trees)


def merged(trees: Sequence[Any], places: Sequence[npt.NDArray[np.int64]]) -> Any:
    """Returns the rows of several trees of one form, each in its place.

    Args:
      trees: The trees.
      places: Where the rows of each come to lie; together all from 0 to their number.
    """
    order = np.empty(sum(map(len, places)), np.int64)
    order[np.concatenate(places)] = np.arange(len(order))

    def in_order(column: Any) -> Any:
        return column.take(order) if isinstance(column, Ragged) else column[order]

    return trees[0] if len(trees) == 1 else map_columns(in_order, concatenated(trees))


def _rows(column: Any, begin: int, end: int) -> Any:
    if not isinstance(column, Ragged):
        return column[begin:end]
    values, lengths = column.values, []
    first, last = begin, end
    for level in column.lengths:
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(level)])
        lengths.append(level[first:last])
        first, last = int(ends[first]), int(ends[last])
    return Ragged(values[first:last], tuple(lengths))


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


_MEMINFO = Path("/proc/meminfo")
# What CPython needs for an object of bytes, beside them, and the reference to it.
_OBJECT = 33 + 8


def available_memory() -> int:
    """Returns how many bytes of memory are free, or can be made so."""
    if _MEMINFO.is_file():
        for line in _MEMINFO.read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def size_of(values: Any) -> int:
    """Returns how many bytes columns take."""
    if isinstance(values, Mapping):
        return sum(map(size_of, values.values()))
    if isinstance(values, tuple):
        return sum(map(size_of, values))
    if isinstance(values, Ragged):
        return size_of(values.values) + sum(lengths.nbytes for lengths in values.lengths)
    if isinstance(values, np.ndarray) and values.dtype == object:
        return sum(
            _OBJECT + (one.nbytes if isinstance(one, np.ndarray) else len(one))
            for one in values.reshape(-1)
        )
    return int(values.nbytes)
