"""Buckets: ranges of hashes whose records one worker sorts in memory.

Records move between workers in blocks of a few megabytes, framed and with their index: a runner
moves such a value at the cost of one record, and no coder decodes it.
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
from my_datasets.building.engines.beam.run_files import GeneratedRuns
from my_datasets.building.runs import Columns
from my_datasets.errors import BuildInterruptedError
from my_datasets.records.tf_example import pieces
from my_datasets.records.tf_example.pieces import Bytes

# A block has about this many bytes of records, well below the runners' limit for one value.
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
_HEAD = struct.Struct("<QQQ")  # number of records, their bytes, bytes of their keys

# The most bytes of a bucket, about: a worker has it in memory twice, with its index, and the runner
# may keep a copy of its own.
MOST_BYTES = 32 << 20
# ... and the most as a part of a worker's memory.
_OF_MEMORY = 1 / 16
# The number of buckets to aim at, so that all workers are busy, and the least bytes of each.
_WANTED = 64
_LEAST_BYTES = 1 << 20


def packed(index: Columns, data: Bytes, keys: Bytes) -> bytes:
    """Returns a block of adjacent framed records and their adjacent keys.

    `index` has the columns of `_COLUMNS`, with shape [n] each.
    """
    columns = [np.ascontiguousarray(index[name], kind).data for name, kind in _COLUMNS.items()]
    head = _HEAD.pack(len(index["size"]), len(data), len(keys))
    return b"".join([head, *columns, data.data, keys.data])


def unpacked(blocks: Iterable[bytes]) -> tuple[Columns, pa.LargeBinaryArray, pa.LargeBinaryArray]:
    """Returns the joint index, records and keys of some blocks."""
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
    """Cuts the rows `begin` to `end` into ranges, one per block."""
    ends = np.cumsum(sizes[begin:end], dtype=np.int64)
    first = 0
    while first < len(ends):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + BLOCK_BYTES, side="right")))
        yield begin + first, begin + last
        first = last


@dataclass(frozen=True)
class Buckets:
    """The buckets of a split; workers get a copy of it."""

    split: str
    count: int
    bucket_bytes: float  # the average size of a bucket's records

    def edges(self, work: BuildFiles) -> npt.NDArray[np.uint64]:
        """Returns the upper half of the hash at which each bucket but the first begins."""
        return _read(work, self.split)

    def waves(self, numbers: Sequence[int], at_once: int) -> Iterator[tuple[int, ...]]:
        """Divides buckets among pipelines that each move about `at_once` bytes."""
        size = max(1, math.floor(at_once / max(1.0, self.bucket_bytes)))
        for begin in range(0, len(numbers), size):
            yield tuple(numbers[begin : begin + size])


def cut(
    work: BuildFiles, split: str, gathered: GeneratedRuns, memory: int, *, spread_evenly: bool
) -> Buckets:
    """Cuts a split into buckets, or returns the buckets of an earlier build."""
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
            f"The buckets of split {split!r} are missing in {work.place}.",
            fix="make sure that nothing else writes there, then run the same again",
        )
    return np.frombuffer(data, "<u8").astype(np.uint64, copy=False)


def _even(count: int) -> npt.NDArray[np.uint64]:
    return np.array([(number << 64) // count for number in range(1, count)], np.uint64)


def _by_samples(samples: Sequence[tuple[int, float]], count: int) -> npt.NDArray[np.uint64]:
    """Returns edges between buckets of about equal size, estimated from samples."""
    if count == 1 or not samples:
        return np.zeros(0, np.uint64)
    ordered = sorted(samples)
    reached = np.array(list(itertools.accumulate(weight for _, weight in ordered)))
    wanted = reached[-1] * np.arange(1, count) / count
    rows = np.minimum(np.searchsorted(reached, wanted), len(ordered) - 1)
    return np.unique(np.array([ordered[row][0] for row in rows.tolist()], np.uint64))
