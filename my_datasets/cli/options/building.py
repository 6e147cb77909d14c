"""Options of the commands that build versions."""

from collections.abc import Callable
from typing import Any

import rich_click as click

max_quarantined_option: Callable[..., Any] = click.option(
    "--max-quarantined",
    type=click.FloatRange(0, 1),
    default=0.01,
    show_default=True,
    metavar="PART",
    help="The part of a split above which setting aside fails.",
)
version_gate_option: Callable[..., Any] = click.option(
    "--version-gate/--no-version-gate",
    default=True,
    help="Refuse a version whose number says less than what changed since the one before it.  "
    "[default: refuse]",
)
