"""Columns nested in dicts and tuples: maps, joins, slices and measures them.

A column is an array, or `Ragged` if its examples have different numbers of values.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, Union, overload

import numpy as np
import numpy.typing as npt

from my_datasets.core.arrays import Array
from my_datasets.metadata.features import Leaf

T = TypeVar("T")
_U = TypeVar("_U")

Lengths = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Ragged:
    """A column of lists, or of lists of lists.

    Attributes:
      values: The innermost values of all examples, concatenated; shape [total, ...].
      lengths: The lengths of the lists at each level, outermost first: each level has as many as
        the sum of the level above it.
    """

    values: Array
    lengths: tuple[Lengths, ...]

    def __len__(self) -> int:
        return len(self.lengths[0])

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The number of examples; None for each level of lists; the shape of a value."""
        return (len(self), *(None for _ in self.lengths), *self.values.shape[1:])

    def __getitem__(self, row: int) -> Any:
        """Returns one example's values: an array, or nested lists of arrays."""
        ends = np.cumsum(self.lengths[0])
        end = int(ends[row])
        begin = end - int(self.lengths[0][row])
        if len(self.lengths) == 1:
            return self.values[begin:end]
        inner = Ragged(self.values, self.lengths[1:])
        return [inner[i] for i in range(begin, end)]

    def rows(self) -> list[Any]:
        """Returns the values of each example, as `self[row]` does."""
        if len(self.lengths) == 1:
            return np.split(self.values, np.cumsum(self.lengths[0])[:-1]) if len(self) else []
        inner = Ragged(self.values, self.lengths[1:]).rows()
        ends = np.cumsum(self.lengths[0]).tolist()
        return [inner[a:b] for a, b in zip([0, *ends], ends, strict=False)]

    def take(self, rows: Lengths) -> "Ragged":
        """Returns the examples with these row numbers, in any order; shape [n]."""
        lengths = self.lengths[0][rows]
        begins = (np.cumsum(self.lengths[0]) - self.lengths[0])[rows]
        places = runs(begins, lengths)
        if len(self.lengths) == 1:
            return Ragged(self.values[places], (lengths,))
        inner = Ragged(self.values, self.lengths[1:]).take(places)
        return Ragged(inner.values, (lengths, *inner.lengths))

    def padded(self, value: object = 0, *, multiple: int = 1) -> Array:
        """Returns the lists as one array of shape [n, length, ...], padded with a value.

        The length is that of the longest list, rounded up to a multiple.
        """
        lengths = self.lengths[0]
        longest = int(lengths.max(initial=0))
        longest += -longest % multiple
        if len(self.lengths) > 1:
            inner = Ragged(self.values, self.lengths[1:]).padded(value, multiple=multiple)
            return Ragged(inner, (lengths,)).padded(value, multiple=multiple)
        shape = (len(lengths), longest, *self.values.shape[1:])
        found: Array = np.full(shape, value, self.values.dtype)
        found[np.arange(longest) < lengths[:, None]] = self.values
        return found


def joined(columns: Sequence[Ragged]) -> Ragged:
    """Concatenates the examples of several columns."""
    levels = range(len(columns[0].lengths))
    return Ragged(
        np.concatenate([column.values for column in columns]),
        tuple(np.concatenate([column.lengths[i] for column in columns]) for i in levels),
    )


def runs(begins: Lengths, lengths: Lengths) -> Lengths:
    """Returns the numbers in runs of consecutive ones: begins [3, 7], lengths [2, 1] give 3, 4, 7.

    Both arrays have shape [n].
    """
    before = np.cumsum(lengths) - lengths
    return np.repeat(begins - before, lengths) + np.arange(int(lengths.sum()))


_MEMINFO = Path("/proc/meminfo")
# CPython's overhead for a bytes object and the reference to it.
_OBJECT = 33 + 8


Tree: TypeAlias = Union[T, Mapping[str, "Tree[T]"], tuple["Tree[T]", ...]]  # noqa: UP007 - T | ... is not an alias
# One value per example: an array of shape [n, ...], or a list per example.
Column: TypeAlias = Array | Ragged
Columns: TypeAlias = Tree[Column]
Leaves: TypeAlias = Tree[Leaf]


def map_columns(function: Callable[..., _U], tree: Tree[T], *others: Any) -> Tree[_U]:
    """Applies a function to each column of a tree, and the columns in its place in other trees."""
    if isinstance(tree, np.ndarray):  # the most frequent case, and the other checks are slow
        return function(tree, *others)
    if isinstance(tree, Mapping):
        return {
            name: map_columns(function, node, *(other[name] for other in others))
            for name, node in tree.items()
        }
    if isinstance(tree, tuple):
        return tuple(map_columns(function, *nodes) for nodes in zip(tree, *others, strict=True))
    return function(tree, *others)


@overload
def columns_of(tree: Columns) -> list[Column]: ...
@overload
def columns_of(tree: Tree[T]) -> list[T]: ...
def columns_of(tree: Tree[Any]) -> list[Any]:
    """Returns the columns of a tree, in its order."""
    if isinstance(tree, Mapping | tuple):
        nodes = tree.values() if isinstance(tree, Mapping) else tree
        return [column for node in nodes for column in columns_of(node)]
    return [tree]


def in_order_of(template: Tree[object], tree: Columns) -> Columns:
    """Returns a tree with its columns in the order of another tree of the same structure."""
    return map_columns(lambda _, column: column, template, tree)


def rebuilt(tree: Tree[object], columns: list[T]) -> Tree[T]:
    """Returns a tree of the same structure whose columns are taken from a list, in order."""
    rest = iter(columns)
    return map_columns(lambda _: next(rest), tree)


def rows(tree: Columns, begin: int, end: int) -> Columns:
    """Returns a range of rows of all columns, without a copy."""
    return map_columns(lambda column: _rows(column, begin, end), tree)


def concatenated(trees: Sequence[Columns]) -> Columns:
    """Concatenates the rows of several trees of the same structure."""

    def join(*columns: Any) -> Column:
        return joined(columns) if isinstance(columns[0], Ragged) else np.concatenate(columns)

    return trees[0] if len(trees) == 1 else map_columns(join, *trees)


def merged(trees: Sequence[Columns], places: Sequence[npt.NDArray[np.int64]]) -> Columns:
    """Merges the rows of several trees of the same structure, each to its place.

    `places` are the new row numbers of each tree's rows: together a permutation of all row numbers.
    """
    order = np.empty(sum(map(len, places)), np.int64)
    order[np.concatenate(places)] = np.arange(len(order))

    def in_order(column: Column) -> Column:
        return column.take(order) if isinstance(column, Ragged) else column[order]

    return trees[0] if len(trees) == 1 else map_columns(in_order, concatenated(trees))


def _rows(column: Column, begin: int, end: int) -> Column:
    """Returns a range of a column's rows, without a copy."""
    if not isinstance(column, Ragged):
        return column[begin:end]
    values, lengths = column.values, []
    first, last = begin, end
    for level in column.lengths:
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(level)])
        lengths.append(level[first:last])
        first, last = int(ends[first]), int(ends[last])
    return Ragged(values[first:last], tuple(lengths))


def available_memory() -> int:
    """Returns how many bytes of memory are free, or can be made so."""
    if _MEMINFO.is_file():
        for line in _MEMINFO.read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def size_of(columns: Columns) -> int:
    """Returns how many bytes columns take."""
    return sum(map(_bytes_of, columns_of(columns)))


def _bytes_of(column: Column) -> int:
    if isinstance(column, Ragged):
        return _bytes_of(column.values) + sum(lengths.nbytes for lengths in column.lengths)
    if column.dtype == object:
        return sum(
            _OBJECT + (one.nbytes if isinstance(one, np.ndarray) else len(one))
            for one in column.reshape(-1)
        )
    return column.nbytes
