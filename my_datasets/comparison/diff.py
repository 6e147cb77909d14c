"""`diff`: compares two versions, and determines the version number that the changes require."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from my_datasets.comparison import example_changes
from my_datasets.comparison.examine import Examination, examine
from my_datasets.comparison.example_changes import KeyMatcher, SplitDiff
from my_datasets.comparison.version_metadata import ComparedVersion
from my_datasets.core import version
from my_datasets.core.hash_sets import HashFiles
from my_datasets.core.json_types import JsonObject
from my_datasets.core.processes import cores
from my_datasets.core.version import Bump, ChangeKind, VersionChange, VersionNumber
from my_datasets.errors import IncompleteVersionError
from my_datasets.metadata import content, feature_changes
from my_datasets.metadata.dataset_info import Declared
from my_datasets.metadata.version_metadata import VersionMetadata
from my_datasets.records.index import ShardKeys, keys_path
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
    changes = list(feature_changes.changes(before.metadata, after.metadata))
    changes += _splits(before.declared, after.declared)
    changes += _configs(before, after)
    common = [name for name in before.declared.splits if name in after.declared.splits]
    without = feature_changes.not_in_both(before.metadata, after.metadata)
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
    return Diff(
        before.declared.name, after.declared.name, tuple(changes), tuple(compared),
        tuple(drifted(before.statistics, after.statistics)), actual, least,
    )  # fmt: skip


class _Side(NamedTuple):
    """One of the two versions."""

    metadata: VersionMetadata
    declared: Declared
    content: content.Content | None
    statistics: JsonObject
    configs: JsonObject
    is_canonical: bool
    dataset: str
    version: VersionNumber
    # The files that the manifest lists; None if it was written before manifests listed any.
    listed: frozenset[str] | None

    @property
    def path(self) -> Path:
        return self.metadata.path

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
        made = subject.manifest
        statistics = subject.manifest.statistics if subject.manifest else {}
        configs = subject.manifest.configs if subject.manifest else {}
        # Records written by this package are canonical; adopted versions have no fingerprint.
        is_canonical = subject.manifest is not None and bool(subject.manifest.fingerprint)
        return cls(
            subject.metadata,
            subject.declared,
            subject.content,
            statistics,
            configs,
            is_canonical,
            name,
            version,
            frozenset(made.files) if made is not None and made.metadata_copy else None,
        )

    def keys(self, splits: Sequence[str]) -> dict[str, list[ShardKeys]]:
        """Returns the keys of the examples of those splits for which all keys are known.

        Keys that the manifest does not list are ignored, because nothing proves that they are
        right.
        """
        found = {
            name: [
                ShardKeys(self.path / one.name, one.examples) for one in self.declared.splits[name]
            ]
            for name in splits
        }
        return {
            name: some
            for name, some in found.items()
            if all(self._is_listed(one) and one.are_known for one in some)
        }

    def _is_listed(self, found: ShardKeys) -> bool:
        return self.listed is None or keys_path(found.shard).name in self.listed

    def hashes(
        self, directory: Path, without: frozenset[str], workers: int
    ) -> dict[str, HashFiles]:
        """Returns the hashes of the examples of each split, without some of the features."""
        wanted = Examination(without=without, is_canonical=self.is_canonical and not without)
        found = examine(self.path, self.declared, directory, wanted, workers=workers)
        return {name: one.hashes for name, one in found.items()}

    def examples(self, split: str) -> int:
        return sum(one.examples for one in self.declared.splits[split])


def _splits(old: Declared, new: Declared) -> Iterator[VersionChange]:
    for name in sorted({*old.splits, *new.splits}):
        if name not in new.splits:
            yield VersionChange(ChangeKind.SPLIT_REMOVED, f"split {name}", "there", "not there")
        elif name not in old.splits:
            yield VersionChange(ChangeKind.SPLIT_ADDED, f"split {name}", "not there", "there")


def _configs(old: _Side, new: _Side) -> Iterator[VersionChange]:
    """Yields added and removed configs of the same dataset, if both manifests list configs."""
    is_known = old.configs and new.configs
    if not is_known or old.dataset.partition("/")[0] != new.dataset.partition("/")[0]:
        return
    before, after = old.configs["names"], new.configs["names"]
    for name in sorted({*before, *after}):
        if name not in after:
            yield VersionChange(ChangeKind.CONFIG_REMOVED, f"config {name}", "there", "not there")
        elif name not in before:
            yield VersionChange(ChangeKind.CONFIG_ADDED, f"config {name}", "not there", "there")
    defaults = old.configs["default"], new.configs["default"]
    if defaults[0] is not None and defaults[0] != defaults[1]:
        yield VersionChange(
            ChangeKind.CONFIG_DEFAULT, "default config", *(one or "none" for one in defaults)
        )


def _are_proved_same(old: _Side, new: _Side, common: Sequence[str]) -> bool:
    if old.content is None or new.content is None:
        return False
    return all(
        name in old.content.splits
        and name in new.content.splits
        and old.content.splits[name].ordered == new.content.splits[name].ordered
        for name in common
    )


def _stored(old: _Side, new: _Side, common: Sequence[str]) -> Iterator[VersionChange]:
    """Yields differences in how the same examples are stored."""
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
        elif old.content is not None and new.content is not None:
            sums = [[one.sha256 for one in side.content.splits[name].shards]  # type: ignore[union-attr]
                    for side in (old, new)]  # fmt: skip
            if sums[0] != sums[1]:
                yield VersionChange(ChangeKind.BYTES, f"split {name}", "these bytes", "others")
