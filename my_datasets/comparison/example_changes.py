"""Compares the examples of splits between two versions.

Examples are compared as multisets of hashes. Removed and added examples with the same key are then
matched, to find those whose values changed.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from my_datasets.core import hash_sets
from my_datasets.core.hash_sets import HashFiles, HashPart, Places, Texts
from my_datasets.core.version import ChangeKind, VersionChange
from my_datasets.metadata import content
from my_datasets.records.index import ShardKeys

# An example's key hash and position. A row has the size of a hash, so that `core.hash_sets` can
# partition it.
_ROW = np.dtype([("key", "S16"), ("place", ">i8"), ("none", ">i8")])

# Maximum number of examples listed per kind of change.
_NAMED = 5


class HashCounts(NamedTuple):
    """Distinct hashes, sorted, with the count of each and the position of one occurrence."""

    texts: Texts
    counts: Places
    places: Places

    @classmethod
    def of(cls, piece: HashPart) -> "HashCounts":
        """Counts the hashes of a piece."""
        texts, first, counts = np.unique(piece.texts, return_index=True, return_counts=True)
        return cls(texts, counts, piece.places[first])

    @property
    def total(self) -> int:
        """The number of hashes, including duplicates."""
        return int(self.counts.sum())

    def minus(self, other: "HashCounts") -> "HashCounts":
        """Returns the multiset difference."""
        return self._with(self.counts - self._common(other))

    def in_both(self, other: "HashCounts") -> "HashCounts":
        """Returns the multiset intersection, with the positions in this one."""
        return self._with(self._common(other))

    def _common(self, other: "HashCounts") -> Places:
        """Returns how often each hash is in both."""
        counts = np.zeros_like(self.counts)
        _, in_self, in_other = np.intersect1d(
            self.texts, other.texts, assume_unique=True, return_indices=True
        )
        counts[in_self] = np.minimum(self.counts[in_self], other.counts[in_other])
        return counts

    def _with(self, counts: Places) -> "HashCounts":
        rows = np.flatnonzero(counts)
        return HashCounts(self.texts[rows], counts[rows], self.places[rows])


@dataclass(frozen=True)
class MatchedExamples:
    """Some of the examples that were added, removed or changed.

    Attributes:
      changed: The positions, in the new split, of examples with the same key but other values.
      removed: The positions, in the old split, of examples that no longer exist.
      added: The positions, in the new split, of examples that did not exist before.
    """

    changed: Places
    removed: Places
    added: Places


class KeyMatcher:
    """Records removed and added examples in files, and matches them by their keys."""

    def __init__(
        self,
        old: Mapping[str, Sequence[ShardKeys]],
        new: Mapping[str, Sequence[ShardKeys]],
        directory: Path,
    ) -> None:
        """Starts without any examples, given both versions' keys by split, shard by shard.

        Temporary files are written to `directory`.
        """
        self._keys = old, new
        self._directory = directory

    def knows(self, split: str) -> bool:
        """Returns whether the example keys of a split are known in both versions."""
        return all(split in keys for keys in self._keys)

    def note(self, split: str, removed: Places, added: Places) -> None:
        """Records the positions of removed and added examples."""
        for side, places in enumerate((removed, added)):
            rows = np.zeros(len(places), _ROW)
            rows["key"], rows["place"] = _of(self._keys[side][split], places), places
            with self._path(split, side).open("ab") as file:
                rows.tofile(file)

    def matched(self, split: str) -> Iterator[MatchedExamples]:
        """Yields all recorded examples of a split, some at a time."""
        paths = [self._path(split, side) for side in (0, 1)]
        if not all(path.exists() for path in paths):
            return
        for was, now in hash_sets.pieces(*([hash_sets.map_hashes(path)] for path in paths)):
            rows = [np.ascontiguousarray(one.texts).view(_ROW) for one in (was, now)]
            _, old, new = np.intersect1d(
                rows[0]["key"], rows[1]["key"], assume_unique=True, return_indices=True
            )
            before, after = (one["place"].astype(np.int64) for one in rows)
            yield MatchedExamples(after[new], np.delete(before, old), np.delete(after, new))

    def _path(self, split: str, side: int) -> Path:
        return self._directory / f"{side}-{split.encode().hex()}"


def _of(parts: Sequence[ShardKeys], places: Places) -> npt.NDArray[np.bytes_]:
    """Returns the keys of examples as bytes; S16 of shape [n]."""
    found = np.zeros((len(places), 2), ">u8")
    ends = np.cumsum([part.examples for part in parts])
    which = np.searchsorted(ends, places, side="right")
    # One shard at a time, because each open shard takes a file descriptor.
    for number in np.unique(which).tolist():
        is_in_part, part = which == number, parts[number]
        found[is_in_part] = part.read()[places[is_in_part] - (int(ends[number]) - part.examples)]
    return found.view(_ROW["key"]).reshape(-1)


@dataclass
class SplitDiff:
    """The differences in a split, ignoring features that only one version has.

    Attributes:
      before: The number of examples in the old version.
      after: The number of examples in the new version.
      added: How many were in no split before.
      removed: How many are no longer in any split.
      changed: How many have other values. This requires the keys of the examples in both versions,
        which versions built by this package have; without keys, they count as removed and added.
      moved: How many came from another split, by its name.
      moved_away: How many went to other splits.
      is_reordered: Whether the same examples are in another order.
      examples: The positions of the first few examples that are `added`, `removed`, `changed` or
        `moved`: in the new split, or, if removed, in the old one.
    """

    name: str
    before: int
    after: int
    added: int = 0
    removed: int = 0
    changed: int = 0
    moved: dict[str, int] = field(default_factory=dict)
    moved_away: int = 0
    is_reordered: bool = False
    examples: dict[str, list[int]] = field(default_factory=dict)

    def note(self, kind: str, places: Places) -> None:
        """Records the positions of examples, of which the first few are kept."""
        changes = self.examples.get(kind, [])
        self.examples[kind] = heapq.nsmallest(_NAMED, [*changes, *places.tolist()])

    def changes(self) -> Iterator[VersionChange]:
        """Yields the differences as changes."""
        before, after = f"{self.before:,} examples", f"{self.after:,} examples"
        found = []
        if self.added:
            others = f"{self.added:,} others{self._named('added')}"
            found.append((ChangeKind.EXAMPLES_ADDED, before, others))
        if self.removed:
            removed = f"{self.removed:,} examples{self._named('removed')}"
            kept = f"{after}, none with those values"
            found.append((ChangeKind.EXAMPLES_REMOVED, removed, kept))
        if self.changed:
            changed = f"other values of the same keys{self._named('changed')}"
            found.append((ChangeKind.EXAMPLES_CHANGED, f"{self.changed:,} examples", changed))
        for source, count in sorted(self.moved.items()):
            moved = f"in {self.name}{self._named('moved')}"
            found.append((ChangeKind.EXAMPLES_MOVED, f"{count:,} examples in {source}", moved))
        if self.is_reordered:
            order = "the same examples", "in another order"
            found.append((ChangeKind.EXAMPLES_REORDERED, *order))
        for kind, old, new in found:
            yield VersionChange(kind, f"split {self.name}", old, new)

    def _named(self, kind: str) -> str:
        """Returns the first few examples after a colon, or "" if their positions are unknown."""
        named = ", ".join(f"{self.name}[{place}]" for place in self.examples.get(kind, []))
        return f": {named}" if named else ""

    def to_json(self) -> dict[str, object]:
        """Returns the differences for scripts, as JSON."""
        return {
            "before": self.before, "after": self.after, "added": self.added,
            "removed": self.removed, "changed": self.changed, "moved": self.moved,
            "moved_away": self.moved_away, "reordered": self.is_reordered,
            "examples": self.examples,
        }  # fmt: skip


def compared(
    old: Mapping[str, HashFiles],
    new: Mapping[str, HashFiles],
    common: Sequence[str],
    keyed: KeyMatcher,
) -> list[SplitDiff]:
    """Returns the differences in the common splits, from the hashes of all examples by split."""
    found = {name: SplitDiff(name, old[name].hashes, new[name].hashes) for name in common}
    nothing = HashPart.of([], 0, 0)
    for some in hash_sets.pieces(*old.values(), *new.values()):
        before = dict(zip(old, some[: len(old)], strict=True))
        after = dict(zip(new, some[len(old) :], strict=True))
        removed: dict[str, HashCounts] = {}
        added: dict[str, HashCounts] = {}
        for name in {*old, *new}:
            was = HashCounts.of(before.get(name, nothing))
            now = HashCounts.of(after.get(name, nothing))
            removed[name], added[name] = was.minus(now), now.minus(was)
        for name, split in found.items():
            for source in old:
                if source != name:
                    count = _note_moved(split, source, removed, added)
                    if source in found:
                        found[source].moved_away += count
        for name, split in found.items():
            split.added += added[name].total
            split.removed += removed[name].total
            if keyed.knows(name):
                keyed.note(name, removed[name].places, added[name].places)
            else:
                split.note("added", added[name].places)
                split.note("removed", removed[name].places)
    for name, split in found.items():
        for one in keyed.matched(name):
            split.changed += len(one.changed)
            split.note("changed", one.changed)
            split.note("removed", one.removed)
            split.note("added", one.added)
        split.removed -= split.changed
        split.added -= split.changed
        is_other = split.added or split.removed or split.changed or split.moved or split.moved_away
        split.is_reordered = not is_other and content.ordered(old[name]) != content.ordered(
            new[name]
        )
        split.examples = {kind: places for kind, places in split.examples.items() if places}
    return list(found.values())


def _note_moved(
    split: SplitDiff, source: str, removed: dict[str, HashCounts], added: dict[str, HashCounts]
) -> int:
    """Records the examples that moved to a split from another one, and returns their number."""
    left, arrived = removed[source], added[split.name]
    moved = arrived.in_both(left)
    if moved.total:
        split.moved[source] = split.moved.get(source, 0) + moved.total
        split.note("moved", moved.places)
        added[split.name] = arrived.minus(moved)
        removed[source] = left.minus(moved)
    return moved.total
