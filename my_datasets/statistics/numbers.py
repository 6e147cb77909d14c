"""Statistics of numbers, of labels, and of how many values there are."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from my_datasets.statistics import distinct
from my_datasets.statistics.distinct import Distinct
from my_datasets.statistics.distribution import Distribution
from my_datasets.statistics.top import Top

_SHARES = [share / 100 for share in range(101)]
_BINS = 20
# Digits that do not depend on the order in which numbers were added up.
_DIGITS = 9

Array = npt.NDArray[Any]


@dataclass
class NumberStatistics:
    """Statistics of numbers.

    Attributes:
      dtype: Their type as NumPy calls it.
      distribution: That of the finite ones.
      nan: How many are not a number.
      infinite: How many are infinite.
      outside: How many are none of the type, which others would get as another number.
      distinct: How many distinct ones there are.
      top: The most frequent ones.
      is_sampled: Whether only some were put into the histogram.
    """

    dtype: str
    distribution: Distribution = field(init=False)
    nan: int = 0
    infinite: int = 0
    outside: int = 0
    distinct: Distinct = field(default_factory=Distinct)
    top: Top = field(default_factory=Top)
    is_sampled: bool = False

    def __post_init__(self) -> None:
        self.distribution = Distribution(whole=np.dtype(self.dtype).kind in "biu")

    def add(self, values: Array, every: int = 1) -> None:
        """Adds values.

        Args:
          values: Of any shape, of the type or as they are stored, which may be wider.
          every: Put each so-many-th value into the histogram: of large tensors that is enough.
        """
        values = values.reshape(-1)
        if not values.size:
            return
        if values.dtype.kind == "f":
            is_finite = np.isfinite(values)
            if not is_finite.all():
                nan = int(np.isnan(values).sum())
                self.nan += nan
                self.infinite += int((~is_finite).sum()) - nan
                values = values[is_finite]
        elif not _holds(self.dtype, values):
            kept = _within(self.dtype, values)
            self.outside += int((~kept).sum())
            values = values[kept]
        if every > 1:
            self.is_sampled = True
            self.distribution.add(values, values[::every])
            return
        self.distribution.add(values)
        hashes = distinct.of_numbers(values)
        self.distinct.add(hashes)
        self.top.add(hashes, lambda place: values[place].item())

    def merge(self, other: "NumberStatistics") -> None:
        """Adds the values of others that follow these."""
        self.distribution.merge(other.distribution)
        self.nan += other.nan
        self.infinite += other.infinite
        self.outside += other.outside
        self.is_sampled |= other.is_sampled
        self.distinct.merge(other.distinct)
        self.top.merge(other.top)

    def summary(self) -> dict[str, Any]:
        """Returns what the manifest tells of them."""
        odd = {"nan": self.nan, "infinite": self.infinite, "outside": self.outside}
        return {
            "values": self.distribution.count + self.nan + self.infinite + self.outside,
            **{name: count for name, count in odd.items() if count},
            **summary_of(self.distribution),
            **({"is_sampled": True} if self.is_sampled else which(self.distinct, self.top)),
        }


@dataclass
class LabelStatistics:
    """How often each class comes.

    Attributes:
      names: The names of the classes, as far as they are known.
      counts: How often each comes, by its number; shape [classes].
      unknown: How many labels are -1, which stands for no class.
      outside: How many are no class at all.
    """

    names: tuple[str, ...] | None
    counts: npt.NDArray[np.int64]
    unknown: int = 0
    outside: int = 0

    def add(self, values: Array, every: int = 1) -> None:  # noqa: ARG002
        """Adds labels; all of them are counted."""
        values = values.reshape(-1)
        is_class = (values >= 0) & (values < len(self.counts))
        if not is_class.all():
            unknown = int((values == -1).sum())
            self.unknown += unknown
            self.outside += int((~is_class).sum()) - unknown
            values = values[is_class]
        self.counts += np.bincount(values, minlength=len(self.counts))

    def without_examples(self) -> list[str]:
        """Returns the classes that no example is of."""
        return [name for name, count in self.summary()["classes"].items() if not count]

    def merge(self, other: "LabelStatistics") -> None:
        """Adds others."""
        self.counts += other.counts
        self.unknown += other.unknown
        self.outside += other.outside

    def summary(self) -> dict[str, Any]:
        """Returns what the manifest tells of them."""
        names = self.names or tuple(map(str, range(len(self.counts))))
        odd = {"unknown": self.unknown, "outside": self.outside}
        return {
            "values": int(self.counts.sum()) + self.unknown + self.outside,
            **{name: count for name, count in odd.items() if count},
            "classes": dict(zip(names, self.counts.tolist(), strict=False)),
        }


def summary_of(distribution: Distribution) -> dict[str, Any]:
    """Returns what the manifest tells of a distribution: nothing of one of no numbers."""
    if not distribution.count:
        return {}
    whole = distribution.whole
    # The digits that count are those of the largest number, not of a mean that is nearly zero.
    scale = max(abs(distribution.least), abs(distribution.most))
    quantiles = distribution.quantiles(_SHARES)
    edges, counts = distribution.histogram(_BINS)
    return {
        "min": _number(distribution.least, whole),
        "max": _number(distribution.most, whole),
        "mean": _rounded(float(distribution.mean), scale),
        "std": _rounded(distribution.deviation, scale),
        "percentiles": [_number(one, whole) for one in quantiles],
        "histogram": {"edges": edges, "counts": counts},
    }


def which(distinct: Distinct, top: Top) -> dict[str, Any]:
    """Returns what the manifest tells of distinct and frequent values."""
    return {
        "distinct": {"number": distinct.number, "is_exact": distinct.is_exact},
        "top": {
            "is_exact": top.is_exact,
            "values": [{"value": value, "count": count} for value, count in top.most()],
        },
    }


def _number(value: float, whole: bool) -> float | int:
    return int(value) if whole else value


def _rounded(value: float, scale: float) -> float:
    if not scale or not np.isfinite(value):
        return 0.0 if not scale else value
    digits = _DIGITS - 1 - int(np.floor(np.log10(scale)))
    # Beyond 300 there is no such power of ten.
    return round(value, digits) if abs(digits) < 300 else value


def _holds(dtype: str, values: Array) -> bool:
    """Returns whether a type is as wide as the one that values are stored as."""
    kind = np.dtype(dtype)
    return kind.itemsize >= values.dtype.itemsize or bool(_within(dtype, values).all())


def _within(dtype: str, values: Array) -> npt.NDArray[np.bool_]:
    kind = np.dtype(dtype)
    low, high = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
    found: npt.NDArray[np.bool_] = (values >= low) & (values <= high)
    return found
