"""Resolves a reference to a prepared version, without creating a builder."""

import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from my_datasets.core.reference import DatasetReference
from my_datasets.errors import (
    NotPreparedError,
    VersionBlockedError,
    in_an_object_store,
    nearest,
)
from my_datasets.metadata import layout
from my_datasets.metadata.layout import PreparedVersion
from my_datasets.metadata.version_metadata import VersionMetadata
from my_datasets.resolving import registry, version_select
from my_datasets.resolving.available_versions import DeclaredVersions
from my_datasets.resolving.request import Request
from my_datasets.storage import addresses

# A dataset, or the directory of a version of it.
Reference = str | os.PathLike[str] | DatasetReference
_DEFAULT_DATA_DIR = "~/tensorflow_datasets"


def root_of(data_dir: str | os.PathLike[str] | None) -> str:
    """Returns the data directory to use: TFDS's default if None.

    Raises:
      InvalidOptionError: It is neither a path nor an address.
    """
    found = data_dir or os.environ.get("TFDS_DATA_DIR") or _DEFAULT_DATA_DIR
    return addresses.path_or_address(found, "The data directory", None)


@dataclass(frozen=True)
class ResolvedVersion:
    """The prepared version that a reference means.

    Attributes:
      metadata: Its metadata, read at most once.
      request: The reference and the lock by which it was chosen; None if its directory was given.
    """

    metadata: VersionMetadata
    request: Request | None = None

    @property
    def path(self) -> Path:
        """The directory of its metadata, and of its shards unless a release is attached there."""
        return self.metadata.path

    def check_lock(self) -> None:
        """Checks the metadata and the shards against the lock, if one applies: `Request.check`."""
        if self.request is not None:
            self.request.check(self.metadata, has_shards=True)


def resolve(
    reference: Reference, data_dir: str | os.PathLike[str] | None = None
) -> ResolvedVersion:
    """Returns the prepared version on this machine that a reference means, to use it.

    Args:
      reference: For example `digits:1.*.*`; or the directory of a prepared version.
      data_dir: The data directory; TFDS's default if None.

    Raises:
      InvalidReferenceError: `reference` is malformed.
      NotPreparedError, VersionBlockedError, DataDirError: As `resolve_request`.
    """
    meant = directory_or_reference(reference, data_dir)
    if isinstance(meant, Path):
        return ResolvedVersion(VersionMetadata(meant))
    return resolve_request(Request.of(meant), data_dir, to_use=True)


def resolve_request(
    request: Request, data_dir: str | os.PathLike[str] | None = None, *, to_use: bool = False
) -> ResolvedVersion:
    """Returns what `find_version` finds in a data directory on this machine.

    Raises:
      NotPreparedError, VersionBlockedError: As `find_version`.
      DataDirError: The data directory is in an object store.
    """
    where = root_of(data_dir)
    if addresses.is_remote(where):
        raise in_an_object_store(where)
    root = Path(where).expanduser()
    found = find_version(request, root / request.exact.name, str(root), to_use=to_use)
    return ResolvedVersion(found.metadata, request)


def version_dir(
    reference: Reference,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    use_lock: bool = True,
) -> Path:
    """Returns the directory of a prepared version on this machine, to inspect it.

    Args:
      reference: For example `digits:1.*.*`; or the directory of a version, whether or not its
        metadata can be read.
      data_dir: The data directory; TFDS's default if None.
      use_lock: Whether the project's lock says which version a reference means. Its bytes are not
        compared with the lock.

    Raises:
      InvalidReferenceError, NotPreparedError, VersionBlockedError, DataDirError: As `resolve`; but
        an exact version is returned even if it is blocked.
    """
    path = given_directory(reference)
    if path is not None and path.is_dir():
        return path
    text = os.fspath(reference) if isinstance(reference, os.PathLike) else reference
    return resolve_request(Request.of(text, use_lock=use_lock), data_dir).path


def directory_or_reference(
    reference: Reference, data_dir: str | os.PathLike[str] | None = None
) -> Path | DatasetReference:
    """Returns the directory of a version, or the reference, whichever was given.

    Args:
      reference: A reference; or the directory of a prepared version.
      data_dir: The data directory: with one, only references are accepted.

    Raises:
      InvalidReferenceError: It is neither.
      NotPreparedError: It is the path of something else.
    """
    if isinstance(reference, DatasetReference):
        return reference
    is_path, text = isinstance(reference, os.PathLike), os.fspath(reference)
    if data_dir is None and (is_path or os.sep in text):
        path = addresses.local_path(text, "The version")
        if layout.is_prepared(path):
            return path
    if (is_path and os.sep in text) or text.startswith((os.sep, ".", "~")):
        raise NotPreparedError(

                f"{text} is no prepared version.",
                "A path is one of a version's directory: data_dir has no effect"
                if data_dir is not None else "",
                fix="give the directory of a version, such as data/digits/1.0.0, or a name"
        )  # fmt: skip
    return DatasetReference.parse(text)


def given_directory(reference: Reference) -> Path | None:
    """Returns the path if the reference is a path; None if it is the name of a dataset.

    A string with a slash may be either, such as `data/digits` or a dataset with a config.
    """
    if isinstance(reference, os.PathLike):
        return Path(reference).expanduser()
    text = str(reference)
    return Path(text).expanduser() if os.sep in text else None


def find_version(
    request: Request, folder: Path, searched: str, *, to_use: bool = True
) -> PreparedVersion:
    """Returns the newest matching version that is not blocked.

    Args:
      request: The requested dataset.
      folder: The dataset's folder in a data directory, or a mirror of its metadata.
      searched: The data directory, for error messages.
      to_use: Whether the version is to be used. To inspect one, a version that is requested exactly
        is returned even if it is blocked.

    Raises:
      NotPreparedError: No prepared version matches.
      VersionBlockedError: All matching versions are blocked.
    """
    reference = request.exact
    config = reference.config or layout.default_config(folder)
    prepared_versions = list(layout.prepared_versions_of(folder))
    of_config = [one for one in prepared_versions if one.config == config]
    offer = registry.offer_of(reference.name) or DeclaredVersions()
    pattern = reference.version
    choice = version_select.choose(pattern, of_config, offer.blocked)
    if not choice.fitting:
        raise _not_prepared(
            reference, offer, prepared_versions, searched, layout.unreadable_in(folder)
        )
    if not to_use and pattern is not None and pattern.is_exact:
        return choice.fitting[0]
    if choice.version is None:
        raise _blocked(request, choice.reasons(), offer, of_config)
    choice.tell()
    return choice.version


def _blocked(
    request: Request,
    reasons: dict[str, str],
    offer: DeclaredVersions,
    prepared_versions: Sequence[PreparedVersion],
) -> VersionBlockedError:
    config = prepared_versions[0].config
    prepared = [
        one
        for one in prepared_versions
        if version_select.choose(None, [one], offer.blocked).version
    ]
    versions = {*offer.usable(config), *(one.version for one in prepared)}
    usable = sorted(versions, reverse=True)
    return version_select.blocked(str(request.reference), reasons, usable, request.locked_by)


def _not_prepared(
    reference: DatasetReference,
    offer: DeclaredVersions,
    prepared_versions: Sequence[PreparedVersion],
    searched: str,
    unreadable: Sequence[str],
) -> NotPreparedError:
    near = (
        _nearest(reference.name, searched) if not prepared_versions and not offer.versions else ""
    )
    how = _how_to_get(reference, offer, searched)
    config = reference.config or ""
    if reference.version is None and config.replace(".", "").isdecimal():
        near = f"Did you mean '{reference.name}:{config}'? A version follows a colon."
    elif near:
        how = f"name that one; or write a builder for {reference.name!r}: my-datasets new"
    shown = (f"{one.config + ':' if one.config else ''}{one.version}" for one in prepared_versions)
    is_here = addresses.is_remote(searched) or Path(searched).is_dir()
    nothing = "nothing" if is_here else f"nothing: there is no folder {searched}"
    return NotPreparedError(
        f"No prepared data matches {str(reference)!r}.",
        f"Searched: {searched}/{reference.name}",
        f"Prepared there: {', '.join(shown) or nothing}",
        near,
        f"Versions in code: {offer.described(reference.config)}" if offer.versions else "",
        *(f"Not readable: {one}" for one in unreadable),
        fix=f"ask the owner of unreadable versions for access; or {how}" if unreadable else how,
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


def _how_to_get(reference: DatasetReference, offer: DeclaredVersions, data_dir: str) -> str:
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
