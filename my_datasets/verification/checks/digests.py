"""Whether the examples of each split are those it was made with, and of no two splits the same."""

import heapq
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from my_datasets.core import content
from my_datasets.core.content import Content
from my_datasets.core.issues import Issue, Severity
from my_datasets.records.canonical import SIZE, Hashes
from my_datasets.records.columns import Places
from my_datasets.verification.subject import ANEW

# What is compared at once, in bytes.
_AT_ONCE = 256 << 20
_SHOWN = 3


def check(said: Content | None, splits: Mapping[str, Sequence[Hashes]]) -> Iterator[Issue]:
    """Yields where examples are others, or the same in two splits.

    Args:
      said: What the manifest says; None if it says nothing.
      splits: The hashes of each split's examples, shard after shard.
    """
    for name, parts in splits.items():
        expected = said.splits.get(name) if said else None
        if expected is None or content.ordered(parts) == expected.ordered:
            continue
        same = content.unordered(parts) == expected.unordered
        yield Issue(
            "other-order" if same else "other-examples", f"split {name}",
            "The examples are the same, in another order." if same else
            "The examples are not those the version was made with.",
            ANEW, f"digest {expected.ordered[:16]}", content.ordered(parts)[:16],
        )  # fmt: skip
    for one, other in itertools.combinations(splits, 2):
        yield from _leak(one, splits[one], other, splits[other])


def _leak(
    one: str, parts: Sequence[Hashes], other: str, other_parts: Sequence[Hashes]
) -> Iterator[Issue]:
    count = 0
    places: list[tuple[int, int]] = []  # the first few
    total = sum(part.nbytes for part in (*parts, *other_parts))
    pieces = max(1, math.ceil(total / _AT_ONCE))
    for piece in range(pieces):
        here, rows = _chosen(parts, piece, pieces)
        there, other_rows = _chosen(other_parts, piece, pieces)
        _, first, second = np.intersect1d(here, there, return_indices=True)
        count += len(first)
        pairs = zip(rows[first].tolist(), other_rows[second].tolist(), strict=True)
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


def _chosen(
    parts: Sequence[Hashes], piece: int, pieces: int
) -> tuple[npt.NDArray[np.bytes_], Places]:
    """Returns the hashes of a piece of all numbers, and the places of their examples."""
    found, rows, begin = [], [], 0
    low, high = (round(edge * 2**32 / pieces) for edge in (piece, piece + 1))
    for part in parts:
        leading = np.ascontiguousarray(part[:, :4]).view(">u4").reshape(-1)
        chosen = np.flatnonzero((leading >= low) & (leading < high))
        found.append(part[chosen])
        rows.append(chosen + begin)
        begin += len(part)
    hashes = np.ascontiguousarray(np.concatenate(found)) if found else np.zeros((0, SIZE), np.uint8)
    places = np.concatenate(rows) if rows else np.zeros(0, np.int64)
    return hashes.view(f"S{SIZE}").reshape(-1), places
