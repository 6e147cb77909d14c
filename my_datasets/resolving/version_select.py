"""Selects one of several matching versions, and builds the errors for when none is usable."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from my_datasets.core.logs import get_logger
from my_datasets.core.reference import reference_to
from my_datasets.core.version import VersionNumber, VersionPattern
from my_datasets.errors import (
    VersionBlockedError,
    VersionNotBuildableError,
    VersionNotFoundError,
)
from my_datasets.metadata import layout
from my_datasets.metadata.layout import PreparedVersion
from my_datasets.resolving import available_versions
from my_datasets.resolving.available_versions import Blocked, DeclaredVersions
from my_datasets.storage import addresses

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

_LOGGER = get_logger(__name__)
_told: set[tuple[str, str]] = set()


@dataclass(frozen=True)
class Choice:
    """The prepared version that was selected.

    Attributes:
      version: The newest matching version that is not blocked; None if there is none.
      fitting: All matching versions, newest first.
      blocked: Why some of them are blocked.
    """

    version: PreparedVersion | None
    fitting: Sequence[PreparedVersion]
    blocked: Mapping[PreparedVersion, str]

    def tell(self) -> None:
        """Warns about each newer blocked version that was skipped, once per process."""
        if self.version is not None:
            chosen = self.version
            reasons = {one.version: why for one, why in self.blocked.items()}
            tell(chosen.name, chosen.config, chosen.version, reasons)

    def reasons(self) -> dict[str, str]:
        """Returns the reasons why matching versions are blocked, by version."""
        return {str(one.version): why for one, why in self.blocked.items()}


def tell(
    name: str, config: str | None, chosen: VersionNumber, reasons: Mapping[VersionNumber, str]
) -> None:
    """Warns about each blocked version that is newer than the chosen one, once per process."""
    for version, why in reasons.items():
        whole = f"{name}/{config}:{version}" if config else f"{name}:{version}"
        if version > chosen and (whole, why) not in _told:
            _told.add((whole, why))
            _LOGGER.warning("%s is skipped because it is blocked: %s", whole, why)


def choose(
    pattern: VersionPattern | None, there: Iterable[PreparedVersion], blocked: Blocked
) -> Choice:
    """Selects the newest prepared version that matches a pattern and is not blocked.

    Args:
      pattern: The pattern to match; None matches all versions.
      there: The prepared versions of one dataset and config.
      blocked: The versions that the builder blocks; those that block themselves in their metadata
        are added.
    """
    fitting = sorted(
        (one for one in there if pattern is None or pattern.matches(one.version)),
        key=lambda one: one.version, reverse=True,
    )  # fmt: skip
    reasons: dict[PreparedVersion, str] = {}
    for one in fitting:
        why = blocked.reason(one.version, one.config) or one.metadata.blocked_reason
        if why is None:
            return Choice(one, fitting, reasons)
        reasons[one] = why
    return Choice(None, fitting, reasons)


def picked(builder: "tfds.core.DatasetBuilder", offer: DeclaredVersions, requested: str) -> str:
    """Resolves a wildcard to one of the code's versions; returns anything else unchanged.

    Raises:
      VersionBlockedError: All matching versions are blocked.
    """
    pattern = VersionPattern.parse(requested)
    if pattern is None or pattern.is_exact:
        return requested
    config = builder.builder_config_name
    found = offer.newest(pattern, config)
    reasons = offer.reasons(pattern, config)
    if found is not None:
        tell(builder.name, config, found, reasons)
    elif reasons:
        reason_of = {str(version): why for version, why in reasons.items()}
        raise blocked(f"{builder.name}:{requested}", reason_of, offer.usable(config))
    return str(found) if found else requested


def no_such_version(
    name: str, requested: object, offer: DeclaredVersions, data_dir: str, config: str | None
) -> VersionNotFoundError:
    """Returns the error for a version that the code does not have; it lists those available."""
    return VersionNotFoundError(
        f"Dataset {name!r} has no version {requested}.",
        f"Versions in code: {offer.described(config)}",
        f"Versions prepared in {data_dir}: {prepared(name, config, data_dir)}",
        fix=_ask_for_another(name, config, offer),
    )


def not_buildable(
    builder: "tfds.core.DatasetBuilder", offer: DeclaredVersions
) -> VersionNotBuildableError:
    """Returns the error for a version that is not prepared and that the code can only load."""
    root, config = str(builder.data_dir_root), builder.builder_config_name
    return VersionNotBuildableError(
        f"{reference_to(builder)} is loaded where it is prepared, but today's code does not "
        "build it.",
        f"Versions in code: {offer.described(config)}",
        f"Versions prepared in {root}: {prepared(builder.name, config, root)}",
        fix=f"copy its directory to {builder.data_dir}, build it with the code of its time, "
        f"or {_ask_for_another(builder.name, config, offer)}",
    )


def blocked(
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


def reason(builder: "tfds.core.DatasetBuilder") -> str | None:
    """Returns why the builder itself, or its metadata, blocks its version; None if it does not."""
    return builder.is_blocked().blocked_msg or builder.info.is_blocked or None


def check_not_blocked(builder: "tfds.core.DatasetBuilder") -> None:
    """Checks that a builder's version is not blocked.

    Raises:
      VersionBlockedError: The version is blocked.
    """
    why = reason(builder)
    if why:
        usable = available_versions.of_builder(builder).usable(builder.builder_config_name)
        raise blocked(reference_to(builder), {str(builder.version): why}, usable)


def check_buildable(builder: "tfds.core.DatasetBuilder") -> None:
    """Checks that the code can build a builder's version, not only load it.

    Raises:
      VersionNotBuildableError: The code can only load it.
    """
    offer = available_versions.of_builder(builder)
    if not offer.builds(builder.version):
        raise not_buildable(builder, offer)


def prepared(name: str, config: str | None, data_dir: str) -> str:
    """Returns the prepared versions of a dataset and config, formatted for a message."""
    found = layout.prepared_versions_of(addresses.as_path(data_dir) / name)
    return ", ".join(str(one.version) for one in found if one.config == config) or "none"


def _ask_for_another(name: str, config: str | None, offer: DeclaredVersions) -> str:
    """Returns a fix that names a version that the code builds."""
    usable = [one for one in offer.usable(config) if one in offer.built]
    if not usable:
        return "ask for one that is prepared; all that the code builds are blocked"
    whole = f"{name}/{config}" if config else name
    return f"ask for one of those: my-datasets build {whole}:{usable[0]}"
