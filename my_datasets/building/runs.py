"""Runs: sorted pieces of a split's records on disk, the grain of the external sort.

A run file holds the framed records in the order of their hashes, then columns with an entry for
each record. Files are opened only for the length of one read, so that any number of runs can be
merged with few open files.
"""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from my_datasets.records import tfrecord

# The columns of a run's index, in the order in which they are stored.
COLUMNS: dict[str, type[np.generic]] = {
    "high": np.uint64,  # upper half of the hash
    "low": np.uint64,
    "unit": np.uint32,
    "position": np.uint64,  # in the unit, counted from 0
    "size": np.uint64,  # of the framed record, in bytes
    "begin": np.uint64,  # of the framed record, in the run
    "key_end": np.uint64,  # in the keys, which stand last
}
# Bytes that the index takes for a record; the key comes on top.
INDEX_BYTES = sum(np.dtype(kind).itemsize for kind in COLUMNS.values())
# Sorted records are copied and written in portions of this size, not all at once.
_PORTION = 8 << 20

Columns = dict[str, npt.NDArray[Any]]


@dataclass
class Encoded:
    """Encoded examples of one unit.

    Attributes:
      unit: The unit's number.
      positions: Their positions in the unit, shape [n].
      high: Upper halves of their hashes, shape [n].
      low: Lower halves.
      framed: The framed records.
      keys: The keys, as they were hashed.
    """

    unit: int
    positions: npt.NDArray[np.uint64]
    high: npt.NDArray[np.uint64]
    low: npt.NDArray[np.uint64]
    framed: pa.LargeBinaryArray
    keys: pa.LargeBinaryArray

    @property
    def nbytes(self) -> int:
        """Returns how much memory the examples take."""
        data = len(tfrecord.bytes_of(self.framed)) + len(tfrecord.bytes_of(self.keys))
        return data + len(self.high) * (INDEX_BYTES + 16)


@dataclass(frozen=True)
class Run:
    """One run file.

    Attributes:
      path: Where it is.
      count: The number of records.
      data_bytes: The size of the framed records together.
      file_bytes: The size of the file.
      checksum: The CRC-32C of the file.
    """

    path: str
    count: int
    data_bytes: int
    file_bytes: int
    checksum: int

    def columns(self, names: Sequence[str], begin: int, end: int) -> Columns:
        """Returns columns' values of the records `begin` to `end`; shape [end - begin] each."""
        with open(self.path, "rb", buffering=0) as file:
            found = {}
            for name in names:
                kind = COLUMNS[name]
                file.seek(self._start(name) + begin * np.dtype(kind).itemsize)
                found[name] = np.fromfile(file, kind, count=end - begin)
        return found

    def mapped(self, name: str) -> npt.NDArray[Any]:
        """Returns a whole column, of which only what is looked at is read; shape [count]."""
        return np.memmap(self.path, COLUMNS[name], "r", self._start(name), (self.count,))

    def _start(self, name: str) -> int:
        names = list(COLUMNS)
        before = names[: names.index(name)]
        widths = (np.dtype(COLUMNS[column]).itemsize for column in before)
        return self.data_bytes + self.count * sum(widths)

    def read_into(self, out: memoryview, begin: int) -> None:
        """Fills `out` with framed records, from byte `begin` of the run."""
        with open(self.path, "rb", buffering=0) as file:
            file.seek(begin)
            done = 0
            while done < len(out):
                got = file.readinto(out[done:])
                if not got:
                    raise EOFError(f"{self.path} ends before byte {begin + len(out)}")
                done += got

    def key(self, row: int) -> str:
        """Returns the key of one record, for a message."""
        ends = self.mapped("key_end")
        begin, end = int(ends[row - 1]) if row else 0, int(ends[row])
        with open(self.path, "rb") as file:
            file.seek(self.data_bytes + self.count * INDEX_BYTES + begin)
            return file.read(end - begin).decode(errors="backslashreplace")

    def is_intact(self) -> bool:
        """Returns whether the file is there with the bytes that were written."""
        path = Path(self.path)
        if not path.is_file() or path.stat().st_size != self.file_bytes:
            return False
        checksum = 0
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                checksum = google_crc32c.extend(checksum, block)
        return checksum == self.checksum

    def to_json(self) -> dict[str, Any]:
        """Returns what the journal records."""
        return {**asdict(self), "path": Path(self.path).name}

    @classmethod
    def from_json(cls, entry: dict[str, Any], directory: Path) -> "Run":
        """Returns the run that the journal recorded."""
        return cls(**{**entry, "path": os.fspath(directory / entry["path"])})


def write(path: Path, parts: list[Encoded]) -> Run:
    """Writes examples as one sorted run; consumes `parts`, to free their memory."""
    index: Columns = {
        "high": np.concatenate([part.high for part in parts]),
        "low": np.concatenate([part.low for part in parts]),
        "unit": np.concatenate([np.full(len(part.high), part.unit, np.uint32) for part in parts]),
        "position": np.concatenate([part.positions for part in parts]),
    }
    records = pa.chunked_array([part.framed for part in parts], pa.large_binary())
    keys = pa.chunked_array([part.keys for part in parts], pa.large_binary())
    parts.clear()
    order = sort_order(index)
    sizes = np.concatenate([np.diff(tfrecord.offsets_of(chunk)) for chunk in records.chunks])
    index = {name: values[order] for name, values in index.items()}
    index["size"] = sizes[order].astype(np.uint64)
    ends = np.cumsum(index["size"], dtype=np.uint64)
    index["begin"] = ends - index["size"]
    key_sizes = np.concatenate([np.diff(tfrecord.offsets_of(chunk)) for chunk in keys.chunks])
    index["key_end"] = np.cumsum(key_sizes[order], dtype=np.uint64)
    checksum = 0
    with path.open("wb", buffering=0) as file:

        def put(data: memoryview) -> None:
            nonlocal checksum
            checksum = google_crc32c.extend(checksum, data.tobytes())
            written = 0
            while written < len(data):
                written += file.write(data[written:])

        for data in gathered(records, order, ends):
            put(data)
        for name, kind in COLUMNS.items():
            put(memoryview(np.ascontiguousarray(index[name], kind).view(np.uint8).data))
        for data in gathered(keys, order, index["key_end"]):
            put(data)
        file_bytes = file.tell()
    total = int(ends[-1])
    return Run(os.fspath(path), len(order), total, file_bytes, checksum)


def gathered(
    values: pa.ChunkedArray | pa.LargeBinaryArray,
    order: npt.NDArray[np.int64],
    ends: npt.NDArray[np.uint64],
) -> "Any":
    """Yields the bytes of `values` in another order, in portions.

    Args:
      values: n binaries.
      order: Which value comes first, second, ...; shape [n].
      ends: Where each one ends in the new order; shape [n].
    """
    begin = 0
    while begin < len(order):
        before = int(ends[begin - 1]) if begin else 0
        end = int(np.searchsorted(ends, before + _PORTION, side="right"))
        end = max(end, begin + 1)
        taken = values.take(pa.array(order[begin:end]))
        chunks = taken.chunks if isinstance(taken, pa.ChunkedArray) else [taken]
        for chunk in chunks:
            yield tfrecord.bytes_of(chunk)
        begin = end


def sort_order(index: Columns) -> npt.NDArray[np.int64]:
    """Returns the order by hash, and for equal hashes by unit and position."""
    order = np.argsort(index["high"], kind="stable")
    high = index["high"][order]
    # Equal upper halves are equal keys, or next to never: 2**-64 for each pair.
    if (high[1:] == high[:-1]).any():
        names = ("position", "unit", "low", "high")
        order = np.lexsort([index[name] for name in names])
    return order
