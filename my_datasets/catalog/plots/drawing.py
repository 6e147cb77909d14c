"""Building blocks of SVG plots: axes, frames, bars and their labels."""

import json
import math
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup

from my_datasets.core.value_types import JsonObject
from my_datasets.metadata.dataset_info import MALFORMED

_SMALL = 1e-3
_LARGE = 1e7


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


WIDTH = 240
HEIGHT = 64
ROW = 18
# Widths of the names left of bars, and of the numbers right of them.
NAMES = 92
_NUMBERS = 52
_LETTERS = 15
_WIDE = 1.7


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


def svg(width: int, height: int, title: str, said: str, parts: Iterable[Markup]) -> Markup:
    """Returns a plot of `parts`; `said` describes in words what it shows."""
    title, said = _printable(title), _printable(said)
    return Markup(
        '<svg class="plot" role="img" viewBox="0 0 {} {}" aria-label="{}: {}">'
        "<title>{}</title><desc>{}</desc>{}</svg>"
    ).format(width, height, title, said, title, said, Markup("").join(parts))


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
