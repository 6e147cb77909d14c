"""How long the lists or texts of a feature are, of all examples of a split."""

from typing import Any

import numpy as np
import numpy.typing as npt

from my_datasets.errors import FeatureError, explain
from my_datasets.input_pipeline.decode import pytree
from my_datasets.input_pipeline.decode.ragged import Ragged
from my_datasets.input_pipeline.read.source import IndexedExamples
from my_datasets.metadata.features import Leaf

Lengths = npt.NDArray[np.int64]

_AT_ONCE = 4096
# Those of one feature are wanted again by each iterator that is opened.
_known: dict[tuple[str, ...], Lengths] = {}
_MOST_KNOWN = 16


def leaf_of(tree: Any, column: str) -> Leaf:
    """Returns the leaf of a name.

    Raises:
      FeatureError: There is none, or it has one length only.
    """
    leaves: list[Leaf] = pytree.columns_of(tree)
    leaf = next((leaf for leaf in leaves if leaf.name == column), None)
    if leaf is None or not (leaf.sequence[:1] == (None,) or is_text(leaf) or is_list(leaf)):
        lists = [one.name for one in leaves if one.sequence[:1] == (None,) or is_list(one)]
        texts = [one.name for one in leaves if is_text(one)]
        raise FeatureError(
            explain(
                f"There is no feature {column!r} with texts or lists of different lengths.",
                f"Found: lists {lists}, texts {texts}",
                fix="choose one of those",
            )
        )
    return leaf


def is_text(leaf: Leaf) -> bool:
    """Returns whether a leaf is one text for each example."""
    return leaf.form == "bytes" and not leaf.sequence and not leaf.shape


def is_list(leaf: Leaf) -> bool:
    """Returns whether a leaf is a list of numbers, of different lengths."""
    return (*leaf.sequence, *leaf.shape) == (None,) and leaf.form == "number"


def lengths_of(source: IndexedExamples, column: str, key: tuple[str, ...]) -> Lengths:
    """Returns the lengths of a feature: bytes of texts, entries of lists; int64, shape [examples].

    All examples are gone through, unless that was done in this process before.

    Args:
      source: The examples; best with no other features.
      column: The feature.
      key: What tells its values from those of other data.

    Raises:
      FeatureError: There is no such feature with different lengths.
    """
    if key in _known:
        return _known[key]
    leaf = leaf_of(source.tree, column)
    found = np.empty(len(source), np.int64)
    for begin in range(0, len(source), _AT_ONCE):
        numbers = np.arange(begin, min(begin + _AT_ONCE, len(source)))
        columns = source.columns(numbers, 0)
        found[numbers] = _lengths(column_of(source.tree, columns, leaf))
    while len(_known) >= _MOST_KNOWN:
        del _known[next(iter(_known))]
    _known[key] = found
    return found


def column_of(tree: Any, columns: Any, leaf: Leaf) -> Any:
    """Returns the column of a leaf, out of a tree of columns."""
    pairs = zip(pytree.columns_of(tree), pytree.columns_of(columns), strict=True)
    return next(column for one, column in pairs if one is leaf or one == leaf)


def _lengths(column: Any) -> Any:
    if isinstance(column, Ragged):
        return column.lengths[0]
    return np.fromiter(map(len, column), np.int64, len(column))
