"""`diff`: what is different between two versions, and what that asks of the version's number."""

import heapq
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from my_datasets.comparison.examining import Wanted, examine
from my_datasets.comparison.keyed import Keyed
from my_datasets.comparison.subject import Subject
from my_datasets.core import bumps, content, feature_changes, hashes
from my_datasets.core.bumps import Bump, Change, Kind
from my_datasets.core.declared import Declared
from my_datasets.core.hashes import Hashes, Parts, Piece, Places, Texts
from my_datasets.core.machine import cores
from my_datasets.core.versioning import Version
from my_datasets.errors import IncompleteVersionError, explain
from my_datasets.records.keys import ShardKeys
from my_datasets.statistics.drift import Moved, moved

# Examples of each kind that are named.
_NAMED = 5


@dataclass
class SplitDiff:
    """What is different in a split; of a feature that only one version has, nothing counts.

    Attributes:
      name: The split.
      before: How many examples it had.
      after: How many it has.
      added: How many were in no split before.
      removed: How many are in no split any more.
      changed: How many have other values. That is known where both versions have the keys of their
        examples, as those that were built here have; else they are removed and added.
      moved: How many came from another split, by its name.
      moved_away: How many went to other splits.
      is_reordered: Whether the same examples come in another order.
      examples: The numbers of the first few, for each of `added`, `removed`, `changed` and `moved`:
        in the split as it is, except for those that were removed.
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
        """Notes where some examples are; of all that are noted the first few stay."""
        here = self.examples.get(kind, [])
        self.examples[kind] = heapq.nsmallest(_NAMED, [*here, *places.tolist()])

    def changes(self) -> Iterator[Change]:
        """Yields what that is."""
        node = f"split {self.name}"
        if self.added:
            yield Change(Kind.EXAMPLES_ADDED, node, f"{self.before:,} examples",
                         f"{self.added:,} others: {self._named('added')}")  # fmt: skip
        if self.removed:
            yield Change(Kind.EXAMPLES_REMOVED, node,
                         f"{self.removed:,} examples: {self._named('removed')}",
                         f"{self.after:,} examples, none with those values")  # fmt: skip
        if self.changed:
            yield Change(Kind.EXAMPLES_CHANGED, node, f"{self.changed:,} examples",
                         f"other values of the same keys: {self._named('changed')}")  # fmt: skip
        for source, count in sorted(self.moved.items()):
            yield Change(Kind.EXAMPLES_MOVED, node, f"{count:,} examples in {source}",
                         f"in {self.name}: {self._named('moved')}")  # fmt: skip
        if self.is_reordered:
            yield Change(Kind.EXAMPLES_REORDERED, node, "the same examples", "in another order")

    def _named(self, kind: str) -> str:
        places = self.examples.get(kind, [])
        return ", ".join(f"{self.name}[{place}]" for place in places)

    def to_json(self) -> dict[str, Any]:
        """Returns it for scripts."""
        return {
            "before": self.before, "after": self.after, "added": self.added,
            "removed": self.removed, "changed": self.changed, "moved": self.moved,
            "moved_away": self.moved_away, "reordered": self.is_reordered,
            "examples": self.examples,
        }  # fmt: skip


@dataclass(frozen=True)
class Diff:
    """What is different between two versions.

    Attributes:
      old: The full name of the one.
      new: That of the other.
      changes: What is different, what asks for most first.
      splits: The examples of each split that both have.
      moved: Which statistics of the values moved, as far as both manifests have them.
      actual: By which number the version was raised; None if it is lower, or of another dataset.
      least: The lowest version that would do.
    """

    old: str
    new: str
    changes: tuple[Change, ...]
    splits: tuple[SplitDiff, ...]
    moved: tuple[Moved, ...]
    actual: Bump | None
    least: Version

    @property
    def required(self) -> Bump:
        """By which number the version is to be raised, at least."""
        return bumps.required(self.changes)

    @property
    def is_enough(self) -> bool:
        """Whether it was raised by as much."""
        return self.actual is not None and self.actual >= self.required

    def to_json(self) -> dict[str, Any]:
        """Returns it for scripts."""
        return {
            "old": self.old,
            "new": self.new,
            "required": str(self.required),
            "actual": str(self.actual) if self.actual is not None else None,
            "enough": self.is_enough,
            "least": str(self.least),
            "changes": [change.to_json() for change in self.changes],
            "splits": {one.name: one.to_json() for one in self.splits},
            "moved": [one.to_json() for one in self.moved],
        }


def diff(
    old: str | os.PathLike[str], new: str | os.PathLike[str], *, workers: int | None = None
) -> Diff:
    """Returns what is different between two prepared versions.

    Where the manifests prove that examples are the same, no shard is read.

    Args:
      old: The directory of the one.
      new: That of the other.
      workers: How many processes read shards; None for one for each core.

    Raises:
      IncompleteVersionError: One of them is no prepared version.
      CorruptShardError: A shard is damaged.
    """
    before, after = _Side.read(Path(old)), _Side.read(Path(new))
    changes = list(feature_changes.changes(before.path, after.path))
    changes += _splits(before.declared, after.declared)
    common = [name for name in before.declared.splits if name in after.declared.splits]
    without = feature_changes.not_in_both(before.path, after.path)
    if not without and _are_proved_same(before, after, common):
        compared = [SplitDiff(name, before.examples(name), after.examples(name)) for name in common]
    else:
        with tempfile.TemporaryDirectory() as scratch:
            sides = []
            for number, side in enumerate((before, after)):
                directory = Path(scratch) / str(number)
                directory.mkdir()
                sides.append(side.hashes(directory, without, workers or cores()))
            keyed = Keyed(before.keys(common), after.keys(common), Path(scratch))
            compared = _compared(sides[0], sides[1], common, keyed)
    changes += [change for one in compared for change in one.changes()]
    is_same = not without and not any(change.node.startswith("split ") for change in changes)
    changes += _stored(before, after, common) if is_same else []
    changes.sort(key=lambda change: (-change.bump, change.node))
    same_dataset = before.dataset == after.dataset
    actual = bumps.between(before.version, after.version) if same_dataset else None
    least = bumps.least(before.version, bumps.required(changes))
    return Diff(
        before.declared.name, after.declared.name, tuple(changes), tuple(compared),
        tuple(moved(before.statistics, after.statistics)), actual, least,
    )  # fmt: skip


class _Side(NamedTuple):
    """One of the two versions."""

    path: Path
    declared: Declared
    content: content.Content | None
    statistics: Mapping[str, Any]
    is_canonical: bool
    dataset: str
    version: Version

    @classmethod
    def read(cls, path: Path) -> "_Side":
        subject = Subject.read(path.expanduser())
        name, _, text = subject.declared.name.partition(":") if subject.declared else ("", "", "")
        version = Version.parse(text)
        if subject.declared is None or subject.issues or version is None:
            raise IncompleteVersionError(
                explain(
                    f"{path} is not a prepared version.",
                    *(f"{one.node}: {one.problem} {one.found}" for one in subject.issues),
                    mend="see my-datasets verify, and build or pull it anew",
                )
            )
        statistics = subject.manifest.statistics if subject.manifest else {}
        # As this package writes records; those that were adopted have no fingerprint.
        is_canonical = subject.manifest is not None and bool(subject.manifest.fingerprint)
        return cls(
            subject.path, subject.declared, subject.content, statistics, is_canonical, name, version
        )

    def keys(self, splits: Sequence[str]) -> dict[str, list[ShardKeys]]:
        """Returns the keys of the examples of those splits of which all are known."""
        found = {
            name: [
                ShardKeys(self.path / one.name, one.examples) for one in self.declared.splits[name]
            ]
            for name in splits
        }
        return {name: some for name, some in found.items() if all(one.are_known for one in some)}

    def hashes(self, directory: Path, without: frozenset[str], workers: int) -> dict[str, Parts]:
        """Returns the hashes of the examples of each split, of some of their features."""
        wanted = Wanted(without=without, is_canonical=self.is_canonical and not without)
        found = examine(self.path, self.declared, directory, wanted, workers=workers)
        return {name: one.hashes for name, one in found.items()}

    def examples(self, split: str) -> int:
        return sum(one.examples for one in self.declared.splits[split])


def _splits(old: Declared, new: Declared) -> Iterator[Change]:
    for name in sorted({*old.splits, *new.splits}):
        if name not in new.splits:
            yield Change(Kind.SPLIT_REMOVED, f"split {name}", "there", "not there")
        elif name not in old.splits:
            yield Change(Kind.SPLIT_ADDED, f"split {name}", "not there", "there")


def _are_proved_same(old: _Side, new: _Side, common: Sequence[str]) -> bool:
    if old.content is None or new.content is None:
        return False
    return all(
        name in old.content.splits
        and name in new.content.splits
        and old.content.splits[name].ordered == new.content.splits[name].ordered
        for name in common
    )


def _compared(
    old: Mapping[str, Sequence[Hashes]],
    new: Mapping[str, Sequence[Hashes]],
    common: Sequence[str],
    keyed: Keyed,
) -> list[SplitDiff]:
    found = {
        name: SplitDiff(name, sum(map(len, old[name])), sum(map(len, new[name]))) for name in common
    }
    nothing = Piece.of([], 0, 0)
    for some in hashes.pieces(*old.values(), *new.values()):
        before = dict(zip(old, some[: len(old)], strict=True))
        after = dict(zip(new, some[len(old) :], strict=True))
        gone: dict[str, _Counted] = {}
        come: dict[str, _Counted] = {}
        for name in {*old, *new}:
            was = _Counted.of(before.get(name, nothing))
            now = _Counted.of(after.get(name, nothing))
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
    split: SplitDiff, source: str, gone: dict[str, "_Counted"], come: dict[str, "_Counted"]
) -> int:
    """Notes which examples that came to a split were gone from another one; returns how many."""
    left, arrived = gone[source], come[split.name]
    moved = arrived.in_both(left)
    if moved.total:
        split.moved[source] = split.moved.get(source, 0) + moved.total
        split.note("moved", moved.places)
        come[split.name] = arrived.minus(moved)
        gone[source] = left.minus(moved)
    return moved.total


class _Counted(NamedTuple):
    """Different hashes, sorted, how often each is there, and the place of one of them."""

    texts: Texts
    counts: Places
    places: Places

    @classmethod
    def of(cls, piece: Piece) -> "_Counted":
        texts, first, counts = np.unique(piece.texts, return_index=True, return_counts=True)
        return cls(texts, counts, piece.places[first])

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    def minus(self, other: "_Counted") -> "_Counted":
        """Returns those that are not in the other, or not as often."""
        left = self.counts.copy()
        _, here, there = np.intersect1d(
            self.texts, other.texts, assume_unique=True, return_indices=True
        )
        left[here] -= np.minimum(left[here], other.counts[there])
        return self._chosen(np.flatnonzero(left), left)

    def in_both(self, other: "_Counted") -> "_Counted":
        """Returns those that are in both, as often as they are in both, at their places here."""
        _, here, there = np.intersect1d(
            self.texts, other.texts, assume_unique=True, return_indices=True
        )
        counts = np.zeros_like(self.counts)
        counts[here] = np.minimum(self.counts[here], other.counts[there])
        return self._chosen(np.flatnonzero(counts), counts)

    def _chosen(self, rows: Places, counts: Places) -> "_Counted":
        return _Counted(self.texts[rows], counts[rows], self.places[rows])


def _stored(old: _Side, new: _Side, common: Sequence[str]) -> Iterator[Change]:
    """Yields how the same examples are stored otherwise."""
    forms = old.declared.file_format, new.declared.file_format
    if forms[0] != forms[1]:
        yield Change(Kind.FILE_FORMAT, "all splits", *forms)
        return
    for name in common:
        shards = old.declared.splits[name], new.declared.splits[name]
        if [one.examples for one in shards[0]] != [one.examples for one in shards[1]]:
            yield Change(Kind.SHARDS, f"split {name}", *(f"{len(some)} shards" for some in shards))
        elif old.content is not None and new.content is not None:
            sums = [[one.sha256 for one in side.content.splits[name].shards]  # type: ignore[union-attr]
                    for side in (old, new)]  # fmt: skip
            if sums[0] != sums[1]:
                yield Change(Kind.BYTES, f"split {name}", "these bytes", "others")
