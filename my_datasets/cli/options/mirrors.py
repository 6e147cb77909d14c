"""`--mirror`: other addresses for downloads."""

from collections.abc import Callable, Sequence
from typing import Any

import rich_click as click


def _parsed(
    _context: click.Context, _option: click.Parameter, values: Sequence[str]
) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for value in values:
        begin, separator, other = value.partition("=")
        if not separator or not begin or not other:
            raise click.BadParameter(f"{value!r} is not ADDRESS=OTHER.")
        found.setdefault(begin, []).append(other)
    return found


mirror_option: Callable[..., Any] = click.option(
    "--mirror",
    "mirrors",
    multiple=True,
    callback=_parsed,
    metavar="ADDRESS=OTHER",
    help="Try OTHER first for downloads whose address begins with ADDRESS; may be repeated.",
)
