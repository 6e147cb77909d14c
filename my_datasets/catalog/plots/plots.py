"""Small inline SVG plots: without scripts, scalable, for light and dark pages.

Colors come from the page: its text color, and the variables `--plot`, `--plot-before` and
`--plot-faint`. Each plot also has a description in words, for screen readers.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from my_datasets.catalog.plots.drawing import (
    HEIGHT,
    ROW,
    WIDTH,
    Axis,
    bar,
    baseline,
    name_of_bar,
    number,
    number_of_bar,
    place,
    share,
    shortened,
    svg,
)
from my_datasets.core.value_types import JsonObject

_STRIP = 8
_TEXT = 14
MOST_BARS = 20
# How many times as high one of two compared histograms may be before each gets its own scale.
_FLAT = 8


@dataclass(frozen=True)
class Histogram:
    """Numbers in bins.

    Attributes:
      edges: The edges of the bins, ascending; one more than there are bins.
      counts: The count of each bin.
      ends: The minimum and maximum.
      percentiles: All 101 percentiles, or none.
    """

    edges: Sequence[float]
    counts: Sequence[int]
    ends: tuple[float, float]
    percentiles: Sequence[float] = ()

    @classmethod
    def of(cls, distribution: JsonObject) -> "Histogram | None":
        """Returns the histogram of a manifest's distribution; None if it has no numbers."""
        given = distribution.get("histogram")
        if not given or not given["counts"]:
            return None
        edges, counts = tuple(map(float, given["edges"])), tuple(map(int, given["counts"]))
        if len(edges) != len(counts) + 1:
            raise ValueError(f"{len(edges)} edges of {len(counts)} bins")
        ends = float(distribution["min"]), float(distribution["max"])
        return cls(edges, counts, ends, tuple(map(float, distribution.get("percentiles", ()))))

    @property
    def total(self) -> int:
        """The number of values."""
        return sum(self.counts)


def histogram(given: Histogram, title: str) -> Markup:
    """Returns a histogram above a strip with the middle half and nine tenths of the numbers."""
    axis = Axis(given.edges[0], given.edges[-1])
    most = max(given.counts)
    heights = [HEIGHT * count / max(most, 1) for count in given.counts]
    bars = Markup('<path class="bars" d="{}"/>').format(_bars(axis, given.edges, heights))
    said = f"{given.total:,} values from {number(given.ends[0])} to {number(given.ends[1])}."
    if len(given.percentiles) == 101:
        quarter, middle, last = (given.percentiles[at] for at in (25, 50, 75))
        said += f" Half of them are from {number(quarter)} to {number(last)}."
        said += f" The median is {number(middle)}."
    parts = [bars, baseline(), _strip(axis, given.percentiles), _ends(axis, given.ends)]
    return svg(WIDTH, HEIGHT + _STRIP + _TEXT, title, said, parts)


def overlaid(before: Histogram, after: Histogram, title: str) -> Markup:
    """Returns two histograms of shares on one axis, `before` as a dashed line."""
    axis = Axis(min(before.edges[0], after.edges[0]), max(before.edges[-1], after.edges[-1]))
    # Densities, since bins may differ in width.
    dense = [_densities(one, axis) for one in (before, after)]
    highest = [max(some, default=0) or 1 for some in dense]
    # On one scale, unless one of the two would be flat.
    is_flat = max(highest) > _FLAT * min(highest)
    tops = highest if is_flat else [max(highest)] * 2
    old, new = (
        [HEIGHT * value / top for value in some] for some, top in zip(dense, tops, strict=True)
    )
    parts = [
        Markup('<path class="bars" d="{}"/>').format(_bars(axis, after.edges, new)),
        Markup('<path class="before" d="{}"/>').format(_outline(axis, before.edges, old)),
        baseline(),
        _ends(axis, (min(before.ends[0], after.ends[0]), max(before.ends[1], after.ends[1]))),
    ]
    told = [
        f"from {number(one.ends[0])} to {number(one.ends[1])}"
        + (f", median {number(one.percentiles[50])}" if len(one.percentiles) == 101 else "")
        for one in (before, after)
    ]
    said = f"Before (dashed): {told[0]}. After (filled): {told[1]}."
    return svg(WIDTH, HEIGHT + _STRIP + _TEXT, title, said, parts)


def bars(
    counts: Mapping[str, int], title: str, *, total: int | None = None, most_bars: int = MOST_BARS
) -> Markup:
    """Returns a bar for each value, or for the most frequent ones.

    Args:
      counts: The count of each value.
      title: The title of the plot.
      total: The number of values, including ones not in `counts`; None if all are in it.
      most_bars: The maximum number of bars.
    """
    is_all = total is None
    total = sum(counts.values()) if total is None else total
    shown, left_out = _first(counts.items(), most_bars)
    rest = total - sum(count for _, count in shown)
    most = max((count for _, count in shown), default=0)
    parts = []
    for row, (name, count) in enumerate(shown):
        parts.append(name_of_bar(row * ROW, name))
        parts.append(bar("bars", row * ROW + 3, ROW - 6, count / max(most, 1)))
        parts.append(number_of_bar(row * ROW, number(count)))
    has_rest = rest > 0 or left_out > 0
    if has_rest:
        name = f"{left_out:,} others" if is_all else "all others"
        parts.append(name_of_bar(len(shown) * ROW, name, is_ours=True))
        parts.append(number_of_bar(len(shown) * ROW, number(rest)))
    told = [
        f"{shortened(name, 80)}: {count:,} ({share(count, total)})" for name, count in shown[:5]
    ]
    said = "; ".join(told) + (f"; and {len(counts) - 5:,} more" if len(counts) > 5 else "")
    return svg(WIDTH, (len(shown) + has_rest) * ROW, title, said, parts)


def compared_bars(before: Mapping[str, int], after: Mapping[str, int], title: str) -> Markup:
    """Returns two bars of shares for each value, `before` above as an outline.

    The values whose shares changed most come first.
    """
    totals = max(sum(before.values()), 1), max(sum(after.values()), 1)
    both = {
        name: (before.get(name, 0) / totals[0], after.get(name, 0) / totals[1])
        for name in {**before, **after}
    }
    moved = sorted(both.items(), key=lambda one: -abs(one[1][1] - one[1][0]))
    shown, others = moved[: MOST_BARS // 2], moved[MOST_BARS // 2 :]
    most = max((value for _, pair in shown for value in pair), default=0) or 1
    height = 2 * ROW - 8
    parts = []
    for row, (name, (old, new)) in enumerate(shown):
        top = row * height
        parts.append(name_of_bar(top + 4, name))
        parts.append(bar("before", top + 4, 8, old / most))
        parts.append(bar("bars", top + 13, 8, new / most))
        parts.append(number_of_bar(top + 4, f"{number(round(100 * new, 1))} %"))
    if others:
        parts.append(name_of_bar(len(shown) * height, f"{len(others):,} others", is_ours=True))
    told = [
        f"{shortened(name, 80)}: {share(old, 1)} before, {share(new, 1)} after"
        for name, (old, new) in shown[:5]
    ]
    bottom = len(shown) * height + (ROW if others else 0)
    return svg(WIDTH, bottom, title, "; ".join(told), parts)


def waveform(peaks: Sequence[tuple[float, float]], title: str, said: str) -> Markup:
    """Returns the waveform of a sound.

    Args:
      peaks: The minimum and maximum of each piece, from -1 to 1.
      title: The title of the plot.
      said: A description in words.
    """
    middle = HEIGHT / 2
    wide = WIDTH / max(len(peaks), 1)
    lines = "".join(
        f"M{place((at + 0.5) * wide)} {place(middle * (1 - high) - 0.5)}"
        f"V{place(middle * (1 - low) + 0.5)}"
        for at, (low, high) in enumerate(peaks)
    )
    parts = [Markup('<path class="wave" d="{}"/>').format(lines)]
    return svg(WIDTH, HEIGHT, title, said, parts)


def _bars(axis: Axis, edges: Sequence[float], heights: Sequence[float]) -> str:
    drawn = []
    for (left, right), height in zip(pairwise(edges), heights, strict=True):
        if height:
            begin, end = axis.at(left), axis.at(right)
            if begin == end:  # all numbers are the same
                begin, end = begin - 6, end + 6
            # Nonzero counts are always visible.
            top = HEIGHT - max(height, 1)
            drawn.append(f"M{place(begin)} {HEIGHT}V{place(top)}H{place(end - 0.6)}V{HEIGHT}z")
    return "".join(drawn)


def _outline(axis: Axis, edges: Sequence[float], heights: Sequence[float]) -> str:
    begin, end = axis.at(edges[0]), axis.at(edges[-1])
    if begin == end:
        return f"M{place(begin - 6)} {HEIGHT}V{place(HEIGHT - heights[0])}h12V{HEIGHT}"
    steps = "".join(
        f"V{place(HEIGHT - height)}H{place(axis.at(right))}"
        for right, height in zip(edges[1:], heights, strict=True)
    )
    return f"M{place(begin)} {HEIGHT}{steps}V{HEIGHT}"


def _densities(given: Histogram, axis: Axis) -> list[float]:
    found = []
    for (left, right), count in zip(pairwise(given.edges), given.counts, strict=True):
        width = (axis.at(right) - axis.at(left)) or 12
        found.append(count / max(given.total, 1) / width)
    return found


def _strip(axis: Axis, percentiles: Sequence[float]) -> Markup:
    if len(percentiles) != 101 or not axis.length:
        return Markup("")
    first, quarter, middle, last, end = (
        place(axis.at(percentiles[at])) for at in (5, 25, 50, 75, 95)
    )
    y = HEIGHT + 5
    return Markup(
        '<path class="range" d="M{} {y}H{}"/><path class="half" d="M{} {y}H{}"/>'
        '<circle class="median" cx="{}" cy="{y}" r="2.5"/>'
    ).format(first, end, quarter, last, middle, y=y)


def _ends(axis: Axis, ends: tuple[float, float]) -> Markup:
    y = HEIGHT + _STRIP + _TEXT - 3
    if not axis.length:
        return Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>').format(
            WIDTH / 2, y, number(ends[0])
        )
    return Markup(
        '<text x="0" y="{y}">{}</text><text x="{}" y="{y}" text-anchor="end">{}</text>'
    ).format(number(ends[0]), WIDTH, number(ends[1]), y=y)


def _first(counts: Iterable[tuple[str, int]], most: int) -> tuple[list[tuple[str, int]], int]:
    """Returns the items to show, in their order if all fit, and the number of others."""
    given = list(counts)
    if len(given) <= most:
        return given, 0
    given.sort(key=lambda one: -one[1])
    return given[: most - 1], len(given) - most + 1
