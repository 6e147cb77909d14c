"""A place in an object store: where workers and the building process meet without a shared disk."""

import functools
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from my_datasets.building.engines.beam.workspace.workspace import OpenFile
from my_datasets.core import ordered_pool
from my_datasets.errors import NotInStoreError, StoreError, explain
from my_datasets.storage import regular_files, upsert
from my_datasets.storage.opening import open_store
from my_datasets.storage.retry import RetryingStore

# Where a build says that the place is made; what workers look for.
_MARK = "place"
# Files that are removed at the same time.
_AT_ONCE = 16


@functools.lru_cache(maxsize=32)
def _opened(url: str, process: int) -> RetryingStore:  # noqa: ARG001
    # Connections do not survive a fork: each process makes its own.
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
        return _opened(self.url, os.getpid())

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
