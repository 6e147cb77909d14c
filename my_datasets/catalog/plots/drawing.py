"""What plots are drawn with: an axis, a frame, bars and their names, as SVG."""

import json
import math
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from my_datasets.metadata.dataset_info import MALFORMED

_SMALL = 1e-3
_LARGE = 1e7


def number(value: float) -> str:
    """Returns a number in about four digits: `1,797`, `0.1235`, `1.5e+09`."""
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    if size >= _LARGE or 0 < size < _SMALL:
        return f"{value:.3g}"
    if value == int(value) or size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def share(part: float, whole: float) -> str:
    """Returns a part of a whole, in percent; a part that is there is never shown as none."""
    if not whole or not part:
        return "0 %"
    percent = 100 * part / whole
    if percent < 0.1:
        return "< 0.1 %"
    if 99.95 <= percent < 100:
        return "> 99.9 %"
    return f"{percent:.3g} %"


def shortened(text: str, most: int) -> str:
    """Returns a text of at most so many characters; what is cut off is shown by an ellipsis."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def rule(given: Mapping[str, Any]) -> str:
    """Returns in words which rows of a source belong to a split.

    Args:
      given: As it stands in the manifest; one that is none of ours is given as it is.
    """
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
# Of bars: the width of their names, and of the numbers behind them.
NAMES = 92
_NUMBERS = 52
_LETTERS = 15
_WIDE = 1.7


@dataclass(frozen=True)
class Axis:
    """Where numbers are, from left to right.

    Attributes:
      least: The number at the left end.
      most: That at the right end.
    """

    least: float
    most: float

    @property
    def length(self) -> float:
        """Half of its length."""
        # Halves, because the length itself may be too large for a number.
        return self.most / 2 - self.least / 2

    def at(self, value: float) -> float:
        """Returns how far from the left a number is; all are in the middle if they are the same."""
        if not self.length:
            return WIDTH / 2
        return WIDTH * min(1.0, max(0.0, (value / 2 - self.least / 2) / self.length))


def svg(width: int, height: int, title: str, said: str, parts: Iterable[Markup]) -> Markup:
    """Returns a plot.

    Args:
      width: Of the plot, in its own units.
      height: The same.
      title: What it is.
      said: What it shows, in words.
      parts: What is drawn.
    """
    title, said = _printable(title), _printable(said)
    return Markup(
        '<svg class="plot" role="img" viewBox="0 0 {} {}" aria-label="{}: {}">'
        "<title>{}</title><desc>{}</desc>{}</svg>"
    ).format(width, height, title, said, title, said, Markup("").join(parts))


def baseline() -> Markup:
    """Returns the line on which a histogram stands."""
    return Markup('<path class="axis" d="M0 {}H{}"/>').format(HEIGHT, WIDTH)


def name_of_bar(top: int, name: str, *, is_ours: bool = False) -> Markup:
    """Returns the name of a bar, left of it.

    Args:
      top: Where its row begins.
      name: The name.
      is_ours: Whether it is not one of the data.
    """
    shown = _printable(shortened(name, _LETTERS) if name.strip() else repr(name))
    marks = Markup(' class="note"') if is_ours else Markup("")
    width = sum(_WIDE if unicodedata.east_asian_width(one) in "FW" else 1 for one in shown)
    if width >= _LETTERS - 2:  # that may be too wide, by the font
        marks += Markup(' textLength="{}" lengthAdjust="spacingAndGlyphs"').format(NAMES - 8)
    return Markup('<text x="{}" y="{}" text-anchor="end"{}>{}</text>').format(
        NAMES - 6, top + ROW - 5, marks, shown
    )


def number_of_bar(top: int, text: str) -> Markup:
    """Returns what stands right of a bar, whose row begins at `top`."""
    return Markup('<text x="{}" y="{}" text-anchor="end" class="note">{}</text>').format(
        WIDTH, top + ROW - 5, text
    )


def bar(kind: str, top: int, height: int, length: float) -> Markup:
    """Returns a bar.

    Args:
      kind: How it is drawn: `bars` or `before`.
      top: Where it begins.
      height: How high it is.
      length: How long it is, from 0 to 1.
    """
    width = (WIDTH - NAMES - _NUMBERS) * length
    return Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}" rx="1.5"/>').format(
        kind, NAMES, top, place(max(width, 0.5)), height
    )


def _printable(text: str) -> str:
    """Returns a text without characters that SVG must not have."""
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)


def place(value: float) -> str:
    """Returns a position with one digit behind the point."""
    return f"{value:.1f}".removesuffix(".0")
