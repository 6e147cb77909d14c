"""Which version is meant where there are several, and what is said where none is left."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from my_datasets.builders.refusals import reference_to
from my_datasets.builders.resolving import available_versions
from my_datasets.builders.resolving.available_versions import Offer
from my_datasets.core.logs import get_logger
from my_datasets.core.version import Version, VersionPattern
from my_datasets.errors import (
    VersionBlockedError,
    VersionNotBuildableError,
    VersionNotFoundError,
    explain,
)
from my_datasets.metadata import layout
from my_datasets.metadata.layout import PreparedVersion
from my_datasets.resolving.blocked import Blocked, reason_in_metadata
from my_datasets.storage import addresses

_LOGGER = get_logger(__name__)
_told: set[tuple[str, str]] = set()


@dataclass(frozen=True)
class Choice:
    """What is meant, out of what is prepared.

    Attributes:
      version: The newest version that fits and may be used; None if there is none.
      fitting: All that fit, the newest first.
      blocked: Why some of those must not be used.
    """

    version: PreparedVersion | None
    fitting: Sequence[PreparedVersion]
    blocked: Mapping[PreparedVersion, str]

    def tell(self) -> None:
        """Logs a warning of each newer version that is passed over, once in a process."""
        if self.version is not None:
            chosen = self.version
            reasons = {one.version: why for one, why in self.blocked.items()}
            tell(chosen.name, chosen.config, chosen.version, reasons)

    def reasons(self) -> dict[str, str]:
        """Returns why some must not be used, by version."""
        return {str(one.version): why for one, why in self.blocked.items()}


def tell(name: str, config: str | None, chosen: Version, reasons: Mapping[Version, str]) -> None:
    """Logs a warning of each version that is newer than the chosen one, once in a process.

    Args:
      name: The dataset.
      config: Its config.
      chosen: The version that is taken.
      reasons: Why others are blocked.
    """
    for version, why in reasons.items():
        whole = f"{name}/{config}:{version}" if config else f"{name}:{version}"
        if version > chosen and (whole, why) not in _told:
            _told.add((whole, why))
            _LOGGER.warning("%s is passed over, as it is blocked: %s", whole, why)


def choose(
    pattern: VersionPattern | None, there: Iterable[PreparedVersion], blocked: Blocked
) -> Choice:
    """Returns what a pattern means.

    Args:
      pattern: The versions that fit; all of them if None.
      there: The versions of one dataset and config that are prepared.
      blocked: Those that the builder blocks; what their own metadata say is added.
    """
    fitting = sorted(
        (one for one in there if pattern is None or pattern.matches(one.version)),
        key=lambda one: one.version, reverse=True,
    )  # fmt: skip
    reasons: dict[PreparedVersion, str] = {}
    for one in fitting:
        why = blocked.reason(one.version, one.config) or reason_in_metadata(one.path)
        if why is None:
            return Choice(one, fitting, reasons)
        reasons[one] = why
    return Choice(None, fitting, reasons)


def picked(builder: Any, offer: Offer, requested: str) -> str:
    """Returns the version of the code that a wildcard means; what is no wildcard as it is.

    Args:
      builder: The `tfds.core.DatasetBuilder`.
      offer: The versions that it offers.
      requested: What was asked for.

    Raises:
      VersionBlockedError: All versions that fit are blocked.
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
        told = {str(version): why for version, why in reasons.items()}
        raise blocked(f"{builder.name}:{requested}", told, offer.usable(config))
    return str(found) if found else requested


def no_such_version(
    name: str, requested: object, offer: Offer, data_dir: str, config: str | None
) -> VersionNotFoundError:
    """Returns the error for a version that the code does not have; it names those that are.

    Args:
      name: The dataset.
      requested: The version that was asked for.
      offer: The versions that the builder offers.
      data_dir: Where versions may be prepared.
      config: The builder config that was asked for.
    """
    return VersionNotFoundError(
        explain(
            f"Dataset {name!r} has no version {requested}.",
            f"Versions in code: {offer.described(config)}",
            f"Versions prepared in {data_dir}: {prepared(name, config, data_dir)}",
            fix=_ask_for_another(name, config, offer),
        )
    )


def not_buildable(builder: Any, offer: Offer) -> VersionNotBuildableError:
    """Returns the error for a version that is not prepared, and that the code only loads.

    Args:
      builder: The `tfds.core.DatasetBuilder`.
      offer: The versions that it offers.
    """
    root, config = str(builder.data_dir_root), builder.builder_config_name
    return VersionNotBuildableError(
        explain(
            f"{reference_to(builder)} is loaded where it is prepared, but today's code does not "
            "build it.",
            f"Versions in code: {offer.described(config)}",
            f"Versions prepared in {root}: {prepared(builder.name, config, root)}",
            fix=f"copy its directory to {builder.data_dir}, build it with the code of its time, "
            f"or {_ask_for_another(builder.name, config, offer)}",
        )
    )


def blocked(
    reference: str,
    reasons: Mapping[str, str],
    usable: Iterable[object],
    locked_by: Path | None = None,
) -> VersionBlockedError:
    """Returns the error for what must not be used.

    Args:
      reference: What was asked for.
      reasons: Why, by each version that it means.
      usable: The versions that may be used.
      locked_by: The lock that says that the reference means that version, if one does.
    """
    instead = ", ".join(map(str, usable))
    fix = "ask for one of those" if instead else "wait for a version that is not blocked"
    if locked_by is not None:
        fix = f"my-datasets lock {reference} looks it up anew; or {fix}"
    return VersionBlockedError(
        explain(
            f"{reference!r} must not be used: it is blocked.",
            *(f"{version}: {why}" for version, why in reasons.items()),
            f"Versions that are not blocked: {instead or 'none'}",
            f"It is locked by {locked_by}" if locked_by else "",
            fix=f"{fix}; to look at the data all the same, give their directory to "
            "tfds.builder_from_directory",
        )
    )


def reason(builder: Any) -> str | None:
    """Returns why what a builder stands for must not be used, as it says itself; or None.

    Args:
      builder: The `tfds.core.DatasetBuilder`.
    """
    return builder.is_blocked().blocked_msg or builder.info.is_blocked or None


def check_not_blocked(builder: Any) -> None:
    """Sees that what a builder builds or loads may be used.

    Args:
      builder: The `tfds.core.DatasetBuilder`.

    Raises:
      VersionBlockedError: It must not be.
    """
    why = reason(builder)
    if why:
        usable = available_versions.of_builder(builder).usable(builder.builder_config_name)
        raise blocked(reference_to(builder), {str(builder.version): why}, usable)


def check_buildable(builder: Any) -> None:
    """Sees that the code builds a version, and does not only load it.

    Args:
      builder: The `tfds.core.DatasetBuilder`.

    Raises:
      VersionNotBuildableError: It only loads it.
    """
    offer = available_versions.of_builder(builder)
    if not offer.builds(builder.version):
        raise not_buildable(builder, offer)


def prepared(name: str, config: str | None, data_dir: str) -> str:
    """Returns the versions of a dataset and config that are prepared, for a message."""
    found = layout.prepared_versions_of(addresses.as_path(data_dir) / name)
    return ", ".join(str(one.version) for one in found if one.config == config) or "none"


def _ask_for_another(name: str, config: str | None, offer: Offer) -> str:
    """Returns how to get a version that the code builds."""
    usable = [one for one in offer.usable(config) if one in offer.built]
    if not usable:
        return "ask for one that is prepared; all that the code builds are blocked"
    whole = f"{name}/{config}" if config else name
    return f"ask for one of those: my-datasets build {whole}:{usable[0]}"
