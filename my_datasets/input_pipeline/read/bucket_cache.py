"""Shards of a version in an object store, of which a few at a time lie on this machine.

The version's metadata are copied to a directory that looks like a local data directory; shards come
when they are wanted, and leave when others do.
"""

import contextlib
import hashlib
import os
import posixpath
import secrets
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.fs as pafs

from my_datasets.errors import CorruptShardError, DataDirError, NotPreparedError, explain
from my_datasets.metadata import sidecars
from my_datasets.metadata.dataset_info import is_plain_name
from my_datasets.metadata.file_hashes import check_indexes
from my_datasets.metadata.manifest import Manifest
from my_datasets.metadata.sidecars import Sidecar
from my_datasets.storage.file_systems import file_system
from my_datasets.storage.verified_files import verified_files

_METADATA = (".json", ".txt", ".tsv")
_AT_ONCE = 4 << 20
_PARTIAL = ".partial"
# Seconds after which nobody goes on with such a file.
_ABANDONED = 3600
_spools: "weakref.WeakValueDictionary[tuple[Any, ...], Spool]" = weakref.WeakValueDictionary()
_spools_lock = threading.Lock()
# Shards that are fetched at the same time, which is more than one connection gives.
_CONNECTIONS = 4


class BucketFile(NamedTuple):
    """A file in an object store.

    Attributes:
      size: In bytes.
      modified: When it was written, in nanoseconds since 1970; 0 if the store does not tell.
    """

    size: int
    modified: int


@dataclass(frozen=True)
class ObjectStore:
    """A version in an object store, as the origin of its shards: see `on_demand.Origin`.

    Attributes:
      url: Its folder there.
      directory: The copy of its metadata.
      files: Its files there, by name.
      held_at: Where copies lie.
      most: How many shards may lie there if nobody says how many.
    """

    url: str
    directory: Path
    files: Mapping[str, BucketFile]
    held_at: str
    most: int

    @property
    def address(self) -> str:
        """The URL."""
        return self.url

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each file, in bytes."""
        return {name: one.size for name, one in self.files.items()}

    @property
    def modified(self) -> int:
        """When a file was written last, in nanoseconds of the epoch."""
        return max((one.modified for one in self.files.values()), default=0)

    def bringer(self, names: Collection[str], held: int | None) -> "Spool":
        """Returns what brings some of the shards."""
        wanted = {one for name in names for one in (name, *_indexes_of(name))}
        files = {name: one for name, one in self.files.items() if name in wanted}
        return spool_of(self.url, self.directory, files, held or self.most)


def mirror(url: str, directory: Path) -> tuple[Path, dict[str, BucketFile]]:
    """Copies the metadata of datasets or versions from an object store.

    Args:
      url: Of a dataset's folder in a data directory, or that of a version.
      directory: Where to.

    Returns:
      The copy of that folder, and each file in the store by its relative path.

    Raises:
      NotPreparedError: There is nothing.
    """
    try:
        system, path = file_system(url)  # which asks S3 for the bucket's region
        found = system.get_file_info(pafs.FileSelector(path, recursive=True, allow_not_found=True))
    except OSError as error:
        raise DataDirError(
            explain(
                f"{url} cannot be listed: {error}",
                fix="correct the URL, and give the store's credentials by the environment",
            )
        ) from error
    local = directory / hashlib.sha256(url.encode()).hexdigest()[:16] / posixpath.basename(path)
    files = {
        _name_in(url, path, one.path): BucketFile(one.size, one.mtime_ns or 0)
        for one in found
        if one.type == pafs.FileType.File and not one.path.endswith("/")
    }
    if not files:
        raise NotPreparedError(explain(f"There is nothing at {url}.", fix="correct the URL"))
    _require_no_links(directory, {(local / name).parent for name in files})
    for name, one in files.items():
        if name.endswith(_METADATA):
            _fetch(f"{url.rstrip('/')}/{name}", local / name, one)
    for old in local.rglob("*"):
        if old.name.endswith(_METADATA) and old.relative_to(local).as_posix() not in files:
            old.unlink()
    return local, files


def _name_in(url: str, folder: str, path: str) -> str:
    """Returns the name of a file from a folder on; it leads nowhere else.

    Raises:
      DataDirError: It would.
    """
    name = path.removeprefix(f"{folder.rstrip('/')}/")
    if name == path or not all(map(is_plain_name, name.split("/"))):
        raise DataDirError(
            explain(
                f"{url} lists a file that is not in it: {path[:200]!r}.",
                fix="ask who writes there; nothing was copied",
            )
        )
    return name


def _require_no_links(root: Path, folders: Iterable[Path]) -> None:
    """Refuses to write into folders that lie elsewhere.

    Raises:
      DataDirError: One of them is a link, or in one.
    """
    real = Path(os.path.realpath(root))
    for folder in folders:
        if Path(os.path.realpath(folder)) != real / folder.relative_to(root):
            raise DataDirError(
                explain(
                    f"{folder} is a link, or in one.",
                    "Copies are only kept in folders that were made for them",
                    fix=f"delete the link, or give another shards_dir than {root}",
                )
            )


def spool_of(url: str, directory: Path, files: Mapping[str, BucketFile], most: int) -> "Spool":
    """Returns the spool of some shards: one for all of this process that want the same.

    The arguments are those of `Spool`, but for the hashes, which the manifest says as it is now.
    """
    sha256 = _recorded(directory)
    wanted = frozenset(files.items()), frozenset(sha256.items())
    key = (url, directory, wanted, most, os.getpid())
    with _spools_lock:
        found = _spools.get(key)
        if found is None:
            found = _spools[key] = Spool(url, directory, files, sha256, most)
        return found


class Spool:
    """Brings shards here, and takes those away that were not used for the longest time."""

    def __init__(
        self,
        url: str,
        directory: Path,
        files: Mapping[str, BucketFile],
        sha256: Mapping[str, str],
        most: int,
    ) -> None:
        """Takes what is there already.

        Args:
          url: The version's folder in the object store.
          directory: The copy of it.
          files: Its shards, and their indexes, by name; others are left alone.
          sha256: That of each shard, by name; shards that it lacks are not compared.
          most: How many shards may lie here.
        """
        self._arguments = (url, directory, dict(files), most)
        self._url, self._directory, self._files, self._most = self._arguments
        self._sha256 = sha256
        self._used: OrderedDict[str, None] = OrderedDict()
        self._fetched = 0
        self._begin()
        for path in directory.iterdir():
            if path.name in files and sidecars.kind_of(path.name) is None:
                self._used[path.name] = None
            with contextlib.suppress(FileNotFoundError):
                # Of a process that was killed long ago.
                if path.suffix == _PARTIAL and path.stat().st_mtime < time.time() - _ABANDONED:
                    path.unlink()
        self._tidy()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._process = os.getpid()  # last: whoever sees it finds the others

    def __reduce__(self) -> tuple[Any, ...]:
        return spool_of, self._arguments

    @property
    def fetched(self) -> int:
        """How many shards were fetched so far."""
        return self._fetched

    @property
    def most(self) -> int:
        """How many shards may lie here."""
        return self._most

    @property
    def spare(self) -> int:
        """None: those that may lie here are those that were asked for."""
        return 0

    def __call__(self, path: Path) -> None:
        """Sees that a shard is here.

        Raises:
          CorruptShardError: It is not in the store, of another size than it was, or not what the
            version's manifest says; or its record index is another shard's.
        """
        name = path.name
        if self._process != os.getpid():
            self._begin()  # forked: its locks may be held by threads that are not here
        with self._lock:
            lock = self._locks.setdefault(name, threading.Lock())
        with lock:
            stored = self._files.get(name)
            if stored is None:
                raise _changed(f"{self._url}/{name}", "it is not there")
            if not self._is_there(path, stored):
                for beside in _indexes_of(name):
                    if beside in self._files:
                        there = self._files[beside]
                        _fetch(f"{self._url}/{beside}", path.with_name(beside), there)
                _fetch(f"{self._url}/{name}", path, stored, self._sha256.get(name))
                self._fetched += 1
            if name in self._sha256:
                check_indexes(path.parent, {name: self._sha256[name]})
        with self._lock:
            self._used[name] = None
            self._used.move_to_end(name)
        self._tidy()

    def _is_there(self, path: Path, stored: BucketFile) -> bool:
        """Returns whether the copy of a shard is here.

        One that this machine did not copy, or that changed since, is hashed if the version's
        manifest says what its SHA-256 is; else it counts as missing.
        """
        url, sha256, known = (
            f"{self._url}/{path.name}",
            self._sha256.get(path.name),
            verified_files(),
        )
        if _is_same(url, path, stored) and (sha256 is None or known.knows(path, sha256)):
            return True
        with contextlib.suppress(FileNotFoundError):
            found = path.stat()
            if (found.st_size, found.st_mtime_ns) != stored:
                return False
        if sha256 is None or not known.has(path, sha256, stored.size):
            return False
        known.remember(path, _stands_for(url, stored))
        return True

    def ahead(self, paths: Iterable[Path]) -> None:
        """Begins to bring shards here that will be wanted."""
        if self._process != os.getpid():
            self._begin()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_CONNECTIONS, thread_name_prefix="my_datasets_shards")
        for path in paths:
            self._pool.submit(self.try_to_bring, path)

    def try_to_bring(self, path: Path) -> None:
        """Brings a shard here; who wants it asks for it again, and is told what is wrong."""
        with contextlib.suppress(Exception):
            self(path)

    def _tidy(self) -> None:
        with self._lock:
            while len(self._used) > self._most:
                name, _ = self._used.popitem(last=False)
                path = self._directory / name
                for one in (name, *_indexes_of(name)):
                    path.with_name(one).unlink(missing_ok=True)


def _recorded(directory: Path) -> dict[str, str]:
    """Returns the SHA-256 of each shard by the version's manifest; nothing if it has none."""
    made = Manifest.read(directory)
    splits = made.content.splits.values() if made and made.content else ()
    return {one.name: one.sha256 for some in splits for one in some.shards}


def _indexes_of(shard: str) -> tuple[str, ...]:
    """Returns the names that a shard's record index may have."""
    return sidecars.names_of(shard, Sidecar.OFFSETS)


def _is_same(url: str, path: Path, stored: BucketFile) -> bool:
    """Returns whether a file here is the copy of one in the store, which this machine made."""
    return verified_files().knows(path, _stands_for(url, stored), stored.size)


def _stands_for(url: str, stored: BucketFile) -> str:
    """Returns what stands for the SHA-256 of a file, of which the store says none."""
    return hashlib.sha256(f"{url} {stored.size} {stored.modified}".encode()).hexdigest()


def _fetch(url: str, path: Path, stored: BucketFile, sha256: str | None = None) -> None:
    """Copies a file, which is there whole or not at all; one that is the same is left.

    Args:
      url: The file.
      path: Where to.
      stored: What the store says of it.
      sha256: What it must have; None if nobody says.

    Raises:
      CorruptShardError: It is another one.
    """
    known = verified_files()
    if _is_same(url, path, stored) and (sha256 is None or known.knows(path, sha256)):
        return
    found = hashlib.sha256()
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{secrets.token_hex(8)}{_PARTIAL}")
    system, remote = file_system(url)
    try:
        source = system.open_input_stream(remote)
    except FileNotFoundError as error:
        raise _changed(url, "it is not there") from error
    try:
        with source, partial.open("wb") as target:
            while data := source.read(_AT_ONCE):
                target.write(data)
                found.update(data)
            came = target.tell()
        if came != stored.size:
            raise _changed(url, f"{came:,} bytes came; expected {stored.size:,}")
        if sha256 not in (None, found.hexdigest()):
            raise _changed(url, f"SHA-256 {found.hexdigest()}; the manifest says {sha256}")
        os.utime(partial, ns=(stored.modified, stored.modified))
        partial.replace(path)
        known.remember(path, found.hexdigest())
        known.remember(path, _stands_for(url, stored))
    finally:
        partial.unlink(missing_ok=True)


def _changed(url: str, found: str) -> CorruptShardError:
    return CorruptShardError(
        explain(
            f"{url} is not the file that was there: {found}.",
            fix="look whether somebody is writing there, and begin again",
        )
    )
