"""The distribution of numbers, in a histogram whose resolution adapts to their range.

A bucket is a number's sign, exponent and the first bits of its mantissa, as in HdrHistogram
(https://hdrhistogram.org). Only the numbers determine how many bits: as many as leave no more than
4,096 buckets. So partial histograms of the same numbers add up to the same result in any order,
unlike sketches that compact at random: see docs/decisions/0008-statistics.md.

The number is estimated from the smallest hashes: the k minimum values of Bar-Yossef et al.,
Counting distinct elements in a data stream (2002), with the unbiased estimator of Beyer et al., On
synopses for distinct-value estimation under multiset operations (2007). The state depends only on
the values, not on their order or number.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from my_datasets.core.arrays import Array

_MOST = 4096
_MAGNITUDE = (1 << 63) - 1
# Buckets within a range of this power of two are counted in place; beyond, they are sorted.
_IN_PLACE = 15
_TINY, _HUGE = 1e-140, 1e140
# Integers within a range this small are counted first.
_FEW = 4096
_LARGEST = int(np.float64(np.finfo(np.float64).max).view(np.int64))

Numbers = Array
Buckets = npt.NDArray[np.int64]


@dataclass
class Distribution:
    """The distribution of finite numbers.

    Attributes:
      whole: Whether all of them are integers.
      least: The smallest number; infinite if there are no numbers.
      most: The largest number; minus infinite if there are no numbers.
      mean: The mean, in extended precision.
      squares: The sum of squared deviations from the mean.
      level: The number of low bits of a float64 that buckets drop; it never decreases.
      buckets: The remaining bits, with the number's sign, of non-empty buckets, ascending.
      counts: The number of numbers in each bucket.
    """

    whole: bool = False
    count: int = 0
    least: float = float("inf")
    most: float = float("-inf")
    mean: np.longdouble = field(default_factory=lambda: np.longdouble(0))
    squares: np.longdouble = field(default_factory=lambda: np.longdouble(0))
    level: int = 0
    buckets: Buckets = field(default_factory=lambda: np.zeros(0, np.int64))
    counts: Buckets = field(default_factory=lambda: np.zeros(0, np.int64))

    def add(self, numbers: Numbers, some: Numbers | None = None) -> None:
        """Adds finite numbers of any real type and any shape.

        `some` is the subset of them to put into buckets, where that is enough; None for all.
        """
        if not numbers.size:
            return
        if self.whole and some is None and numbers.size > _FEW:
            first = int(numbers.min())
            if int(numbers.max()) - first < _FEW:
                # Converted to a type that can represent the difference, whatever the numbers.
                above = numbers if numbers.dtype == np.uint64 else numbers.astype(np.int64)
                counts = np.bincount((above - first).reshape(-1).astype(np.int64))
                present = np.flatnonzero(counts)
                self._add_counted(present.astype(np.float64) + first, counts[present])
                return
        wide = numbers.reshape(-1).astype(np.float64, copy=False)
        least, most = float(wide.min()), float(wide.max())
        self._add_moments(wide.size, *_moments(wide, max(-least, most)), least, most)
        bits = (wide if some is None else some.reshape(-1).astype(np.float64)).view(np.int64)
        self._add_buckets(*_counted(bits, self.level))

    def _add_counted(self, numbers: npt.NDArray[np.float64], counts: Buckets) -> None:
        """Adds distinct numbers, ascending, with their counts."""
        count = int(counts.sum())
        mean = np.longdouble((numbers * counts).sum() / count)
        squares = np.longdouble((np.square(numbers - float(mean)) * counts).sum())
        self._add_moments(count, mean, squares, float(numbers[0]), float(numbers[-1]))
        bits = numbers.view(np.int64)
        self._add_buckets(0, np.where(bits < 0, -(bits & _MAGNITUDE), bits), counts)

    def merge(self, other: "Distribution") -> None:
        """Adds all numbers of another distribution."""
        if other.count:
            self._add_moments(other.count, other.mean, other.squares, other.least, other.most)
            self._add_buckets(other.level, other.buckets, other.counts)

    def _add_moments(
        self, count: int, mean: np.longdouble, squares: np.longdouble, least: float, most: float
    ) -> None:
        # Chan, Golub and LeVeque: Updating formulae and a pairwise algorithm for computing sample
        # variances (1979). It keeps full precision where the mean is large and the deviation small.
        total = self.count + count
        gap = mean - self.mean
        self.squares += squares + gap * gap * (self.count * np.longdouble(count) / total)
        self.mean += gap * (np.longdouble(count) / total)
        self.count = total
        self.least, self.most = min(self.least, least), max(self.most, most)

    def _add_buckets(self, level: int, buckets: Buckets, counts: Buckets) -> None:
        """Adds buckets of some level, and drops more bits while there are too many."""
        if len(self.counts):
            both = max(level, self.level)
            buckets = np.concatenate(
                [_shifted(self.buckets, both - self.level), _shifted(buckets, both - level)]
            )
            order = np.argsort(buckets, kind="stable")
            counts = np.concatenate([self.counts, counts])[order]
            level, (buckets, counts) = both, _added_up(buckets[order], counts)
        while len(buckets) > _MOST:
            level += 1
            buckets, counts = _added_up(_shifted(buckets, 1), counts)
        self.level, self.buckets, self.counts = level, buckets, counts

    @property
    def deviation(self) -> float:
        """The population standard deviation."""
        if not self.count:
            return 0.0
        return float(min(np.sqrt(self.squares / self.count), np.finfo(np.float64).max))

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """Returns quantiles: the numbers at or below which the given shares of all numbers are.

        They are exact if there are at most 4,096 distinct numbers, else the middle of a bucket.
        Shares are from 0, for the smallest number, to 1; ascending.
        """
        if not self.count:
            return []
        ends = np.cumsum(self.counts)
        ranks = np.ceil(np.asarray(shares, np.float64) * ends[-1]).clip(1)
        found = self._middles()[np.searchsorted(ends, ranks)]
        found[np.asarray(shares) <= 0] = self.least
        found[np.asarray(shares) >= 1] = self.most
        return [float(one) for one in found]

    def histogram(self, bins: int) -> tuple[list[float], list[int]]:
        """Returns the edges and counts of equal bins from the smallest to the largest number.

        All numbers of a bucket are counted at its middle, so a few near an edge may be off by one
        bin. There are fewer bins if the range has fewer integers, and one if all numbers are the
        same.
        """
        if not self.count:
            return [], []
        # Larger integers are not distinguishable from their neighboring halves.
        has_halves = self.whole and max(-self.least, self.most) < 2**52
        if self.least == self.most and not has_halves:
            return [self.least, self.most], [int(self.counts.sum())]
        if has_halves and self.most - self.least < bins:
            # Center each integer in its bin.
            edges = np.arange(self.least, self.most + 2) - 0.5
        else:
            # Halved, because the range itself may overflow.
            edges = 2 * np.linspace(self.least / 2, self.most / 2, bins + 1)
            edges[0], edges[-1] = self.least, self.most
        places = np.searchsorted(edges, self._middles(), side="right") - 1
        found = np.bincount(places.clip(0, len(edges) - 2), self.counts, len(edges) - 1)
        return edges.tolist(), found.astype(np.int64).tolist()

    def _middles(self) -> npt.NDArray[np.float64]:
        sizes = np.abs(self.buckets)
        low = (sizes << self.level).view(np.float64)
        # The bucket just below infinity has no upper edge.
        last = np.minimum(((sizes + 1) << self.level) - 1, _LARGEST).view(np.float64)
        middle = np.where(sizes == 0, 0.0, low + (last - low) / 2)
        if self.whole:
            middle = np.floor(middle)
        found: npt.NDArray[np.float64] = np.where(self.buckets < 0, -middle, middle)
        return found.clip(self.least, self.most)


def _moments(numbers: npt.NDArray[np.float64], size: float) -> tuple[np.longdouble, np.longdouble]:
    """Returns the mean of numbers, and the sum of their squared deviations from it."""
    if not _TINY < size < _HUGE:  # their squares would overflow or underflow float64
        numbers = numbers.astype(np.longdouble)
    mean = numbers.mean()
    away = numbers - mean
    # Without BLAS, whose threads would contend with those of other processes.
    return np.longdouble(mean), np.longdouble(np.square(away, out=away).sum())


def _counted(bits: Buckets, level: int) -> tuple[int, Buckets, Buckets]:
    """Returns a level of at least `level`, the buckets there, ascending, and their counts."""
    sizes, is_less = bits & _MAGNITUDE, bits < 0
    # Counted separately, because all buckets of small numbers lie between them.
    if not is_less.any():
        return _counted_of_one_sign(sizes, level)
    if is_less.all():
        level, buckets, counts = _counted_of_one_sign(sizes, level)
        return level, -buckets[::-1], counts[::-1]
    first, buckets, counts = _counted_of_one_sign(sizes[is_less], level)
    second, others, more = _counted_of_one_sign(sizes[~is_less], level)
    both = max(first, second)
    found = _added_up(
        np.concatenate([-(buckets >> (both - first))[::-1], others >> (both - second)]),
        np.concatenate([counts[::-1], more]),
    )
    return both, *found


def _counted_of_one_sign(sizes: Buckets, level: int) -> tuple[int, Buckets, Buckets]:
    low, high = int(sizes.min()), int(sizes.max())
    coarse = max(level, (high - low).bit_length() - _IN_PLACE)
    least = low >> coarse
    counts = np.bincount((sizes >> coarse) - least)
    present = np.flatnonzero(counts)
    if coarse > level and len(present) <= _MOST:
        # A lower level may be enough.
        buckets, counts = np.unique(sizes >> level, return_counts=True)
        return level, buckets, counts.astype(np.int64)
    return coarse, present + least, counts[present].astype(np.int64)


def _shifted(buckets: Buckets, bits: int) -> Buckets:
    found: Buckets = (
        np.where(buckets < 0, -(-buckets >> bits), buckets >> bits) if bits else buckets
    )
    return found


def _added_up(buckets: Buckets, counts: Buckets) -> tuple[Buckets, Buckets]:
    """Merges equal buckets, given in ascending order, and adds up their counts."""
    first = np.flatnonzero(np.diff(buckets, prepend=buckets[0] - 1))
    return buckets[first], np.add.reduceat(counts, first)


Hashes = npt.NDArray[np.uint64]
# The standard error of the estimate is 1 / sqrt(k - 2): 1.6%. Fewer values are counted exactly.
_MOST_HASHES = 4096
_ALL = float(1 << 64)

# Up to this many values are counted exactly, and this many are listed.
_COUNTED = 1000
_LISTED = 20
# At most 2**12 texts are kept. A count is then off by at most 3.5 / 2**12 of the total: see
# https://datasketches.apache.org/docs/Frequency/FrequentItemsErrorTable.html
_LOG_MOST_TEXTS = 12


@dataclass
class Distinct:
    """The smallest hashes of some values.

    Attributes:
      smallest: At most 4,096 hashes, ascending.
    """

    smallest: Hashes = field(default_factory=lambda: np.zeros(0, np.uint64))

    def add(self, hashes: Hashes) -> None:
        """Adds values by their hashes; shape [n]."""
        if len(self.smallest) == _MOST_HASHES:
            hashes = hashes[hashes < self.smallest[-1]]
        elif len(hashes) > 2 * _MOST_HASHES:
            # The hashes below a limit are usually enough, and sorting all of them is slow.
            limit = np.uint64(_ALL * 1.25 * _MOST_HASHES / len(hashes))
            few = different(
                np.concatenate([self.smallest[self.smallest < limit], hashes[hashes < limit]])
            )
            if len(few) >= _MOST_HASHES:
                self.smallest = few[:_MOST_HASHES]
                return
        if len(hashes):
            self.smallest = different(np.concatenate([self.smallest, hashes]))[:_MOST_HASHES]

    def merge(self, other: "Distinct") -> None:
        """Adds the values of another instance."""
        self.add(other.smallest)

    @property
    def is_exact(self) -> bool:
        """Whether `number` is exact rather than an estimate."""
        return len(self.smallest) < _MOST_HASHES

    @property
    def number(self) -> int:
        """The approximate number of distinct values."""
        if self.is_exact:
            return len(self.smallest)
        return round((_MOST_HASHES - 1) * _ALL / (float(self.smallest[-1]) + 1))


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
      counts: The value and its count by the value's hash; None if there are too many.
    """

    is_of_texts: bool = False
    counts: dict[int, tuple[Any, int]] | None = field(default_factory=dict)
    # The serialized sketch, so that it can be sent between processes.
    _sketch: bytes | None = None

    def add(self, hashes: Hashes, value: Callable[[int], Any]) -> None:
        """Adds values by their hashes, of shape [n]; `value` returns the one at an index."""
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
            self._add_to_sketch((value(place), count) for _, place, count in each)
            return
        for key, place, count in each:
            known = self.counts.get(key)
            self.counts[key] = (known[0], known[1] + count) if known else (value(place), count)
        if len(self.counts) > _COUNTED:
            self._add_to_sketch(())

    def merge(self, other: "Top") -> None:
        """Adds the values of another instance, which follow these."""
        if other.counts is None:
            self._add_to_sketch((), other._sketch)
        elif self.counts is None:
            self._add_to_sketch(other.counts.values())
        else:
            for key, (value, count) in other.counts.items():
                self.counts[key] = (value, self.counts.get(key, (value, 0))[1] + count)
            if len(self.counts) > _COUNTED:
                self._add_to_sketch(())

    def _add_to_sketch(self, values: Iterable[tuple[Any, int]], other: bytes | None = None) -> None:
        """Switches to a sketch, and adds values to it."""
        counted, self.counts = self.counts or {}, None
        if not self.is_of_texts:
            return
        from datasketches import frequent_strings_sketch as sketches

        sketch = sketches.deserialize(self._sketch) if self._sketch else sketches(_LOG_MOST_TEXTS)
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
