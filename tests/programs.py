"""Programs and privileges that tests need, and that not every machine has.

Tests without them are left out, also in CI, and counted in one line at the end of the run. Any
other skip is an error in CI: see `tests/conftest.py`.
"""

import os
import shutil
from collections import Counter
from collections.abc import Iterable
from typing import NoReturn

import pytest

_NEEDS = "needs "


def leave_out(what: str) -> NoReturn:
    """Leaves a test out, as it needs something that this machine does not have."""
    pytest.skip(_NEEDS + what)


def require(program: str, package: str) -> str:
    """Returns the path of a program; leaves the test out where it is not installed."""
    found = shutil.which(program)
    if found is None:
        leave_out(package)
    return found


def require_root() -> None:
    """Leaves a test out unless it runs as root."""
    if os.geteuid():
        leave_out("root")


def needed(reason: str) -> str | None:
    """Returns what a test that was skipped needs; None if it was skipped for something else."""
    _, found, what = reason.partition(_NEEDS)
    return what if found and reason.removeprefix("Skipped: ").startswith(_NEEDS) else None


def summary(reasons: Iterable[str]) -> str | None:
    """Returns the line that says what was left out; None if nothing was."""
    counts = Counter(filter(None, map(needed, reasons)))
    if not counts:
        return None
    listed = ", ".join(f"{count} without {what}" for what, count in counts.most_common())
    return f"Left out, as this machine lacks what they need: {listed}."
