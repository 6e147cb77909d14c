"""How far a pipeline is: by what it has left in the work directory, whatever its runner says."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from my_datasets.building.engines.beam.workspace.workspace import Place
from my_datasets.building.progress import Meter
from my_datasets.core.logs import get_logger
from my_datasets.errors import MyDatasetsError

_LOGGER = get_logger(__name__)

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
            try:
                look()
            except (MyDatasetsError, OSError) as error:
                # The pipeline goes on; a store, for one, may answer again by the next time.
                _LOGGER.warning("It is not seen how far the pipeline is: %s", error)
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

    def __init__(self, place: Place, folder: str, ending: str = "") -> None:
        """Passes over those that are there.

        Args:
          place: The place.
          folder: Where they come.
          ending: How their names end.
        """
        self._place, self._folder, self._ending = place, folder, ending
        self._known: set[str] = set()
        self.look()

    def look(self) -> list[tuple[str, int]]:
        """Returns the names of the new ones, and their sizes in bytes."""
        new = [
            (f"{self._folder}/{name}", size)
            for name, size in sorted(self._place.sizes(self._folder).items())
            if name.endswith(self._ending) and name not in self._known
        ]
        self._known |= {name.removeprefix(f"{self._folder}/") for name, _ in new}
        return new
