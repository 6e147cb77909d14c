"""The different values of a column in each split: how often they are, and where they come first."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from my_datasets.core import hash_sets
from my_datasets.core.hash_sets import Hashes, HashPart
from my_datasets.verification.observer import Noted, shown
from my_datasets.verification.splits.column_hashes import ROW, ColumnHashes

Keys = npt.NDArray[np.bytes_]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DistinctValues:
    """Some different values of a split.

    Attributes:
      keys: Their MD5s, sorted; S16 of shape [n].
      first: The number of the first example with each, within the split; shape [n].
      counts: How many examples have each; shape [n].
    """

    keys: Keys
    first: Counts
    counts: Counts

    @property
    def places(self) -> npt.NDArray[np.uint64]:
        """Where they are on the line that is cut into parts; shape [n]."""
        words = np.ascontiguousarray(self.keys).view(">u8").reshape(-1, 2)
        return words[:, 0].astype(np.uint64)


@dataclass(frozen=True)
class SplitColumn:
    """A column of some splits.

    Attributes:
      watch: What noted it.
      shards: The shards of each split.
    """

    watch: ColumnHashes
    shards: Mapping[str, Sequence[Noted]]

    @property
    def name(self) -> str:
        """Its name."""
        return self.watch.leaf.name

    def pieces(self, at_once: int = hash_sets.AT_ONCE) -> Iterator[dict[str, DistinctValues]]:
        """Yields the different values of each split; the same range of all splits at a time.

        Args:
          at_once: How many bytes are looked at at a time, about.
        """
        noted = {
            split: hash_sets.Parts(shard.of(self.watch) for shard in some)
            for split, some in self.shards.items()
        }
        for found in hash_sets.pieces(*noted.values(), at_once=at_once):
            yield {
                split: _merged(piece, noted[split], self.shards[split])
                for split, piece in zip(noted, found, strict=True)
            }

    def value(self, split: str, number: int) -> str:
        """Returns the value of an example, for a message."""
        return self.watch.value(self.shards[split], number)

    def place(self, split: str, number: int) -> str:
        """Returns where an example lies, for a message."""
        return f"split {split}, {shown(self.shards[split], number)}"


def _merged(piece: HashPart, parts: Sequence[Hashes], shards: Sequence[Noted]) -> DistinctValues:
    """Returns the values of a split, of those of its shards."""
    rows = np.ascontiguousarray(piece.texts).view(ROW)
    ends = np.cumsum([len(part) for part in parts])
    begins = np.cumsum([0, *(shard.examples for shard in shards)])
    which = np.searchsorted(ends, piece.places, side="right")
    keys, first, inverse = np.unique(rows["md5"], return_index=True, return_inverse=True)
    counts = np.zeros(len(keys), np.int64)
    np.add.at(counts, inverse, rows["count"].astype(np.int64))
    # Those of the first shard stand first.
    return DistinctValues(
        keys, rows["first"][first].astype(np.int64) + begins[which[first]], counts
    )
