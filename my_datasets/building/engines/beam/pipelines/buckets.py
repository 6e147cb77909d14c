"""Buckets: ranges of hashes whose records one worker sorts in its memory."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from my_datasets.building.engines.beam.pipelines.run_manifest import Gathered
from my_datasets.building.engines.beam.workspace.build_files import BuildFiles
from my_datasets.errors import BuildInterruptedError, explain

# A bucket has about so many bytes at most: a worker holds it twice, with its index, and the runner
# may hand it over in a copy of its own.
MOST_BYTES = 32 << 20
# ... and this part of what a worker may use.
_OF_MEMORY = 1 / 16
# A split is cut into so many buckets, if each then has as many bytes as this at least: so that all
# workers have something to do, and each has more than a few records.
_WANTED = 64
_LEAST_BYTES = 1 << 20


@dataclass(frozen=True)
class Buckets:
    """The buckets of a split; workers get a copy of it.

    Attributes:
      split: The split.
      count: How many there are.
      bucket_bytes: About how many bytes of records each has.
    """

    split: str
    count: int
    bucket_bytes: float

    def edges(self, work: BuildFiles) -> npt.NDArray[np.uint64]:
        """Returns the upper half of the hash at which each begins; the first one's left out."""
        return _read(work, self.split)

    def waves(self, numbers: Sequence[int], at_once: int | None) -> Iterator[tuple[int, ...]]:
        """Yields buckets that are sorted by one pipeline.

        Args:
          numbers: The buckets that are to be sorted.
          at_once: How many bytes a pipeline may move, about; None for any number.
        """
        if at_once is None:
            yield tuple(numbers)
            return
        size = max(1, math.floor(at_once / max(1.0, self.bucket_bytes)))
        for begin in range(0, len(numbers), size):
            yield tuple(numbers[begin : begin + size])


def cut(
    work: BuildFiles, split: str, gathered: Gathered, memory: int, *, spread_evenly: bool
) -> Buckets:
    """Cuts a split into buckets, or returns how an earlier build has cut it.

    Args:
      work: What was done so far.
      split: The split.
      gathered: What was gathered of it.
      memory: What a worker may use, in bytes.
      spread_evenly: Whether the numbers that give the order are hashes, which are.
    """
    total = gathered.data_bytes
    if work.place.read(_file(split)) is None:
        most = min(MOST_BYTES, memory * _OF_MEMORY)
        wanted = max(1, math.ceil(total / most), min(_WANTED, total // _LEAST_BYTES))
        edges = _even(wanted) if spread_evenly else _by_samples(gathered.samples, wanted)
        work.place.write(_file(split), edges.astype("<u8", copy=False).tobytes())
    count = len(_read(work, split)) + 1
    return Buckets(split, count, total / count)


def _file(split: str) -> str:
    return f"buckets/{split}"


def _read(work: BuildFiles, split: str) -> npt.NDArray[np.uint64]:
    data = work.place.read(_file(split))
    if data is None:
        raise BuildInterruptedError(
            explain(
                f"The buckets of split {split!r} are gone from {work.place}.",
                fix="see that nothing else writes there, then run the same again",
            )
        )
    return np.frombuffer(data, "<u8").astype(np.uint64, copy=False)


def _even(count: int) -> npt.NDArray[np.uint64]:
    return np.array([(number << 64) // count for number in range(1, count)], np.uint64)


def _by_samples(samples: Sequence[tuple[int, float]], count: int) -> npt.NDArray[np.uint64]:
    """Returns edges between buckets of about equal size, as far as samples of the data tell."""
    if count == 1 or not samples:
        return np.zeros(0, np.uint64)
    ordered = sorted(samples)
    reached = np.array(list(itertools.accumulate(weight for _, weight in ordered)))
    wanted = reached[-1] * np.arange(1, count) / count
    rows = np.minimum(np.searchsorted(reached, wanted), len(ordered) - 1)
    return np.unique(np.array([ordered[row][0] for row in rows.tolist()], np.uint64))
