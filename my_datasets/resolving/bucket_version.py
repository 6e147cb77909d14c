"""Reads versions in an object store, with a few shards at a time on this machine.

The version's metadata are copied to a directory that looks like a local data directory; shards and
their record indexes are fetched into a cache when needed, and read through links.
"""

import contextlib
import functools
import hashlib
import os
import posixpath
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow.fs as pafs

from my_datasets.errors import CorruptShardError, DataDirError, NotPreparedError
from my_datasets.metadata import layout, sidecars
from my_datasets.metadata.dataset_info import is_plain_name
from my_datasets.metadata.manifest import Manifest
from my_datasets.metadata.sidecars import Sidecar
from my_datasets.resolving.shard_fetcher import CACHED_WINDOWS, WINDOW, ShardFetcher
from my_datasets.storage import addresses
from my_datasets.storage.file_systems import file_system
from my_datasets.storage.regular_files import replaced
from my_datasets.storage.shard_cache import RemoteFile, ShardCache
from my_datasets.storage.user_folders import cache_folder
from my_datasets.storage.verified_files import verified_files

_METADATA = (".json", ".txt", ".tsv")
_AT_ONCE = 4 << 20
# Beside the copy of a version: the cache of its shards.
_SHARDS = ".shards"


class BucketFile(NamedTuple):
    """A file in an object store.

    Attributes:
      size: In bytes.
      modified: When it was written, in nanoseconds since 1970; 0 if unknown.
    """

    size: int
    modified: int

    def cached(self, url: str, sha256: str | None = None) -> RemoteFile:
        """Returns the file for a cache, keyed by its SHA-256, or by another hash."""
        stands_for = hashlib.sha256(f"{url} {self.size} {self.modified}".encode()).hexdigest()
        return RemoteFile(self.size, sha256, sha256 or stands_for)


@dataclass(frozen=True)
class BucketVersion:
    """A version in an object store, as the provider of its shards: see `ShardProvider`.

    Attributes:
      url: Its folder in the store.
      directory: The copy of its metadata.
      stored: Its files in the store, by name.
      shards_dir: The directory for copies.
      max_cached_shards: The default number of shards to keep there.
    """

    url: str
    directory: Path
    stored: Mapping[str, BucketFile]
    shards_dir: str
    max_cached_shards: int

    @classmethod
    def open(cls, url: str, shards_dir: str | os.PathLike[str] | None = None) -> "BucketVersion":
        """Returns the version in a folder of an object store, after copying its metadata.

        Args:
          url: The folder.
          shards_dir: Where copies are kept; a folder of the user's cache if None.

        Raises:
          NotPreparedError: There is no prepared version.
          DataDirError: The store cannot be listed.
        """
        path, files = mirror(url, shards_dir)
        if not layout.is_prepared(path):
            raise NotPreparedError(
                f"{url} is no prepared version.", fix="give the folder of a whole one"
            )
        return cls(url, path, files, os.fspath(_cache_dir(shards_dir)), WINDOW * CACHED_WINDOWS)

    @property
    def address(self) -> str:
        """The URL."""
        return self.url

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each file, in bytes."""
        return {name: one.size for name, one in self.stored.items()}

    @property
    def modified(self) -> int:
        """The time of the last write to any file, in nanoseconds since the epoch."""
        return max((one.modified for one in self.stored.values()), default=0)

    @functools.cached_property
    def files(self) -> dict[str, RemoteFile]:
        """The files as a cache holds them; the manifest says the SHA-256 of shards."""
        made = Manifest.read(self.directory)
        splits = made.content.splits.values() if made and made.content else ()
        sha256 = {one.name: one.sha256 for some in splits for one in some.shards}
        return {
            name: one.cached(f"{self.url}/{name}", sha256.get(name))
            for name, one in self.stored.items()
        }

    def fetcher(self, names: Collection[str], max_cached_shards: int | None) -> ShardFetcher:
        """Returns what fetches some of the shards; see `ShardProvider`."""
        most = max_cached_shards or self.max_cached_shards
        groups = [
            [self.files[one] for one in (*self.beside(name), name) if one in self.files]
            for name in names
        ]
        sizes = sorted((sum(one.bytes for one in group) for group in groups), reverse=True)
        # Shards of other splits come and go by themselves.
        others = {one.key for one in self.files.values()}
        others.difference_update(one.key for group in groups for one in group)
        folder = self.directory.parent / _SHARDS
        _require_no_links(folder.parent, [folder])
        return ShardFetcher(self, ShardCache(folder, sum(sizes[:most]), others), max_open=most)

    def beside(self, name: str) -> list[str]:
        """Returns the names of the record indexes of a shard."""
        return [one for one in sidecars.names_of(name, Sidecar.OFFSETS) if one in self.stored]

    def read(self, name: str) -> Iterator[bytes]:
        """Yields a file as the store has it, or as an earlier version of this package copied it.

        Raises:
          CorruptShardError: The file is missing.
        """
        copy = self.directory / name
        if self.files[name].is_at(copy):
            with copy.open("rb") as file:
                while data := file.read(_AT_ONCE):
                    yield data
        else:
            yield from _read(f"{self.url}/{name}")

    def damaged(self, name: str, found: str) -> CorruptShardError:
        """Returns the error for a file with other contents than expected."""
        return _changed(f"{self.url}/{name}", found, is_recorded=bool(self.files[name].sha256))

    def place(self, name: str, cached: Path) -> None:
        """Makes the link by which readers find a file."""
        link = self.directory / name
        with contextlib.suppress(FileNotFoundError):
            if link.is_symlink() and link.samefile(cached):
                return
        if cached.exists():
            new = link.with_name(f".{secrets.token_hex(8)}.partial")
            new.symlink_to(os.path.relpath(cached, link.parent))
            new.replace(link)


def mirror(
    url: str, shards_dir: str | os.PathLike[str] | None = None
) -> tuple[Path, dict[str, BucketFile]]:
    """Copies the metadata of datasets or versions from an object store.

    Args:
      url: Of a dataset's folder in a data directory, or that of a version.
      shards_dir: Where to, and where shards will be; a folder of the user's cache if None.

    Returns:
      The copy of that folder, and each file in the store by its relative path.

    Raises:
      NotPreparedError: There is nothing.
      DataDirError: The store cannot be listed, or the URL has a password in it.
    """
    if ":" in url.partition("://")[2].partition("@")[0] and "@" in url:
        raise DataDirError(
            "The URL of an object store has a password in it.",
            fix="give it by the environment, as the store's own tools take it",
        )
    directory = _cache_dir(shards_dir)
    try:
        system, path = file_system(url)  # which asks S3 for the bucket's region
        found = system.get_file_info(pafs.FileSelector(path, recursive=True, allow_not_found=True))
    except OSError as error:
        raise DataDirError(
            f"{url} cannot be listed: {error}",
            fix="correct the URL, and give the store's credentials by the environment",
        ) from error
    local = directory / hashlib.sha256(url.encode()).hexdigest()[:16] / posixpath.basename(path)
    files = {
        _name_in(url, path, one.path): BucketFile(one.size, one.mtime_ns or 0)
        for one in found
        if one.type == pafs.FileType.File and not one.path.endswith("/")
    }
    if not files:
        raise NotPreparedError(f"There is nothing at {url}.", fix="correct the URL")
    _require_no_links(directory, {(local / name).parent for name in files})
    for name, one in files.items():
        if name.endswith(_METADATA):
            _fetch(f"{url.rstrip('/')}/{name}", local / name, one)
    for old in local.rglob("*"):
        # Also links to record indexes: a version that was written anew may have none.
        is_copy = old.name.endswith(_METADATA) or sidecars.kind_of(old.name) is not None
        if is_copy and old.relative_to(local).as_posix() not in files:
            old.unlink(missing_ok=True)  # another process may have removed it just now
    return local, files


def _cache_dir(shards_dir: str | os.PathLike[str] | None) -> Path:
    if not shards_dir:
        return cache_folder("shards")
    return Path(os.path.abspath(addresses.local_path(shards_dir, "shards_dir")))


def _name_in(url: str, folder: str, path: str) -> str:
    """Returns the path of a file relative to its folder, which it does not leave."""
    name = path.removeprefix(f"{folder.rstrip('/')}/")
    if name == path or not all(map(is_plain_name, name.split("/"))):
        raise DataDirError(
            f"{url} lists a file that is not in it: {path[:200]!r}.",
            fix="ask who writes there; nothing was copied",
        )
    return name


def _require_no_links(root: Path, folders: Iterable[Path]) -> None:
    """Refuses to write into folders that are links, or below one."""
    real = Path(os.path.realpath(root))
    for folder in folders:
        if Path(os.path.realpath(folder)) != real / folder.relative_to(root):
            raise DataDirError(
                f"{folder} is a link, or in one.",
                "Copies are only kept in folders that were made for them",
                fix=f"delete the link, or give another shards_dir than {root}",
            )


def _fetch(url: str, path: Path, stored: BucketFile) -> None:
    """Copies a file atomically, unless the copy is up to date."""
    remote = stored.cached(url)
    if remote.is_at(path):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with replaced(path, fsync=False) as target:
        for data in _read(url):
            target.write(data)
        if target.tell() != stored.size:
            raise _changed(url, f"{target.tell():,} bytes came; expected {stored.size:,}")
    verified_files().remember(path, remote.key)


def _read(url: str) -> Iterator[bytes]:
    system, remote = file_system(url)
    try:
        source = system.open_input_stream(remote)
    except FileNotFoundError as error:
        raise _changed(url, "it is not there") from error
    with source:
        while data := source.read(_AT_ONCE):
            yield data


def _changed(url: str, found: str, *, is_recorded: bool = False) -> CorruptShardError:
    expected = "what the manifest says" if is_recorded else "the file that was there"
    return CorruptShardError(
        f"{url} is not {expected}: {found}.",
        fix="check whether another process is writing there, then start again",
    )
