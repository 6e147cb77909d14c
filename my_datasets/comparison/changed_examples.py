"""Which of the examples that came are those that went, with other values: by their keys."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from my_datasets.core import hash_sets
from my_datasets.core.hash_sets import Places
from my_datasets.records.keys import ShardKeys

# An example by its key and its place. As many bytes as a hash has, so that `core.hashes` takes
# pieces of them.
_ROW = np.dtype([("key", "S16"), ("place", ">i8"), ("none", ">i8")])


@dataclass(frozen=True)
class Matched:
    """Some of the examples that came or went.

    Attributes:
      changed: The places of those that have another value than before, in the split as it is.
      removed: The places of those that are there no more, in the split as it was.
      added: The places of those that were not there, in the split as it is.
    """

    changed: Places
    removed: Places
    added: Places


class Keyed:
    """Notes examples that went and came in files, and matches them by their keys."""

    def __init__(
        self,
        old: Mapping[str, Sequence[ShardKeys]],
        new: Mapping[str, Sequence[ShardKeys]],
        directory: Path,
    ) -> None:
        """Begins with none.

        Args:
          old: The keys of the examples of splits as they were, shard after shard.
          new: Those of the splits as they are; in splits that are not in both, they are not known.
          directory: Where files may be written.
        """
        self._keys = old, new
        self._directory = directory

    def knows(self, split: str) -> bool:
        """Returns whether the keys of a split's examples are known, before and after."""
        return all(split in keys for keys in self._keys)

    def note(self, split: str, gone: Places, come: Places) -> None:
        """Notes the places of examples that are no longer there, and of such as were not there."""
        for side, places in enumerate((gone, come)):
            rows = np.zeros(len(places), _ROW)
            rows["key"], rows["place"] = _of(self._keys[side][split], places), places
            with self._path(split, side).open("ab") as file:
                rows.tofile(file)

    def matched(self, split: str) -> Iterator[Matched]:
        """Yields all examples of a split that were noted, some at a time."""
        paths = [self._path(split, side) for side in (0, 1)]
        if not all(path.exists() for path in paths):
            return
        for was, now in hash_sets.pieces(*([hash_sets.mapped(path)] for path in paths)):
            rows = [np.ascontiguousarray(one.texts).view(_ROW) for one in (was, now)]
            _, old, new = np.intersect1d(
                rows[0]["key"], rows[1]["key"], assume_unique=True, return_indices=True
            )
            before, after = (one["place"].astype(np.int64) for one in rows)
            yield Matched(after[new], np.delete(before, old), np.delete(after, new))

    def _path(self, split: str, side: int) -> Path:
        return self._directory / f"{side}-{split.encode().hex()}"


def _of(parts: Sequence[ShardKeys], places: Places) -> npt.NDArray[np.bytes_]:
    """Returns the keys of examples as texts; S16 of shape [n]."""
    found = np.zeros((len(places), 2), ">u8")
    ends = np.cumsum([part.examples for part in parts])
    which = np.searchsorted(ends, places, side="right")
    # One shard at a time: each that is open takes a descriptor.
    for number in np.unique(which).tolist():
        here, part = which == number, parts[number]
        found[here] = part.read()[places[here] - (int(ends[number]) - part.examples)]
    return found.view(_ROW["key"]).reshape(-1)
