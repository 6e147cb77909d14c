"""The statistics of features as pages show them: facts in words, and plots."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from my_datasets.catalog.plots import plots
from my_datasets.catalog.plots.drawing import number, share, shortened
from my_datasets.catalog.plots.plots import Histogram
from my_datasets.core.sizes import human_size

# What may be odd about values, in words.
_ODD = (
    ("missing", "missing"),
    ("nan", "not a number"),
    ("infinite", "infinite"),
    ("empty", "empty"),
    ("unknown", "of no class"),
    ("outside", "outside of the type"),
    ("not_text", "no UTF-8"),
)
# More distinct numbers are measurements, whose histogram tells more than how often each comes.
_FEW = 12
_TIMES = "\N{MULTIPLICATION SIGN}"
_QUOTED = 40
# Splits that come first.
_FIRST = {"train": 0, "validation": 1, "test": 2}
# Frequent texts that are shown.
_OFTEN = 8
# What is distributed, besides values themselves.
_PARTS = {
    "lengths": "characters",
    "values_per_example": "values in an example",
    "heights": "pixels high",
    "widths": "pixels wide",
    "bytes": "bytes of a file",
}


@dataclass(frozen=True)
class SplitSummary:
    """A feature in a split.

    Attributes:
      split: The split.
      facts: What is known of it: a name, and a text.
      warnings: What is odd about it.
      plots: Plots of it, and what each shows.
    """

    split: str
    facts: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    plots: tuple[tuple[str, Markup], ...]


@dataclass(frozen=True)
class FeatureSummary:
    """A feature.

    Attributes:
      name: Its name; empty if an example is nothing else.
      kind: What its values are: `number`, `label`, `text` or `image`.
      splits: What it is like in each split.
    """

    name: str
    kind: str
    splits: tuple[SplitSummary, ...]


def summaries(statistics: Mapping[str, Any]) -> list[FeatureSummary]:
    """Returns what statistics say, by feature.

    Args:
      statistics: By split, as in a manifest.

    Raises:
      MALFORMED: They are none; see `my_datasets.metadata.dataset_info`.
    """
    names = dict.fromkeys(name for split in statistics.values() for name in split["features"])
    found = []
    in_order = in_usual_order(statistics)
    for name in names:
        splits = {
            split: statistics[split]["features"][name]
            for split in in_order
            if name in statistics[split]["features"]
        }
        kinds = dict.fromkeys(str(one["kind"]) for one in splits.values())
        parts = [_split(split, given, name) for split, given in splits.items()]
        found.append(FeatureSummary(name, " or ".join(kinds), tuple(parts)))
    return found


def in_usual_order(splits: Iterable[str]) -> list[str]:
    """Returns splits with `train` first, then `validation` and `test`."""
    return sorted(splits, key=lambda split: (_FIRST.get(split, len(_FIRST)), split))


def distributions(feature: Mapping[str, Any]) -> Iterator[tuple[str, Histogram]]:
    """Yields what is distributed of a feature, and how."""
    own = Histogram.of(feature)
    if own is not None:
        yield "values", own
    for part in _PARTS:
        found = Histogram.of(feature.get(part, {}))
        if found is not None:
            yield part, found


def _split(split: str, given: Mapping[str, Any], name: str) -> SplitSummary:
    total = given["values"] + given["missing"]
    odd = [
        f"{given[key]:,} {words} ({share(given[key], total)})"
        for key, words in _ODD
        if given.get(key)
    ]
    if given.get("classes"):
        without = sum(not count for count in given["classes"].values())
        odd += (
            [f"{without:,} {'classes' if without > 1 else 'class'} without an example"]
            if without
            else []
        )
    return SplitSummary(
        split, tuple(_facts(given)), tuple(odd), tuple(_plots(given, f"{name} in {split}"))
    )


def _facts(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "values", f"{given['values']:,}"
    if "mean" in given:
        yield "range", f"{number(given['min'])} to {number(given['max'])}"
        yield "mean ± deviation", f"{number(given['mean'])} ± {number(given['std'])}"
        yield "median", number(given["percentiles"][50])
    if "classes" in given:
        yield "classes", f"{len(given['classes']):,}"
    if given.get("distinct"):
        about = "" if given["distinct"]["is_exact"] else "about "
        yield "distinct", f"{about}{given['distinct']['number']:,}"
    if given.get("formats"):
        told = [f"{form} ({count:,})" for form, count in given["formats"].items()]
        yield "formats", ", ".join(told)
    if given.get("heights") and given.get("widths"):
        size = f"{_range(given['heights'])} {_TIMES} {_range(given['widths'])} pixels"
        yield f"height {_TIMES} width", size
    if given.get("bytes"):
        yield "size of a file", f"{human_size(round(given['bytes']['mean']))} on average"
    if "channels" in given:
        channels = given["channels"]
        pairs = zip(channels["means"], channels["stds"], strict=True)
        told = [f"{number(mean)} ± {number(std)}" for mean, std in pairs]
        of = f", of {channels['images']:,} images" if channels["images"] < given["values"] else ""
        yield "colours, from 0 to 1", ", ".join(told) + of
    if given.get("lengths"):
        yield "characters", _range_and_mean(given["lengths"])
    if given.get("values_per_example"):
        each = given["values_per_example"]
        yield "values in an example", _range_and_mean(each)
    if "sample_rate" in given:
        yield "samples per second", f"{given['sample_rate']:,}"
        if given.get("values_per_example"):
            seconds = given["values_per_example"]["mean"] / given["sample_rate"]
            yield "seconds", f"{number(seconds)} on average"


def _plots(given: Mapping[str, Any], name: str) -> Iterator[tuple[str, Markup]]:
    """Yields what a plot shows, and the plot."""
    if given.get("classes"):
        yield "classes", plots.bars(_texts(_by_number(given["classes"])), f"Classes of {name}")
        return
    top = {one["value"]: int(one["count"]) for one in given.get("top", {}).get("values", [])}
    is_few = given.get("distinct", {}).get("number", 0) <= _FEW
    if given["kind"] == "number" and top and is_few:
        yield "values", plots.bars(_texts(dict(sorted(top.items()))), f"Values of {name}")
        return
    for part, found in distributions(given):
        if found.ends[0] < found.ends[1]:
            words = _PARTS.get(part, part)
            yield words, plots.histogram(found, f"{words.capitalize()} of {name}")
    # A value that comes once is not frequent.
    often = {value: count for value, count in top.items() if count > 1}
    if given["kind"] == "text" and often:
        title = f"Frequent values of {name}"
        drawn = plots.bars(_texts(often), title, total=given["values"], most_bars=_OFTEN)
        yield "frequent values", drawn


def _by_number(classes: Mapping[str, int]) -> Mapping[str, int]:
    """Returns classes in the order of their numbers, if they have no other names."""
    if all(name.isascii() and name.isdigit() for name in classes):
        return dict(sorted(classes.items(), key=lambda one: int(one[0])))
    return classes


def _texts(counts: Mapping[Any, int]) -> dict[str, int]:
    return {
        (number(value) if isinstance(value, float) else shortened(str(value), _QUOTED)): int(count)
        for value, count in counts.items()
    }


def _range(distribution: Mapping[str, Any]) -> str:
    least, most = number(distribution["min"]), number(distribution["max"])
    return least if least == most else f"{least} to {most}"


def _range_and_mean(distribution: Mapping[str, Any]) -> str:
    if distribution["min"] == distribution["max"]:
        return number(distribution["min"])
    return f"{_range(distribution)}, {number(distribution['mean'])} on average"
