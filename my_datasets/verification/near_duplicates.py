"""Pairs of near-duplicate images or texts of two splits, by their hashes.

Similar items have the same key in at least one band, so only items that share a key are compared;
sorting finds them.
"""

import heapq
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from my_datasets.core.arrays import Array
from my_datasets.core.hash_sets import map_hashes
from my_datasets.core.issue import Issue, Severity
from my_datasets.errors import InvalidOptionError
from my_datasets.input_pipeline.decode import pytree
from my_datasets.metadata.features import Leaf
from my_datasets.verification import similarity_hashes
from my_datasets.verification.shard_reading import ObservedShard, shown
from my_datasets.verification.similarity_hashes import BITS, SIZE, ImageHashes, TextSignatures

Numbers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
# (the keys of the second side in a band, all variants of the keys of the first side in it)
Band = tuple[Keys, Iterable[Keys]]

# The number of candidates to compare at once, and in all.
_PAIRS_AT_ONCE = 1 << 20
MOST = 1 << 30

# If a smaller share of texts is distinct, they are names rather than texts.
_DIFFERENT = 0.25
_AT_ONCE = 1 << 16


@dataclass
class Pairs:
    """The pairs found.

    Attributes:
      one: Which items of the first side have a partner; shape [n].
      other: Which items of the second side do.
      closest: The closest pairs: distance, and the numbers of both items.
      is_complete: Whether all candidates were compared.
    """

    one: npt.NDArray[np.bool_]
    other: npt.NDArray[np.bool_]
    closest: list[tuple[float, int, int]]
    is_complete: bool = True


def find(
    sizes: tuple[int, int],
    bands: Iterable[Band],
    distances_of: Callable[[Numbers, Numbers], npt.NDArray[np.float64]],
    *,
    most: float,
    shown: int,
    budget: int = MOST,
) -> Pairs:
    """Finds pairs of items of two sides with a distance of at most `most`, and `shown` of them.

    `distances_of` returns the distances of items, given their numbers; infinite to skip a pair. At
    most about `budget` candidates are compared.
    """
    found = Pairs(np.zeros(sizes[0], np.bool_), np.zeros(sizes[1], np.bool_), [])
    for keys, variants in bands:
        order = np.argsort(keys, kind="stable")
        in_order = keys[order]
        for one, place in itertools.chain.from_iterable(
            _candidates(variant, in_order) for variant in variants
        ):
            if budget <= 0:
                found.is_complete = False
                return found
            budget -= len(one)
            other = order[place]
            distances = distances_of(one, other)
            near = np.flatnonzero(distances <= most)
            found.one[one[near]] = True
            found.other[other[near]] = True
            first = near[np.lexsort((other[near], one[near], distances[near]))][: shown + 1]
            columns = (distances[first].tolist(), one[first].tolist(), other[first].tolist())
            # A pair may share several bands.
            closest = {*found.closest, *zip(*columns, strict=True)}
            found.closest = heapq.nsmallest(shown, closest)
    return found


def _candidates(keys: Keys, in_order: Keys) -> Iterator[tuple[Numbers, Numbers]]:
    """Yields items with equal keys: their numbers, and positions in the sorted keys."""
    begins = np.searchsorted(in_order, keys, side="left")
    counts = np.searchsorted(in_order, keys, side="right") - begins
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    for first in range(0, total, _PAIRS_AT_ONCE):
        pairs = np.arange(first, min(first + _PAIRS_AT_ONCE, total))
        one = np.searchsorted(ends, pairs, side="right")
        yield one, begins[one] + pairs - (ends[one] - counts[one])


class Side(ABC):
    """The images or texts of one feature in one split; items with equal hashes are one.

    Attributes:
      noun: The word for the items.
      row: The dtype of notes.
      feature: The feature's name.
      copies: The number of equal items that each one stands for; shape [n].
      hashes: The hash of each; shape [n].
      total: The number of all items.
    """

    noun: str
    row: np.dtype[np.void]

    def __init__(
        self, observer: ImageHashes | TextSignatures, shards: Sequence[ObservedShard]
    ) -> None:
        """Maps the observer's notes on the split's shards."""
        self.feature = observer.leaf.name
        self.shards = shards
        self._parts = [
            np.memmap(path, self.row, "r") if path.stat().st_size else np.zeros(0, self.row)
            for path in (shard.of(observer) for shard in shards)
        ]
        self._ends = np.cumsum([len(part) for part in self._parts])
        self._begins = np.cumsum([0, *(shard.examples for shard in shards)])
        self.total = int(self._ends[-1]) if shards else 0
        every = self._to_compare()
        self.hashes, first, self.copies = np.unique(
            self._all("hash")[every], return_index=True, return_counts=True
        )
        self._numbers: Numbers = every[first]

    def __len__(self) -> int:
        return len(self.copies)

    @staticmethod
    @abstractmethod
    def not_compared(sides: Sequence["Side"]) -> str:
        """Returns which items of all splits are not compared, and why; else ""."""

    @abstractmethod
    def bands(self, other: "Side", most: float) -> Iterator[Band]:
        """Yields bands; items of both sides within distance `most` share a key in one of them."""

    @abstractmethod
    def distances(self, other: "Side", one: Numbers, two: Numbers) -> npt.NDArray[np.float64]:
        """Returns the distances of items of both sides; shape [n]."""

    @staticmethod
    @abstractmethod
    def describe(distance: float) -> str:
        """Returns a distance, for a message."""

    def _to_compare(self) -> Numbers:
        return np.arange(self.total)

    def _all(self, member: str) -> Array:
        parts = [part[member] for part in self._parts]
        return np.concatenate([np.zeros(0, self.row[member]), *parts])

    def values_of(self, member: str, chosen: Numbers) -> Array:
        """Returns a member of the notes on some items."""
        numbers = self._numbers[chosen]
        which = np.searchsorted(self._ends, numbers, side="right")
        found = np.zeros(len(numbers), self.row[member])
        for part in np.unique(which):
            rows = which == part
            begin = int(self._ends[part]) - len(self._parts[part])
            found[rows] = self._parts[part][member][numbers[rows] - begin]
        return found

    def examples(self, chosen: Numbers) -> Numbers:
        """Returns the numbers of items' examples within the split."""
        which = np.searchsorted(self._ends, self._numbers[chosen], side="right")
        found: Numbers = self.values_of("example", chosen) + self._begins[which]
        return found

    def place(self, number: int) -> str:
        """Returns the place of an item, for a message."""
        return shown(self.shards, int(self.examples(np.array([number]))[0]))

    def example_hashes(self, chosen: Numbers) -> Array:
        """Returns the hashes of items' examples; S32."""
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

    def _to_compare(self) -> Numbers:
        return np.flatnonzero(self._all("is_compared"))

    @staticmethod
    def not_compared(sides: Sequence["Side"]) -> str:
        """See `Side`."""
        missing = sum(side.total - int(side.copies.sum()) for side in sides)
        small = f"{similarity_hashes.SMALLEST} x {similarity_hashes.SMALLEST} pixels"
        why = f"{missing:,} images, which are smaller than {small} or of one color"
        return why if missing else ""

    def bands(self, other: "Side", most: float) -> Iterator[Band]:
        """See `Side`: close hashes differ in one bit of one of the bands, or in none."""
        count = int(most) // 2 + 1
        edges = [round(BITS * number / count) for number in range(count + 1)]
        for low, high in itertools.pairwise(edges):
            mask = np.uint64((1 << high) - (1 << low))
            flips = [0, *(1 << bit for bit in range(low, high))] if most else [0]
            yield other.hashes & mask, ((self.hashes & mask) ^ np.uint64(flip) for flip in flips)

    def distances(self, other: "Side", one: Numbers, two: Numbers) -> npt.NDArray[np.float64]:
        """See `Side`."""
        hashes = self.values_of("hash", one), other.values_of("hash", two)
        return similarity_hashes.distances(*hashes).astype(np.float64)

    @staticmethod
    def describe(distance: float) -> str:
        """See `Side`."""
        return f"{distance:.0f} of {BITS} bits differ"


class TextFingerprints(Side):
    """Texts, by their signatures."""

    noun = "texts"
    row = similarity_hashes.SIGNATURE_ROW

    @staticmethod
    def not_compared(sides: Sequence["Side"]) -> str:
        """See `Side`."""
        hashes = np.concatenate([side.hashes for side in sides])
        different, total = len(np.unique(hashes)), sum(side.total for side in sides)
        if different >= _DIFFERENT * total:
            return ""
        return f"only {different:,} of {total:,} texts are different, so they are treated as names"

    def bands(self, other: "Side", most: float) -> Iterator[Band]:
        """See `Side`."""
        from datasketch import MinHashLSH

        # Prefers recall, since all candidates are compared.
        lsh = MinHashLSH(1 - most, SIZE, weights=(0.2, 0.8))
        for number in range(lsh.b):
            columns = slice(number * lsh.r, (number + 1) * lsh.r)
            yield _band(other, columns), [_band(self, columns)]

    def distances(self, other: "Side", one: Numbers, two: Numbers) -> npt.NDArray[np.float64]:
        """See `Side`."""
        signatures = self.values_of("signature", one), other.values_of("signature", two)
        return 1 - similarity_hashes.similarities(*signatures)

    @staticmethod
    def describe(distance: float) -> str:
        """See `Side`."""
        return f"similarity {1 - distance:.2f}"


def _band(side: Side, columns: slice) -> Keys:
    """Returns the hashes of some columns of all signatures, read in pieces."""
    parts = np.array_split(np.arange(len(side)), len(side) // _AT_ONCE + 1)
    return np.concatenate(
        [similarity_hashes.folded(side.values_of("signature", part)[:, columns]) for part in parts]
    )


_SHOWN = 3
# With more bits, bands are so narrow that nearly all images share one.
_MOST_BITS = 12
_FIX = (
    "look at them; if they are copies, remove them from one split, or split by a group that keeps "
    "them together"
)


@dataclass(frozen=True)
class NearDuplicates:
    """When images or texts count as near-duplicates.

    Attributes:
      image_distance: The maximum distance of 64-bit perceptual hashes, in bits.
      text_similarity: The minimum Jaccard similarity of the sets of five-character runs, from 0
        to 1.
    """

    image_distance: int = 6
    text_similarity: float = 0.8

    def __post_init__(self) -> None:
        if not 0 <= self.image_distance <= _MOST_BITS:
            raise InvalidOptionError(
                f"Images cannot be compared with a distance of {self.image_distance}.",
                f"Expected: from 0 to {_MOST_BITS} of {BITS} bits",
                fix="6 finds copies that were compressed, resized or made lighter",
            )
        if not 0.5 <= self.text_similarity <= 1:
            raise InvalidOptionError(
                f"Texts cannot be compared with a similarity of {self.text_similarity}.",
                "Expected: from 0.5 to 1",
                fix="0.8 finds texts with a few changed words",
            )


class NearDuplicateCheck:
    """An `shard_reading.Check` for near-duplicate images and texts across splits."""

    def __init__(self, options: NearDuplicates, tree: Any, splits: int) -> None:
        """Finds the features that can be compared; `tree` is None if they are unknown.

        Raises:
          MissingDependencyError: The extra `near-duplicates` is not installed.
        """
        self._options = options
        self.not_checked: list[str] = []
        self.observers: list[ImageHashes | TextSignatures] = []
        leaves: list[Leaf] = pytree.columns_of(tree) if tree is not None and splits > 1 else []
        for number, leaf in enumerate(leaves):
            if similarity_hashes.has_images(leaf):
                self.observers.append(ImageHashes(f"near{number}", leaf))
            elif similarity_hashes.has_texts(leaf):
                self.observers.append(TextSignatures(f"near{number}", leaf))
            elif leaf.form == "image":
                self._leave_out(leaf, "images of floats, or in sequences of sequences")
        if not self.observers:
            self.not_checked.append(
                "near-duplicates: "
                + ("the features are unknown" if tree is None
                   else "there is only one split" if splits < 2 else "no feature can be compared")
            )  # fmt: skip

    def issues(self, splits: Mapping[str, Sequence[ObservedShard]]) -> Iterator[Issue]:
        """See `shard_reading.Check`."""
        for observer in self.observers:
            if isinstance(observer, ImageHashes):
                images = {
                    name: ImageFingerprints(observer, shards) for name, shards in splits.items()
                }
                yield from self._compared(observer.leaf, images, self._options.image_distance)
            else:
                texts = {
                    name: TextFingerprints(observer, shards) for name, shards in splits.items()
                }
                most = 1 - self._options.text_similarity
                yield from self._compared(observer.leaf, texts, most)

    def _compared(self, leaf: Leaf, sides: Mapping[str, Side], most: float) -> Iterator[Issue]:
        first = next(iter(sides.values()))
        reason = first.not_compared(list(sides.values()))
        if reason:
            self._leave_out(leaf, reason)
        if reason and isinstance(first, TextFingerprints):
            return
        for one, other in itertools.combinations(sides, 2):
            found = _pairs(sides[one], sides[other], most)
            if found.closest:
                yield _issue_of(sides[one], sides[other], (one, other), found)

    def _leave_out(self, leaf: Leaf, reason: str) -> None:
        self.not_checked.append(f"near-duplicates of feature {leaf.name or '(all)'}: {reason}")


def _pairs(one: Side, other: Side, most: float) -> Pairs:
    def distances(a: Numbers, b: Numbers) -> npt.NDArray[np.float64]:
        found = one.distances(other, a, b)
        near = np.flatnonzero(found <= most)
        # Another check reports exact duplicates.
        same = near[one.example_hashes(a[near]) == other.example_hashes(b[near])]
        found[same] = np.inf
        return found

    sizes = (len(one), len(other))
    return find(sizes, one.bands(other, most), distances, most=most, shown=_SHOWN)


def _issue_of(one: Side, other: Side, names: tuple[str, str], found: Pairs) -> Issue:
    counts = [int(side.copies[copied].sum()) for side, copied in
              ((one, found.one), (other, found.other))]  # fmt: skip
    pairs = "; ".join(
        f"{names[0]}: {one.place(a)}, and {names[1]}: {other.place(b)} ({one.describe(distance)})"
        for distance, a, b in found.closest
    )
    more = "; ..." if max(counts) > len(found.closest) else ""
    return Issue(
        "near-duplicate", f"splits {names[0]} and {names[1]}, feature {one.feature}",
        f"{'' if found.is_complete else 'At least '}{counts[0]:,} {one.noun} of {names[0]} and "
        f"{counts[1]:,} of {names[1]} are near-duplicates of one in the other split.",
        _FIX, found=f"{pairs}{more}", severity=Severity.WARNING,
    )  # fmt: skip
