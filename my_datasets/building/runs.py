"""Runs: sorted files of a split's records, the input of the external merge sort.

A run file has the framed records in the order of their hashes, then index columns with an entry
per record, then the keys. Files are opened for one read at a time, so any number of runs can be
merged with few open files.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from my_datasets.building.units import Entry
from my_datasets.core.arrays import Array
from my_datasets.errors import InvalidKeyError
from my_datasets.records import shuffle_order, tfrecord
from my_datasets.records.tf_example import pieces

SUFFIX = ".run"
# The columns of a run's index, in the order in which they are stored.
COLUMNS: dict[str, type[np.generic]] = {
    "high": np.uint64,  # upper half of the hash
    "low": np.uint64,
    "unit": np.uint32,
    "position": np.uint64,  # in the unit, counted from 0
    "size": np.uint64,  # of the framed record, in bytes
    "begin": np.uint64,  # of the framed record, in the run
    "key_end": np.uint64,  # in the keys, which come last
}
# Index bytes per record; the key comes on top.
INDEX_BYTES = sum(np.dtype(kind).itemsize for kind in COLUMNS.values())
# Writing a run takes its index, a sorted copy, and the memory for sorting.
_INDEX_COPIES = 3
# The size of the first run in bytes. Each later one is twice as large, up to the capacity: a small
# build takes little memory, and a large one makes few runs.
_FIRST = 64 << 20
# Sorted records are copied and written in portions of this many bytes, which fit in the
# processor's cache.
_PORTION = 1 << 20
# Values of at least this many bytes on average are written without a copy.
_LARGE = 16 << 10
# Room for 2**40 examples in each of 2**22 units.
_POSITION_BITS = 40

Columns = dict[str, Array]


def select(columns: Columns, rows: Array | slice) -> Columns:
    """Returns some rows of the columns, by their numbers, a mask or a slice."""
    return {name: values[rows] for name, values in columns.items()}


@dataclass(frozen=True)
class Run:
    """One run file."""

    path: str
    count: int  # of records
    data_bytes: int  # of all framed records
    file_bytes: int
    checksum: int  # CRC-32C of the file

    def columns(self, names: Sequence[str], begin: int, end: int) -> Columns:
        """Returns the columns of the records `begin` to `end`; shape [end - begin] each."""
        found = {}
        with open(self.path, "rb", buffering=0) as file:
            for name in names:
                kind = COLUMNS[name]
                file.seek(self._start(name) + begin * np.dtype(kind).itemsize)
                found[name] = np.fromfile(file, kind, count=end - begin)
        return found

    def mapped(self, name: str) -> Array:
        """Returns a whole column, mapped into memory; shape [count]."""
        return np.memmap(self.path, COLUMNS[name], "r", self._start(name), (self.count,))

    def _start(self, name: str) -> int:
        names = list(COLUMNS)
        before = names[: names.index(name)]
        widths = (np.dtype(COLUMNS[column]).itemsize for column in before)
        return self.data_bytes + self.count * sum(widths)

    @property
    def index_bytes(self) -> tuple[int, int]:
        """The offsets in the file where the index begins and ends; the keys follow."""
        return self.data_bytes, self.data_bytes + self.count * INDEX_BYTES

    def read_into(self, out: memoryview, begin: int) -> None:
        """Fills `out` with framed records, from byte `begin` of the run."""
        with open(self.path, "rb") as file:
            file.seek(begin)
            if file.readinto(out) < len(out):
                raise EOFError(f"{self.path} ends before byte {begin + len(out)}")

    def key(self, row: int) -> str:
        """Returns the key of one record, for a message."""
        ends = self.mapped("key_end")
        begin, end = int(ends[row - 1]) if row else 0, int(ends[row])
        return self.keys(begin, end).tobytes().decode(errors="backslashreplace")

    def keys(self, begin: int, end: int) -> npt.NDArray[np.uint8]:
        """Returns the keys from byte `begin` to byte `end` of all of them; shape [end - begin]."""
        return np.fromfile(self.path, np.uint8, end - begin, offset=self.index_bytes[1] + begin)

    def is_intact(self) -> bool:
        """Returns whether the file exists with the bytes that were written."""
        return tfrecord.is_intact(Path(self.path), self.checksum, self.file_bytes)

    def to_json(self) -> Entry:
        """Returns the journal's entry."""
        return {**asdict(self), "path": Path(self.path).name}

    @classmethod
    def from_json(cls, entry: Entry, directory: Path) -> "Run":
        """Returns the run of a journal's entry."""
        return cls(**{**entry, "path": os.fspath(directory / entry["path"])})


class RunBuffer:
    """Encoded examples in memory, until they are written as a run.

    One buffer is reused for all runs: new memory costs more than the copy, because the system
    clears and maps each page of it.
    """

    def __init__(self, capacity: int) -> None:
        """Starts empty; `capacity` is the most bytes of framed records to buffer."""
        self._capacity = capacity
        self._limit = min(capacity, _FIRST)
        self._data = np.empty(0, np.uint8)
        self._clear()

    def _clear(self) -> None:
        self._used = 0
        self._count = 0
        self._key_bytes = 0
        self._index: list[Columns] = []
        self._keys: list[pa.LargeBinaryArray] = []

    @property
    def is_full(self) -> bool:
        """Whether it is time to write them."""
        # Includes what writing them will take.
        size = self._used + self._key_bytes + self._count * INDEX_BYTES * _INDEX_COPIES
        return size >= self._limit

    def has_room(self, framed: pa.LargeBinaryArray) -> bool:
        """Returns whether more records fit."""
        size = len(pieces.bytes_of(framed))
        return not self._count or self._used + size <= max(len(self._data), self._capacity)

    def add(
        self,
        unit: int,
        positions: npt.NDArray[np.uint64],
        hashes: shuffle_order.Hashes,
        framed: pa.LargeBinaryArray,
        keys: pa.LargeBinaryArray,
    ) -> None:
        """Adds examples of one unit, after `has_room` has returned True for them.

        `positions` are those in the unit, `hashes` upper and lower halves, `framed` the records,
        and `keys` are as they were hashed; shape [n] each.
        """
        data = pieces.bytes_of(framed)
        end = self._used + len(data)
        if end > len(self._data):
            self._data = np.empty(max(end, self._capacity), np.uint8)
        self._data[self._used : end] = data
        self._used = end
        self._count += len(positions)
        self._key_bytes += len(pieces.bytes_of(keys))
        self._keys.append(keys)
        self._index.append(
            {
                "high": hashes[0],
                "low": hashes[1],
                "unit": np.full(len(positions), unit, np.uint32),
                "position": positions,
                "size": np.diff(pieces.offsets_of(framed)).astype(np.uint64),
            }
        )

    def write(self, path: Path) -> Run | None:
        """Writes everything as one sorted run, and empties the buffer; None if it was empty."""
        if not self._count:
            return None
        index = {
            name: np.concatenate([part[name] for part in self._index]) for name in self._index[0]
        }
        offsets = np.append(np.zeros(1, np.uint64), np.cumsum(index["size"])).astype(np.int64)
        records = pieces.binary_array(pa.py_buffer(self._data[: self._used]), offsets)
        keys = pa.concat_arrays(self._keys)
        self._clear()
        self._limit = min(self._capacity, 2 * self._limit)
        return write(path, index, records, keys, sort_order(index))


def write(
    path: Path,
    index: Columns,
    records: pa.LargeBinaryArray,
    keys: pa.LargeBinaryArray,
    order: npt.NDArray[np.int64],
) -> Run:
    """Writes a run of the framed records that `order` names, in this order; shape [up to n].

    `index` has hashes, units, positions and sizes of the records. It, `records` and `keys` have
    shape [n] each.
    """
    index = select(index, order)
    ends = np.cumsum(index["size"], dtype=np.uint64)
    index["begin"] = ends - index["size"]
    key_sizes = np.diff(pieces.offsets_of(keys))
    index["key_end"] = np.cumsum(key_sizes[order], dtype=np.uint64)
    with tfrecord.writing(path) as file:
        for data in reordered(records, order, ends):
            file.write(data)
        for name, kind in COLUMNS.items():
            file.write(np.ascontiguousarray(index[name], kind).view(np.uint8))
        for data in reordered(keys, order, index["key_end"]):
            file.write(data)
    return Run(os.fspath(path), len(order), int(ends[-1]), file.size, file.checksum)


def reordered(
    values: pa.LargeBinaryArray, order: npt.NDArray[np.int64], ends: npt.NDArray[np.uint64]
) -> Iterator[pieces.Bytes]:
    """Yields the bytes of `values` in another order, in portions; large values one by one.

    `order` has the index of the first value, the second, ..., and `ends` the offset where each one
    ends in the new order; shape [n] each, like `values`.
    """
    if len(order) and int(ends[-1]) >= _LARGE * len(order):
        data, offsets = pieces.bytes_of(values), pieces.offsets_of(values)
        begins, sizes = offsets[:-1] - offsets[0], np.diff(offsets)
        for start, size in zip(begins[order].tolist(), sizes[order].tolist(), strict=True):
            yield data[start : start + size]
        return
    begin = 0
    while begin < len(order):
        before = int(ends[begin - 1]) if begin else 0
        end = int(np.searchsorted(ends, before + _PORTION, side="right"))
        end = max(end, begin + 1)
        yield pieces.bytes_of(values.take(pa.array(order[begin:end])))
        begin = end


def sort_order(index: Columns) -> npt.NDArray[np.int64]:
    """Returns the order by hash, and for equal hashes by unit and position."""
    order = np.argsort(index["high"], kind="stable")
    high = index["high"][order]
    # Two different keys have equal upper halves with a probability of only 2**-64.
    if (high[1:] == high[:-1]).any():
        names = ("position", "unit", "low", "high")
        order = np.lexsort([index[name] for name in names])
    return order


def ordering_numbers(
    unit: int,
    positions: npt.NDArray[np.uint64],
    keys: Sequence[object] | pa.Array,
    key_array: pa.LargeBinaryArray | None = None,
) -> tuple[bool, shuffle_order.Hashes]:
    """Returns numbers that sort as TFDS sorts where shuffling is disabled: by int keys.

    `positions` are those in the unit; they and `keys` have shape [n]. `key_array` is the result of
    `shuffle_order.key_array`, for a Beam collection: it has no order of generation, so the first 16
    bytes of other keys give the order.

    Returns:
      Whether the keys are ints; the numbers that replace hashes, shape [n] each.

    Raises:
      InvalidKeyError: Some keys are ints and some are not, or one is out of range.
    """
    values = _whole_numbers(keys)
    is_by_key = values is not None
    if values is None and key_array is not None:
        return False, _key_prefixes(key_array)
    if values is None:
        values = (unit << _POSITION_BITS) + positions.astype(np.int64)
    # Flipping the sign bit makes unsigned numbers sort like the signed ones.
    high = values.view(np.uint64) ^ np.uint64(1 << 63)
    return is_by_key, (high, np.zeros(len(values), np.uint64))


def _key_prefixes(keys: pa.LargeBinaryArray) -> shuffle_order.Hashes:
    begins = pieces.offsets_of(keys)
    data = np.append(pieces.bytes_of(keys), np.zeros(16, np.uint8))
    column = np.arange(16)
    inside = column < np.diff(begins)[:, None]
    where = np.minimum((begins[:-1] - begins[0])[:, None] + column, len(data) - 1)
    halves = np.where(inside, data[where], np.uint8(0)).view(">u8").astype(np.uint64)
    return halves[:, 0].copy(), halves[:, 1].copy()


def _whole_numbers(keys: Sequence[object] | pa.Array) -> npt.NDArray[np.int64] | None:
    """Returns int keys as an array; None if no key is an int."""
    if isinstance(keys, (pa.Array, pa.ChunkedArray)):
        if not pa.types.is_integer(keys.type):
            return None
        values = keys.to_numpy(zero_copy_only=False)
    else:
        whole = [isinstance(key, (int, np.integer)) for key in keys]
        if not any(whole):
            return None
        if not all(whole):
            raise mixed_keys()
        values = np.array(keys)
    # Python ints beyond 64 bits make an array of objects.
    if values.dtype.kind not in "iu" or (values > np.int64(2**63 - 1)).any():
        raise InvalidKeyError(
            "Where shuffling is disabled, an int key must fit in a signed 64-bit integer.",
            f"Keys from {values.min()} to {values.max()}",
            fix="yield smaller numbers, or strings to keep the order of generation",
        )
    return np.asarray(values, np.int64)


def mixed_keys() -> InvalidKeyError:
    """Returns the error for a mix of int and other keys where shuffling is disabled."""
    return InvalidKeyError(
        "Where shuffling is disabled, either all keys are ints or none is.",
        fix="yield ints that give the order, or strings to keep the order of generation",
    )
