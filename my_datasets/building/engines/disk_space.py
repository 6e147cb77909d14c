"""Whether the disk has room for what is to be written."""

import contextlib
import os
import shutil
from pathlib import Path

from my_datasets.building.job import Job
from my_datasets.building.journal import Journal
from my_datasets.core.logs import get_logger
from my_datasets.errors import DiskFullError, explain

_LOGGER = get_logger(__name__)


def warn_of_units(job: Job, journal: Journal) -> None:
    """Warns before starting if the unfinished units' own files alone would not fit.

    It is an estimate: a builder may also make less of them, so it does not refuse.
    """
    need = 0
    for item in job.inputs if job.max_examples is None else ():
        state = journal.split(item.name)
        for number, unit in enumerate(item.units.items):
            is_path = isinstance(unit, (str, os.PathLike)) and "://" not in os.fspath(unit)
            if is_path and not state.is_complete(number):
                with contextlib.suppress(OSError, ValueError):
                    path = Path(unit)
                    need += path.stat().st_size if path.is_file() else 0
    free = shutil.disk_usage(journal.directory).free
    if need > free:
        _LOGGER.warning(
            "The units' files have %s bytes, and only %s are free in %s: the disk may fill up.",
            f"{need:,}", f"{free:,}", journal.directory.parent,
        )  # fmt: skip


def require(need: int, directory: Path, what: str) -> None:
    """Raises `DiskFullError` if `need` bytes are not free; `what` says of what, with a verb."""
    free = shutil.disk_usage(directory).free
    if need > free:
        raise DiskFullError(
            explain(
                f"There is not enough room in {directory.parent}.",
                f"{what} {need:,} bytes; free there: {free:,}",
                "What was finished is kept.",
                fix="free some space or choose another directory, then run the same again",
            )
        )
