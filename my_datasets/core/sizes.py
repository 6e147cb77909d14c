"""Parses and formats sizes in bytes."""

import re
from fractions import Fraction

from my_datasets.errors import InvalidOptionError

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])i?)?B?", re.IGNORECASE)


def in_bytes(size: int | str) -> int:
    """Returns a size such as `500M`, `4 GiB` or `1000` in bytes.

    K, M, G and T are powers of 1024, with or without `i` and `B`, in either case.

    Raises:
      InvalidOptionError: It is not a size.
    """
    match = _SIZE.fullmatch(str(size).strip())
    if match is None:
        raise InvalidOptionError(
            f"{size!r} is not a size; write 500M or 4G.",
            fix="give a number of bytes, or one with K, M, G or T: powers of 1024",
        )
    # Exact, unlike a float.
    return int(Fraction(match[1]) * 1024 ** " KMGT".index((match[2] or " ").upper()))


def human_size(size: int) -> str:
    """Returns a size in bytes as a short text, such as `1.5 MiB`."""
    value, unit = float(size), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {_UNITS[unit]}" if unit else f"{size} B"
