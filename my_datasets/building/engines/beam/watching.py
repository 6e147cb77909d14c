"""How far a pipeline is: by what it has left in the work directory, whatever its runner says."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from my_datasets.building.progress import Meter

# Seconds between two looks, and how many times as long as a look itself at least: where there are
# a million files, looking takes a while.
_EVERY = 2.0
_TIMES = 20


@contextmanager
def watching(look: Callable[[], None], meter: Meter) -> Iterator[None]:
    """Looks, and tells, every few seconds while a pipeline runs.

    Args:
      look: Brings the progress up to date.
      meter: Tells it; nobody else uses it meanwhile.
    """
    over = threading.Event()

    def run() -> None:
        wait = _EVERY
        while not over.wait(wait):
            begin = time.monotonic()
            look()
            wait = max(_EVERY, _TIMES * (time.monotonic() - begin))
            meter.tell()

    thread = threading.Thread(target=run, name="watching a pipeline", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class NewFiles:
    """The files of a kind that have come since one last looked."""

    def __init__(self, directory: Path, pattern: str) -> None:
        """Counts those that are there as new."""
        self._directory, self._pattern = directory, pattern
        self._known: set[Path] = set()

    def look(self) -> list[Path]:
        """Returns the new ones."""
        there = set(self._directory.glob(self._pattern))
        new = sorted(there - self._known)
        self._known |= there
        return new
