"""Batches of examples of similar length: by bucketing, or by packing lists of tokens into rows.

The lengths of a feature's lists or texts are read for all examples of a split. Bucketing forms
groups of similar length within a window of an epoch's examples, and shuffles the groups. Packing
joins lists into rows of one length, with almost no padding. Like all orders these are computed, so
any host can begin anywhere.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from my_datasets.errors import FeatureError, InvalidOptionError
from my_datasets.input_pipeline.decode import pytree
from my_datasets.input_pipeline.decode.pytree import Columns, Leaves, Lengths, Ragged, runs
from my_datasets.input_pipeline.order.permutation import ORDER_VERSION, EpochOrder, Order, Places
from my_datasets.input_pipeline.read.source import IndexedExamples
from my_datasets.input_pipeline.stopwatch import timed
from my_datasets.metadata.features import Leaf

LengthArray = npt.NDArray[np.int64]

_AT_ONCE = 4096
# Each iterator that is opened needs those of a feature again.
_known: dict[tuple[str, ...], LengthArray] = {}
_MOST_KNOWN = 16

# Sorted windows to keep: workers are seldom more than one window apart.
_KEPT = 4


def leaf_of(tree: Any, column: str) -> Leaf:
    """Returns a column's leaf; raises FeatureError if there is none, or it has one length only."""
    leaves: list[Leaf] = pytree.columns_of(tree)
    leaf = next((leaf for leaf in leaves if leaf.name == column), None)
    if leaf is None or not (leaf.sequence[:1] == (None,) or is_text(leaf) or is_list(leaf)):
        lists = [one.name for one in leaves if one.sequence[:1] == (None,) or is_list(one)]
        texts = [one.name for one in leaves if is_text(one)]
        raise FeatureError(
            f"There is no feature {column!r} with texts or lists of different lengths.",
            f"Found: lists {lists}, texts {texts}",
            fix="choose one of those",
        )
    return leaf


def is_text(leaf: Leaf) -> bool:
    """Returns whether a leaf is one text for each example."""
    return leaf.form == "bytes" and not leaf.sequence and not leaf.shape


def is_list(leaf: Leaf) -> bool:
    """Returns whether a leaf is a list of numbers, of different lengths."""
    return (*leaf.sequence, *leaf.shape) == (None,) and leaf.form == "number"


def lengths_of(source: IndexedExamples, column: str, key: tuple[str, ...]) -> LengthArray:
    """Returns the lengths of a feature: bytes of texts, entries of lists; int64, shape [examples].

    Reads all examples, unless this process already has; best if the source has no other features.
    `key` tells the feature's values from those of other data.

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


@dataclass(frozen=True)
class LengthOrder:
    """An order by length within windows.

    Attributes:
      order: The order from which windows are taken.
      lengths: The length of each example; int64, shape [examples].
      window: The number of examples in a window.
      group: The number of examples in a group.
      seed: The seed of the order of groups.
    """

    order: EpochOrder
    lengths: npt.NDArray[np.int64]
    window: int
    group: int
    seed: int
    version: int = ORDER_VERSION
    _sorted: dict[tuple[int, int], Places] = field(default_factory=dict, repr=False, compare=False)

    @property
    def size(self) -> int:
        """The number of examples in an epoch."""
        return self.order.size

    def __call__(self, epoch: int, places: Places) -> Places:
        """Returns the numbers of the examples at these places; see `EpochOrder`."""
        windows = places // self.window
        found = np.empty_like(places)
        for window in np.unique(windows).tolist():
            rows = windows == window
            found[rows] = self._window(epoch, window)[places[rows] - window * self.window]
        return found

    def _window(self, epoch: int, window: int) -> Places:
        found = self._sorted.get((epoch, window))
        if found is None:
            begin = window * self.window
            places = np.arange(begin, min(begin + self.window, self.size))
            numbers = self.order(epoch, places)
            by_length = numbers[np.argsort(self.lengths[numbers], kind="stable")]
            full = len(by_length) // self.group
            order = Order(full, self.seed, self.version)
            key = epoch * -(-self.size // self.window) + window
            # The rest, too small for a group, is of random length, as it may be dropped.
            rest = len(by_length) - full * self.group
            last = Order(full + 1, self.seed + 1, self.version)
            at = int(last(key, np.zeros(1, np.int64))[0]) * self.group
            whole = np.delete(by_length, np.s_[at : at + rest])
            groups = whole.reshape(full, self.group)[order(key, np.arange(full))]
            found = np.concatenate([groups.reshape(-1), by_length[at : at + rest]])
            for old in list(self._sorted)[: 1 - _KEPT]:
                self._sorted.pop(old, None)
            self._sorted[epoch, window] = found
        return found


@dataclass(frozen=True)
class PackedRows:
    """The tokens of each row: runs of tokens of examples.

    Attributes:
      firsts: The first run of each row, followed by the number of runs; shape [rows + 1].
      examples: The example of each run; shape [runs].
      begins: The run's first token within the example; shape [runs].
      lengths: The number of tokens in the run; shape [runs].
    """

    firsts: Lengths
    examples: Lengths
    begins: Lengths
    lengths: Lengths

    def __len__(self) -> int:
        return len(self.firsts) - 1


def cut(lengths: Lengths, length: int) -> PackedRows:
    """Cuts the concatenated tokens of all examples into rows of `length` tokens.

    `lengths` are the lengths of the examples; shape [examples].
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    # A run ends where its example or its row ends.
    stops = np.union1d(ends, np.append(np.arange(length, total, length), total))
    stops = stops[stops > 0]
    starts = np.concatenate([np.zeros(1, np.int64), stops])[: len(stops)]
    examples = np.searchsorted(ends, starts, side="right")
    firsts = np.searchsorted(starts, np.arange(0, total, length))
    begins = starts - (ends[examples] - lengths[examples])
    return PackedRows(np.append(firsts, len(starts)), examples, begins, stops - starts)


def fitted(lengths: Lengths, length: int) -> PackedRows:
    """Packs whole examples into rows: best fit, longest first, for all of one length at once.

    This is the histogram packing of Krell et al., "Efficient sequence packing without
    cross-contamination", 2021: the work grows with the length of rows, not with the examples.
    The lengths have shape [examples].

    Raises:
      InvalidOptionError: An example is longer than a row.
    """
    if len(lengths) and lengths.max() > length:
        long = np.flatnonzero(lengths > length)
        raise InvalidOptionError(
            f"{len(long):,} of {len(lengths):,} examples are longer than a row of {length:,}.",
            f"The longest has {int(lengths.max()):,} tokens",
            fix="use longer rows, pack_split=True, or a tokenizer that truncates",
        )
    by_length = np.argsort(lengths, kind="stable")
    position = np.searchsorted(lengths[by_length], np.arange(length + 1))
    some, counts = [], []
    for count, pattern in _patterns(np.bincount(lengths, minlength=length + 1), length):
        chosen = []
        for one in pattern:
            chosen.append(by_length[position[one] : position[one] + count])
            position[one] += count
        some.append(np.stack(chosen, axis=1).reshape(-1))
        counts += [len(pattern)] * count
    examples = np.concatenate([np.zeros(0, np.int64), *some])
    firsts = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.array(counts, np.int64))])
    return PackedRows(firsts, examples, np.zeros_like(examples), lengths[examples])


def _patterns(histogram: Lengths, length: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yields (number of rows, the lengths of the examples in each of them)."""
    # Keyed by the room left in the rows.
    open_rows: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
    none: tuple[int, ...] = ()
    for one in range(length, 0, -1):
        left = int(histogram[one])
        while left:
            room = min((room for room in open_rows if room >= one), default=length)
            count, pattern = left, none
            if room in open_rows:
                count, pattern = open_rows[room].pop()
                if not open_rows[room]:
                    del open_rows[room]
            each = min(room // one, left)
            used = min(count, left // each)
            left -= used * each
            if pattern and used < count:
                open_rows.setdefault(room, []).append((count - used, pattern))
            rest = room - each * one
            open_rows.setdefault(rest, []).append((used, pattern + (one,) * each))
    for some in open_rows.values():
        yield from some


@dataclass(frozen=True)
class PackedSource:
    """Rows of tokens, packed from the examples of `source`, whose only feature is `leaf`.

    A batch is a dict: the tokens, int of shape [n, length]; `segments`, which number the examples
    of a row from 1, with 0 for padding; and `positions` of tokens within their examples.
    """

    source: IndexedExamples
    leaf: Leaf
    rows: PackedRows
    length: int

    @property
    def tree(self) -> Leaves:
        """The leaves of a row."""
        return {
            name: Leaf((name,), "number", dtype, (self.length,))
            for name, dtype in self._dtypes.items()
        }

    @property
    def _dtypes(self) -> dict[str, str]:
        return {self.leaf.name: self.leaf.dtype, "segments": "int32", "positions": "int32"}

    @property
    def skipped(self) -> int:
        """The number of distinct examples skipped so far."""
        return self.source.skipped

    def __len__(self) -> int:
        return len(self.rows)

    def columns(self, numbers: Places, epoch: int) -> Columns:
        """Returns the rows with these numbers, as columns."""
        with timed("pack"):
            return self._packed(numbers, epoch)

    def _packed(self, numbers: Places, epoch: int) -> Columns:
        rows = self.rows
        counts = rows.firsts[numbers + 1] - rows.firsts[numbers]
        some = runs(rows.firsts[numbers], counts)
        examples, places = np.unique(rows.examples[some], return_inverse=True)
        column = column_of(self.source.tree, self.source.columns(examples, epoch), self.leaf)
        first_tokens = (np.cumsum(column.lengths[0]) - column.lengths[0])[places]
        begins, lengths = rows.begins[some], rows.lengths[some]
        # The target of each run: after the runs before it in its row.
        of_row = np.repeat(np.arange(len(numbers)), counts)
        before = np.cumsum(lengths) - lengths
        first_of_row = before[np.cumsum(counts) - counts] if len(some) else before
        at = of_row * self.length + before - first_of_row[of_row]
        targets = runs(at, lengths)
        segments = np.arange(len(some)) - (np.cumsum(counts) - counts)[of_row] + 1
        found = {
            name: np.zeros(len(numbers) * self.length, dtype)
            for name, dtype in self._dtypes.items()
        }
        found[self.leaf.name][targets] = column.values[runs(first_tokens + begins, lengths)]
        found["segments"][targets] = np.repeat(segments, lengths)
        found["positions"][targets] = runs(begins, lengths)
        return {name: values.reshape(-1, self.length) for name, values in found.items()}
