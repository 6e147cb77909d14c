"""Multisets of hashes, and their differences."""

from typing import NamedTuple

import numpy as np

from my_datasets.core.hash_sets import HashPart, Places, Texts


class Counted(NamedTuple):
    """Distinct hashes, sorted, with the count of each and the position of one occurrence."""

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
        """The number of hashes, including duplicates."""
        return int(self.counts.sum())

    def minus(self, other: "Counted") -> "Counted":
        """Returns the multiset difference."""
        left = self.counts.copy()
        _, here, there = np.intersect1d(
            self.texts, other.texts, assume_unique=True, return_indices=True
        )
        left[here] -= np.minimum(left[here], other.counts[there])
        return self._chosen(np.flatnonzero(left), left)

    def in_both(self, other: "Counted") -> "Counted":
        """Returns the multiset intersection, with the positions in this one."""
        _, here, there = np.intersect1d(
            self.texts, other.texts, assume_unique=True, return_indices=True
        )
        counts = np.zeros_like(self.counts)
        counts[here] = np.minimum(self.counts[here], other.counts[there])
        return self._chosen(np.flatnonzero(counts), counts)

    def _chosen(self, rows: Places, counts: Places) -> "Counted":
        return Counted(self.texts[rows], counts[rows], self.places[rows])
