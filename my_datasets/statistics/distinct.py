"""Distinct values: an estimate of their number, and the most frequent ones.

The number is estimated from the smallest hashes: the k minimum values of Bar-Yossef et al.,
Counting distinct elements in a data stream (2002), with the unbiased estimator of Beyer et al., On
synopses for distinct-value estimation under multiset operations (2007). The state depends only on
the values, not on their order or number.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from my_datasets.core.arrays import Array

Hashes = npt.NDArray[np.uint64]
# The standard error of the estimate is 1 / sqrt(k - 2): 1.6%. Fewer values are counted exactly.
_KEPT = 4096
_ALL = float(1 << 64)

# Up to this many values are counted exactly, and this many are listed.
_COUNTED = 1000
_LISTED = 20
# At most 2**12 texts are kept. A count is then off by at most 3.5 / 2**12 of the total: see
# https://datasketches.apache.org/docs/Frequency/FrequentItemsErrorTable.html
_LOG_KEPT = 12


@dataclass
class Distinct:
    """The smallest hashes of some values.

    Attributes:
      kept: At most 4,096 hashes, ascending.
    """

    kept: Hashes = field(default_factory=lambda: np.zeros(0, np.uint64))

    def add(self, hashes: Hashes) -> None:
        """Adds values by their hashes; shape [n]."""
        if len(self.kept) == _KEPT:
            hashes = hashes[hashes < self.kept[-1]]
        elif len(hashes) > 2 * _KEPT:
            # The hashes below a limit are usually enough, and sorting all of them is slow.
            limit = np.uint64(_ALL * 1.25 * _KEPT / len(hashes))
            few = different(np.concatenate([self.kept[self.kept < limit], hashes[hashes < limit]]))
            if len(few) >= _KEPT:
                self.kept = few[:_KEPT]
                return
        if len(hashes):
            self.kept = different(np.concatenate([self.kept, hashes]))[:_KEPT]

    def merge(self, other: "Distinct") -> None:
        """Adds the values of another instance."""
        self.add(other.kept)

    @property
    def is_exact(self) -> bool:
        """Whether `number` is exact rather than an estimate."""
        return len(self.kept) < _KEPT

    @property
    def number(self) -> int:
        """The approximate number of distinct values."""
        if self.is_exact:
            return len(self.kept)
        return round((_KEPT - 1) * _ALL / (float(self.kept[-1]) + 1))


def of_numbers(numbers: npt.NDArray[np.generic]) -> Hashes:
    """Returns a hash of each number, from its eight bytes as float64 or int64; shape [n].

    The hash is SplitMix64's (Steele et al., Fast splittable pseudorandom number generators, 2014).
    """
    wide: Array
    if numbers.dtype.kind == "f":
        wide = numbers.astype(np.float64) + 0.0  # -0.0 becomes 0.0
    else:
        wide = numbers.astype(np.int64, copy=False)
    return mixed(np.ascontiguousarray(wide).reshape(-1).view(np.uint64))


def different(hashes: Hashes) -> Hashes:
    """Returns the distinct hashes, ascending; several times faster than NumPy 2.3's `np.unique`."""
    found = np.sort(hashes)
    is_first = np.ones(len(found), np.bool_)
    np.not_equal(found[1:], found[:-1], out=is_first[1:])
    return found[is_first]


def mixed(words: Hashes) -> Hashes:
    """Returns new words in which each bit depends on every bit of the word given."""
    found = words + np.uint64(0x9E3779B97F4A7C15)
    found ^= found >> np.uint64(30)
    found *= np.uint64(0xBF58476D1CE4E5B9)
    found ^= found >> np.uint64(27)
    found *= np.uint64(0x94D049BB133111EB)
    found ^= found >> np.uint64(31)
    return found


@dataclass
class Top:
    """The frequency of each value, counted exactly for up to 1,000 distinct values.

    With more distinct texts, the frequent ones are estimated by the frequent items sketch of Apache
    DataSketches (Anderson et al., A high-performance algorithm for identifying frequent items in
    data streams, 2017). With more distinct numbers, which are then measurements, none is listed.

    Attributes:
      is_of_texts: Whether the values are texts.
      counts: The value and its count by the value's hash; None if there are too many.
    """

    is_of_texts: bool = False
    counts: dict[int, tuple[Any, int]] | None = field(default_factory=dict)
    # The serialized sketch, so that it can be sent between processes.
    _sketch: bytes | None = None

    def add(self, hashes: Hashes, value: Callable[[int], Any]) -> None:
        """Adds values.

        Args:
          hashes: The hash of each value; shape [n].
          value: Returns the value at an index.
        """
        if self.counts is None and not self.is_of_texts:
            return
        if not self.is_of_texts and len(different(hashes[: 2 * _COUNTED])) > _COUNTED:
            self.counts = None  # detects measurements early
            return
        found, first, times = np.unique(hashes, return_index=True, return_counts=True)
        if len(found) > _COUNTED and not self.is_of_texts:
            self.counts = None
            return
        each = zip(found.tolist(), first.tolist(), times.tolist(), strict=True)
        if self.counts is None or len(found) > _COUNTED:
            self._sketched((value(place), count) for _, place, count in each)
            return
        for key, place, count in each:
            known = self.counts.get(key)
            self.counts[key] = (known[0], known[1] + count) if known else (value(place), count)
        if len(self.counts) > _COUNTED:
            self._sketched(())

    def merge(self, other: "Top") -> None:
        """Adds the values of another instance, which follow these."""
        if other.counts is None:
            self._sketched((), other._sketch)
        elif self.counts is None:
            self._sketched(other.counts.values())
        else:
            for key, (value, count) in other.counts.items():
                self.counts[key] = (value, self.counts.get(key, (value, 0))[1] + count)
            if len(self.counts) > _COUNTED:
                self._sketched(())

    def _sketched(self, values: Iterable[tuple[Any, int]], other: bytes | None = None) -> None:
        """Switches to a sketch, and adds values to it."""
        counted, self.counts = self.counts or {}, None
        if not self.is_of_texts:
            return
        from datasketches import frequent_strings_sketch as sketches

        sketch = sketches.deserialize(self._sketch) if self._sketch else sketches(_LOG_KEPT)
        for value, count in (*counted.values(), *values):
            sketch.update(value, count)
        if other:
            sketch.merge(sketches.deserialize(other))
        self._sketch = sketch.serialize()

    def most(self) -> list[tuple[Any, int]]:
        """Returns the most frequent values and their counts, in descending order.

        A value from a sketch is listed only if it is certainly more frequent than any value not
        listed.
        """
        if self.counts is not None:
            found = list(self.counts.values())
        elif self._sketch is None:
            return []
        else:
            from datasketches import frequent_items_error_type, frequent_strings_sketch

            sketch = frequent_strings_sketch.deserialize(self._sketch)
            sure = frequent_items_error_type.NO_FALSE_POSITIVES
            found = [(value, least) for value, _, least, _ in sketch.get_frequent_items(sure)]
        return sorted(found, key=lambda one: (-one[1], str(one[0])))[:_LISTED]

    @property
    def is_exact(self) -> bool:
        """Whether all values are counted exactly."""
        return self.counts is not None
