"""Whether the examples of each split are those it was made with, and none is there twice."""

import heapq
import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from my_datasets.comparison.version_metadata import ANEW
from my_datasets.core import hash_sets
from my_datasets.core.hash_sets import Copies, Hashes
from my_datasets.core.issue import Issue, Severity
from my_datasets.metadata import content
from my_datasets.metadata.content import Content

_SHOWN = 3


def check(said: Content | None, splits: Mapping[str, Sequence[Hashes]]) -> Iterator[Issue]:
    """Yields where examples are others, or there more than once, in one split or in two.

    Args:
      said: What the manifest says; None if it says nothing.
      splits: The hashes of each split's examples, shard after shard.
    """
    for name, parts in splits.items():
        expected = said.splits.get(name) if said else None
        if expected is None:
            continue
        same = content.unordered(parts) == expected.unordered
        if same and content.ordered(parts) == expected.ordered:
            continue
        yield Issue(
            "other-order" if same else "other-examples", f"split {name}",
            "The examples are the same, in another order." if same else
            "The examples are not those the version was made with.",
            ANEW, f"digest {expected.ordered[:16]}", content.ordered(parts)[:16],
        )  # fmt: skip
    for name, parts in splits.items():
        yield from _repeated(name, parts)
    for one, other in itertools.combinations(splits, 2):
        yield from _leak(one, splits[one], other, splits[other])


def _repeated(name: str, parts: Sequence[Hashes]) -> Iterator[Issue]:
    copies = Copies.of(parts, _SHOWN)
    if copies.copies:
        shown = ", ".join(f"{a:,} and {b:,}" for a, b in copies.places)
        yield Issue(
            "duplicates", f"split {name}",
            f"{copies.different:,} different examples are there more than once, value for value: "
            f"{copies.copies:,} copies.",
            "leave the copies out, or take them for what they are",
            found=f"{shown} (counted from 0)" + (", ..." if copies.different > _SHOWN else ""),
            severity=Severity.WARNING,
        )  # fmt: skip


def _leak(
    one: str, parts: Sequence[Hashes], other: str, other_parts: Sequence[Hashes]
) -> Iterator[Issue]:
    count = 0
    places: list[tuple[int, int]] = []  # the first few
    for here, there in hash_sets.pieces(parts, other_parts):
        _, first, second = np.intersect1d(here.texts, there.texts, return_indices=True)
        count += len(first)
        pairs = zip(here.places[first].tolist(), there.places[second].tolist(), strict=True)
        places = heapq.nsmallest(_SHOWN, [*places, *pairs])
    if count:
        shown = ", ".join(f"{one} {a:,} and {other} {b:,}" for a, b in places)
        yield Issue(
            "leak", f"splits {one} and {other}",
            f"{count:,} different examples are in both, value for value.",
            "leave them out of one, or split by a group that keeps them together",
            found=f"{shown} (counted from 0)" + (", ..." if count > _SHOWN else ""),
            severity=Severity.WARNING,
        )  # fmt: skip
