"""`my-datasets stats`: what the values of each feature are like."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import rich_click as click

from my_datasets.cli.options import feature_imports_option
from my_datasets.cli.output import (
    LocalPath,
    bold,
    console,
    data_dir_option,
    human_size,
    json_option,
    plain,
    print_json,
)
from my_datasets.errors import NotPreparedError

_BARS = " ▁▂▃▄▅▆▇█"
# Columns of a histogram in the terminal; frequent values that a line names; their characters.
_WIDTH = 20
_NAMED = 4
_SHOWN = 24
_ODD = ("nan", "infinite", "outside", "unknown", "empty", "not_text")


@click.command(
    "stats",
    short_help="Show what the values of each feature are like.",
    epilog="Example: my-datasets stats digits --plot digits.png --html digits.html",
)
@click.argument("version", metavar="NAME[/CONFIG][:VERSION]|PATH")
@data_dir_option
@click.option("--split", "splits", multiple=True, help="Only this split; may be given again.")
@click.option("--feature", "features", multiple=True, help="Only this one; may be given again.")
@click.option("--plot", metavar="FILE", type=LocalPath(), help="Write histograms there, as PNG.")
@click.option("--html", metavar="FILE", type=LocalPath(), help="Write a page there.")
@feature_imports_option
@json_option
def command(
    version: str,
    data_dir: str | None,
    splits: tuple[str, ...],
    features: tuple[str, ...],
    plot: str | None,
    html: str | None,
    as_json: bool,
) -> None:
    """Show statistics of a prepared version: counts, ranges, distributions, frequent values.

    They were made when the version was built, or adopted; no shard is read.
    """
    from my_datasets.metadata.dataset_info import Declared
    from my_datasets.metadata.manifest import Manifest
    from my_datasets.resolving.request import Request
    from my_datasets.resolving.resolve_prepared import version_dir

    path = version_dir(version, data_dir)
    if path != Path(version).expanduser():
        Request.of(version).check(path, has_shards=True)
    manifest = Manifest.read(path)
    if manifest is None or not manifest.statistics:
        raise NotPreparedError(
            f"There are no statistics of {path}.",
            fix="build it anew with this release, or my-datasets adopt what TFDS built; of "
            "features that only TFDS reads there are none",
        )
    name = Declared.read(path).name
    statistics = _chosen(manifest.statistics, splits, features)
    if plot is not None:
        from my_datasets.cli.charts import write_histograms

        write_histograms(name, statistics, Path(plot))
    if html is not None:
        from my_datasets.catalog.reports import statistics_page

        Path(html).write_text(statistics_page(name, statistics), "utf-8")
    if as_json:
        print_json({"name": name, "path": str(path), "statistics": statistics})
    else:
        _show(name, statistics)


def _chosen(
    statistics: Mapping[str, Any], splits: tuple[str, ...], features: tuple[str, ...]
) -> dict[str, Any]:
    """Returns the statistics of some splits and features; of all where none are named."""
    known = {name: list(split["features"]) for name, split in statistics.items()}
    for wanted, there, what in (
        (splits, list(known), "split"),
        (features, sorted({name for some in known.values() for name in some}), "feature"),
    ):
        for name in wanted:
            if name not in there:
                raise click.BadParameter(f"there is no {what} {name}; there are {', '.join(there)}")
    return {
        name: {
            **split,
            "features": {
                feature: one
                for feature, one in split["features"].items()
                if not features or feature in features
            },
        }
        for name, split in statistics.items()
        if not splits or name in splits
    }


def _show(name: str, statistics: Mapping[str, Any]) -> None:
    from rich.table import Table

    out = console()
    for split, found in statistics.items():
        out.print(bold(name), f" {split}: {found['examples']:,} examples", sep="", soft_wrap=True)
        table = Table(box=None, pad_edge=False)
        for column in ("feature", "missing", "mean ± std", "least", "median", "most"):
            table.add_column(column, overflow="fold")
        table.add_column("distribution", no_wrap=True)
        table.add_column("values", overflow="fold", ratio=1)
        for feature, one in found["features"].items():
            cells = (feature, *_cells(one))
            table.add_row(*map(plain, cells))
        out.print(table)
        out.print()


def _cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns what a line of the table says of a feature, behind its name."""
    missing = f"{one['missing']:,}" if one["missing"] else ""
    notes = _notes(one)
    if one["kind"] == "label":
        return missing, "", "", "", "", _bars(list(one["classes"].values())), notes
    told = {"number": one, "text": one.get("lengths", {}), "image": one.get("heights", {})}
    numbers = told[one["kind"]]
    if "min" not in numbers:
        return missing, "", "", "", "", "", notes
    middle = f"{_short(numbers['mean'])} ± {_short(numbers['std'])}"
    least, median, most = (_short(numbers["percentiles"][at]) for at in (0, 50, 100))
    return missing, middle, least, median, most, _bars(numbers["histogram"]["counts"]), notes


def _notes(one: Mapping[str, Any]) -> str:
    found = []
    if one["kind"] == "text":
        found.append("lengths in characters")
    if one["kind"] == "image":
        sizes = [
            "-".join(dict.fromkeys(_short(one[side][end]) for end in ("min", "max")))
            for side in ("heights", "widths")
            if "min" in one.get(side, {})
        ]
        forms = ", ".join(one["formats"])
        found.append(f"{' x '.join(sizes)} pixels, {forms}, heights to the left")
        if "min" in one["bytes"]:
            found.append(f"{human_size(round(one['bytes']['mean']))} each")
        if "channels" in one:
            found.append(f"means {', '.join(f'{mean:.2f}' for mean in one['channels']['means'])}")
    found += [f"{odd.replace('_', ' ')}: {one[odd]:,}" for odd in _ODD if one.get(odd)]
    if "values_per_example" in one:
        each = one["values_per_example"]
        lengths = "-".join(dict.fromkeys(_short(each[end]) for end in ("min", "max")))
        found.append(f"{lengths} values per example")
        if "sample_rate" in one:
            seconds = each["mean"] / one["sample_rate"]
            found.append(f"{seconds:.2f} s each at {one['sample_rate']:,} Hz")
    if one["kind"] == "label":
        most = sorted(one["classes"].items(), key=lambda pair: -pair[1])
        found.append(_named([(name, count) for name, count in most], len(most)))
    if "distinct" in one:
        number = one["distinct"]["number"]
        is_exact = one["distinct"]["is_exact"]
        found.append(f"{number:,} distinct" if is_exact else f"about {_rounded(number):,} distinct")
        if one["kind"] == "text" or one["distinct"]["number"] <= _WIDTH:
            top = [(value["value"], value["count"]) for value in one["top"]["values"]]
            # Of values that come once each there is no more to say.
            if top and top[0][1] > 1:
                found.append(_named(top, one["distinct"]["number"]))
    return "; ".join(found)


def _named(values: list[tuple[Any, int]], number: int) -> str:
    told = [f"{_cut(str(value))} {count:,}" for value, count in values[:_NAMED]]
    return ", ".join([*told, *(["…"] if number > _NAMED else [])])


def _rounded(number: int) -> int:
    """Returns a number without the digits that an estimate does not know."""
    return round(number, 2 - len(str(number)))


def _cut(text: str) -> str:
    if not text.strip():
        return repr(text)
    shown = text if text.isprintable() else ascii(text)[1:-1]
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"


def _short(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _bars(counts: list[int]) -> str:
    """Returns a histogram of one line, the largest bar full."""
    shown = counts[:_WIDTH]
    most = max(shown, default=0)
    if not most:
        return ""
    steps = len(_BARS) - 1
    # What is there is seen, however little it is.
    return "".join(_BARS[0 if not one else max(1, round(one / most * steps))] for one in shown)
