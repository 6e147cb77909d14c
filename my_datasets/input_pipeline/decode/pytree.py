"""Columns nested in dicts and tuples: what is done to each of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from my_datasets.input_pipeline.decode.ragged import Ragged, joined


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
