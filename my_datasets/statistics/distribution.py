"""How numbers are distributed: in a histogram that is as fine as its size allows, where they are.

A bucket is a number's sign, exponent and the first bits of its mantissa, as in HdrHistogram
(https://hdrhistogram.org). How many bits, only the numbers decide: as many as leave no more than
4,096 buckets. So parts of the same numbers add up to the same histogram in any order, which
sketches that compact at random do not: see docs/decisions/0008-statistics.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

_MOST = 4096
_MAGNITUDE = (1 << 63) - 1
# Buckets in so large a range (as a power of two) are counted in place; more are sorted.
_IN_PLACE = 15
_TINY, _HUGE = 1e-140, 1e140
# Whole numbers in so small a range are counted first.
_FEW = 4096
_LARGEST = int(np.float64(np.finfo(np.float64).max).view(np.int64))

Numbers = npt.NDArray[Any]
Buckets = npt.NDArray[np.int64]


@dataclass
class Distribution:
    """The distribution of finite numbers.

    Attributes:
      whole: Whether all of them are whole numbers.
      count: How many numbers there are.
      least: The smallest, infinite if there is none.
      most: The largest.
      mean: Their mean, in extended precision.
      squares: The sum of the squares of their distances from it.
      level: How many bits of a float64 a bucket leaves out; no fewer do.
      buckets: The remaining bits with the number's sign, of buckets that hold any, ascending.
      counts: How many numbers each holds.
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
        """Adds numbers.

        Args:
          numbers: Finite ones, of any real type; any shape.
          some: Those of them that are put into buckets, where that is enough; None for all.
        """
        if not numbers.size:
            return
        if self.whole and some is None and numbers.size > _FEW:
            first = int(numbers.min())
            if int(numbers.max()) - first < _FEW:
                # In a type that holds the difference, whichever numbers they are.
                above = numbers if numbers.dtype == np.uint64 else numbers.astype(np.int64)
                counts = np.bincount((above - first).reshape(-1).astype(np.int64))
                held = np.flatnonzero(counts)
                self._add_counted(held.astype(np.float64) + first, counts[held])
                return
        wide = numbers.reshape(-1).astype(np.float64, copy=False)
        least, most = float(wide.min()), float(wide.max())
        self._join(wide.size, *_moments(wide, max(-least, most)), least, most)
        bits = (wide if some is None else some.reshape(-1).astype(np.float64)).view(np.int64)
        self._hold(*_counted(bits, self.level))

    def _add_counted(self, numbers: npt.NDArray[np.float64], counts: Buckets) -> None:
        """Adds different numbers, ascending, each so many times."""
        count = int(counts.sum())
        mean = np.longdouble((numbers * counts).sum() / count)
        squares = np.longdouble((np.square(numbers - float(mean)) * counts).sum())
        self._join(count, mean, squares, float(numbers[0]), float(numbers[-1]))
        bits = numbers.view(np.int64)
        self._hold(0, np.where(bits < 0, -(bits & _MAGNITUDE), bits), counts)

    def merge(self, other: "Distribution") -> None:
        """Adds all numbers of another distribution."""
        if other.count:
            self._join(other.count, other.mean, other.squares, other.least, other.most)
            self._hold(other.level, other.buckets, other.counts)

    def _join(
        self, count: int, mean: np.longdouble, squares: np.longdouble, least: float, most: float
    ) -> None:
        # Chan, Golub and LeVeque: Updating formulae and a pairwise algorithm for computing sample
        # variances (1979): nothing is lost where the mean is large and the deviation small.
        total = self.count + count
        gap = mean - self.mean
        self.squares += squares + gap * gap * (self.count * np.longdouble(count) / total)
        self.mean += gap * (np.longdouble(count) / total)
        self.count = total
        self.least, self.most = min(self.least, least), max(self.most, most)

    def _hold(self, level: int, buckets: Buckets, counts: Buckets) -> None:
        """Adds buckets of some level, and leaves out more bits while there are too many."""
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
        """The standard deviation, of all numbers and not of a sample."""
        if not self.count:
            return 0.0
        return float(min(np.sqrt(self.squares / self.count), np.finfo(np.float64).max))

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """Returns the numbers below or at which some shares of all are.

        They are exact if there are no more than 4,096 different numbers, else the middle of a
        bucket.

        Args:
          shares: From 0 for the least number to 1 for the most; ascending.
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
        """Returns the edges of equal bins from the least to the most, and how many are in each.

        A bucket's numbers are put where its middle is, so that a few near an edge may be beside it.

        Args:
          bins: How many; fewer if no more whole numbers are there, and one if all are the same.
        """
        if not self.count:
            return [], []
        # Larger whole numbers have no halves beside them.
        has_halves = self.whole and max(-self.least, self.most) < 2**52
        if self.least == self.most and not has_halves:
            return [self.least, self.most], [int(self.counts.sum())]
        if has_halves and self.most - self.least < bins:
            # Each number in the middle of its bin.
            edges = np.arange(self.least, self.most + 2) - 0.5
        else:
            # Halves, because the range itself may be too large for a number.
            edges = 2 * np.linspace(self.least / 2, self.most / 2, bins + 1)
            edges[0], edges[-1] = self.least, self.most
        places = np.searchsorted(edges, self._middles(), side="right") - 1
        found = np.bincount(places.clip(0, len(edges) - 2), self.counts, len(edges) - 1)
        return edges.tolist(), found.astype(np.int64).tolist()

    def _middles(self) -> npt.NDArray[np.float64]:
        """Returns the number in the middle of each bucket."""
        sizes = np.abs(self.buckets)
        low = (sizes << self.level).view(np.float64)
        # The one before infinity has no upper edge.
        last = np.minimum(((sizes + 1) << self.level) - 1, _LARGEST).view(np.float64)
        middle = np.where(sizes == 0, 0.0, low + (last - low) / 2)
        if self.whole:
            middle = np.floor(middle)
        found: npt.NDArray[np.float64] = np.where(self.buckets < 0, -middle, middle)
        return found.clip(self.least, self.most)


def _moments(numbers: npt.NDArray[np.float64], size: float) -> tuple[np.longdouble, np.longdouble]:
    """Returns the mean of numbers, and the sum of the squares of their distances from it.

    Args:
      numbers: The numbers; shape [n].
      size: The largest of them without its sign.
    """
    if not _TINY < size < _HUGE:  # whose squares a float64 cannot hold
        numbers = numbers.astype(np.longdouble)
    mean = numbers.mean()
    away = numbers - mean
    # Not by BLAS, whose threads would wait for those of the other processes.
    return np.longdouble(mean), np.longdouble(np.square(away, out=away).sum())


def _counted(bits: Buckets, level: int) -> tuple[int, Buckets, Buckets]:
    """Returns a level, the buckets of numbers, ascending, and how many are in each.

    Args:
      bits: Those of the numbers; shape [n].
      level: No fewer of them are left out.
    """
    sizes, is_less = bits & _MAGNITUDE, bits < 0
    # Apart, for between them lie all the buckets of small numbers.
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
    held = np.flatnonzero(counts)
    if coarse > level and len(held) <= _MOST:
        # Fewer bits than that may be left out.
        buckets, counts = np.unique(sizes >> level, return_counts=True)
        return level, buckets, counts.astype(np.int64)
    return coarse, held + least, counts[held].astype(np.int64)


def _shifted(buckets: Buckets, bits: int) -> Buckets:
    found: Buckets = (
        np.where(buckets < 0, -(-buckets >> bits), buckets >> bits) if bits else buckets
    )
    return found


def _added_up(buckets: Buckets, counts: Buckets) -> tuple[Buckets, Buckets]:
    """Returns each bucket once, of some that are ascending."""
    first = np.flatnonzero(np.diff(buckets, prepend=buckets[0] - 1))
    return buckets[first], np.add.reduceat(counts, first)
