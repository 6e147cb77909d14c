"""Pairs of things that are nearly the same, found without comparing each with each.

Things that are alike are the same in some band of what is noted of them. So only those are compared
that have a band in common: found by sorting.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
# (the keys of the things of one side in a band, those that their partners have in it, each way)
Band = tuple[Keys, Iterable[Keys]]

# Candidates that are compared at once, and in all.
_AT_ONCE = 1 << 20
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
    for first in range(0, total, _AT_ONCE):
        pairs = np.arange(first, min(first + _AT_ONCE, total))
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
