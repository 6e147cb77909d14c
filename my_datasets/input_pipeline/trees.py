"""Columns nested in dicts and tuples: what is done to each of them."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from my_datasets.input_pipeline.ragged import Ragged


def map_columns(function: Callable[[Any], Any], tree: Any) -> Any:
    """Returns a tree with each of its columns changed."""
    if isinstance(tree, Mapping):
        return {name: map_columns(function, node) for name, node in tree.items()}
    if isinstance(tree, tuple):
        return tuple(map_columns(function, node) for node in tree)
    return function(tree)


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


def is_of_images(column: Any) -> bool:
    """Returns whether a column holds images of one size, by its shape."""
    return not isinstance(column, Ragged) and column.ndim == 4 and column.shape[-1] in (1, 3, 4)


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
