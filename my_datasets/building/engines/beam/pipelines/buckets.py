"""Buckets: ranges of hashes whose records one worker sorts in its memory.

One value of a few megabytes costs a runner as much as one record, and no coder of Beam's has to
look into it.
"""

import itertools
import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from my_datasets.building.engines.beam.build_files import BuildFiles
from my_datasets.building.engines.beam.pipelines.run_files import Gathered
from my_datasets.building.runs import Columns
from my_datasets.errors import BuildInterruptedError, explain
from my_datasets.records.tf_example import pieces
from my_datasets.records.tf_example.pieces import Bytes

# Records of about so many bytes make a block: well below what the runners take as one value.
BLOCK_BYTES = 4 << 20
_COLUMNS: dict[str, type[np.generic]] = {
    "high": np.uint64,
    "low": np.uint64,
    "position": np.uint64,
    "size": np.uint64,
    "key_size": np.uint64,
    "unit": np.uint32,
    "witness": np.uint8,
}
_HEAD = struct.Struct("<QQQ")  # records, bytes of them, bytes of their keys


def packed(index: Columns, data: Bytes, keys: Bytes) -> bytes:
    """Returns a block.

    Args:
      index: Columns of `_COLUMNS`; shape [n] each.
      data: The framed records, one after the other.
      keys: Their keys, one after the other.
    """
    columns = [np.ascontiguousarray(index[name], kind).data for name, kind in _COLUMNS.items()]
    head = _HEAD.pack(len(index["size"]), len(data), len(keys))
    return b"".join([head, *columns, data.data, keys.data])


def unpacked(blocks: Iterable[bytes]) -> tuple[Columns, pa.LargeBinaryArray, pa.LargeBinaryArray]:
    """Returns what is in some blocks together: the index, the records and the keys."""
    indexes: list[Columns] = []
    data: list[Bytes] = []
    keys: list[Bytes] = []
    for block in blocks:
        count, data_bytes, key_bytes = _HEAD.unpack_from(block)
        begin, index = _HEAD.size, {}
        for name, kind in _COLUMNS.items():
            index[name] = np.frombuffer(block, kind, count, begin)
            begin += index[name].nbytes
        indexes.append(index)
        data.append(np.frombuffer(block, np.uint8, data_bytes, begin))
        keys.append(np.frombuffer(block, np.uint8, key_bytes, begin + data_bytes))
    whole = {name: np.concatenate([one[name] for one in indexes]) for name in _COLUMNS}
    return whole, _array(data, whole["size"]), _array(keys, whole["key_size"])


def _array(parts: list[Bytes], sizes: npt.NDArray[np.uint64]) -> pa.LargeBinaryArray:
    return pieces.binary_array(pa.py_buffer(np.concatenate(parts)), pieces.offsets_from(sizes))


def ranges(sizes: npt.NDArray[np.uint64], begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields ranges of rows from `begin` to `end` that each make a block."""
    ends = np.cumsum(sizes[begin:end], dtype=np.int64)
    first = 0
    while first < len(ends):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + BLOCK_BYTES, side="right")))
        yield begin + first, begin + last
        first = last


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
