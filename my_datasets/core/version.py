"""Versions `1.2.3`, patterns `1.*.*`, and which change needs which version number.

They have TFDS's meaning, without importing TFDS. The rules are TFDS's
(tensorflow.org/datasets/datasets_versioning): MAJOR if existing data or its slices change; MINOR if
data was only added; PATCH if only the serialisation on disk changed.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from my_datasets.core.json_types import Json

_PART = r"(?:0|[1-9][0-9]*)"
_VERSION = re.compile(rf"({_PART})\.({_PART})\.({_PART})")
_PATTERN = re.compile(rf"({_PART}|\*)\.({_PART}|\*)\.({_PART}|\*)")


@dataclass(frozen=True, order=True)
class VersionNumber:
    """A semantic version, ordered by its numbers."""

    major: int
    minor: int
    patch: int

    @classmethod
    def parse(cls, text: str) -> "VersionNumber | None":
        """Parses a version; returns None if the text is not one."""
        match = _VERSION.fullmatch(text)
        return cls(*(int(part) for part in match.groups())) if match else None

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


@dataclass(frozen=True)
class VersionPattern:
    """Three parts, each a number or a wildcard (None, written `*`)."""

    major: int | None
    minor: int | None
    patch: int | None

    @classmethod
    def parse(cls, text: str) -> "VersionPattern | None":
        """Parses a pattern; returns None if the text is not one."""
        match = _PATTERN.fullmatch(text)
        if not match:
            return None
        return cls(*(None if part == "*" else int(part) for part in match.groups()))

    @classmethod
    def of(cls, version: VersionNumber) -> "VersionPattern":
        """Returns the pattern that matches only one version."""
        return cls(version.major, version.minor, version.patch)

    @property
    def is_exact(self) -> bool:
        """Whether it has no wildcard."""
        return None not in (self.major, self.minor, self.patch)

    def __str__(self) -> str:
        return ".".join(
            "*" if part is None else str(part) for part in (self.major, self.minor, self.patch)
        )

    def matches(self, version: VersionNumber) -> bool:
        """Returns whether a version has the same numbers, except at wildcards."""
        given = (version.major, version.minor, version.patch)
        wanted = (self.major, self.minor, self.patch)
        return all(part in (None, number) for part, number in zip(wanted, given, strict=True))


class Bump(IntEnum):
    """The part of a version number that must be raised, at least."""

    NONE = 0
    PATCH = 1
    MINOR = 2
    MAJOR = 3

    def __str__(self) -> str:
        return self.name.lower()


class ChangeKind(StrEnum):
    """The kinds of changes."""

    EXAMPLES_ADDED = "examples-added"
    EXAMPLES_REMOVED = "examples-removed"
    EXAMPLES_CHANGED = "examples-changed"
    EXAMPLES_MOVED = "examples-moved"
    EXAMPLES_REORDERED = "examples-reordered"
    FEATURE_ADDED = "feature-added"
    FEATURE_REMOVED = "feature-removed"
    FEATURE_KIND = "feature-kind"
    FEATURE_TYPE = "feature-type"
    FEATURE_TYPE_WIDENED = "feature-type-widened"
    FEATURE_SHAPE = "feature-shape"
    FEATURE_SHAPE_NARROWED = "feature-shape-narrowed"
    FEATURE_OPTIONAL = "feature-optional"
    FEATURE_REQUIRED = "feature-required"
    FEATURE_ENCODING = "feature-encoding"
    FEATURE_OTHERWISE = "feature-otherwise"
    LABELS_APPENDED = "labels-appended"
    LABELS_CHANGED = "labels-changed"
    LABELS_NAMED = "labels-named"
    SUPERVISED_CHANGED = "supervised-changed"
    SUPERVISED_ADDED = "supervised-added"
    SPLIT_ADDED = "split-added"
    SPLIT_REMOVED = "split-removed"
    CONFIG_ADDED = "config-added"
    CONFIG_REMOVED = "config-removed"
    CONFIG_DEFAULT = "config-default"
    SHARDS = "shards"
    FILE_FORMAT = "file-format"
    BYTES = "bytes"


# The required bump for each kind of change, and why.
RULES: dict[ChangeKind, tuple[Bump, str]] = {
    ChangeKind.EXAMPLES_ADDED: (Bump.MAJOR, "slices such as train[:10%] give other examples"),
    ChangeKind.EXAMPLES_REMOVED: (Bump.MAJOR, "existing examples are gone"),
    ChangeKind.EXAMPLES_CHANGED: (Bump.MAJOR, "existing examples have other values"),
    ChangeKind.EXAMPLES_MOVED: (Bump.MAJOR, "an example that was held out may now be trained on"),
    ChangeKind.EXAMPLES_REORDERED: (Bump.MAJOR, "slices such as train[:10%] give other examples"),
    ChangeKind.FEATURE_ADDED: (Bump.MINOR, "existing data is the same, and there is more"),
    ChangeKind.FEATURE_REMOVED: (Bump.MAJOR, "code that reads it fails"),
    ChangeKind.FEATURE_KIND: (Bump.MAJOR, "its values are of another kind"),
    ChangeKind.FEATURE_TYPE: (Bump.MAJOR, "its values are of another type"),
    ChangeKind.FEATURE_TYPE_WIDENED: (Bump.MAJOR, "code written for arrays of that type fails"),
    ChangeKind.FEATURE_SHAPE: (Bump.MAJOR, "batches and models that rely on the shape fail"),
    ChangeKind.FEATURE_SHAPE_NARROWED: (Bump.MINOR, "all values had that shape already"),
    ChangeKind.FEATURE_OPTIONAL: (Bump.MAJOR, "code that relies on a value may find none"),
    ChangeKind.FEATURE_REQUIRED: (Bump.MINOR, "there is always a value now, as was allowed before"),
    ChangeKind.FEATURE_ENCODING: (Bump.PATCH, "the same values are stored differently"),
    ChangeKind.FEATURE_OTHERWISE: (Bump.MAJOR, "it is declared differently, with unknown effect"),
    ChangeKind.LABELS_APPENDED: (Bump.MINOR, "the numbers of all classes are as before"),
    ChangeKind.LABELS_CHANGED: (Bump.MAJOR, "a number means another class"),
    ChangeKind.LABELS_NAMED: (Bump.MINOR, "the numbers are as before, and now have names"),
    ChangeKind.SUPERVISED_CHANGED: (Bump.MAJOR, "as_supervised=True returns something else"),
    ChangeKind.SUPERVISED_ADDED: (Bump.MINOR, "as_supervised=True failed before"),
    ChangeKind.SPLIT_ADDED: (Bump.MINOR, "the splits that were there are as before"),
    ChangeKind.SPLIT_REMOVED: (Bump.MAJOR, "code that loads it fails"),
    ChangeKind.CONFIG_ADDED: (Bump.MINOR, "the configs that were there are as before"),
    ChangeKind.CONFIG_REMOVED: (Bump.MAJOR, "code that loads it fails"),
    ChangeKind.CONFIG_DEFAULT: (Bump.MAJOR, "code that names no config loads another one"),
    ChangeKind.SHARDS: (Bump.PATCH, "the same examples in the same order, cut at other places"),
    ChangeKind.FILE_FORMAT: (Bump.PATCH, "the same examples in the same order, in other files"),
    ChangeKind.BYTES: (Bump.PATCH, "the same examples in the same order, written by other bytes"),
}  # fmt: skip


@dataclass(frozen=True)
class VersionChange:
    """A difference between two versions.

    `node` is what it is about: a feature, a split, a shard.
    """

    kind: ChangeKind
    node: str
    before: str = ""
    after: str = ""

    @property
    def bump(self) -> Bump:
        """The required bump."""
        return RULES[self.kind][0]

    @property
    def reason(self) -> str:
        """Why it is required."""
        return RULES[self.kind][1]

    def to_json(self) -> dict[str, Json]:
        """Returns a form for scripts."""
        return {
            "kind": self.kind.value,
            "node": self.node,
            "before": self.before,
            "after": self.after,
            "bump": str(self.bump),
            "reason": self.reason,
        }


def required(changes: Iterable[VersionChange]) -> Bump:
    """Returns the largest bump that any of the changes requires."""
    return max((change.bump for change in changes), default=Bump.NONE)


def between(old: VersionNumber, new: VersionNumber) -> Bump | None:
    """Returns the bump between two versions; None if the new one is lower."""
    if new < old:
        return None
    if new.major > old.major:
        return Bump.MAJOR
    if new.minor > old.minor:
        return Bump.MINOR
    return Bump.PATCH if new.patch > old.patch else Bump.NONE


def least(old: VersionNumber, bump: Bump) -> VersionNumber:
    """Returns the lowest version with a bump over the old one."""
    if bump is Bump.MAJOR:
        return VersionNumber(old.major + 1, 0, 0)
    if bump is Bump.MINOR:
        return VersionNumber(old.major, old.minor + 1, 0)
    return VersionNumber(old.major, old.minor, old.patch + 1) if bump is Bump.PATCH else old
