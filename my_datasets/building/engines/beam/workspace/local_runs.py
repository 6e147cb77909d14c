"""Runs that lie in a place, read on this machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from my_datasets.building.engines.beam.workspace.workspace import OpenFile, Place
from my_datasets.building.runs import Run


@dataclass(frozen=True)
class RunHere:
    """A run of which some records are to be read.

    Attributes:
      run: The run, as a file of this machine that has its index.
      reading: Brings more of it.
    """

    run: Run
    reading: OpenFile

    def bring(self, begin: int, end: int, *, with_keys: bool = False) -> None:
        """Sees that records `begin` to `end` are here, and their keys if they are wanted."""
        if begin == end:
            return
        starts, run = self.run.mapped("begin"), self.run
        stop = int(starts[end]) if end < run.count else run.data_bytes
        self.reading.bring(int(starts[begin]), stop)
        if with_keys:
            ends, base = run.mapped("key_end"), run.index_bytes[1]
            first = int(ends[begin - 1]) if begin else 0
            self.reading.bring(base + first, base + int(ends[end - 1]))


@contextmanager
def opened(place: Place, run: Run) -> Iterator[RunHere]:
    """Gives a run, of which the index is here.

    Args:
      place: Where it lies.
      run: The run, whose path is its name there.
    """
    with place.reading(run.path, run.file_bytes) as reading:
        reading.bring(*run.index_bytes)
        yield RunHere(replace(run, path=str(reading.path)), reading)
