"""The statistics of features as facts in words and plots, for pages."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from markupsafe import Markup

from my_datasets.catalog import plots
from my_datasets.catalog.plots import Histogram, number, share, shortened
from my_datasets.core.json_types import JsonObject
from my_datasets.core.sizes import human_size

# Warnings: a member of the statistics, and its description.
_ODD = (
    ("missing", "missing"),
    ("nan", "not a number"),
    ("infinite", "infinite"),
    ("empty", "empty"),
    ("unknown", "without a class"),
    ("outside", "outside the range of the type"),
    ("not_text", "not UTF-8"),
)
# Of more distinct numbers, a histogram shows more than the count of each.
_FEW = 12
_TIMES = "\N{MULTIPLICATION SIGN}"
_QUOTED = 40
# The order of well-known splits.
_FIRST = {"train": 0, "validation": 1, "test": 2}
# Number of frequent texts to show.
_OFTEN = 8
# Distributions other than that of the values.
_PARTS = {
    "lengths": "characters",
    "values_per_example": "values in an example",
    "heights": "pixels high",
    "widths": "pixels wide",
    "bytes": "bytes of a file",
}


@dataclass(frozen=True)
class SplitFeatureSummary:
    """A feature in a split: facts as (name, text), warnings, and plots as (caption, plot)."""

    split: str
    facts: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    plots: tuple[tuple[str, Markup], ...]


@dataclass(frozen=True)
class FeatureSummary:
    """A feature.

    Attributes:
      name: Its name; empty if it is the whole example.
      kind: The kind of its values: `number`, `label`, `text` or `image`.
      splits: Its summary in each split.
    """

    name: str
    kind: str
    splits: tuple[SplitFeatureSummary, ...]


def summaries(statistics: JsonObject) -> list[FeatureSummary]:
    """Returns a summary of each feature, given the statistics by split of a manifest.

    Raises:
      MALFORMED: The statistics are invalid; see `my_datasets.metadata.dataset_info`.
    """
    names = dict.fromkeys(name for split in statistics.values() for name in split["features"])
    found = []
    for name in names:
        splits = {
            split: statistics[split]["features"][name]
            for split in in_usual_order(statistics)
            if name in statistics[split]["features"]
        }
        kinds = dict.fromkeys(str(one["kind"]) for one in splits.values())
        parts = [_split(split, given, name) for split, given in splits.items()]
        found.append(FeatureSummary(name, " or ".join(kinds), tuple(parts)))
    return found


def in_usual_order(splits: Iterable[str]) -> list[str]:
    """Returns splits with `train` first, then `validation` and `test`."""
    return sorted(splits, key=lambda split: (_FIRST.get(split, len(_FIRST)), split))


def distributions(feature: JsonObject) -> Iterator[tuple[str, Histogram]]:
    """Yields the distributions of a feature, by name."""
    own = Histogram.of(feature)
    if own is not None:
        yield "values", own
    for part in _PARTS:
        found = Histogram.of(feature.get(part, {}))
        if found is not None:
            yield part, found


def _split(split: str, given: JsonObject, name: str) -> SplitFeatureSummary:
    total = given["values"] + given["missing"]
    odd = [
        f"{given[key]:,} {words} ({share(given[key], total)})"
        for key, words in _ODD
        if given.get(key)
    ]
    without = sum(not count for count in (given.get("classes") or {}).values())
    if without:
        odd.append(f"{without:,} {'classes' if without > 1 else 'class'} without an example")
    return SplitFeatureSummary(
        split, tuple(_facts(given)), tuple(odd), tuple(_plots(given, f"{name} in {split}"))
    )


def _facts(given: JsonObject) -> Iterator[tuple[str, str]]:
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
        yield "formats", ", ".join(f"{form} ({n:,})" for form, n in given["formats"].items())
    if given.get("heights") and given.get("widths"):
        size = f"{_range(given['heights'])} {_TIMES} {_range(given['widths'])} pixels"
        yield f"height {_TIMES} width", size
    if given.get("bytes"):
        yield "size of a file", f"{human_size(round(given['bytes']['mean']))} on average"
    if "channels" in given:
        channels = given["channels"]
        pairs = zip(channels["means"], channels["stds"], strict=True)
        shown = [f"{number(mean)} ± {number(std)}" for mean, std in pairs]
        of = f", of {channels['images']:,} images" if channels["images"] < given["values"] else ""
        yield "colours, from 0 to 1", ", ".join(shown) + of
    if given.get("lengths"):
        yield "characters", _range_and_mean(given["lengths"])
    if given.get("values_per_example"):
        yield "values in an example", _range_and_mean(given["values_per_example"])
    if "sample_rate" in given:
        yield "samples per second", f"{given['sample_rate']:,}"
        if given.get("values_per_example"):
            seconds = given["values_per_example"]["mean"] / given["sample_rate"]
            yield "seconds", f"{number(seconds)} on average"


def _plots(given: JsonObject, name: str) -> Iterator[tuple[str, Markup]]:
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
    # A value that occurs once is not frequent.
    often = {value: count for value, count in top.items() if count > 1}
    if given["kind"] == "text" and often:
        title = f"Frequent values of {name}"
        drawn = plots.bars(_texts(often), title, total=given["values"], most_bars=_OFTEN)
        yield "frequent values", drawn


def _by_number(classes: Mapping[str, int]) -> Mapping[str, int]:
    """Sorts classes by number if their names are numbers."""
    if all(name.isascii() and name.isdigit() for name in classes):
        return dict(sorted(classes.items(), key=lambda one: int(one[0])))
    return classes


def _texts(counts: "Mapping[str, int] | Mapping[object, int]") -> dict[str, int]:
    return {
        (number(value) if isinstance(value, float) else shortened(str(value), _QUOTED)): int(count)
        for value, count in counts.items()
    }


def _range(distribution: JsonObject) -> str:
    least, most = number(distribution["min"]), number(distribution["max"])
    return least if least == most else f"{least} to {most}"


def _range_and_mean(distribution: JsonObject) -> str:
    if distribution["min"] == distribution["max"]:
        return number(distribution["min"])
    return f"{_range(distribution)}, {number(distribution['mean'])} on average"
