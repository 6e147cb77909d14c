"""The columns that records are parsed into: the values of each key."""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from my_datasets.metadata.features import Leaf
from my_datasets.printable import PrintableError
from my_datasets.records.tf_example.encoding import Kind

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]

# Byte ranges longer than this on average are copied whole; shorter ones are gathered by index.
_GATHERED = 64
# Bytes required after the last record, because positions are read eight bytes at a time.
PADDING = 16
# Maximum decompressed size of a zlib tensor whose feature leaves its shape open: zlib can expand a
# megabyte to a gigabyte.
MOST_TENSOR_BYTES = 1 << 30


class UnreadableRecordError(PrintableError):
    """A record is not a `tf.Example`.

    Attributes:
      row: The index of the record among those given.
    """

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(f"record {row}: {reason}")
        self.row = row
        self.reason = reason


class UncommonError(PrintableError):
    """A record has a form that this parser does not support; another parser may read it."""


def require(holds: bool | np.bool_ | npt.NDArray[np.bool_]) -> None:
    """Raises `UncommonError` unless a condition holds, everywhere if it is an array."""
    if not (holds.all() if isinstance(holds, np.ndarray) else holds):
        raise UncommonError


@dataclass(frozen=True)
class Column:
    """The values of one key in all records.

    Attributes:
      kind: The kind of list that has the values; None if it is empty in all records.
      counts: The number of values per record; shape [n].
      values: All numbers, concatenated over records: float32 or int64; None for bytes.
      starts: The offset of each bytes value in the buffer; None for numbers.
      stops: The end of each bytes value in the buffer; None for numbers.
    """

    kind: Kind | None
    counts: Places
    values: npt.NDArray[np.float32] | npt.NDArray[np.int64] | None = None
    starts: Places | None = None
    stops: Places | None = None


def gathered(data: Bytes, begins: Places, ends: Places) -> Bytes:
    """Returns the concatenation of the byte ranges from `begins` to `ends`, of shape [n] each."""
    sizes = ends - begins
    total = int(sizes.sum())
    if total > _GATHERED * len(sizes):
        view = data.data
        parts = [view[a:b] for a, b in zip(begins.tolist(), ends.tolist(), strict=True)]
        return np.frombuffer(bytearray().join(parts), np.uint8)
    shifts = begins - (np.cumsum(sizes) - sizes)
    return data[np.repeat(shifts, sizes) + np.arange(total)]


def tensor_bytes(
    leaf: Leaf, stored: bytes | memoryview, shape: Sequence[int | None]
) -> bytes | memoryview:
    """Returns the bytes of a tensor's numbers, decompressed if its feature is zlib-encoded.

    In `shape`, None or a negative number stands for a variable dimension.

    Raises:
      ValueError: The data is larger than the shape or `MOST_TENSOR_BYTES` allows, or is truncated.
      zlib.error: The data is not valid zlib data.
    """
    if leaf.encoding != "zlib":
        return stored
    most = MOST_TENSOR_BYTES
    known = [size for size in shape if size is not None and size >= 0]
    if len(known) == len(shape):
        exact = np.dtype(leaf.dtype).itemsize * math.prod(known)
        most = min(exact, most) if None in leaf.shape else exact
    unpacking = zlib.decompressobj()
    found = unpacking.decompress(stored, most + 1)
    if len(found) > most:
        raise ValueError(f"zlib makes more than {most:,} bytes of {len(stored):,}")
    if not unpacking.eof:
        raise ValueError("zlib cannot decompress it: it ends early")
    return found


def leading(word: npt.NDArray[np.uint64], *, most: int = 5) -> tuple[Places, Places]:
    """Returns the varint at the beginning of each word, and its size in bytes.

    Raises:
      UncommonError: A varint is longer than `most` bytes.
    """
    value = (word & np.uint64(0x7F)).astype(np.int64)
    going = (word & np.uint64(0x80)) != 0
    width = np.ones(len(word), np.int64)
    if not going.any():
        return value, width
    for i in range(1, most):
        part = word >> np.uint64(8 * i)
        value |= np.where(going, (part & np.uint64(0x7F)).astype(np.int64) << (7 * i), 0)
        width += going
        going = going & ((part & np.uint64(0x80)) != 0)
        if not going.any():
            return value, width
    raise UncommonError


def consecutive(data: Bytes, last: Places) -> Places:
    """Returns the values of consecutive varints, given the position of each one's last byte."""
    if len(last) == len(data):
        return data.astype(np.int64)
    first = np.empty_like(last)
    first[0] = 0
    first[1:] = last[:-1] + 1
    more = last - first
    values = (data[first] & np.uint8(0x7F)).astype(np.uint64)
    longest = int(more.max())
    if longest > 9:
        raise UncommonError
    for i in range(1, longest + 1):
        where = np.flatnonzero(more >= i)
        part = (data[first[where] + i] & np.uint8(0x7F)).astype(np.uint64)
        values[where] |= part << np.uint64(7 * i)
    return values.view(np.int64)
