"""Makes untrusted text safe to print: terminals interpret nothing in it, and nothing is hidden.

Control characters can move a terminal's cursor, change its title or colors, and even inject input;
bidirectional ones display a text in a different order than it has; others have zero width, and so
hide.
"""

import re

# Prefix, after spaces, of the further lines of a text within a message.
QUOTED = "| "
# Maximum number of characters of a name in an error, and of a reason, which may contain several.
_LONGEST = 200
_LONGEST_REASON = 1000
# The categories Cc, Cf, Cs, Zl and Zp of Unicode 16, without the line feed; and characters without
# a width.
_HIDDEN = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000110bd\U000110cd"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f"
    # Letters and marks without a width; variation selectors, except after an emoji.
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\uffa0\ufe00-\ufe0d\U000e0100-\U000e01ef]"
    "|(?<![#*0-9\xa9\xae\u203c-\u3299\U0001f000-\U0001faff])[\ufe0e\ufe0f]"
)


def printable(text: str) -> str:
    r"""Returns a text with hidden characters escaped as in Python, for example `\x1b`.

    Line feeds are kept, and tabs become spaces.
    """
    return _HIDDEN.sub(_escaped, text.replace("\r\n", "\n")) if _HIDDEN.search(text) else text


def folded(text: str) -> str:
    """Returns a printable text for a line of ours, with its further lines marked as not ours."""
    return printable(text).rstrip("\n").replace("\n", f"\n    {QUOTED}")


def on_one_line(text: str) -> str:
    r"""Returns a printable text with line feeds written as `\n`."""
    return printable(text).replace("\n", r"\n")


class PrintableError(Exception):
    """An error whose message is printable, also in the traceback of an error that it caused."""

    def __init__(self, *given: object) -> None:
        super().__init__(*(printable(one) if isinstance(one, str) else one for one in given))


def clipped(name: str, most: int = _LONGEST) -> str:
    """Returns an untrusted name for an error, cut off with `...` if it is too long."""
    return name if len(name) <= most else f"{name[:most]}..."


def reason(error: Exception) -> str:
    """Returns why something failed, for use in another error; long reasons are cut off."""
    return clipped(getattr(error, "strerror", None) or str(error), _LONGEST_REASON)


def printable_json(document: str) -> str:
    r"""Returns a JSON document with the same values, with hidden characters written as `\u....`."""
    return _HIDDEN.sub(_of_json, document)


def _escaped(found: re.Match[str]) -> str:
    return "    " if found[0] == "\t" else found[0].encode("unicode_escape").decode("ascii")


def _of_json(found: re.Match[str]) -> str:
    if found[0] in "\t\r":  # only between values: within strings, JSON has escaped them
        return found[0]
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
