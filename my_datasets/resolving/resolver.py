"""Resolves a reference to the prepared version that it means, and to where its shards are."""

import contextlib
import functools
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from my_datasets.core.reference import DatasetReference
from my_datasets.errors import (
    DataDirError,
    NotPreparedError,
    VersionBlockedError,
    in_an_object_store,
    nearest,
)
from my_datasets.metadata import layout
from my_datasets.metadata.layout import PreparedVersion
from my_datasets.metadata.version_metadata import VersionMetadata
from my_datasets.records.attachments import is_attached
from my_datasets.resolving import registry, version_select
from my_datasets.resolving.lock import Lock
from my_datasets.resolving.version_select import DeclaredVersions
from my_datasets.storage import addresses

# What reads object stores and attached releases loads pyarrow and NumPy.
if TYPE_CHECKING:
    from my_datasets.resolving.bucket_version import BucketVersion
    from my_datasets.resolving.shard_fetcher import ShardProvider

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
class Request:
    """A reference as the user wrote it, with the lock that applies to it.

    Every entry point makes one of these and passes it on, so a reference means the same everywhere.

    Attributes:
      reference: The reference.
      lock: The project's lock; None if the project has no lock, or ignores it.
    """

    reference: DatasetReference
    lock: Lock | None = None

    @classmethod
    def of(cls, reference: str | DatasetReference, *, use_lock: bool = True) -> "Request":
        """Returns the request for a reference.

        Args:
          reference: For example `digits:1.*.*`.
          use_lock: Whether the project's lock applies.

        Raises:
          InvalidReferenceError: `reference` is malformed.
          LockError: The lock cannot be read.
        """
        return cls(DatasetReference.of(reference), Lock.find() if use_lock else None)

    @property
    def exact(self) -> DatasetReference:
        """The exact version if the reference is locked, else the reference itself."""
        return self.lock.exact(self.reference) if self.lock is not None else self.reference

    @property
    def is_locked(self) -> bool:
        """Whether the lock has an entry for the reference."""
        return self.lock is not None and str(self.reference) in self.lock.datasets

    @property
    def locked_by(self) -> Path | None:
        """The lock file, if it makes the reference mean something else than it says."""
        return self.lock.path if self.lock is not None and self.exact != self.reference else None

    def check(self, version: Path | VersionMetadata, *, has_shards: bool) -> None:
        """Checks that a version matches the lock; see `Lock.check`.

        Raises:
          LockError: It does not.
          CorruptShardError: A record index does not match its shard.
          IncompleteVersionError: Its manifest cannot be read.
        """
        if self.lock is not None:
            self.lock.check(self.reference, version, has_shards=has_shards)

    def check_digest(self, digest: str, place: str) -> None:
        """Checks the digest that a store reports for a release; see `Lock.check_digest`.

        Raises:
          LockError: It does not match the lock.
        """
        if self.lock is not None:
            self.lock.check_digest(self.reference, digest, place)


@dataclass(frozen=True)
class ResolvedVersion(os.PathLike[str]):
    """The prepared version that a reference means; usable as its directory or its address.

    Attributes:
      metadata: Its metadata, read at most once.
      request: The reference and the lock by which it was chosen; None if its directory was given.
      bucket: Where it is in an object store; None if it is in a directory of this machine.
    """

    metadata: VersionMetadata
    request: Request | None = None
    bucket: "BucketVersion | None" = None

    def __fspath__(self) -> str:
        return self.url

    @property
    def path(self) -> Path:
        """The directory of its metadata, and of its shards unless it has a `provider`."""
        return self.metadata.path

    @property
    def url(self) -> str:
        """Its address in an object store, or its directory as text."""
        return self.bucket.url if self.bucket is not None else str(self.path)

    @functools.cached_property
    def provider(self) -> "ShardProvider | None":
        """What fetches its shards; None if they are in its directory.

        Raises:
          NotPreparedError: The directory says that its shards are elsewhere, but was not attached
            on this machine.
        """
        if self.bucket is not None or not is_attached(self.path):
            return self.bucket
        from my_datasets.resolving.attached_release import AttachedRelease

        return AttachedRelease(self.path)

    def local_dir(self) -> Path:
        """Returns its directory, for what needs all files on this machine.

        Raises:
          DataDirError: It is in an object store.
        """
        if self.bucket is not None:
            raise in_an_object_store(self.url)
        return self.path

    def require_tfrecords(self) -> None:
        """Checks that this package, and not only TFDS, can read its shards.

        Raises:
          DataDirError: They are of another format than TFRecord.
        """
        form = self.metadata.declared.file_format
        if form != "tfrecord":
            raise DataDirError(
                f"{self.url} has {form} files.",
                "Expected: TFRecords",
                fix="read it by TFDS's as_data_source, or build it with file_format='tfrecord'",
            )

    def check_lock(self) -> None:
        """Checks it against the lock, if one applies; its shards too if they are on this machine.

        Raises:
          LockError, CorruptShardError, IncompleteVersionError: As `Request.check`.
        """
        if self.request is not None:
            self.request.check(self.metadata, has_shards=self.bucket is None)


def resolve(
    reference: Reference,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    shards_dir: str | os.PathLike[str] | None = None,
) -> ResolvedVersion:
    """Returns the prepared version that a reference means, to use it.

    Call `check_lock` on it, once its metadata is known to be readable.

    Args:
      reference: For example `digits:1.*.*`; or the directory of a prepared version, which may be in
        an object store.
      data_dir: The data directory, which may be in an object store; TFDS's default if None.
      shards_dir: Where files of an object store are cached; a folder of the user's cache if None.

    Raises:
      InvalidReferenceError: `reference` is malformed.
      NotPreparedError, VersionBlockedError: As `find_version`.
      DataDirError: The object store cannot be read.
    """
    if isinstance(reference, ResolvedVersion):
        return reference
    if data_dir is None and isinstance(reference, (str, os.PathLike)):
        text = os.fspath(reference)
        if addresses.is_remote(text):
            return _in_bucket(text, shards_dir)
    meant = directory_or_reference(reference, data_dir)
    if isinstance(meant, Path):
        return ResolvedVersion(VersionMetadata(meant))
    request, root = Request.of(meant), root_of(data_dir)
    if not addresses.is_remote(root):
        return resolve_request(request, data_dir, to_use=True)
    from my_datasets.resolving.bucket_version import mirror

    url = f"{root.rstrip('/')}/{request.exact.name}"
    folder, _ = mirror(url, shards_dir)
    found = find_version(request, folder, root)
    return _in_bucket(f"{url}/{found.path.relative_to(folder).as_posix()}", shards_dir, request)


def resolve_request(
    request: Request, data_dir: str | os.PathLike[str] | None = None, *, to_use: bool = False
) -> ResolvedVersion:
    """Returns what `find_version` finds in a data directory on this machine.

    Raises:
      NotPreparedError, VersionBlockedError: As `find_version`.
      DataDirError: The data directory is in an object store.
    """
    root = root_of(data_dir)
    if addresses.is_remote(root):
        raise in_an_object_store(root)
    local = str(Path(root).expanduser())
    found = find_version(request, Path(local, request.exact.name), local, to_use=to_use)
    return ResolvedVersion(found.metadata, request)


def _in_bucket(
    url: str, shards_dir: str | os.PathLike[str] | None, request: Request | None = None
) -> ResolvedVersion:
    from my_datasets.resolving.bucket_version import BucketVersion

    bucket = BucketVersion.open(url, shards_dir)
    return ResolvedVersion(VersionMetadata(bucket.directory), request, bucket)


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
      InvalidReferenceError, NotPreparedError, VersionBlockedError: As `resolve`; but an exact
        version is returned even if it is blocked.
      DataDirError: The data directory is in an object store.
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
            return path.absolute()
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
    declared = registry.declared_versions(reference.name) or DeclaredVersions()
    pattern = reference.version
    choice = version_select.select_prepared(pattern, of_config, declared.blocked)
    if not choice.fitting:
        raise _not_prepared(
            reference, declared, prepared_versions, searched, layout.unreadable_in(folder)
        )
    if not to_use and pattern is not None and pattern.is_exact:
        return choice.fitting[0]
    if choice.version is None:
        raise _blocked(request, choice.reasons(), declared, of_config)
    choice.warn_of_skipped()
    return choice.version


def _blocked(
    request: Request,
    reasons: dict[str, str],
    declared: DeclaredVersions,
    prepared_versions: Sequence[PreparedVersion],
) -> VersionBlockedError:
    config = prepared_versions[0].config
    prepared = [
        one
        for one in prepared_versions
        if version_select.select_prepared(None, [one], declared.blocked).version
    ]
    versions = {*declared.usable(config), *(one.version for one in prepared)}
    usable = sorted(versions, reverse=True)
    return version_select.blocked_error(str(request.reference), reasons, usable, request.locked_by)


def _not_prepared(
    reference: DatasetReference,
    declared: DeclaredVersions,
    prepared_versions: Sequence[PreparedVersion],
    searched: str,
    unreadable: Sequence[str],
) -> NotPreparedError:
    near = (
        _nearest(reference.name, searched)
        if not prepared_versions and not declared.versions
        else ""
    )
    how = _how_to_get(reference, declared, searched)
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
        f"Versions in code: {declared.described(reference.config)}" if declared.versions else "",
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


def _how_to_get(reference: DatasetReference, declared: DeclaredVersions, data_dir: str) -> str:
    """Returns the command that prepares the referenced version, or another one."""
    name = f"{reference.name}/{reference.config}" if reference.config else reference.name
    if not declared.versions:
        return f"my-datasets build {reference} --data-dir {data_dir}"
    usable = [one for one in declared.usable(reference.config) if one in declared.built]
    pattern = reference.version
    fitting = next((one for one in usable if pattern is None or pattern.matches(one)), None)
    if fitting is not None:
        return f"my-datasets build {name}:{fitting} --data-dir {data_dir}"
    another = f", or my-datasets build {name}:{usable[0]} --data-dir {data_dir}" if usable else ""
    return f"ask for one that is prepared{another}; today's code builds none that fits"
