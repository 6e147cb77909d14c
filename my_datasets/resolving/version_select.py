"""Selects one of several matching versions, and builds the errors for when none is usable.

`DeclaredVersions` has the versions that a builder's code declares, with TFDS's `BLOCKED_VERSIONS`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from my_datasets.core.logs import get_logger
from my_datasets.core.reference import reference_to
from my_datasets.core.version import VersionNumber, VersionPattern
from my_datasets.errors import VersionBlockedError, VersionNotBuildableError, VersionNotFoundError
from my_datasets.metadata import layout
from my_datasets.metadata.layout import PreparedVersion
from my_datasets.storage import addresses

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

_LOGGER = get_logger(__name__)
_warned: set[tuple[str, str]] = set()


@dataclass(frozen=True)
class Blocked:
    """What a builder's code says must not be used; with TFDS's meaning.

    Attributes:
      versions: The reason, or None, for each version of which all configs are blocked.
      configs: The reason, or None, by version and config.
    """

    versions: Mapping[str, str | None] = field(default_factory=dict)
    configs: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)

    def reason(self, version: VersionNumber | str, config: str | None) -> str | None:
        """Returns why a version must not be used; None if it may be.

        Args:
          version: The version.
          config: Its config; None for a dataset that has none.
        """
        text = str(version)
        if text in self.versions:
            return self.versions[text] or f"Version {text} is blocked."
        if config is not None and config in self.configs.get(text, {}):
            said = self.configs[text][config]
            return said or f"Config {config} for version {text} is blocked."
        return None


class _BlockedVersions(Protocol):
    """TFDS's class of that name, or `Blocked`."""

    @property
    def versions(self) -> Mapping[str, str | None]: ...

    @property
    def configs(self) -> Mapping[str, Mapping[str, str | None]]: ...


@dataclass(frozen=True)
class DeclaredVersions:
    """The versions of a dataset that its code declares.

    Attributes:
      current: `VERSION`, the default if no version is named; None if unknown.
      others: `SUPPORTED_VERSIONS`, newest first.
      buildable: Those of `others` that the code also builds, newest first.
      blocked: `BLOCKED_VERSIONS`.
      is_sure: Whether `blocked` is known; if not, the code must be imported to find out.
    """

    current: VersionNumber | None = None
    others: tuple[VersionNumber, ...] = ()
    buildable: tuple[VersionNumber, ...] = ()
    blocked: Blocked = field(default_factory=Blocked)
    is_sure: bool = True

    @classmethod
    def of_class(cls, builder_cls: type) -> "DeclaredVersions":
        """Returns what a builder class declares, using the default config where configs differ."""
        return cls.of(
            (
                getattr(builder_cls, "VERSION", None),
                *getattr(builder_cls, "SUPPORTED_VERSIONS", ()),
            ),
            getattr(builder_cls, "BUILDABLE_VERSIONS", ()),
            getattr(builder_cls, "BLOCKED_VERSIONS", None),
        )

    @classmethod
    def of_builder(cls, builder: "tfds.core.DatasetBuilder") -> "DeclaredVersions":
        """Returns what a builder declares for its config."""
        buildable = getattr(builder, "BUILDABLE_VERSIONS", ())
        return cls.of(builder.versions, buildable, builder.blocked_versions)

    @classmethod
    def of(
        cls,
        versions: Iterable[object],
        buildable: Iterable[object],
        blocked: _BlockedVersions | None,
        *,
        is_sure: bool = True,
    ) -> "DeclaredVersions":
        """Returns the versions that a builder declares.

        Args:
          versions: The current version, which may be None, and the supported ones.
          buildable: The supported versions that are built besides the current one.
          blocked: TFDS's `BlockedVersions`, or None.
          is_sure: Whether it is known which versions are blocked.
        """
        current, *others = [VersionNumber.parse(str(one)) for one in versions]
        known = sorted({one for one in others if one is not None}, reverse=True)
        also = {VersionNumber.parse(str(one)) for one in buildable}
        if known and current is not None:
            also.add(max(current, known[0]))  # TFDS also builds the newest one on request
        return cls(
            current,
            tuple(known),
            tuple(one for one in known if one in also and one != current),
            Blocked(dict(blocked.versions), dict(blocked.configs)) if blocked else Blocked(),
            is_sure,
        )

    @property
    def versions(self) -> tuple[VersionNumber, ...]:
        """All versions: the current one, then other buildable ones, then load-only ones."""
        only_loaded = (one for one in self.others if one not in self.buildable)
        return tuple(dict.fromkeys((*self.built, *only_loaded)))

    @property
    def built(self) -> tuple[VersionNumber, ...]:
        """The versions that the code builds, the current one first."""
        return (*((self.current,) if self.current else ()), *self.buildable)

    def newest(self, pattern: VersionPattern, config: str | None) -> VersionNumber | None:
        """Returns the version that a pattern resolves to if none is prepared; None if none matches.

        Prefers the current version, then versions that the code builds. Skips blocked versions.
        """
        return next((one for one in self.usable(config) if pattern.matches(one)), None)

    def builds(self, version: object) -> bool:
        """Returns whether the code builds a version."""
        return VersionNumber.parse(str(version)) in self.built

    def reasons(self, pattern: VersionPattern, config: str | None) -> dict[VersionNumber, str]:
        """Returns the matching versions that are blocked, with the reasons."""
        reason_of = {one: self.blocked.reason(one, config) for one in self.versions}
        return {one: why for one, why in reason_of.items() if why and pattern.matches(one)}

    def usable(self, config: str | None) -> list[VersionNumber]:
        """Returns the versions that are not blocked."""
        return [one for one in self.versions if self.blocked.reason(one, config) is None]

    def described(self, config: str | None) -> str:
        """Returns the versions for a message, such as `1.1.0, 1.0.0 (only loaded)`."""
        said = []
        for one in self.versions:
            notes = ["only loaded"] if one not in self.built else []
            notes += ["blocked"] if self.blocked.reason(one, config) else []
            said.append(f"{one}{' (' + ', '.join(notes) + ')' if notes else ''}")
        return ", ".join(said) or "none"


@dataclass(frozen=True)
class Selection:
    """The prepared version that was selected.

    Attributes:
      version: The newest matching version that is not blocked; None if there is none.
      fitting: All matching versions, newest first.
      blocked: Why some of them are blocked.
    """

    version: PreparedVersion | None
    fitting: Sequence[PreparedVersion]
    blocked: Mapping[PreparedVersion, str]

    def warn_of_skipped(self) -> None:
        """Warns about each newer blocked version that was skipped, once per process."""
        if self.version is not None:
            chosen = self.version
            reasons = {one.version: why for one, why in self.blocked.items()}
            warn_of_skipped(chosen.name, chosen.config, chosen.version, reasons)

    def reasons(self) -> dict[str, str]:
        """Returns the reasons why matching versions are blocked, by version."""
        return {str(one.version): why for one, why in self.blocked.items()}


def warn_of_skipped(
    name: str, config: str | None, chosen: VersionNumber, reasons: Mapping[VersionNumber, str]
) -> None:
    """Warns about each blocked version that is newer than the chosen one, once per process."""
    for version, why in reasons.items():
        whole = f"{name}/{config}:{version}" if config else f"{name}:{version}"
        if version > chosen and (whole, why) not in _warned:
            _warned.add((whole, why))
            _LOGGER.warning("%s is skipped because it is blocked: %s", whole, why)


def select_prepared(
    pattern: VersionPattern | None, versions: Iterable[PreparedVersion], blocked: Blocked
) -> Selection:
    """Selects the newest prepared version that matches a pattern and is not blocked.

    Args:
      pattern: The pattern to match; None matches all versions.
      versions: The prepared versions of one dataset and config.
      blocked: The versions that the builder blocks; those that block themselves in their metadata
        are added.
    """
    fitting = sorted(
        (one for one in versions if pattern is None or pattern.matches(one.version)),
        key=lambda one: one.version, reverse=True,
    )  # fmt: skip
    reasons: dict[PreparedVersion, str] = {}
    for one in fitting:
        why = blocked.reason(one.version, one.config) or one.metadata.blocked_reason
        if why is None:
            return Selection(one, fitting, reasons)
        reasons[one] = why
    return Selection(None, fitting, reasons)


def select_declared(
    builder: "tfds.core.DatasetBuilder", declared: DeclaredVersions, requested: str
) -> str:
    """Resolves a wildcard to one of the code's versions; returns anything else unchanged.

    Raises:
      VersionBlockedError: All matching versions are blocked.
    """
    pattern = VersionPattern.parse(requested)
    if pattern is None or pattern.is_exact:
        return requested
    config = builder.builder_config_name
    found = declared.newest(pattern, config)
    reasons = declared.reasons(pattern, config)
    if found is not None:
        warn_of_skipped(builder.name, config, found, reasons)
    elif reasons:
        reason_of = {str(version): why for version, why in reasons.items()}
        raise blocked_error(f"{builder.name}:{requested}", reason_of, declared.usable(config))
    return str(found) if found else requested


def no_such_version(
    name: str, requested: object, declared: DeclaredVersions, data_dir: str, config: str | None
) -> VersionNotFoundError:
    """Returns the error for a version that the code does not have; it lists those available."""
    return VersionNotFoundError(
        f"Dataset {name!r} has no version {requested}.",
        f"Versions in code: {declared.described(config)}",
        f"Versions prepared in {data_dir}: {describe_prepared(name, config, data_dir)}",
        fix=_ask_for_another(name, config, declared),
    )


def not_buildable(
    builder: "tfds.core.DatasetBuilder", declared: DeclaredVersions
) -> VersionNotBuildableError:
    """Returns the error for a version that is not prepared and that the code can only load."""
    root, config = str(builder.data_dir_root), builder.builder_config_name
    return VersionNotBuildableError(
        f"{reference_to(builder)} is loaded where it is prepared, but today's code does not "
        "build it.",
        f"Versions in code: {declared.described(config)}",
        f"Versions prepared in {root}: {describe_prepared(builder.name, config, root)}",
        fix=f"copy its directory to {builder.data_dir}, build it with the code of its time, "
        f"or {_ask_for_another(builder.name, config, declared)}",
    )


def blocked_error(
    reference: str,
    reasons: Mapping[str, str],
    usable: Iterable[object],
    locked_by: Path | None = None,
) -> VersionBlockedError:
    """Returns the error for a reference to blocked versions.

    Args:
      reference: What was requested.
      reasons: The reason for each matching version.
      usable: The versions that are not blocked.
      locked_by: The lock that pins the reference to the blocked version, if any.
    """
    instead = ", ".join(map(str, usable))
    fix = "ask for one of those" if instead else "wait for a version that is not blocked"
    if locked_by is not None:
        fix = f"my-datasets lock {reference} updates the lock; or {fix}"
    return VersionBlockedError(
        f"{reference!r} must not be used: it is blocked.",
        *(f"{version}: {why}" for version, why in reasons.items()),
        f"Versions that are not blocked: {instead or 'none'}",
        f"It is locked by {locked_by}" if locked_by else "",
        fix=f"{fix}; to look at the data all the same, give their directory to "
        "tfds.builder_from_directory",
    )


def blocked_reason(builder: "tfds.core.DatasetBuilder") -> str | None:
    """Returns why the builder itself, or its metadata, blocks its version; None if it does not."""
    return builder.is_blocked().blocked_msg or builder.info.is_blocked or None


def check_not_blocked(builder: "tfds.core.DatasetBuilder") -> None:
    """Checks that a builder's version is not blocked.

    Raises:
      VersionBlockedError: The version is blocked.
    """
    why = blocked_reason(builder)
    if why:
        usable = DeclaredVersions.of_builder(builder).usable(builder.builder_config_name)
        raise blocked_error(reference_to(builder), {str(builder.version): why}, usable)


def check_buildable(builder: "tfds.core.DatasetBuilder") -> None:
    """Checks that the code can build a builder's version, not only load it.

    Raises:
      VersionNotBuildableError: The code can only load it.
    """
    declared = DeclaredVersions.of_builder(builder)
    if not declared.builds(builder.version):
        raise not_buildable(builder, declared)


def describe_prepared(name: str, config: str | None, data_dir: str) -> str:
    """Returns the prepared versions of a dataset and config, formatted for a message."""
    found = layout.prepared_versions_of(addresses.as_path(data_dir) / name)
    return ", ".join(str(one.version) for one in found if one.config == config) or "none"


def _ask_for_another(name: str, config: str | None, declared: DeclaredVersions) -> str:
    """Returns a fix that names a version that the code builds."""
    usable = [one for one in declared.usable(config) if one in declared.built]
    if not usable:
        return "ask for one that is prepared; all that the code builds are blocked"
    whole = f"{name}/{config}" if config else name
    return f"ask for one of those: my-datasets build {whole}:{usable[0]}"
