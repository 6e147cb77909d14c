"""`diff`: compares two versions, and determines the version number that the changes require."""

import os
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from my_datasets.comparison import example_changes
from my_datasets.comparison.examine import Examination, examine
from my_datasets.comparison.example_changes import KeyMatcher, SplitDiff
from my_datasets.comparison.version_metadata import ComparedVersion
from my_datasets.core import version
from my_datasets.core.hash_sets import HashFiles
from my_datasets.core.logs import get_logger
from my_datasets.core.processes import cores
from my_datasets.core.version import Bump, ChangeKind, VersionChange, VersionNumber
from my_datasets.errors import IncompleteVersionError, MyDatasetsError, VersionGateError, problem_of
from my_datasets.metadata import feature_changes, layout
from my_datasets.metadata.dataset_info import MALFORMED, Declared
from my_datasets.records.index import ShardKeys, keys_path
from my_datasets.resolving.version_select import Blocked
from my_datasets.statistics.drift import DriftedStatistic, drifted


@dataclass(frozen=True)
class Diff:
    """The differences between two versions.

    Attributes:
      old: The full name of the old version.
      new: The full name of the new version.
      changes: The changes, those that require the largest bump first.
      splits: The changes in the examples of each split that both versions have.
      moved: The statistics that moved, if both manifests have them.
      actual: The actual bump of the version number; None if it went down, or the datasets differ.
      least: The lowest version number that satisfies the required bump.
    """

    old: str
    new: str
    changes: tuple[VersionChange, ...]
    splits: tuple[SplitDiff, ...]
    moved: tuple[DriftedStatistic, ...]
    actual: Bump | None
    least: VersionNumber

    @property
    def required(self) -> Bump:
        """The bump that the changes require."""
        return version.required(self.changes)

    @property
    def is_enough(self) -> bool:
        """Whether the actual bump is at least the required one."""
        return self.actual is not None and self.actual >= self.required

    def to_json(self) -> dict[str, object]:
        """Returns the differences for scripts, as JSON."""
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
    """Returns the differences between two prepared versions.

    If the manifests prove that the examples are the same, no shard is read.

    Args:
      old: The directory of the old version.
      new: The directory of the new version.
      workers: The number of processes that read shards; None for one per core.

    Raises:
      IncompleteVersionError: A directory is not a prepared version.
      CorruptShardError: A shard is damaged.
    """
    before, after = _Side.read(Path(old)), _Side.read(Path(new))
    metadata = before.subject.metadata, after.subject.metadata
    changes = list(feature_changes.changes(*metadata))
    splits = before.declared.splits, after.declared.splits
    kinds = ChangeKind.SPLIT_REMOVED, ChangeKind.SPLIT_ADDED
    changes += _removed_and_added("split", *splits, *kinds)
    changes += _configs(before, after)
    common = [name for name in before.declared.splits if name in after.declared.splits]
    without = feature_changes.not_in_both(*metadata)
    if not without and _are_proved_same(before, after, common):
        compared = [SplitDiff(name, before.examples(name), after.examples(name)) for name in common]
    else:
        with tempfile.TemporaryDirectory() as scratch:
            sides = []
            for number, side in enumerate((before, after)):
                directory = Path(scratch) / str(number)
                directory.mkdir()
                sides.append(side.hashes(directory, without, workers or cores()))
            keyed = KeyMatcher(before.keys(common), after.keys(common), Path(scratch))
            compared = example_changes.compared(sides[0], sides[1], common, keyed)
    changes += [change for one in compared for change in one.changes()]
    is_same = not without and not any(change.node.startswith("split ") for change in changes)
    changes += _stored(before, after, common) if is_same else []
    changes.sort(key=lambda change: (-change.bump, change.node))
    same_dataset = before.dataset == after.dataset
    actual = version.between(before.version, after.version) if same_dataset else None
    least = version.least(before.version, version.required(changes))
    moved = drifted(before.subject.recorded.statistics, after.subject.recorded.statistics)
    return Diff(
        before.declared.name, after.declared.name, tuple(changes), tuple(compared), tuple(moved),
        actual, least,
    )  # fmt: skip


class _Side(NamedTuple):
    """One of the two versions."""

    subject: ComparedVersion
    declared: Declared
    dataset: str
    version: VersionNumber

    @classmethod
    def read(cls, path: Path) -> "_Side":
        subject = ComparedVersion.read(path.expanduser())
        name, _, text = subject.declared.name.partition(":") if subject.declared else ("", "", "")
        version = VersionNumber.parse(text)
        if subject.declared is None or subject.issues or version is None:
            raise IncompleteVersionError(
                f"{path} is not a prepared version.",
                *(f"{one.node}: {one.problem} {one.found}" for one in subject.issues),
                fix="run my-datasets verify, and rebuild the version or pull it again",
            )
        return cls(subject, subject.declared, name, version)

    def keys(self, splits: Sequence[str]) -> dict[str, list[ShardKeys]]:
        """Returns the keys of the examples of those splits for which all keys are known.

        Keys that the manifest does not list are ignored, because nothing proves that they are
        right. Old manifests listed no files.
        """
        recorded = self.subject.recorded
        found = {}
        for name in splits:
            shards = self.declared.splits[name]
            keys = [ShardKeys(self.subject.path / one.name, one.examples) for one in shards]
            are_listed = not recorded.metadata_copy or all(
                keys_path(one.shard).name in recorded.files for one in keys
            )
            if are_listed and all(one.are_known for one in keys):
                found[name] = keys
        return found

    def hashes(
        self, directory: Path, without: frozenset[str], workers: int
    ) -> dict[str, HashFiles]:
        """Returns the hashes of the examples of each split, without some of the features."""
        # Records written by this package are canonical; adopted versions have no fingerprint.
        is_canonical = bool(self.subject.recorded.fingerprint) and not without
        examination = Examination(without=without, is_canonical=is_canonical)
        path = self.subject.path
        found = examine(path, self.declared, directory, examination, workers=workers)
        return {name: one.hashes for name, one in found.items()}

    def examples(self, split: str) -> int:
        return sum(one.examples for one in self.declared.splits[split])


def _removed_and_added(
    what: str, old: Collection[str], new: Collection[str], removed: ChangeKind, added: ChangeKind
) -> Iterator[VersionChange]:
    for name in sorted({*old, *new}):
        if name not in new:
            yield VersionChange(removed, f"{what} {name}", "there", "not there")
        elif name not in old:
            yield VersionChange(added, f"{what} {name}", "not there", "there")


def _configs(old: _Side, new: _Side) -> Iterator[VersionChange]:
    """Yields added and removed configs of the same dataset, if both manifests list configs."""
    configs = old.subject.recorded.configs, new.subject.recorded.configs
    if not all(configs) or old.dataset.partition("/")[0] != new.dataset.partition("/")[0]:
        return
    before, after = (one["names"] for one in configs)
    kinds = ChangeKind.CONFIG_REMOVED, ChangeKind.CONFIG_ADDED
    yield from _removed_and_added("config", before, after, *kinds)
    defaults = [one["default"] for one in configs]
    if defaults[0] is not None and defaults[0] != defaults[1]:
        yield VersionChange(
            ChangeKind.CONFIG_DEFAULT, "default config", *(one or "none" for one in defaults)
        )


def _are_proved_same(old: _Side, new: _Side, common: Sequence[str]) -> bool:
    contents = old.subject.content, new.subject.content
    if contents[0] is None or contents[1] is None:
        return False
    before, after = contents[0].splits, contents[1].splits
    return all(
        name in before and name in after and before[name].ordered == after[name].ordered
        for name in common
    )


def _stored(old: _Side, new: _Side, common: Sequence[str]) -> Iterator[VersionChange]:
    """Yields differences in how the same examples are stored."""
    contents = old.subject.content, new.subject.content
    forms = old.declared.file_format, new.declared.file_format
    if forms[0] != forms[1]:
        yield VersionChange(ChangeKind.FILE_FORMAT, "all splits", *forms)
        return
    for name in common:
        shards = old.declared.splits[name], new.declared.splits[name]
        if [one.examples for one in shards[0]] != [one.examples for one in shards[1]]:
            yield VersionChange(
                ChangeKind.SHARDS, f"split {name}", *(f"{len(some)} shards" for some in shards)
            )
        elif all(contents):
            sums = [[one.sha256 for one in side.splits[name].shards] for side in contents if side]
            if sums[0] != sums[1]:
                yield VersionChange(ChangeKind.BYTES, f"split {name}", "these bytes", "others")


_LOGGER = get_logger(__name__)

# Maximum number of changes listed in a message.
_NAMED = 6


def check_version_gate(new_dir: Path, siblings: Path, blocked: Blocked | None = None) -> None:
    """Compares a version that was just built with the nearest lower and the nearest higher version.

    `siblings` is the directory with the other versions of the same dataset and config. The rule
    applies from the lower to the higher version, whichever was built first. Versions built with
    limits, such as samples, and blocked versions are neither checked nor compared with. A neighbor
    that cannot be read is skipped with a warning.

    Raises:
      VersionGateError: The number of the higher version was not raised enough for what changed.
    """
    new = ComparedVersion.read(new_dir)
    if new.declared is None or _is_limited(new):
        return
    name, _, text = new.declared.name.rpartition(":")
    version = VersionNumber.parse(text)
    if version is None:
        return
    config = name.partition("/")[2] or None
    candidates = _comparable(siblings, config, blocked or Blocked())
    below = max((one for one in candidates if one < version), default=None)
    above = min((one for one in candidates if one > version), default=None)
    if below is not None:
        path = candidates[below]
        found = _insufficient_bump((below, path), (version, new_dir))
        if found is not None:
            raise VersionGateError(
                f"The version number of {found.new} is too low for its changes since {found.old}.",
                f"Expected: version {found.least} or higher, a {found.required} change",
                *_decisive_changes(found),
                f"Compared with {path}",
                fix=f"set VERSION to {found.least} and describe the changes in RELEASE_NOTES, or "
                "build with --no-version-gate",
            )
    if above is not None:
        path = candidates[above]
        found = _insufficient_bump((version, new_dir), (above, path))
        if found is not None:
            raise VersionGateError(
                f"The changes from {found.old} to the existing {found.new} are too large.",
                f"Expected: at most a {found.actual} change; found a {found.required} one",
                *_decisive_changes(found),
                f"Compared with {path}",
                fix="make the code build the older version as it was; or renumber the existing "
                "version if it is wrong; or build with --no-version-gate",
            )


def _insufficient_bump(
    low: tuple[VersionNumber, Path], high: tuple[VersionNumber, Path]
) -> Diff | None:
    """Returns the differences between two versions if they are too large for their numbers."""
    if version.between(low[0], high[0]) is Bump.MAJOR:
        return None
    try:
        found = diff(low[1], high[1])
    except (MyDatasetsError, OSError, *MALFORMED) as error:
        why = problem_of(error)
        _LOGGER.warning("%s was not compared with %s: %s", high[0], low[0], why)
        return None
    return None if found.is_enough else found


def _comparable(siblings: Path, config: str | None, blocked: Blocked) -> dict[VersionNumber, Path]:
    """Returns the prepared versions that are complete and not blocked."""
    return {
        one.version: one.path
        for one in layout.versions_in(siblings)
        if not (blocked.reason(one.version, config) or one.metadata.blocked_reason)
        and not _is_limited(ComparedVersion.read(one.metadata))
    }


def _is_limited(subject: ComparedVersion) -> bool:
    """Returns whether a version has less data than its builder generates from the full input."""
    return any(name != "on_error" for name in subject.recorded.options)


def _decisive_changes(found: Diff) -> list[str]:
    """Returns the changes that require the largest bump, as lines of a message."""
    decisive = [change for change in found.changes if change.bump is found.required]
    lines = [
        f"{change.node}: {change.kind.value}, because {change.reason}"
        + (f" ({change.before} -> {change.after})" if change.after or change.before else "")
        for change in decisive[:_NAMED]
    ]
    more = [f"... and {len(decisive) - _NAMED} more"] if len(decisive) > _NAMED else []
    return [*lines, *more]
