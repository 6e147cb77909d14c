"""What records are taken apart into: the values of each key."""

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

# Longer runs of bytes are copied as a whole, shorter ones gathered.
_GATHERED = 64
# Bytes that must follow the last record: positions are looked at eight bytes at a time.
PADDING = 16
# What a tensor may become that zlib compressed, if its feature leaves its shape open: zlib makes a
# gigabyte of a megabyte.
MOST_TENSOR_BYTES = 1 << 30


class UnreadableRecordError(PrintableError):
    """A record is no `tf.Example`.

    Attributes:
      row: Which of the records that were given.
      reason: What is wrong with it.
    """

    def __init__(self, row: int, reason: str) -> None:
        """Says which record it is."""
        super().__init__(f"record {row}: {reason}")
        self.row = row
        self.reason = reason


class UncommonError(PrintableError):
    """Some record has a form that is not read side by side; another way may read it."""


@dataclass(frozen=True)
class Column:
    """The values of one key in all records.

    Attributes:
      kind: The list that holds them; None if it is empty in all records.
      counts: How many values each record has; shape [n].
      values: All numbers, one record's after the other's: float32 or int64; None of bytes.
      starts: Where each of the values that are bytes begins in the buffer; None of numbers.
      stops: The position after each of those.
    """

    kind: Kind | None
    counts: Places
    values: npt.NDArray[np.float32] | npt.NDArray[np.int64] | None = None
    starts: Places | None = None
    stops: Places | None = None


def gathered(data: Bytes, begins: Places, ends: Places) -> Bytes:
    """Returns bytes from many places, one after the other.

    Args:
      data: The buffer they are in.
      begins: Where each begins; shape [n].
      ends: The position after each.
    """
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
    """Returns the bytes of a tensor's numbers, of those that it is stored as.

    Args:
      leaf: Its feature.
      stored: What the record holds.
      shape: Of the tensor; None or a negative number for a dimension that differs.

    Raises:
      ValueError: They are more than the shape has, or than `MOST_TENSOR_BYTES`; or they end early.
      zlib.error: They are not what zlib made.
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
