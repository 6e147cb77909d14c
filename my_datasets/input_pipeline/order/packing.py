"""Lists of tokens put together into rows of one length, so that nearly nothing is padding."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from my_datasets.errors import InvalidOptionError, explain
from my_datasets.input_pipeline.decode.ragged import runs
from my_datasets.input_pipeline.order.permutation import Places
from my_datasets.input_pipeline.read.length_index import column_of
from my_datasets.input_pipeline.read.source import IndexedExamples
from my_datasets.input_pipeline.stopwatch import timed
from my_datasets.metadata.features import Leaf

Lengths = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PackedRows:
    """Which tokens each row has: runs of those of some examples.

    Attributes:
      firsts: The first run of each row, and after the last one their number; shape [rows + 1].
      examples: The example of each run; shape [runs].
      begins: Its first token of that; shape [runs].
      lengths: How many tokens it has; shape [runs].
    """

    firsts: Lengths
    examples: Lengths
    begins: Lengths
    lengths: Lengths

    def __len__(self) -> int:
        return len(self.firsts) - 1


def cut(lengths: Lengths, length: int) -> PackedRows:
    """Returns rows of all tokens, one example's after the other's, wherever a row ends.

    Args:
      lengths: How many tokens the examples have; shape [examples].
      length: How many a row has.
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    # A run ends where its example does, or its row.
    stops = np.union1d(ends, np.append(np.arange(length, total, length), total))
    stops = stops[stops > 0]
    starts = np.concatenate([np.zeros(1, np.int64), stops])[: len(stops)]
    examples = np.searchsorted(ends, starts, side="right")
    firsts = np.searchsorted(starts, np.arange(0, total, length))
    begins = starts - (ends[examples] - lengths[examples])
    return PackedRows(np.append(firsts, len(starts)), examples, begins, stops - starts)


def fitted(lengths: Lengths, length: int) -> PackedRows:
    """Returns rows of whole examples: best fit, the longest first, for all of a length at once.

    After the packing by histograms of Krell et al., "Efficient sequence packing without
    cross-contamination", 2021: the work grows with the length of rows, not with the examples.

    Args:
      lengths: How many tokens the examples have, up to `length`; shape [examples].
      length: How many a row has.

    Raises:
      InvalidOptionError: An example is longer.
    """
    if len(lengths) and lengths.max() > length:
        long = np.flatnonzero(lengths > length)
        raise InvalidOptionError(
            explain(
                f"{len(long):,} of {len(lengths):,} examples are longer than a row of {length:,}.",
                f"The longest has {int(lengths.max()):,} tokens",
                fix="give longer rows, pack_split=True, or a tokenizer that truncates",
            )
        )
    by_length = np.argsort(lengths, kind="stable")
    taken = np.searchsorted(lengths[by_length], np.arange(length + 1))
    some, counts = [], []
    for count, pattern in _patterns(np.bincount(lengths, minlength=length + 1), length):
        chosen = []
        for one in pattern:
            chosen.append(by_length[taken[one] : taken[one] + count])
            taken[one] += count
        some.append(np.stack(chosen, axis=1).reshape(-1))
        counts += [len(pattern)] * count
    examples = np.concatenate([np.zeros(0, np.int64), *some])
    firsts = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.array(counts, np.int64))])
    return PackedRows(firsts, examples, np.zeros_like(examples), lengths[examples])


def _patterns(histogram: Lengths, length: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yields (how many rows there are of it, the lengths of the examples in such a row)."""
    # By how much room they have left.
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
    """Rows of tokens.

    A batch is a dict: the tokens, int of shape [n, length]; `segments`, which count the examples of
    a row from 1, and are 0 where nothing is; and `positions` of tokens in their examples.

    Attributes:
      source: The examples, which have one feature.
      leaf: That feature.
      rows: Which tokens each row has.
      length: How many a row has.
    """

    source: IndexedExamples
    leaf: Leaf
    rows: PackedRows
    length: int

    @property
    def tree(self) -> Any:
        """The leaves of a row."""
        names = {self.leaf.name: self.leaf.dtype, "segments": "int32", "positions": "int32"}
        return {
            name: Leaf((name,), "number", dtype, (self.length,)) for name, dtype in names.items()
        }

    @property
    def skipped(self) -> int:
        """How many different examples were passed over so far."""
        return self.source.skipped

    def __len__(self) -> int:
        return len(self.rows)

    def columns(self, numbers: Places, epoch: int) -> Any:
        """Returns some rows."""
        with timed("pack"):
            return self._packed(numbers, epoch)

    def _packed(self, numbers: Places, epoch: int) -> Any:
        rows = self.rows
        counts = rows.firsts[numbers + 1] - rows.firsts[numbers]
        some = runs(rows.firsts[numbers], counts)
        examples, places = np.unique(rows.examples[some], return_inverse=True)
        column = column_of(self.source.tree, self.source.columns(examples, epoch), self.leaf)
        first_tokens = (np.cumsum(column.lengths[0]) - column.lengths[0])[places]
        begins, lengths = rows.begins[some], rows.lengths[some]
        # Where each run comes to lie: after those before it in its row.
        of_row = np.repeat(np.arange(len(numbers)), counts)
        before = np.cumsum(lengths) - lengths
        first_of_row = before[np.cumsum(counts) - counts] if len(some) else before
        at = of_row * self.length + before - first_of_row[of_row]
        targets = runs(at, lengths)
        segments = np.arange(len(some)) - (np.cumsum(counts) - counts)[of_row] + 1
        found = {name: np.zeros(len(numbers) * self.length, leaf.dtype)
                 for name, leaf in self.tree.items()}  # fmt: skip
        found[self.leaf.name][targets] = column.values[runs(first_tokens + begins, lengths)]
        found["segments"][targets] = np.repeat(segments, lengths)
        found["positions"][targets] = runs(begins, lengths)
        return {name: values.reshape(-1, self.length) for name, values in found.items()}
