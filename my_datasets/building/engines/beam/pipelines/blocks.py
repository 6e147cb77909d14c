"""Blocks: some framed records with their index, as one value that Beam moves.

One value of a few megabytes costs a runner as much as one record, and no coder of Beam's has to
look into it.
"""

import struct
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from my_datasets.building.runs import Columns
from my_datasets.records.tf_example import pieces
from my_datasets.records.tf_example.pieces import Bytes

# Records of about so many bytes make a block: well below what the runners take as one value.
MOST_BYTES = 4 << 20
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
        last = max(first + 1, int(np.searchsorted(ends, before + MOST_BYTES, side="right")))
        yield begin + first, begin + last
        first = last
