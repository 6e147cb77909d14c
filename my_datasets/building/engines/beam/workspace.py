"""Places where workers and the building process meet; the usual one is a shared directory."""

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

from my_datasets.building import disk_space, staging
from my_datasets.building.journal import link, sync_directory
from my_datasets.core import ordered_pool
from my_datasets.core.per_process import cached_per_process
from my_datasets.errors import NotInStoreError, StoreError, explain
from my_datasets.storage import regular_files, upsert
from my_datasets.storage.opening import open_store
from my_datasets.storage.retry import RetryingStore

_DRAFTS = "drafts"
# Seconds: NFS looks again at a directory after up to 60 (acdirmax).
_LATE = 75.0


class OpenFile(Protocol):
    """A file of a place that is read."""

    @property
    def path(self) -> Path:
        """Where it can be read on this machine: as long as it is, with the bytes one asked for."""

    def bring(self, begin: int, end: int) -> None:
        """Sees that some of its bytes are there."""


class Place(Protocol):
    """Files under names, which are there whole or not at all, and which all machines see.

    Names have parts divided by `/`. Workers get a copy of it, and may do the same work twice, at
    the same time: of two that put a file under one name, both succeed, and one of the files stays.
    """

    @property
    def late(self) -> float:
        """Seconds after which each machine sees what another one has put there."""

    def is_there(self) -> bool:
        """Returns whether this machine sees it."""

    def begin(self) -> None:
        """Makes it, if it needs that."""

    def below(self, name: str) -> "Place":
        """Returns a folder of it, as a place."""

    def draft(self) -> "TemporaryDirectory[str]":
        """Returns a directory of this machine, for files before they get their names."""

    def put(self, path: Path, name: str) -> None:
        """Gives a file of a draft its name; it is not in the draft any more."""

    def write(self, name: str, data: bytes) -> None:
        """Writes a small file."""

    def read(self, name: str) -> bytes | None:
        """Returns the contents of a small file; None if there is none."""

    @contextmanager
    def reading(self, name: str, size: int) -> Iterator[OpenFile]:
        """Opens a large file.

        Args:
          name: Its name.
          size: Its size, in bytes.
        """

    def sizes(self, folder: str) -> dict[str, int]:
        """Returns the size of each file below a folder, in bytes, by its name in the folder."""

    def forget(self, folder: str, ending: str = "") -> None:
        """Removes the files below a folder, or those whose names have an ending."""

    def require_room(self, need: int, what: str) -> None:
        """Raises `DiskFullError` if it is known that so many bytes have no room there.

        Args:
          need: The bytes.
          what: What they are of, with a verb.
        """

    def hand_over(self, folder: str, target: Path) -> None:
        """Puts the files of a folder where the version is made.

        A directory keeps them as well, until all of the work is discarded.

        Args:
          folder: The folder, with files only.
          target: The version's directory on this machine.
        """

    def handed_over(self) -> dict[str, int]:
        """Returns the sizes of files that an interrupted build has moved there, by their names."""

    def discard(self) -> None:
        """Removes all of it, and what was handed over."""


@dataclass(frozen=True)
class SharedDirectory:
    """A directory that all machines have under one absolute path; see `Place`.

    It lies beside the version. Files are made in a folder of it, and renamed when they have reached
    the disk.

    Attributes:
      path: The path.
    """

    path: Path

    def __str__(self) -> str:
        return os.fspath(self.path)

    @property
    def late(self) -> float:
        return _LATE

    def is_there(self) -> bool:
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
        yield _Here(self.path / name)

    def sizes(self, folder: str) -> dict[str, int]:
        return dict(_files_below(os.fspath(self.path / folder)))

    def forget(self, folder: str, ending: str = "") -> None:
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
        return {}  # what dies takes its target with it

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
        except FileNotFoundError:  # gone in the meantime
            continue


@dataclass(frozen=True)
class _Here:
    """A file that all machines see as it is."""

    path: Path

    def bring(self, begin: int, end: int) -> None:
        """It is here."""


# Where a build says that the place is made; what workers look for.
_MARK = "place"
# Files that are removed at the same time.
_AT_ONCE = 16


@cached_per_process(maxsize=32)
def _opened(url: str) -> RetryingStore:
    return RetryingStore(open_store(url))


@dataclass(frozen=True)
class BucketWorkspace:
    """A folder of an object store; see `Place`.

    Each machine has credentials of its own for it, as its store's own tools take them. What is made
    or read lies in a temporary directory of the machine meanwhile: a file at a time.

    Attributes:
      url: The store, as `open_store` takes it.
      folder: The folder.
      version: The folder of the version.
    """

    url: str
    folder: str
    version: str

    def __str__(self) -> str:
        return f"{self._store.url}/{self.folder}"

    @property
    def late(self) -> float:
        # S3 and Google's store show at once what was written.
        return 0.0

    @property
    def _store(self) -> RetryingStore:
        return _opened(self.url)

    def is_there(self) -> bool:
        return self.read(_MARK) is not None

    def begin(self) -> None:
        self.write(_MARK, b"")

    def below(self, name: str) -> "BucketWorkspace":
        return replace(self, folder=self._path(name))

    def draft(self) -> "TemporaryDirectory[str]":
        return TemporaryDirectory(prefix="my_datasets-", ignore_cleanup_errors=True)

    def put(self, path: Path, name: str) -> None:
        upsert.put(self._store, self._path(name), path, regular_files.sha256_of(path))
        path.unlink()

    def write(self, name: str, data: bytes) -> None:
        # What is there otherwise is of an attempt that was given up.
        upsert.put(self._store, self._path(name), data, hashlib.sha256(data).hexdigest())

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

    def forget(self, folder: str, ending: str = "") -> None:
        self._remove(self._path(folder), ending)

    def _remove(self, folder: str, ending: str = "") -> None:
        found = (one.path for one in self._store.list(folder) if one.path.endswith(ending))
        for _ in ordered_pool.results(self._store.delete, found, _AT_ONCE):
            pass

    def require_room(self, need: int, what: str) -> None:
        """Buckets have room."""

    def hand_over(self, folder: str, target: Path) -> None:  # noqa: ARG002
        self._store.move(self._path(folder), self.version, ())

    def handed_over(self) -> dict[str, int]:
        listed = self._store.list(self.version)
        return {one.path.removeprefix(f"{self.version}/"): one.bytes for one in listed}

    def discard(self) -> None:
        self.discard_work()
        self._remove(self.version)

    def discard_work(self) -> None:
        """Removes all of it, but what was handed over."""
        self._remove(self.folder)

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name}"


@dataclass(frozen=True)
class _Copy:
    """A file that has the bytes of another one where they were asked for, and nothing between."""

    store: RetryingStore
    name: str
    path: Path

    def bring(self, begin: int, end: int) -> None:
        """Fetches them."""
        with self.path.open("r+b") as file:
            file.seek(begin)
            for data in self.store.read(self.name, begin, end):
                file.write(data)
            if file.tell() != end:
                raise StoreError(
                    explain(
                        f"{self.store.url}/{self.name} is not as it was made.",
                        f"Expected: {end:,} bytes or more; found: {file.tell():,}",
                        fix="see that nothing else writes there, then build with --restart",
                    )
                )
