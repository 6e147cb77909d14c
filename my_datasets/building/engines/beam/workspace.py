"""Where workers and the building process exchange files: a shared directory or an object store."""

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from my_datasets.building import staging
from my_datasets.building.journal import link, sync_directory
from my_datasets.core import processes
from my_datasets.core.processes import cached_per_process
from my_datasets.errors import NotInStoreError, StoreError
from my_datasets.storage import disk_space, regular_files, retry
from my_datasets.storage.backends import open_store
from my_datasets.storage.retry import RetryingStore

_DRAFTS = "drafts"
# Seconds: NFS clients cache a directory for up to 60 (acdirmax).
_VISIBILITY_DELAY = 75.0

# The file that a build writes first, and by which workers recognize the place.
_MARK = "place"
# Files to remove at the same time.
_AT_ONCE = 16


class OpenFile(Protocol):
    """A file of a place, open for reading."""

    @property
    def path(self) -> Path:
        """A local file of the same size, with the bytes that `fetch` has fetched."""

    def fetch(self, begin: int, end: int) -> None:
        """Fetches a range of bytes."""


class Workspace(Protocol):
    """Named files that all machines see; each appears complete or not at all.

    Parts of names are separated by `/`. Workers get a copy of this object, and may do the same work
    twice at the same time: if two put a file under one name, both succeed, and one file stays.
    """

    @property
    def visibility_delay(self) -> float:
        """Seconds after which every machine sees a file that another one has put there."""

    def exists(self) -> bool:
        """Returns whether this machine sees the place."""

    def begin(self) -> None:
        """Creates the place, if necessary."""

    def below(self, name: str) -> "Workspace":
        """Returns a folder as a place."""

    def draft(self) -> "TemporaryDirectory[str]":
        """Returns a local directory for files that have no name yet."""

    def put(self, path: Path, name: str) -> None:
        """Moves a file from a draft to its name."""

    def write(self, name: str, data: bytes) -> None:
        """Writes a small file."""

    def read(self, name: str) -> bytes | None:
        """Returns the contents of a small file; None if it does not exist."""

    @contextmanager
    def reading(self, name: str, size: int) -> Iterator[OpenFile]:
        """Opens a large file, whose size in bytes is known."""

    def sizes(self, folder: str) -> dict[str, int]:
        """Returns the size in bytes of each file below a folder, by its name in the folder."""

    def remove(self, folder: str, ending: str = "") -> None:
        """Removes the files below a folder, or those with a suffix."""

    def require_room(self, need: int, what: str) -> None:
        """Raises `DiskFullError` if `need` bytes are known not to fit; see `disk_space.require`."""

    def hand_over(self, folder: str, target: Path) -> None:
        """Puts the files of a folder into the version; a shared directory also keeps them."""

    def handed_over(self) -> dict[str, int]:
        """Returns the sizes, by name, of files that an interrupted build has handed over."""

    def discard(self) -> None:
        """Removes all files, including those that were handed over."""


@dataclass(frozen=True)
class SharedDirectory:
    """A directory that all machines have under one absolute path; see `Workspace`.

    It lies beside the version. Files are written in a subfolder, synced, and then renamed.
    """

    path: Path

    def __str__(self) -> str:
        return os.fspath(self.path)

    @property
    def visibility_delay(self) -> float:
        return _VISIBILITY_DELAY

    def exists(self) -> bool:
        return self.path.is_dir()

    def begin(self) -> None:
        (self.path / _DRAFTS).mkdir(parents=True, exist_ok=True)

    def below(self, name: str) -> "SharedDirectory":
        return SharedDirectory(self.path / name)

    def draft(self) -> "TemporaryDirectory[str]":
        return TemporaryDirectory(dir=self.path / _DRAFTS, ignore_cleanup_errors=True)

    def put(self, path: Path, name: str) -> None:
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with path.open("rb") as file:
            os.fsync(file.fileno())
        path.rename(target)
        sync_directory(target.parent)

    def write(self, name: str, data: bytes) -> None:
        partial = self.path / _DRAFTS / secrets.token_hex(8)
        try:
            partial.write_bytes(data)
            self.put(partial, name)
        finally:
            partial.unlink(missing_ok=True)

    def read(self, name: str) -> bytes | None:
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None

    @contextmanager
    def reading(self, name: str, size: int) -> Iterator[OpenFile]:  # noqa: ARG002
        yield _LocalFile(self.path / name)

    def sizes(self, folder: str) -> dict[str, int]:
        return dict(_files_below(os.fspath(self.path / folder)))

    def remove(self, folder: str, ending: str = "") -> None:
        if not ending:
            shutil.rmtree(self.path / folder, ignore_errors=True)
        for name in self.sizes(folder):
            if name.endswith(ending):
                (self.path / folder / name).unlink(missing_ok=True)

    def require_room(self, need: int, what: str) -> None:
        disk_space.require(need, self.path, what)

    def hand_over(self, folder: str, target: Path) -> None:
        for name in self.sizes(folder):
            link(self.path / folder / name, target / name)
        sync_directory(target)

    def handed_over(self) -> dict[str, int]:
        return {}  # the target of an interrupted build is removed

    def discard(self) -> None:
        staging.discard(self.path)


def _files_below(folder: str, prefix: str = "") -> Iterator[tuple[str, int]]:
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _files_below(entry.path, f"{prefix}{entry.name}/")
            continue
        try:
            yield prefix + entry.name, entry.stat().st_size
        except FileNotFoundError:  # just removed
            continue


@dataclass(frozen=True)
class _LocalFile:
    """A file that needs no copy."""

    path: Path

    def fetch(self, begin: int, end: int) -> None:
        """Does nothing."""


@cached_per_process(maxsize=32)
def _opened(url: str) -> RetryingStore:
    return RetryingStore(open_store(url))


@dataclass(frozen=True)
class BucketWorkspace:
    """A folder of an object store; see `Workspace`.

    Each machine needs credentials where the store's own tools look for them. Files that are written
    or read are in a temporary directory of the machine meanwhile, one at a time.
    """

    url: str  # of the store, for `open_store`
    folder: str
    version: str  # the folder of the version

    def __str__(self) -> str:
        return f"{self._store.url}/{self.folder}"

    @property
    def visibility_delay(self) -> float:
        # S3 and Google Cloud Storage are strongly consistent.
        return 0.0

    @property
    def _store(self) -> RetryingStore:
        return _opened(self.url)

    def exists(self) -> bool:
        return self.read(_MARK) is not None

    def begin(self) -> None:
        self.write(_MARK, b"")

    def below(self, name: str) -> "BucketWorkspace":
        return replace(self, folder=self._path(name))

    def draft(self) -> "TemporaryDirectory[str]":
        return TemporaryDirectory(prefix="my_datasets-", ignore_cleanup_errors=True)

    def put(self, path: Path, name: str) -> None:
        retry.put(self._store, self._path(name), path, regular_files.sha256_of(path))
        path.unlink()

    def write(self, name: str, data: bytes) -> None:
        # Replaces a file of an attempt that was given up.
        retry.put(self._store, self._path(name), data, hashlib.sha256(data).hexdigest())

    def read(self, name: str) -> bytes | None:
        try:
            return b"".join(self._store.read(self._path(name)))
        except NotInStoreError:
            return None

    @contextmanager
    def reading(self, name: str, size: int) -> Iterator[OpenFile]:
        with self.draft() as directory:
            path = Path(directory) / "file"
            with path.open("xb") as file:
                file.truncate(size)
            yield _Copy(self._store, self._path(name), path)

    def sizes(self, folder: str) -> dict[str, int]:
        below = f"{self._path(folder)}/"
        return {one.path.removeprefix(below): one.bytes for one in self._store.list(below[:-1])}

    def remove(self, folder: str, ending: str = "") -> None:
        self._remove(self._path(folder), ending)

    def _remove(self, folder: str, ending: str = "") -> None:
        found = (one.path for one in self._store.list(folder) if one.path.endswith(ending))
        for _ in processes.ordered_results(self._store.delete, found, _AT_ONCE):
            pass

    def require_room(self, need: int, what: str) -> None:
        """Buckets have no limit."""

    def hand_over(self, folder: str, target: Path) -> None:  # noqa: ARG002
        self._store.move(self._path(folder), self.version, ())

    def handed_over(self) -> dict[str, int]:
        listed = self._store.list(self.version)
        return {one.path.removeprefix(f"{self.version}/"): one.bytes for one in listed}

    def discard(self) -> None:
        self.discard_work()
        self._remove(self.version)

    def discard_work(self) -> None:
        """Removes all files but those that were handed over."""
        self._remove(self.folder)

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name}"


@dataclass(frozen=True)
class _Copy:
    """A sparse local copy of a store's file, with the ranges that were requested."""

    store: RetryingStore
    name: str
    path: Path

    def fetch(self, begin: int, end: int) -> None:
        """Fetches the range."""
        with self.path.open("r+b") as file:
            file.seek(begin)
            for data in self.store.read(self.name, begin, end):
                file.write(data)
            if file.tell() != end:
                raise StoreError(
                    f"{self.store.url}/{self.name} is not as it was written.",
                    f"Expected: {end:,} bytes or more; found: {file.tell():,}",
                    fix="make sure that nothing else writes there, then build with --restart",
                )
