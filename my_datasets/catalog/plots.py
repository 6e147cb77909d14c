"""Small inline SVG plots: without scripts, scalable, for light and dark pages.

Colors come from the page: its text color, and the variables `--plot`, `--plot-before` and
`--plot-faint`. Each plot also has a description in words, for screen readers.
"""

import json
import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from my_datasets.core.json_types import JsonObject
from my_datasets.metadata.dataset_info import MALFORMED

_SMALL = 1e-3
_LARGE = 1e7

WIDTH = 240
HEIGHT = 64
ROW = 18
# Widths of the names left of bars, and of the numbers right of them.
NAMES = 92
_NUMBERS = 52
_LETTERS = 15
_WIDE = 1.7

_STRIP = 8
_TEXT = 14
MOST_BARS = 20
# How many times as high one of two compared histograms may be before each gets its own scale.
_FLAT = 8


def number(value: float) -> str:
    """Formats a number with about four digits: `1,797`, `0.1235`, `1.5e+09`."""
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    if size >= _LARGE or 0 < size < _SMALL:
        return f"{value:.3g}"
    if value == int(value) or size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def share(part: float, whole: float) -> str:
    """Formats a share in percent; only an empty part is shown as zero."""
    if not whole or not part:
        return "0 %"
    percent = 100 * part / whole
    if percent < 0.1:
        return "< 0.1 %"
    if 99.95 <= percent < 100:
        return "> 99.9 %"
    return f"{percent:.3g} %"


def shortened(text: str, most: int) -> str:
    """Cuts a text to at most `most` characters, with an ellipsis."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def rule(given: JsonObject) -> str:
    """Describes a manifest's rule of a split in words; unknown rules stay JSON."""
    try:
        if "parts" in given:
            rows = f"{share(given['parts'][given['part']], 1)} of the rows, chosen by their keys"
            if given["stratify"] is not None:
                return f"{rows}, the same of each {given['stratify']}"
            if given["group"] is not None:
                return f"{rows.partition(',')[0]}; those of the same {given['group']} together"
            return rows
        values = ", ".join(map(str, given["groups"][given["part"]]))
        return f"where {given['column']} is {values}"
    except MALFORMED:
        return json.dumps(given, sort_keys=True, default=str)


@dataclass(frozen=True)
class Axis:
    """A horizontal axis from `least` to `most`."""

    least: float
    most: float

    @property
    def length(self) -> float:
        """Half of its length; the length itself may overflow."""
        return self.most / 2 - self.least / 2

    def at(self, value: float) -> float:
        """Returns the x position of a number: the middle if the axis has no length."""
        if not self.length:
            return WIDTH / 2
        return WIDTH * min(1.0, max(0.0, (value / 2 - self.least / 2) / self.length))


def svg(width: int, height: int, title: str, description: str, parts: Iterable[Markup]) -> Markup:
    """Returns a plot of `parts`; `description` describes in words what it shows."""
    title, description = _printable(title), _printable(description)
    return Markup(
        '<svg class="plot" role="img" viewBox="0 0 {} {}" aria-label="{}: {}">'
        "<title>{}</title><desc>{}</desc>{}</svg>"
    ).format(width, height, title, description, title, description, Markup("").join(parts))


def baseline() -> Markup:
    """Returns the baseline of a histogram."""
    return Markup('<path class="axis" d="M0 {}H{}"/>').format(HEIGHT, WIDTH)


def name_of_bar(top: int, name: str, *, is_ours: bool = False) -> Markup:
    """Returns the name left of a bar; `is_ours` if it does not come from the data."""
    shown = _printable(shortened(name, _LETTERS) if name.strip() else repr(name))
    marks = Markup(' class="note"') if is_ours else Markup("")
    width = sum(_WIDE if unicodedata.east_asian_width(one) in "FW" else 1 for one in shown)
    if width >= _LETTERS - 2:  # may be too wide in some fonts
        marks += Markup(' textLength="{}" lengthAdjust="spacingAndGlyphs"').format(NAMES - 8)
    return Markup('<text x="{}" y="{}" text-anchor="end"{}>{}</text>').format(
        NAMES - 6, top + ROW - 5, marks, shown
    )


def number_of_bar(top: int, text: str) -> Markup:
    """Returns the text right of a bar whose row begins at `top`."""
    return Markup('<text x="{}" y="{}" text-anchor="end" class="note">{}</text>').format(
        WIDTH, top + ROW - 5, text
    )


def bar(kind: str, top: int, height: int, length: float) -> Markup:
    """Returns a bar of style `bars` or `before`, with a length from 0 to 1."""
    width = (WIDTH - NAMES - _NUMBERS) * length
    return Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}" rx="1.5"/>').format(
        kind, NAMES, top, place(max(width, 0.5)), height
    )


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)


def place(value: float) -> str:
    """Returns a position with one decimal."""
    return f"{value:.1f}".removesuffix(".0")


@dataclass(frozen=True)
class Histogram:
    """Numbers in bins.

    Attributes:
      edges: The edges of the bins, ascending; one more than there are bins.
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
    description = f"{given.total:,} values from {number(given.ends[0])} to {number(given.ends[1])}."
    if len(given.percentiles) == 101:
        quarter, middle, last = (given.percentiles[at] for at in (25, 50, 75))
        description += f" Half of them are from {number(quarter)} to {number(last)}."
        description += f" The median is {number(middle)}."
    parts = [bars, baseline(), _strip(axis, given.percentiles), _ends(axis, given.ends)]
    return svg(WIDTH, HEIGHT + _STRIP + _TEXT, title, description, parts)


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
    phrases = [
        f"from {number(one.ends[0])} to {number(one.ends[1])}"
        + (f", median {number(one.percentiles[50])}" if len(one.percentiles) == 101 else "")
        for one in (before, after)
    ]
    description = f"Before (dashed): {phrases[0]}. After (filled): {phrases[1]}."
    return svg(WIDTH, HEIGHT + _STRIP + _TEXT, title, description, parts)


def bars(
    counts: Mapping[str, int], title: str, *, total: int | None = None, most_bars: int = MOST_BARS
) -> Markup:
    """Returns a bar for each value, or for the most frequent ones.

    `total` is the number of values, including ones not in `counts`; None if all are in it.
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
    phrases = [
        f"{shortened(name, 80)}: {count:,} ({share(count, total)})" for name, count in shown[:5]
    ]
    description = "; ".join(phrases) + (
        f"; and {len(counts) - 5:,} more" if len(counts) > 5 else ""
    )
    return svg(WIDTH, (len(shown) + has_rest) * ROW, title, description, parts)


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
    phrases = [
        f"{shortened(name, 80)}: {share(old, 1)} before, {share(new, 1)} after"
        for name, (old, new) in shown[:5]
    ]
    bottom = len(shown) * height + (ROW if others else 0)
    return svg(WIDTH, bottom, title, "; ".join(phrases), parts)


def waveform(peaks: Sequence[tuple[float, float]], title: str, description: str) -> Markup:
    """Returns the waveform of a sound; `peaks` has each piece's minimum and maximum, -1 to 1."""
    middle = HEIGHT / 2
    wide = WIDTH / max(len(peaks), 1)
    lines = "".join(
        f"M{place((at + 0.5) * wide)} {place(middle * (1 - high) - 0.5)}"
        f"V{place(middle * (1 - low) + 0.5)}"
        for at, (low, high) in enumerate(peaks)
    )
    parts = [Markup('<path class="wave" d="{}"/>').format(lines)]
    return svg(WIDTH, HEIGHT, title, description, parts)


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
