"""Charts as PNG files."""

from pathlib import Path
from typing import TYPE_CHECKING

from my_datasets.dependencies import missing_dependency

if TYPE_CHECKING:
    from my_datasets.input_pipeline.diagnosis import Diagnosis


def write_ceilings(found: "Diagnosis", path: Path) -> None:
    """Writes the share of each stage as a bar chart.

    Args:
      found: What was measured.
      path: The file.

    Raises:
      MissingDependencyError: The extra `plots` is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise missing_dependency("matplotlib", needed_for="--plot") from error
    stages = list(reversed(found.ceilings))
    figure = Figure(figsize=(8, 1 + 0.5 * len(stages)), layout="constrained")
    axes = figure.subplots()
    colours = ["#c0392b" if one.stage == found.bottleneck else "#2980b9" for one in stages]
    bars = axes.barh([one.stage for one in stages], [one.share for one in stages], color=colours)
    axes.bar_label(bars, [f" {one.share:.0%}, {one.rate:,.0f}/s alone" for one in stages])
    axes.set_xlim(0, 1.3 * max(one.share for one in stages))
    axes.xaxis.set_major_formatter("{x:.0%}")
    axes.set_title(f"{found.rate:,.0f} examples/s; bottleneck: {found.bottleneck}")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, format="png", dpi=120)
