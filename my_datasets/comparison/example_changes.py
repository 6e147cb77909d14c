"""Compares the examples of splits between two versions."""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from my_datasets.comparison.changed_examples import Keyed
from my_datasets.comparison.multiset import Counted
from my_datasets.core import hash_sets
from my_datasets.core.hash_sets import HashPart, Parts, Places
from my_datasets.core.version_rules import ChangeKind, VersionChange
from my_datasets.metadata import content

# Maximum number of examples listed per kind of change.
_NAMED = 5


@dataclass
class SplitDiff:
    """The differences in a split, ignoring features that only one version has.

    Attributes:
      name: The split.
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
        here = self.examples.get(kind, [])
        self.examples[kind] = heapq.nsmallest(_NAMED, [*here, *places.tolist()])

    def changes(self) -> Iterator[VersionChange]:
        """Yields the differences as changes."""
        node = f"split {self.name}"
        if self.added:
            yield VersionChange(ChangeKind.EXAMPLES_ADDED, node, f"{self.before:,} examples",
                         f"{self.added:,} others{self._named('added')}")  # fmt: skip
        if self.removed:
            yield VersionChange(ChangeKind.EXAMPLES_REMOVED, node,
                         f"{self.removed:,} examples{self._named('removed')}",
                         f"{self.after:,} examples, none with those values")  # fmt: skip
        if self.changed:
            yield VersionChange(ChangeKind.EXAMPLES_CHANGED, node, f"{self.changed:,} examples",
                         f"other values of the same keys{self._named('changed')}")  # fmt: skip
        for source, count in sorted(self.moved.items()):
            yield VersionChange(ChangeKind.EXAMPLES_MOVED, node, f"{count:,} examples in {source}",
                         f"in {self.name}{self._named('moved')}")  # fmt: skip
        if self.is_reordered:
            yield VersionChange(
                ChangeKind.EXAMPLES_REORDERED, node, "the same examples", "in another order"
            )

    def _named(self, kind: str) -> str:
        """Returns the first few examples after a colon, or "" if their positions are unknown."""
        named = ", ".join(f"{self.name}[{place}]" for place in self.examples.get(kind, []))
        return f": {named}" if named else ""

    def to_json(self) -> dict[str, Any]:
        """Returns the differences for scripts, as JSON."""
        return {
            "before": self.before, "after": self.after, "added": self.added,
            "removed": self.removed, "changed": self.changed, "moved": self.moved,
            "moved_away": self.moved_away, "reordered": self.is_reordered,
            "examples": self.examples,
        }  # fmt: skip


def compared(
    old: Mapping[str, Parts], new: Mapping[str, Parts], common: Sequence[str], keyed: Keyed
) -> list[SplitDiff]:
    """Returns the differences in the splits that both versions have.

    Args:
      old: The hashes of the examples of each split in the old version.
      new: The hashes of the examples of each split in the new version.
      common: The splits that both versions have.
      keyed: The keys of the examples, where known.
    """
    found = {name: SplitDiff(name, old[name].hashes, new[name].hashes) for name in common}
    nothing = HashPart.of([], 0, 0)
    for some in hash_sets.pieces(*old.values(), *new.values()):
        before = dict(zip(old, some[: len(old)], strict=True))
        after = dict(zip(new, some[len(old) :], strict=True))
        gone: dict[str, Counted] = {}
        come: dict[str, Counted] = {}
        for name in {*old, *new}:
            was = Counted.of(before.get(name, nothing))
            now = Counted.of(after.get(name, nothing))
            gone[name], come[name] = was.minus(now), now.minus(was)
        for name, split in found.items():
            for source in old:
                if source != name:
                    count = _note_moved(split, source, gone, come)
                    if source in found:
                        found[source].moved_away += count
        for name, split in found.items():
            split.added += come[name].total
            split.removed += gone[name].total
            if keyed.knows(name):
                keyed.note(name, gone[name].places, come[name].places)
            else:
                split.note("added", come[name].places)
                split.note("removed", gone[name].places)
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
    split: SplitDiff, source: str, gone: dict[str, Counted], come: dict[str, Counted]
) -> int:
    """Records the examples that moved to a split from another one, and returns their number."""
    left, arrived = gone[source], come[split.name]
    moved = arrived.in_both(left)
    if moved.total:
        split.moved[source] = split.moved.get(source, 0) + moved.total
        split.note("moved", moved.places)
        come[split.name] = arrived.minus(moved)
        gone[source] = left.minus(moved)
    return moved.total
