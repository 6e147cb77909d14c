"""Statistics of numbers and of class labels, and summaries for the manifest."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from my_datasets.core.arrays import Array
from my_datasets.statistics import distinct
from my_datasets.statistics.distinct import Distinct, Top
from my_datasets.statistics.distribution import Distribution

_SHARES = [share / 100 for share in range(101)]
_BINS = 20
# Significant digits that do not depend on the order of summation.
_DIGITS = 9


@dataclass
class NumberStatistics:
    """Statistics of numbers.

    Attributes:
      dtype: NumPy's name of their type.
      distribution: The distribution of the finite ones.
      nan: The number of NaNs.
      infinite: The number of infinite values.
      outside: The number of values that the type cannot represent and readers would get as another
        number.
      distinct: The number of distinct values.
      top: The most frequent values.
      is_sampled: Whether only a sample went into the histogram.
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
          values: An array of any shape, of the type itself or of the type in which it is stored,
            which may be wider.
          every: Put only every n-th value into the histogram, which is enough for large tensors.
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
            is_inside = _within(self.dtype, values)
            self.outside += int((~is_inside).sum())
            values = values[is_inside]
        if every > 1:
            self.is_sampled = True
            self.distribution.add(values, values[::every])
            return
        self.distribution.add(values)
        hashes = distinct.of_numbers(values)
        self.distinct.add(hashes)
        self.top.add(hashes, lambda place: values[place].item())

    def merge(self, other: "NumberStatistics") -> None:
        """Adds the statistics of the values that follow these."""
        self.distribution.merge(other.distribution)
        self.nan += other.nan
        self.infinite += other.infinite
        self.outside += other.outside
        self.is_sampled |= other.is_sampled
        self.distinct.merge(other.distinct)
        self.top.merge(other.top)

    def summary(self) -> dict[str, object]:
        """Returns the numbers' entry in the manifest."""
        odd = {"nan": self.nan, "infinite": self.infinite, "outside": self.outside}
        return {
            "values": self.distribution.count + self.nan + self.infinite + self.outside,
            **{name: count for name, count in odd.items() if count},
            **summary_of(self.distribution),
            **(
                {"is_sampled": True}
                if self.is_sampled
                else frequent_values_entry(self.distinct, self.top)
            ),
        }


@dataclass
class LabelStatistics:
    """The frequency of each class.

    Attributes:
      names: The names of the classes, as far as they are known.
      counts: The number of occurrences by class number; shape [classes].
      unknown: The number of labels that are -1, which stands for no class.
      outside: The number of labels that are not a class at all.
    """

    names: tuple[str, ...] | None
    counts: npt.NDArray[np.int64]
    unknown: int = 0
    outside: int = 0

    def add(self, values: Array, every: int = 1) -> None:  # noqa: ARG002
        """Adds labels of any dtype; `every` is ignored, because all of them are counted."""
        values = values.reshape(-1)
        is_class = (values >= 0) & (values < len(self.counts))
        if values.dtype.kind == "f":
            is_class &= values == np.floor(values)
        if not is_class.all():
            unknown = int((values == -1).sum())
            self.unknown += unknown
            self.outside += int((~is_class).sum()) - unknown
            values = values[is_class]
        self.counts += np.bincount(values.astype(np.int64), minlength=len(self.counts))

    def without_examples(self) -> list[str]:
        """Returns the classes that have no examples."""
        return [name for name, count in self._classes().items() if not count]

    def merge(self, other: "LabelStatistics") -> None:
        """Adds the statistics of other labels."""
        self.counts += other.counts
        self.unknown += other.unknown
        self.outside += other.outside

    def summary(self) -> dict[str, object]:
        """Returns the labels' entry in the manifest."""
        odd = {"unknown": self.unknown, "outside": self.outside}
        return {
            "values": int(self.counts.sum()) + self.unknown + self.outside,
            **{name: count for name, count in odd.items() if count},
            "classes": self._classes(),
        }

    def _classes(self) -> dict[str, int]:
        names = self.names or tuple(map(str, range(len(self.counts))))
        return dict(zip(names, self.counts.tolist(), strict=False))


def summary_of(distribution: Distribution) -> dict[str, object]:
    """Returns a distribution's entry in the manifest; empty if it has no numbers."""
    if not distribution.count:
        return {}
    whole = distribution.whole
    # Precision is relative to the largest number, not to a mean that is nearly zero.
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


def frequent_values_entry(distinct: Distinct, top: Top) -> dict[str, object]:
    """Returns the manifest's entry on distinct and frequent values."""
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
    # Beyond 300, the power of ten overflows.
    return round(value, digits) if abs(digits) < 300 else value


def _holds(dtype: str, values: Array) -> bool:
    """Returns whether a type can represent the stored values."""
    kind = np.dtype(dtype)
    return kind.itemsize >= values.dtype.itemsize or bool(_within(dtype, values).all())


def _within(dtype: str, values: Array) -> npt.NDArray[np.bool_]:
    kind = np.dtype(dtype)
    low, high = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
    found: npt.NDArray[np.bool_] = (values >= low) & (values <= high)
    return found
