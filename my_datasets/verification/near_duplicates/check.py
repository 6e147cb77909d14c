"""Finds images and texts that are near-duplicates of ones in another split."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from my_datasets.core.issue import Issue, Severity
from my_datasets.errors import InvalidOptionError
from my_datasets.input_pipeline.decode import pytree
from my_datasets.metadata.features import Leaf
from my_datasets.verification.near_duplicates import fingerprints as near_pairs
from my_datasets.verification.near_duplicates import similarity_hashes
from my_datasets.verification.near_duplicates.fingerprints import (
    ImageFingerprints,
    Numbers,
    Pairs,
    Side,
    TextFingerprints,
)
from my_datasets.verification.near_duplicates.similarity_hashes import (
    BITS,
    ImageHashes,
    TextSignatures,
)
from my_datasets.verification.observer import ObservedShard

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
    """An `observer.Check` for near-duplicate images and texts across splits."""

    def __init__(self, options: NearDuplicates, tree: Any, splits: int) -> None:
        """Finds the features that can be compared; `tree` is None if they are unknown.

        Raises:
          MissingDependencyError: The extra `near-duplicates` is not installed.
        """
        self._options = options
        self.not_checked: list[str] = []
        self.watches: list[ImageHashes | TextSignatures] = []
        leaves: list[Leaf] = pytree.columns_of(tree) if tree is not None and splits > 1 else []
        for number, leaf in enumerate(leaves):
            if similarity_hashes.has_images(leaf):
                self.watches.append(ImageHashes(f"near{number}", leaf))
            elif similarity_hashes.has_texts(leaf):
                self.watches.append(TextSignatures(f"near{number}", leaf))
            elif leaf.form == "image":
                self._leave_out(leaf, "images of floats, or in sequences of sequences")
        if not self.watches:
            self.not_checked.append(
                "near-duplicates: "
                + ("the features are unknown" if tree is None
                   else "there is only one split" if splits < 2 else "no feature can be compared")
            )  # fmt: skip

    def issues(self, splits: Mapping[str, Sequence[ObservedShard]]) -> Iterator[Issue]:
        """See `observer.Check`."""
        for watch in self.watches:
            if isinstance(watch, ImageHashes):
                images = {name: ImageFingerprints(watch, shards) for name, shards in splits.items()}
                yield from self._compared(watch.leaf, images, self._options.image_distance)
            else:
                texts = {name: TextFingerprints(watch, shards) for name, shards in splits.items()}
                most = 1 - self._options.text_similarity
                yield from self._compared(watch.leaf, texts, most)

    def _compared(self, leaf: Leaf, sides: Mapping[str, Side], most: float) -> Iterator[Issue]:
        reason = next(iter(sides.values())).why_not(list(sides.values()))
        if reason:
            self._leave_out(leaf, reason)
        if reason and isinstance(next(iter(sides.values())), TextFingerprints):
            return
        for one, other in itertools.combinations(sides, 2):
            found = _pairs(sides[one], sides[other], most)
            if found.closest:
                yield _issue_of(sides[one], sides[other], (one, other), found)

    def _leave_out(self, leaf: Leaf, reason: str) -> None:
        self.not_checked.append(f"near-duplicates of feature {leaf.name or '(all)'}: {reason}")


def _pairs(one: Side, other: Side, most: float) -> Pairs:
    def apart(a: Numbers, b: Numbers) -> npt.NDArray[np.float64]:
        found = one.apart(other, a, b)
        near = np.flatnonzero(found <= most)
        # Another check reports exact duplicates.
        same = near[one.whole(a[near]) == other.whole(b[near])]
        found[same] = np.inf
        return found

    sizes = (len(one), len(other))
    return near_pairs.find(sizes, one.bands(other, most), apart, most=most, shown=_SHOWN)


def _issue_of(one: Side, other: Side, names: tuple[str, str], found: Pairs) -> Issue:
    counts = [int(side.copies[copied].sum()) for side, copied in
              ((one, found.one), (other, found.other))]  # fmt: skip
    pairs = "; ".join(
        f"{names[0]}: {one.place(a)}, and {names[1]}: {other.place(b)} ({one.said(distance)})"
        for distance, a, b in found.closest
    )
    more = "; ..." if max(counts) > len(found.closest) else ""
    return Issue(
        "near-duplicate", f"splits {names[0]} and {names[1]}, feature {one.feature}",
        f"{'' if found.is_complete else 'At least '}{counts[0]:,} {one.noun} of {names[0]} and "
        f"{counts[1]:,} of {names[1]} are near-duplicates of one in the other split.",
        _FIX, found=f"{pairs}{more}", severity=Severity.WARNING,
    )  # fmt: skip
