"""Charts as PNG files."""

from pathlib import Path
from typing import TYPE_CHECKING

from my_datasets.core.json_types import JsonObject
from my_datasets.dependencies import missing_dependency

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from my_datasets.input_pipeline.diagnosis import Diagnosis

_COLOUR = "#2980b9"
# Histograms side by side, and the most classes that get a bar.
_ACROSS = 4
_CLASSES = 40


def _figure(width: float, height: float) -> "Figure":
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise missing_dependency("matplotlib", needed_for="--plot") from error
    return Figure(figsize=(width, height), layout="constrained")


def write_ceilings(found: "Diagnosis", path: Path) -> None:
    """Writes a bar chart of the share of each stage.

    Raises:
      MissingDependencyError: The extra `plots` is not installed.
    """
    stages = list(reversed(found.ceilings))
    figure = _figure(8, 1 + 0.5 * len(stages))
    axes = figure.subplots()
    colours = ["#c0392b" if one.stage == found.bottleneck else "#2980b9" for one in stages]
    bars = axes.barh([one.stage for one in stages], [one.share for one in stages], color=colours)
    axes.bar_label(bars, [f" {one.share:.0%}, {one.rate:,.0f}/s alone" for one in stages])
    axes.set_xlim(0, 1.3 * max(one.share for one in stages))
    axes.xaxis.set_major_formatter("{x:.0%}")
    axes.set_title(f"{found.rate:,.0f} examples/s; bottleneck: {found.bottleneck}")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, format="png", dpi=120)


def write_histograms(name: str, statistics: "JsonObject", path: Path) -> None:
    """Writes a histogram of each feature and split; `statistics` are those of the manifest.

    Raises:
      MissingDependencyError: The extra `plots` is not installed.
    """
    plots = [
        (f"{feature} ({split})", one)
        for split, found in statistics.items()
        for feature, one in found["features"].items()
    ]
    columns = min(_ACROSS, max(1, len(plots)))
    rows = max(1, -(-len(plots) // columns))
    figure = _figure(4 * columns, 0.6 + 2.6 * rows)
    figure.suptitle(name, parse_math=False)
    for axes in figure.subplots(rows, columns, squeeze=False).flat[len(plots) :]:
        axes.set_visible(False)
    for axes, (title, one) in zip(figure.axes, plots, strict=False):
        axes.set_title(title, fontsize="medium", parse_math=False)
        axes.spines[["top", "right"]].set_visible(False)
        if one["kind"] == "label":
            counts = list(one["classes"].items())[:_CLASSES]
            bars = axes.bar(range(len(counts)), [count for _, count in counts], color=_COLOUR)
            names = [class_name for class_name, _ in counts]
            axes.set_xticks([bar.get_x() + bar.get_width() / 2 for bar in bars])
            axes.set_xticklabels(names, rotation=60, ha="right", parse_math=False)
            continue
        part = {"number": "", "text": "lengths", "image": "heights"}[one["kind"]]
        found = one[part] if part else one
        if "histogram" in found:
            edges, counts = found["histogram"]["edges"], found["histogram"]["counts"]
            if edges[0] == edges[-1]:  # zero width
                axes.bar([str(edges[0])], counts, color=_COLOUR)
            else:
                axes.stairs(counts, edges, fill=True, color=_COLOUR)
        axes.set_xlabel(part)
    figure.savefig(path, format="png", dpi=120)
