"""Versions `1.2.3` and patterns `1.*.*`, with TFDS's meaning and without importing TFDS."""

import re
from dataclasses import dataclass

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
        """Returns the version that `text` spells, or None if it spells none."""
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
        """Returns the pattern that `text` spells, or None if it spells none."""
        match = _PATTERN.fullmatch(text)
        if not match:
            return None
        return cls(*(None if part == "*" else int(part) for part in match.groups()))

    @classmethod
    def of(cls, version: VersionNumber) -> "VersionPattern":
        """Returns the pattern that matches one version only."""
        return cls(version.major, version.minor, version.patch)

    @property
    def is_exact(self) -> bool:
        """Whether there is no wildcard in it."""
        return None not in (self.major, self.minor, self.patch)

    def __str__(self) -> str:
        return ".".join(
            "*" if part is None else str(part) for part in (self.major, self.minor, self.patch)
        )

    def matches(self, version: VersionNumber) -> bool:
        """Returns whether a version has the same numbers where there is no wildcard."""
        given = (version.major, version.minor, version.patch)
        wanted = (self.major, self.minor, self.patch)
        return all(part in (None, number) for part, number in zip(wanted, given, strict=True))
