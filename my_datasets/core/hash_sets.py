"""Processes many hashes in parts by range, with bounded memory.

Hashes are evenly distributed, so the parts have about the same size.
"""

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import overload

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]
# As byte strings, which NumPy compares like unsigned numbers.
Texts = npt.NDArray[np.bytes_]

# Size of a SHA-256, in bytes.
SIZE = 32
# Maximum size of a part, in bytes.
AT_ONCE = 256 << 20


def pieces(*all_parts: Sequence[Hashes], at_once: int = AT_ONCE) -> Iterator[list["HashPart"]]:
    """Yields pieces of some collections of hashes, each with the same range of all of them.

    Args:
      all_parts: The collections: sequences of arrays of shape [n, 32], or `HashFiles`.
      at_once: The approximate size of a piece of all collections, in bytes.
    """
    total = sum(part.nbytes for parts in all_parts for part in parts)
    count = max(1, math.ceil(total / at_once))
    for number in range(count):
        low, high = (round(edge * 2**32 / count) for edge in (number, number + 1))
        yield [HashPart.of(parts, low, high) for parts in all_parts]


def map_hashes(path: Path) -> Hashes:
    """Returns the hashes in a file; shape [n, 32]."""
    if not path.stat().st_size:  # an empty file cannot be mapped
        return np.zeros((0, SIZE), np.uint8)
    return np.memmap(path, np.uint8, "r").reshape(-1, SIZE)


@dataclass
class DuplicateHashes:
    """Duplicate hashes.

    Attributes:
      different: The number of distinct hashes that have duplicates.
      copies: The number of duplicates, without the first of each.
      places: For the first few, the indices of the first and of its first duplicate, ascending.
    """

    different: int = 0
    copies: int = 0
    places: list[tuple[int, int]] = field(default_factory=list)

    @classmethod
    def of(cls, parts: Sequence[Hashes], most: int) -> "DuplicateHashes":
        """Finds the duplicates in hashes of shape [n, 32], with at most `most` places."""
        found = cls()
        for (piece,) in pieces(parts):
            order = np.argsort(piece.texts, kind="stable")
            in_order = piece.texts[order]
            is_copy = np.concatenate([[False], in_order[1:] == in_order[:-1]])
            first_copy = np.flatnonzero(is_copy & ~np.concatenate([[False], is_copy[:-1]]))
            found.copies += int(is_copy.sum())
            found.different += len(first_copy)
            pairs = zip(
                piece.places[order[first_copy - 1]].tolist(),
                piece.places[order[first_copy]].tolist(), strict=True,
            )  # fmt: skip
            found.places = heapq.nsmallest(most, [*found.places, *pairs])
        return found


class HashFiles(Sequence[Hashes]):
    """The hashes in several files, each of which is open only while it is used.

    A mapped file needs a descriptor, and there may be more parts than a process may have of those.
    The files must not change.
    """

    def __init__(self, paths: Iterable[Path] = ()) -> None:
        self.paths = list(paths)

    def append(self, path: Path) -> None:
        """Adds a file."""
        self.paths.append(path)

    def __len__(self) -> int:
        return len(self.paths)

    @overload
    def __getitem__(self, number: int) -> Hashes: ...
    @overload
    def __getitem__(self, number: slice) -> "HashFiles": ...
    def __getitem__(self, number: int | slice) -> "Hashes | HashFiles":
        if isinstance(number, slice):
            return HashFiles(self.paths[number])
        return map_hashes(self.paths[number])

    @property
    def hashes(self) -> int:
        """The number of hashes."""
        return sum(path.stat().st_size for path in self.paths) // SIZE


class HashPart:
    """Some of the hashes of a collection.

    Attributes:
      texts: The hashes; shape [n].
      places: The index of each in the collection, int64; shape [n].
    """

    def __init__(self, texts: Texts, places: Places) -> None:
        self.texts = texts
        self.places = places

    @classmethod
    def of(cls, parts: Sequence[Hashes], low: int, high: int) -> "HashPart":
        """Returns the hashes whose first four bytes, as a number, are in a range."""
        found, places, begin = [np.zeros((0, SIZE), np.uint8)], [np.zeros(0, np.int64)], 0
        for part in parts:
            leading = np.ascontiguousarray(part[:, :4]).view(">u4").reshape(-1)
            chosen = np.flatnonzero((leading >= low) & (leading < high))
            found.append(part[chosen])
            places.append(chosen + begin)
            begin += len(part)
        texts = np.ascontiguousarray(np.concatenate(found)).view(f"S{SIZE}").reshape(-1)
        return cls(texts, np.concatenate(places))
