"""Columns nested in dicts and tuples: what is done to each of them."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from my_datasets.input_pipeline.ragged import Ragged


def map_columns(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Returns a tree with each of its columns changed.

    Args:
      function: Takes a column, and those in the same place of the other trees.
      tree: The tree.
      others: Others of the same form.
    """
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


def rebuilt(tree: Any, columns: list[Any]) -> Any:
    """Returns a tree of the same form with other columns, which are taken from the list's front."""
    rest = iter(columns)
    return map_columns(lambda _: next(rest), tree)


def rows(tree: Any, begin: int, end: int) -> Any:
    """Returns some rows of all columns, without a copy."""
    return map_columns(lambda column: _rows(column, begin, end), tree)


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
