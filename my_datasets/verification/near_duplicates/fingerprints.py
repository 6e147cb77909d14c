"""What was noted of the images, or texts, of two splits, and how far they are apart."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from my_datasets.core.hash_sets import mapped
from my_datasets.verification.near_duplicates import image_hashes, text_signatures
from my_datasets.verification.near_duplicates.image_hashes import BITS, ImageHashes
from my_datasets.verification.near_duplicates.pairs import Band, Keys, Numbers
from my_datasets.verification.near_duplicates.text_signatures import SIZE, TextSignatures
from my_datasets.verification.observer import Noted, shown

# If fewer than this part of them are different, texts are names of something.
_DIFFERENT = 0.25
# Signatures that are looked at at once.
_AT_ONCE = 1 << 16


class Side(ABC):
    """What was noted of the images, or texts, of one feature in one split.

    Of those whose notes are the same, the first stands for all.

    Attributes:
      noun: What they are.
      row: What is noted of each.
      feature: The feature's name.
      copies: How many each of those that are compared stands for; shape [n].
      hashes: Of each of those that are compared; shape [n].
      total: How many there are in all.
    """

    noun: str
    row: np.dtype[Any]

    def __init__(self, watch: ImageHashes | TextSignatures, shards: Sequence[Noted]) -> None:
        """Maps the notes.

        Args:
          watch: What noted them.
          shards: The split's.
        """
        self.feature = watch.leaf.name
        self.shards = shards
        self._parts = [
            np.memmap(path, self.row, "r") if path.stat().st_size else np.zeros(0, self.row)
            for path in (shard.of(watch) for shard in shards)
        ]
        self._ends = np.cumsum([len(part) for part in self._parts])
        self._begins = np.cumsum([0, *(shard.examples for shard in shards)])
        self.total = int(self._ends[-1]) if shards else 0
        every = self._compared()
        self.hashes, first, self.copies = np.unique(
            self._all("hash")[every], return_index=True, return_counts=True
        )
        self._numbers: Numbers = every[first]

    def __len__(self) -> int:
        return len(self.copies)

    @staticmethod
    @abstractmethod
    def why_not(sides: Sequence["Side"]) -> str:
        """Returns which of them, of all splits, are not compared, and why; empty if all are."""

    @abstractmethod
    def bands(self, other: "Side", most: float) -> Iterator[Band]:
        """Yields bands, in one of which those that are so close have the same keys.

        Args:
          other: The other side.
          most: How far they may be apart.
        """

    @abstractmethod
    def apart(self, other: "Side", one: Numbers, two: Numbers) -> npt.NDArray[np.float64]:
        """Returns how far some of this side and some of the other are apart; shape [n]."""

    @staticmethod
    @abstractmethod
    def said(distance: float) -> str:
        """Returns how far two are apart, for a message."""

    def _compared(self) -> Numbers:
        """Returns the numbers of those that are compared."""
        return np.arange(self.total)

    def _all(self, member: str) -> npt.NDArray[Any]:
        parts = [part[member] for part in self._parts]
        return np.concatenate([np.zeros(0, self.row[member]), *parts])

    def taken(self, member: str, chosen: Numbers) -> npt.NDArray[Any]:
        """Returns what was noted of some of those that are compared."""
        numbers = self._numbers[chosen]
        which = np.searchsorted(self._ends, numbers, side="right")
        found = np.zeros(len(numbers), self.row[member])
        for part in np.unique(which):
            rows = which == part
            begin = int(self._ends[part]) - len(self._parts[part])
            found[rows] = self._parts[part][member][numbers[rows] - begin]
        return found

    def examples(self, chosen: Numbers) -> Numbers:
        """Returns the numbers of the examples they are of, within the split."""
        which = np.searchsorted(self._ends, self._numbers[chosen], side="right")
        found: Numbers = self.taken("example", chosen) + self._begins[which]
        return found

    def place(self, number: int) -> str:
        """Returns where one of those that are compared lies, for a message."""
        return shown(self.shards, int(self.examples(np.array([number]))[0]))

    def whole(self, chosen: Numbers) -> npt.NDArray[Any]:
        """Returns the hashes of the examples they are of; S32."""
        examples = self.examples(chosen)
        which = np.searchsorted(self._begins, examples, side="right") - 1
        found = np.zeros(len(examples), "S32")
        for part in np.unique(which):
            rows = which == part
            hashes = mapped(self.shards[part].notes)[examples[rows] - self._begins[part]]
            found[rows] = np.ascontiguousarray(hashes).view("S32").reshape(-1)
        return found


class ImageFingerprints(Side):
    """Images, by their perceptual hashes."""

    noun = "images"
    row = image_hashes.ROW

    def _compared(self) -> Numbers:
        return np.flatnonzero(self._all("is_compared"))

    @staticmethod
    def why_not(sides: Sequence["Side"]) -> str:
        """See `Side`."""
        missing = sum(side.total - int(side.copies.sum()) for side in sides)
        small = image_hashes.SMALLEST
        return (
            f"{missing:,} images, which are smaller than {small} x {small} pixels or of one colour"
            if missing
            else ""
        )

    def bands(self, other: "Side", most: float) -> Iterator[Band]:
        """See `Side`: close hashes differ in one bit of one of the bands, or in none."""
        count = int(most) // 2 + 1
        edges = [round(BITS * number / count) for number in range(count + 1)]
        for low, high in itertools.pairwise(edges):
            mask = np.uint64((1 << high) - (1 << low))
            flips = [0, *(1 << bit for bit in range(low, high))] if most else [0]
            yield other.hashes & mask, ((self.hashes & mask) ^ np.uint64(flip) for flip in flips)

    def apart(self, other: "Side", one: Numbers, two: Numbers) -> npt.NDArray[np.float64]:
        """See `Side`."""
        hashes = self.taken("hash", one), other.taken("hash", two)
        return image_hashes.distances(*hashes).astype(np.float64)

    @staticmethod
    def said(distance: float) -> str:
        """See `Side`."""
        return f"{distance:.0f} of {BITS} bits differ"


class TextFingerprints(Side):
    """Texts, by their signatures."""

    noun = "texts"
    row = text_signatures.ROW

    @staticmethod
    def why_not(sides: Sequence["Side"]) -> str:
        """See `Side`."""
        hashes = np.concatenate([side.hashes for side in sides])
        different, total = len(np.unique(hashes)), sum(side.total for side in sides)
        if different >= _DIFFERENT * total:
            return ""
        return f"only {different:,} of {total:,} texts are different, so they are taken for names"

    def bands(self, other: "Side", most: float) -> Iterator[Band]:
        """See `Side`."""
        from datasketch import MinHashLSH

        # Rather too many candidates than too few: all of them are compared.
        lsh = MinHashLSH(1 - most, SIZE, weights=(0.2, 0.8))
        for number in range(lsh.b):
            columns = slice(number * lsh.r, (number + 1) * lsh.r)
            yield _band(other, columns), [_band(self, columns)]

    def apart(self, other: "Side", one: Numbers, two: Numbers) -> npt.NDArray[np.float64]:
        """See `Side`."""
        signatures = self.taken("signature", one), other.taken("signature", two)
        return 1 - text_signatures.similarities(*signatures)

    @staticmethod
    def said(distance: float) -> str:
        """See `Side`."""
        return f"similarity {1 - distance:.2f}"


def _band(side: Side, columns: slice) -> Keys:
    """Returns the hashes of some columns of all signatures; they lie in files, and are many."""
    parts = np.array_split(np.arange(len(side)), len(side) // _AT_ONCE + 1)
    return np.concatenate(
        [text_signatures.folded(side.taken("signature", part)[:, columns]) for part in parts]
    )
