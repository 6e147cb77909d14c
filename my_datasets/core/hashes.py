"""Hashes of many examples, of which a part at a time is looked at: those between two numbers.

They are spread evenly, so parts of them are of about one size, whatever the examples are.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]
# As texts, which NumPy compares byte by byte, as unsigned numbers.
Texts = npt.NDArray[np.bytes_]

# Of a SHA-256, in bytes.
SIZE = 32
# What is looked at at once, in bytes.
AT_ONCE = 256 << 20


def pieces(*all_parts: Sequence[Hashes], at_once: int = AT_ONCE) -> Iterator[list["Piece"]]:
    """Yields pieces of some collections of hashes, each with the same range of all of them.

    Args:
      all_parts: The collections: arrays of shape [n, 32] that follow each other; may be mapped.
      at_once: How many bytes a piece of all collections has, about.
    """
    total = sum(part.nbytes for parts in all_parts for part in parts)
    count = max(1, math.ceil(total / at_once))
    for number in range(count):
        low, high = (round(edge * 2**32 / count) for edge in (number, number + 1))
        yield [Piece.of(parts, low, high) for parts in all_parts]


def of_file(path: Path) -> str:
    """Returns the SHA-256 of a file, in hexadecimal."""
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def mapped(path: Path) -> Hashes:
    """Returns the hashes in a file; shape [n, 32]."""
    if not path.stat().st_size:  # of which there is nothing to map
        return np.zeros((0, SIZE), np.uint8)
    return np.memmap(path, np.uint8, "r").reshape(-1, SIZE)


class Piece:
    """Some of the hashes of a collection.

    Attributes:
      texts: The hashes; shape [n].
      places: The number of each in the collection, int64; shape [n].
    """

    def __init__(self, texts: Texts, places: Places) -> None:
        """Takes the attributes."""
        self.texts = texts
        self.places = places

    @classmethod
    def of(cls, parts: Sequence[Hashes], low: int, high: int) -> "Piece":
        """Returns the hashes whose first four bytes are a number in a range."""
        found, places, begin = [np.zeros((0, SIZE), np.uint8)], [np.zeros(0, np.int64)], 0
        for part in parts:
            leading = np.ascontiguousarray(part[:, :4]).view(">u4").reshape(-1)
            chosen = np.flatnonzero((leading >= low) & (leading < high))
            found.append(part[chosen])
            places.append(chosen + begin)
            begin += len(part)
        texts = np.ascontiguousarray(np.concatenate(found)).view(f"S{SIZE}").reshape(-1)
        return cls(texts, np.concatenate(places))
