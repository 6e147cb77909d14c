"""Matches removed and added examples by their keys, to find those whose values changed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from my_datasets.core import hash_sets
from my_datasets.core.hash_sets import Places
from my_datasets.records.keys import ShardKeys

# An example's key hash and position. A row has the size of a hash, so that `core.hash_sets` can
# partition it.
_ROW = np.dtype([("key", "S16"), ("place", ">i8"), ("none", ">i8")])


@dataclass(frozen=True)
class Matched:
    """Some of the examples that were added, removed or changed.

    Attributes:
      changed: The positions, in the new split, of examples with the same key but other values.
      removed: The positions, in the old split, of examples that no longer exist.
      added: The positions, in the new split, of examples that did not exist before.
    """

    changed: Places
    removed: Places
    added: Places


class Keyed:
    """Records removed and added examples in files, and matches them by their keys."""

    def __init__(
        self,
        old: Mapping[str, Sequence[ShardKeys]],
        new: Mapping[str, Sequence[ShardKeys]],
        directory: Path,
    ) -> None:
        """Starts without any examples.

        Args:
          old: By split, the example keys of the old version, shard by shard.
          new: By split, the example keys of the new version. Keys are unknown for splits that are
            not in both.
          directory: A directory for temporary files.
        """
        self._keys = old, new
        self._directory = directory

    def knows(self, split: str) -> bool:
        """Returns whether the example keys of a split are known in both versions."""
        return all(split in keys for keys in self._keys)

    def note(self, split: str, gone: Places, come: Places) -> None:
        """Records the positions of removed and added examples."""
        for side, places in enumerate((gone, come)):
            rows = np.zeros(len(places), _ROW)
            rows["key"], rows["place"] = _of(self._keys[side][split], places), places
            with self._path(split, side).open("ab") as file:
                rows.tofile(file)

    def matched(self, split: str) -> Iterator[Matched]:
        """Yields all recorded examples of a split, some at a time."""
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
    """Returns the keys of examples as bytes; S16 of shape [n]."""
    found = np.zeros((len(places), 2), ">u8")
    ends = np.cumsum([part.examples for part in parts])
    which = np.searchsorted(ends, places, side="right")
    # One shard at a time, because each open shard takes a file descriptor.
    for number in np.unique(which).tolist():
        here, part = which == number, parts[number]
        found[here] = part.read()[places[here] - (int(ends[number]) - part.examples)]
    return found.view(_ROW["key"]).reshape(-1)
