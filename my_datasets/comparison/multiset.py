"""Hashes that may be there several times, and which are there more often than elsewhere."""

from typing import NamedTuple

import numpy as np

from my_datasets.core.hash_sets import HashPart, Places, Texts


class Counted(NamedTuple):
    """Different hashes, sorted, how often each is there, and the place of one of them."""

    texts: Texts
    counts: Places
    places: Places

    @classmethod
    def of(cls, piece: HashPart) -> "Counted":
        """Counts the hashes of a piece."""
        texts, first, counts = np.unique(piece.texts, return_index=True, return_counts=True)
        return cls(texts, counts, piece.places[first])

    @property
    def total(self) -> int:
        """How many there are, each counted as often as it is there."""
        return int(self.counts.sum())

    def minus(self, other: "Counted") -> "Counted":
        """Returns those that are not in the other, or not as often."""
        left = self.counts.copy()
        _, here, there = np.intersect1d(
            self.texts, other.texts, assume_unique=True, return_indices=True
        )
        left[here] -= np.minimum(left[here], other.counts[there])
        return self._chosen(np.flatnonzero(left), left)

    def in_both(self, other: "Counted") -> "Counted":
        """Returns those that are in both, as often as they are in both, at their places here."""
        _, here, there = np.intersect1d(
            self.texts, other.texts, assume_unique=True, return_indices=True
        )
        counts = np.zeros_like(self.counts)
        counts[here] = np.minimum(self.counts[here], other.counts[there])
        return self._chosen(np.flatnonzero(counts), counts)

    def _chosen(self, rows: Places, counts: Places) -> "Counted":
        return Counted(self.texts[rows], counts[rows], self.places[rows])
