"""Drift: distances between the statistics of two versions.

* The Kolmogorov-Smirnov distance for numbers, lengths and sizes: the largest difference between the
  cumulative distributions. Both are approximated by 101 percentiles, to about 0.01.
* The largest difference between the shares of any value (the L-infinity norm, as TensorFlow Data
  Validation compares categories) for labels, and for values that are few enough to be counted.
* The difference between the shares of missing or odd values, and between the means of image
  channels, where 1 is the full range.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

import numpy as np

from my_datasets.core.json_types import JsonObject

KOLMOGOROV_SMIRNOV = "Kolmogorov-Smirnov"
SHARE = "L-infinity"
DIFFERENCE = "difference"
# The default thresholds, where a builder declares no other.
THRESHOLDS: Mapping[str, float] = {KOLMOGOROV_SMIRNOV: 0.1, SHARE: 0.1, DIFFERENCE: 0.05}
# Samples of the same distribution exceed this only once in a thousand times: sqrt(-ln(0.001 / 2) /
# 2), from Smirnov, Table for estimating the goodness of fit of empirical distributions (1948).
_CHANCE = math.sqrt(-math.log(0.001 / 2) / 2)
_ODD = ("missing", "nan", "infinite", "empty", "unknown", "outside", "not_text")
_PARTS = ("lengths", "values_per_example", "heights", "widths")


@dataclass(frozen=True)
class DriftedStatistic:
    """A statistic whose distance from the other version exceeds its threshold.

    Attributes:
      statistic: The statistic: `values`, `lengths`, `missing`, ...
      measure: The name of the distance.
      distance: The distance, from 0 to 1.
      threshold: The maximum distance allowed.
      before: A short summary of the old statistic.
      after: A short summary of the new statistic.
    """

    split: str
    feature: str
    statistic: str
    measure: str
    distance: float
    threshold: float
    before: str
    after: str

    def to_json(self) -> dict[str, object]:
        """Returns the values for scripts, as JSON."""
        return {**asdict(self), "distance": round(self.distance, 6)}


def drifted(
    before: JsonObject, after: JsonObject, limits: Mapping[str, float] | None = None
) -> list[DriftedStatistic]:
    """Returns the statistics that moved, for splits and features that both versions have.

    Distances that random samples of the same data may well have by chance are not reported.
    `before` and `after` are by split, as in manifests; `limits` are the maximum distances by
    feature name, `THRESHOLDS` those of other features.
    """
    found = []
    for split in [name for name in before if name in after]:
        both = before[split]["features"], after[split]["features"]
        examples = before[split]["examples"], after[split]["examples"]
        for name in [name for name in both[0] if name in both[1]]:
            old, new = both[0][name], both[1][name]
            if old["kind"] != new["kind"]:
                continue
            for statistic, measure, distance, few, texts in _distances(old, new, examples):
                threshold = (limits or {}).get(name, THRESHOLDS[measure])
                if distance > max(threshold, few):
                    found.append(
                        DriftedStatistic(
                            split, name, statistic, measure, distance, threshold, *texts
                        )
                    )
    return found


_Distance = tuple[str, str, float, float, tuple[str, str]]


def _distances(old: JsonObject, new: JsonObject, examples: tuple[int, int]) -> Iterator[_Distance]:
    """Yields statistic, measure, distance, the distance explained by chance, and both summaries."""
    # The sampling unit is the example, because the values within one are correlated.
    sizes = min(old["values"], examples[0]), min(new["values"], examples[1])
    parts = [("values", old, new)]
    parts += [(name, old.get(name, {}), new.get(name, {})) for name in _PARTS]
    for name, one, other in parts:
        if "percentiles" in one and "percentiles" in other:
            distance = _largest_gap(one["percentiles"], other["percentiles"])
            texts = f"median {_middle(one):g}", f"median {_middle(other):g}"
            yield name, KOLMOGOROV_SMIRNOV, distance, _chance(*sizes), texts
    shares = _Shares.of(old), _Shares.of(new)
    if shares[0] and shares[1]:
        value, distance = shares[0].farthest(shares[1])
        described = shares[0].describe(value), shares[1].describe(value)
        yield "values", SHARE, distance, _chance(*sizes), described
    for name in _ODD:
        of = examples if name == "missing" else (old["values"], new["values"])
        odd = [one.get(name, 0) / max(all_, 1) for one, all_ in zip((old, new), of, strict=True)]
        few = _chance(*examples) if name == "missing" else _chance(*sizes)
        yield name, DIFFERENCE, abs(odd[1] - odd[0]), few, (f"{odd[0]:.1%}", f"{odd[1]:.1%}")
    if "channels" in old and "channels" in new:
        means = old["channels"]["means"], new["channels"]["means"]
        if len(means[0]) == len(means[1]):
            distance = max(abs(a - b) for a, b in zip(*means, strict=True))
            images = old["channels"]["images"], new["channels"]["images"]
            few = _chance(min(sizes[0], images[0]), min(sizes[1], images[1]))
            texts = (
                ", ".join(map("{:.2f}".format, means[0])),
                ", ".join(map("{:.2f}".format, means[1])),
            )
            yield "means of channels", DIFFERENCE, distance, few, texts


def _chance(one: int, other: int) -> float:
    return _CHANCE * math.sqrt((one + other) / (one * other)) if one and other else math.inf


def _largest_gap(one: list[float], other: list[float]) -> float:
    a, b = np.array(one), np.array(other)
    points = np.concatenate([a, b])
    # The smallest number is one of the numbers, not a share of them: 101 percentiles have 100
    # steps.
    shares = [(np.searchsorted(some, points, "right") - 1).clip(0) / 100 for some in (a, b)]
    return float(np.abs(shares[0] - shares[1]).max())


def _middle(statistics: JsonObject) -> float:
    return float(statistics["percentiles"][50])


@dataclass(frozen=True)
class _Shares:
    """The relative frequency of values."""

    counts: Mapping[str, int]  # the number of occurrences of each listed value
    rest: int  # the maximum number of occurrences of any other value
    total: int  # the total number of values

    @classmethod
    def of(cls, statistics: JsonObject) -> "_Shares | None":
        """Returns the shares of a feature, or None if its statistics do not list them."""
        if "classes" in statistics:
            counts = statistics["classes"]
            return cls(counts, 0, sum(counts.values())) if counts else None
        top = statistics.get("top", {"is_exact": False})
        if not top["is_exact"] or statistics["kind"] != "text" or not top["values"]:
            return None
        counts = {str(one["value"]): one["count"] for one in top["values"]}
        is_all = statistics["distinct"]["number"] <= len(counts)
        return cls(counts, 0 if is_all else min(counts.values()), statistics["values"])

    def farthest(self, other: "_Shares") -> tuple[str, float]:
        """Returns the value whose shares differ most, and the lower bound of that difference."""
        gaps = {value: self._gap(other, value) for value in {**self.counts, **other.counts}}
        return max(gaps.items(), key=lambda pair: (pair[1], pair[0]))

    def describe(self, value: str) -> str:
        """Returns the share of a value, for messages."""
        is_known = value in self.counts or not self.rest
        return f"{value}: {'' if is_known else 'at most '}{self._most(value):.1%}"

    def _gap(self, other: "_Shares", value: str) -> float:
        gap = max(self._least(value) - other._most(value), other._least(value) - self._most(value))
        return round(max(gap, 0.0), 9)

    def _least(self, value: str) -> float:
        return self.counts.get(value, 0) / max(self.total, 1)

    def _most(self, value: str) -> float:
        return self.counts.get(value, self.rest) / max(self.total, 1)
