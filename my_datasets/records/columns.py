"""What records are taken apart into: the values of each key."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from my_datasets.records.example import Kind

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]

# Longer runs of bytes are copied as a whole, shorter ones gathered.
_GATHERED = 64
# Bytes that must follow the last record: positions are looked at eight bytes at a time.
PADDING = 16


class UnreadableRecordError(Exception):
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


class UncommonError(Exception):
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
