"""What plots are drawn with: an axis, a frame, bars and their names, as SVG."""

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup

from my_datasets.catalog.plots.number_format import shortened

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
