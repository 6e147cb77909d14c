"""`my-datasets stats`: shows the statistics of a version's features."""

from pathlib import Path

import rich_click as click

from my_datasets.cli import options, output
from my_datasets.core.json_types import JsonObject
from my_datasets.errors import NotPreparedError

_BARS = " ▁▂▃▄▅▆▇█"
# Histogram width; frequent values shown per feature; characters shown of each.
_WIDTH = 20
_NAMED = 4
_SHOWN = 24
_ODD = ("nan", "infinite", "outside", "unknown", "empty", "not_text")


@click.command(
    "stats",
    short_help="Show statistics of each feature.",
    epilog="Example: my-datasets stats digits --plot digits.png --html digits.html",
)
@click.argument("version", metavar="NAME[/CONFIG][:VERSION]|PATH")
@options.data_dir_option
@click.option("--split", "splits", multiple=True, help="Show only this split. Repeatable.")
@click.option("--feature", "features", multiple=True, help="Show only this feature. Repeatable.")
@click.option("--plot", metavar="FILE", type=options.LocalPath(), help="Write histograms as PNG.")
@options.html_option
@options.feature_imports_option
@options.json_option
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

    They were computed when the version was built or adopted; shards are not read.
    """
    from my_datasets.metadata.dataset_info import Declared
    from my_datasets.metadata.manifest import Manifest
    from my_datasets.resolving.resolver import Request, version_dir

    path = version_dir(version, data_dir)
    if path != Path(version).expanduser():
        Request.of(version).check(path, has_shards=True)
    manifest = Manifest.read(path)
    if manifest is None or not manifest.statistics:
        raise NotPreparedError(
            f"There are no statistics of {path}.",
            fix="rebuild the version, or run my-datasets adopt if TFDS built it; features that "
            "only TFDS can read have no statistics",
        )
    name = Declared.read(path).name
    statistics = _chosen(manifest.statistics, splits, features)
    if plot is not None:
        from my_datasets.cli.charts import write_histograms

        write_histograms(name, statistics, Path(plot))
    if html is not None:
        from my_datasets.catalog.pages import statistics_page

        Path(html).write_text(statistics_page(name, statistics), "utf-8")
    if as_json:
        output.print_json({"name": name, "path": str(path), "statistics": statistics})
    else:
        _show(name, statistics)


def _chosen(
    statistics: JsonObject, splits: tuple[str, ...], features: tuple[str, ...]
) -> JsonObject:
    """Returns the statistics of some splits and features, or of all."""
    known = {name: list(split["features"]) for name, split in statistics.items()}
    for chosen, shown, what in (
        (splits, list(known), "split"),
        (features, sorted({name for some in known.values() for name in some}), "feature"),
    ):
        for name in chosen:
            if name not in shown:
                raise click.BadParameter(f"there is no {what} {name}; there are {', '.join(shown)}")
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


def _show(name: str, statistics: JsonObject) -> None:
    from rich.table import Table

    out = output.console()
    for split, found in statistics.items():
        out.print(
            output.bold(name), f" {split}: {found['examples']:,} examples", sep="", soft_wrap=True
        )
        table = Table(box=None, pad_edge=False)
        for column in ("feature", "missing", "mean ± std", "min", "median", "max"):
            table.add_column(column, overflow="fold")
        table.add_column("distribution", no_wrap=True)
        table.add_column("values", overflow="fold", ratio=1)
        for feature, one in found["features"].items():
            cells = (feature, *_cells(one))
            table.add_row(*map(output.plain, cells))
        out.print(table)
        out.print()


def _cells(one: JsonObject) -> tuple[str, ...]:
    """Returns what a line of the table says of a feature, behind its name."""
    missing = f"{one['missing']:,}" if one["missing"] else ""
    notes = _notes(one)
    if one["kind"] == "label":
        return missing, "", "", "", "", _bars(list(one["classes"].values())), notes
    distributions = {"number": one, "text": one.get("lengths", {}), "image": one.get("heights", {})}
    numbers = distributions[one["kind"]]
    if "min" not in numbers:
        return missing, "", "", "", "", "", notes
    middle = f"{_short(numbers['mean'])} ± {_short(numbers['std'])}"
    least, median, most = (_short(numbers["percentiles"][at]) for at in (0, 50, 100))
    return missing, middle, least, median, most, _bars(numbers["histogram"]["counts"]), notes


def _notes(one: JsonObject) -> str:
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
        found.append(f"{' x '.join(sizes)} pixels, {forms}, heights shown")
        if "min" in one["bytes"]:
            found.append(f"{output.human_size(round(one['bytes']['mean']))} each")
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
            # Values that occur once each are not worth showing.
            if top and top[0][1] > 1:
                found.append(_named(top, one["distinct"]["number"]))
    return "; ".join(found)


def _named(values: list[tuple[object, int]], number: int) -> str:
    frequent = [f"{_cut(str(value))} {count:,}" for value, count in values[:_NAMED]]
    return ", ".join([*frequent, *(["…"] if number > _NAMED else [])])


def _rounded(number: int) -> int:
    """Returns an estimate rounded to its significant digits."""
    return round(number, 2 - len(str(number)))


def _cut(text: str) -> str:
    if not text.strip():
        return repr(text)
    shown = text if text.isprintable() else ascii(text)[1:-1]
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"


def _short(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _bars(counts: list[int]) -> str:
    """Returns a one-line histogram, scaled to its largest bar."""
    shown = counts[:_WIDTH]
    most = max(shown, default=0)
    if not most:
        return ""
    steps = len(_BARS) - 1
    # A nonzero count is always visible.
    return "".join(_BARS[0 if not one else max(1, round(one / most * steps))] for one in shown)
