"""Reports as self-contained HTML pages without scripts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from my_datasets.catalog import plots
from my_datasets.catalog.feature_summary import distributions, in_usual_order, summaries
from my_datasets.catalog.templating import render
from my_datasets.comparison.diff import Diff
from my_datasets.core.json_types import JsonObject
from my_datasets.statistics.drift import DriftedStatistic

if TYPE_CHECKING:
    from my_datasets.verification.verifier import Report


def statistics_page(name: str, statistics: JsonObject) -> str:
    """Returns a page with the statistics of a version.

    Args:
      name: The version's full name.
      statistics: By split, as in its manifest.
    """
    examples = {split: statistics[split]["examples"] for split in in_usual_order(statistics)}
    return render(
        "statistics_report.html",
        {"name": name, "examples": examples, "features": summaries(statistics)},
    )


def verification_page(reports: "Sequence[Report]") -> str:
    """Returns a page with the results of verifying versions."""
    return render("verification_report.html", {"reports": reports})


def diff_page(found: Diff, before: JsonObject | None, after: JsonObject | None) -> str:
    """Returns a page with the differences between two versions.

    Args:
      found: The differences.
      before: The old version's statistics by split, as in its manifest; None if it has none.
      after: The new version's.
    """
    values = {
        "diff": found,
        "moved": list(moved_plots(found.moved, before or {}, after or {})),
        "has_statistics": bool(before and after),
    }
    return render("diff_report.html", values)


@dataclass(frozen=True)
class MovedPlot:
    """A statistic that changed, with a plot of both versions; empty if it cannot be drawn."""

    moved: DriftedStatistic
    plot: Markup


def moved_plots(
    moved: Sequence[DriftedStatistic], before: JsonObject, after: JsonObject
) -> Iterator[MovedPlot]:
    """Yields changed statistics with plots, largest change first; see `diff_page`."""
    for one in sorted(moved, key=lambda one: -one.distance):
        both = [side[one.split]["features"][one.feature] for side in (before, after)]
        yield MovedPlot(one, _both(one, *both))


def _both(one: DriftedStatistic, before: JsonObject, after: JsonObject) -> Markup:
    title = f"{one.statistic.capitalize()} of {one.feature} in {one.split}"
    counts = before.get("classes"), after.get("classes")
    if one.statistic == "values" and counts[0] and counts[1]:
        return plots.compared_bars(counts[0], counts[1], title)
    drawn = dict(distributions(before)), dict(distributions(after))
    if one.statistic in drawn[0] and one.statistic in drawn[1]:
        return plots.overlaid(drawn[0][one.statistic], drawn[1][one.statistic], title)
    tops = [
        {str(value["value"]): value["count"] for value in side.get("top", {}).get("values", [])}
        for side in (before, after)
    ]
    if one.statistic == "values" and all(tops):
        return plots.compared_bars(tops[0], tops[1], title)
    return Markup("")
