"""Resolves a reference to a prepared version in a dataset's folder, without creating a builder."""

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from my_datasets.core.reference import DatasetReference
from my_datasets.errors import NotPreparedError, VersionBlockedError, explain, nearest
from my_datasets.metadata import layout
from my_datasets.metadata.layout import PreparedVersion
from my_datasets.resolving import registry, version_select
from my_datasets.resolving.available_versions import Offer
from my_datasets.resolving.lock import Lock
from my_datasets.storage import addresses


def look_at(reference: DatasetReference, folder: Path, searched: str) -> PreparedVersion:
    """Returns the version to inspect, which need not be usable.

    This is the newest matching version that is not blocked. A version requested exactly is returned
    even if it is blocked.

    Args:
      reference: The requested dataset.
      folder: The dataset's folder in a data directory, or a mirror of its metadata.
      searched: The data directory, for error messages.

    Raises:
      NotPreparedError: No prepared version matches.
      VersionBlockedError: All versions that match a wildcard are blocked.
    """
    return _located(reference, folder, searched, exact_is_enough=True)


def use(
    reference: DatasetReference, folder: Path, searched: str, lock: Lock | None = None
) -> PreparedVersion:
    """Returns the newest matching version that is not blocked.

    Args:
      reference: The requested dataset.
      folder: The dataset's folder in a data directory, or a mirror of its metadata.
      searched: The data directory, for error messages.
      lock: The project's lock, which may pin the version.

    Raises:
      NotPreparedError: No prepared version matches.
      VersionBlockedError: All matching versions are blocked.
    """
    return _located(reference, folder, searched, lock)


def _located(
    reference: DatasetReference,
    folder: Path,
    searched: str,
    lock: Lock | None = None,
    *,
    exact_is_enough: bool = False,
) -> PreparedVersion:
    asked = reference
    reference = lock.exact(asked) if lock is not None else asked
    config = reference.config or layout.default_config(folder)
    there = list(layout.prepared_versions_of(folder))
    of_config = [one for one in there if one.config == config]
    offer = registry.offer_of(reference.name) or Offer()
    pattern = reference.version
    choice = version_select.choose(pattern, of_config, offer.blocked)
    if not choice.fitting:
        raise _not_prepared(reference, offer, there, searched, layout.unreadable_in(folder))
    if exact_is_enough and pattern is not None and pattern.is_exact:
        return choice.fitting[0]
    if choice.version is None:
        locked_by = lock.path if lock is not None and reference != asked else None
        raise _blocked(asked, choice.reasons(), offer, of_config, locked_by)
    choice.tell()
    return choice.version


def _blocked(
    reference: DatasetReference,
    reasons: dict[str, str],
    offer: Offer,
    there: Sequence[PreparedVersion],
    locked_by: Path | None,
) -> VersionBlockedError:
    config = there[0].config
    prepared = [one for one in there if version_select.choose(None, [one], offer.blocked).version]
    versions = {*offer.usable(config), *(one.version for one in prepared)}
    usable = sorted(versions, reverse=True)
    return version_select.blocked(str(reference), reasons, usable, locked_by)


def _not_prepared(
    reference: DatasetReference,
    offer: Offer,
    there: Sequence[PreparedVersion],
    searched: str,
    unreadable: Sequence[str],
) -> NotPreparedError:
    near = _nearest(reference.name, searched) if not there and not offer.versions else ""
    how = _how_to_get(reference, offer, searched)
    config = reference.config or ""
    if reference.version is None and config.replace(".", "").isdecimal():
        near = f"Did you mean '{reference.name}:{config}'? A version follows a colon."
    elif near:
        how = f"name that one; or write a builder for {reference.name!r}: my-datasets new"
    shown = (f"{one.config + ':' if one.config else ''}{one.version}" for one in there)
    is_here = addresses.is_remote(searched) or Path(searched).is_dir()
    nothing = "nothing" if is_here else f"nothing: there is no folder {searched}"
    return NotPreparedError(
        explain(
            f"No prepared data matches {str(reference)!r}.",
            f"Searched: {searched}/{reference.name}",
            f"Prepared there: {', '.join(shown) or nothing}",
            near,
            f"Versions in code: {offer.described(reference.config)}" if offer.versions else "",
            *(f"Not readable: {one}" for one in unreadable),
            fix=f"ask the owner of what is not readable for access; or {how}"
            if unreadable
            else how,
        )
    )


def _nearest(name: str, data_dir: str) -> str:
    """Suggests a dataset of a similar name: a prepared one, or else one with a known builder."""
    prepared: set[str] = set()
    if not addresses.is_remote(data_dir):
        with contextlib.suppress(OSError):
            prepared = {path.name for path in Path(data_dir).iterdir() if path.is_dir()}
    known = set(registry.packaged.datasets)
    tfds = sys.modules.get("tensorflow_datasets")
    if tfds is not None:
        known |= set(tfds.core.registered.list_imported_builders())
    return nearest(name, sorted(prepared)) or nearest(name, sorted(known))


def _how_to_get(reference: DatasetReference, offer: Offer, data_dir: str) -> str:
    """Returns the command that prepares the referenced version, or another one."""
    name = f"{reference.name}/{reference.config}" if reference.config else reference.name
    if not offer.versions:
        return f"my-datasets build {reference} --data-dir {data_dir}"
    usable = [one for one in offer.usable(reference.config) if one in offer.built]
    pattern = reference.version
    fitting = next((one for one in usable if pattern is None or pattern.matches(one)), None)
    if fitting is not None:
        return f"my-datasets build {name}:{fitting} --data-dir {data_dir}"
    another = f", or my-datasets build {name}:{usable[0]} --data-dir {data_dir}" if usable else ""
    return f"ask for one that is prepared{another}; today's code builds none that fits"
