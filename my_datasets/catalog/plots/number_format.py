"""How numbers look on pages."""

import json
import math
from collections.abc import Mapping
from typing import Any

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
