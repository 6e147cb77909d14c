"""What was noted of the images, or texts, of two splits, and how far they are apart.

Things that are alike are the same in some band of what is noted of them. So only those are compared
that have a band in common: found by sorting.
"""

import heapq
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from my_datasets.core.hash_sets import map_hashes
from my_datasets.verification.near_duplicates import similarity_hashes
from my_datasets.verification.near_duplicates.similarity_hashes import (
    BITS,
    SIZE,
    ImageHashes,
    TextSignatures,
)
from my_datasets.verification.observer import ObservedShard, shown

Numbers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
# (the keys of the things of one side in a band, those that their partners have in it, each way)
Band = tuple[Keys, Iterable[Keys]]

# Candidates that are compared at once, and in all.
_PAIRS_AT_ONCE = 1 << 20
MOST = 1 << 30


@dataclass
class Pairs:
    """What was found.

    Attributes:
      one: Which things of the first side have a partner; shape [n].
      other: Which of the second side.
      closest: The closest pairs: how far they are apart, and their numbers.
      is_complete: Whether all candidates were compared.
    """

    one: npt.NDArray[np.bool_]
    other: npt.NDArray[np.bool_]
    closest: list[tuple[float, int, int]]
    is_complete: bool = True


def find(
    sizes: tuple[int, int],
    bands: Iterable[Band],
    apart: Callable[[Numbers, Numbers], npt.NDArray[np.float64]],
    *,
    most: float,
    shown: int,
    budget: int = MOST,
) -> Pairs:
    """Finds pairs of things of two sides.

    Args:
      sizes: How many things there are on each side.
      bands: The bands.
      apart: Returns how far things of the two sides are apart, infinite for pairs that do not
        count, given their numbers.
      most: How far they may be apart.
      shown: How many of the closest pairs are wanted.
      budget: How many candidates are compared, at most.
    """
    found = Pairs(np.zeros(sizes[0], np.bool_), np.zeros(sizes[1], np.bool_), [])
    for keys, partners in bands:
        order = np.argsort(keys, kind="stable")
        in_order = keys[order]
        for wanted in partners:
            for one, place in _candidates(wanted, in_order):
                if budget <= 0:
                    found.is_complete = False
                    return found
                budget -= len(one)
                _note(found, one, order[place], apart, most, shown)
    return found


def _candidates(wanted: Keys, in_order: Keys) -> Iterator[tuple[Numbers, Numbers]]:
    """Yields which things have the same key: their numbers, and places in the sorted keys."""
    begins = np.searchsorted(in_order, wanted, side="left")
    counts = np.searchsorted(in_order, wanted, side="right") - begins
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    for first in range(0, total, _PAIRS_AT_ONCE):
        pairs = np.arange(first, min(first + _PAIRS_AT_ONCE, total))
        one = np.searchsorted(ends, pairs, side="right")
        yield one, begins[one] + pairs - (ends[one] - counts[one])


def _note(
    found: Pairs,
    one: Numbers,
    other: Numbers,
    apart: Callable[[Numbers, Numbers], npt.NDArray[np.float64]],
    most: float,
    shown: int,
) -> None:
    distances = apart(one, other)
    near = np.flatnonzero(distances <= most)
    if not len(near):
        return
    found.one[one[near]] = True
    found.other[other[near]] = True
    first = near[np.lexsort((other[near], one[near], distances[near]))][: shown + 1]
    told = zip(distances[first].tolist(), one[first].tolist(), other[first].tolist(), strict=True)
    # A pair may have several bands in common.
    found.closest = heapq.nsmallest(shown, {*found.closest, *told})


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

    def __init__(
        self, watch: ImageHashes | TextSignatures, shards: Sequence[ObservedShard]
    ) -> None:
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
            hashes = map_hashes(self.shards[part].notes)[examples[rows] - self._begins[part]]
            found[rows] = np.ascontiguousarray(hashes).view("S32").reshape(-1)
        return found


class ImageFingerprints(Side):
    """Images, by their perceptual hashes."""

    noun = "images"
    row = similarity_hashes.HASH_ROW

    def _compared(self) -> Numbers:
        return np.flatnonzero(self._all("is_compared"))

    @staticmethod
    def why_not(sides: Sequence["Side"]) -> str:
        """See `Side`."""
        missing = sum(side.total - int(side.copies.sum()) for side in sides)
        small = similarity_hashes.SMALLEST
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
        return similarity_hashes.distances(*hashes).astype(np.float64)

    @staticmethod
    def said(distance: float) -> str:
        """See `Side`."""
        return f"{distance:.0f} of {BITS} bits differ"


class TextFingerprints(Side):
    """Texts, by their signatures."""

    noun = "texts"
    row = similarity_hashes.SIGNATURE_ROW

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
        return 1 - similarity_hashes.similarities(*signatures)

    @staticmethod
    def said(distance: float) -> str:
        """See `Side`."""
        return f"similarity {1 - distance:.2f}"


def _band(side: Side, columns: slice) -> Keys:
    """Returns the hashes of some columns of all signatures; they lie in files, and are many."""
    parts = np.array_split(np.arange(len(side)), len(side) // _AT_ONCE + 1)
    return np.concatenate(
        [similarity_hashes.folded(side.taken("signature", part)[:, columns]) for part in parts]
    )
