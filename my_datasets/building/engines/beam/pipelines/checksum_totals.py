"""Tallies: what is compared to see that no example was lost, doubled or altered on the way.

A tally is made where examples are encoded, and once more from the bytes of the written shards.
Both are arithmetic on bytes that are there, and neither asks Beam how much it has moved: its own
counters said 18,000 when 17,948 examples had been written.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from my_datasets.records import tfrecord
from my_datasets.records.tf_example.pieces import Bytes

_WRAP = 1 << 64


@dataclass(frozen=True)
class Tally:
    """What some records add up to, in whatever order they are.

    Attributes:
      count: How many there are.
      bytes: Their size with framing.
      checksums: The sum of the CRC-32Cs that stand behind them, modulo 2**64.
    """

    count: int = 0
    bytes: int = 0
    checksums: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.count + other.count,
            self.bytes + other.bytes,
            (self.checksums + other.checksums) % _WRAP,
        )

    def to_json(self) -> list[int]:
        """Returns it for a report."""
        return [self.count, self.bytes, self.checksums]

    @classmethod
    def from_json(cls, entry: list[int]) -> "Tally":
        """Returns what a report says."""
        return cls(*entry)

    def __str__(self) -> str:
        return f"{self.count:,} records of {self.bytes:,} bytes, checksum {self.checksums:016x}"


def of_some(data: Bytes, ends: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> Tally:
    """Returns the tally of some framed records.

    Args:
      data: Bytes in which they are.
      ends: Where each one ends, counted from the beginning of `data`; shape [n].
      sizes: The size of each; shape [n].
    """
    return Tally(len(ends), int(sizes.sum()), int(_footers(data, ends).sum(dtype=np.uint64)))


def by_unit(
    data: Bytes, sizes: npt.NDArray[np.uint64], units: npt.NDArray[np.uint32]
) -> dict[int, Tally]:
    """Returns a tally for each unit that has records here.

    Args:
      data: The bytes of framed records that follow each other.
      sizes: The size of each; shape [n].
      units: The unit of each; shape [n].
    """
    ends = np.cumsum(sizes, dtype=np.int64)
    order = np.argsort(units, kind="stable")
    distinct, firsts = np.unique(units[order], return_index=True)
    return {
        unit: of_some(data, ends[rows], sizes[rows].astype(np.int64))
        for unit, rows in zip(distinct.tolist(), np.split(order, firsts[1:]), strict=True)
    }


def _footers(data: Bytes, ends: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """Returns the checksums behind records, as they are stored; shape [n]."""
    if not len(ends):
        return np.zeros(0, np.uint32)
    last: npt.NDArray[np.uint32] = np.ndarray(
        (len(data) - tfrecord.FOOTER + 1,), "<u4", data, strides=(1,)
    )
    return last[ends - tfrecord.FOOTER].astype(np.uint32)
