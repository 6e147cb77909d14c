"""A directory, on this machine or a network file system."""

import contextlib
import errno
import hashlib
import io
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import filelock

from my_datasets.core import interruption
from my_datasets.errors import DiskFullError, NotInStoreError, StoreError
from my_datasets.storage.regular_files import open_regular, read_beginning, sync_directory
from my_datasets.storage.store import (
    BLOCK,
    HALF_WRITTEN,
    OnBytes,
    StoredFile,
    already_there,
    altered,
    changed,
    ignore_bytes,
    no_file,
    too_large,
    unreadable,
)

_LOCK = ".lock"
# Replaced files are indexes, or smaller.
_MOST_REPLACED = 64 << 20
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# Of file systems that have no hard links.
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class LocalStore:
    """A store in a directory; see `Store`."""

    def __init__(self, directory: Path) -> None:
        """Takes the directory, which is created by the first write."""
        self._root = Path(os.path.abspath(directory.expanduser()))

    def __repr__(self) -> str:
        return f"LocalStore({self.url!r})"

    @property
    def url(self) -> str:
        return str(self._root)

    @property
    def is_writable(self) -> bool:
        return True

    def path_of(self, path: str) -> Path:
        """Returns where a file is on this machine."""
        return self._root / path

    def stat(self, path: str) -> StoredFile:
        with _explained(path, self.url):
            found = self.path_of(path).stat()
            if not stat.S_ISREG(found.st_mode):
                raise FileNotFoundError
            return StoredFile(path, found.st_size, found.st_mtime)

    def list(self, folder: str) -> Iterator[StoredFile]:
        for directory, folders, names in os.walk(self.path_of(folder)):
            if folder != HALF_WRITTEN:
                folders[:] = [one for one in folders if Path(directory, one) != self._half_written]
            for name in names:
                full = Path(directory) / name
                if not name.endswith(_LOCK):
                    with contextlib.suppress(NotInStoreError):  # moved away in the meantime
                        yield self.stat(full.relative_to(self._root).as_posix())

    def read(self, path: str, begin: int = 0, end: int | None = None) -> Iterator[bytes]:
        with _explained(path, self.url), open_regular(self.path_of(path)) as file:
            file.seek(begin)
            left = None if end is None else end - begin
            while left is None or left > 0:
                block = file.read(BLOCK if left is None else min(BLOCK, left))
                if not block:
                    return
                left = None if left is None else left - len(block)
                yield block

    def state(self, path: str, most: int) -> tuple[bytes, str]:
        with _explained(path, self.url), open_regular(self.path_of(path)) as file:
            data = read_beginning(file, most + 1)
        if len(data) > most:
            raise too_large(path, most)
        return data, _tag(data)

    def create(
        self, path: str, source: Path | bytes, sha256: str, on_bytes: OnBytes = ignore_bytes
    ) -> None:
        target = self._contained(path)
        is_small = isinstance(source, bytes)
        with (
            interruption.postponed() if is_small else contextlib.nullcontext(),
            _explained(path, self.url),
        ):
            if target.exists():
                raise FileExistsError
            with self._partial() as partial:
                _copy(source, partial, sha256, on_bytes)
                try:
                    _put_if_absent(partial, target)
                except FileNotFoundError:  # the folder was moved away in the meantime
                    _put_if_absent(partial, target)

    def replace(self, path: str, data: bytes, tag: str | None) -> str:
        target = self._contained(path)
        with _explained(path, self.url):
            target.parent.mkdir(parents=True, exist_ok=True)
            with _locked(target):
                try:
                    found = self.state(path, _MOST_REPLACED)[1]
                except NotInStoreError:
                    found = None
                if found != tag:
                    raise changed(self.url, path)
                with self._partial() as partial:
                    _copy(data, partial, _tag(data), ignore_bytes)
                    partial.replace(target)
                    sync_directory(target.parent)
        return _tag(data)

    def move(self, source: str, target: str, last: Sequence[str]) -> None:
        begin, end = (self._contained(f"{one}/file").parent for one in (source, target))
        with _explained(source, self.url):
            end.parent.mkdir(parents=True, exist_ok=True)
            try:
                begin.rename(end)
            except FileNotFoundError:
                return  # it was moved before
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not end.is_dir():
                    raise
                self._complete(begin, end, last)
            sync_directory(end.parent)

    def delete(self, path: str) -> None:
        target = self._contained(path)
        with _explained(path, self.url):
            target.unlink(missing_ok=True)
            for parent in target.parents:
                if parent in (self._root, self._half_written):
                    return
                try:
                    parent.rmdir()
                except OSError:  # others are in it
                    return

    def _contained(self, path: str) -> Path:
        """Returns where a file is, to write or delete it; the root itself may be a link.

        Raises:
          StoreError: A folder on the way to it is a link that leads out of the store.
        """
        target = self.path_of(path)
        if not Path(os.path.realpath(target.parent)).is_relative_to(os.path.realpath(self._root)):
            raise StoreError(
                f"{path} is not in {self.url}: a folder on the way is a link that leads out.",
                fix="nothing was written or deleted; ask who made the link, and delete it",
            )
        return target

    def _complete(self, begin: Path, end: Path, last: Sequence[str]) -> None:
        """Moves the files that the target lacks, and discards the rest."""
        names = {path.name for path in begin.iterdir()} if begin.is_dir() else set()
        for name in [*sorted(names - set(last)), *(name for name in last if name in names)]:
            with contextlib.suppress(FileNotFoundError):  # moved by another process
                if not (end / name).exists():
                    (begin / name).rename(end / name)
        sync_directory(end)
        shutil.rmtree(begin, ignore_errors=True)

    @property
    def _half_written(self) -> Path:
        return self._root / HALF_WRITTEN

    @contextlib.contextmanager
    def _partial(self) -> Iterator[Path]:
        """Yields a name for an unfinished file, in a folder that is not moved with others."""
        self._contained(f"{HALF_WRITTEN}/file")
        self._half_written.mkdir(parents=True, exist_ok=True)
        partial = self._half_written / secrets.token_hex(8)
        try:
            yield partial
        finally:
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(target: Path) -> Iterator[None]:
    """Waits for others that replace a file; a signal interrupts the wait, but not the block."""
    lock = filelock.FileLock(f"{target}{_LOCK}")
    lock.acquire()
    with interruption.postponed():
        try:
            yield
        finally:
            lock.release()
            del lock  # now: its destructor swallows what a signal raises


def _copy(source: Path | bytes, target: Path, sha256: str, on_bytes: OnBytes) -> None:
    """Writes a durable copy of a source with the given SHA-256."""
    found, reported = hashlib.sha256(), 0
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(target.open("xb", buffering=0))
        try:
            for block in _blocks(source):
                found.update(block)
                _write(file, block)
                reported += len(block)
                on_bytes(len(block))
            if found.hexdigest() != sha256:
                raise altered(source, sha256, found.hexdigest())
            os.fsync(file.fileno())
        except BaseException:
            on_bytes(-reported)
            raise


def _write(file: io.FileIO, block: memoryview) -> None:
    while block:
        block = block[file.write(block) :]


def _blocks(source: Path | bytes) -> Iterator[memoryview]:
    if isinstance(source, bytes):
        yield memoryview(source)
        return
    buffer = memoryview(bytearray(BLOCK))
    try:
        file = open_regular(source)
    except OSError as error:
        raise unreadable(source, error) from error
    with file:
        while count := file.readinto(buffer):
            yield buffer[:count]


def _put_if_absent(partial: Path, target: Path) -> None:
    """Gives a file its name, unless another has it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(partial, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with filelock.FileLock(f"{target}{_LOCK}"):
            if target.exists():
                raise FileExistsError(errno.EEXIST, "there is one", str(target)) from error
            partial.rename(target)
    sync_directory(target.parent)


def _tag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@contextlib.contextmanager
def _explained(path: str, url: str) -> Iterator[None]:
    try:
        yield
    except StoreError:
        raise
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise no_file(url, path) from error
    except FileExistsError as error:
        raise already_there(url, path) from error
    except OSError as error:
        if error.errno in _FULL:
            raise DiskFullError(
                f"The disk of {url} is full: {path} could not be written.",
                "No half-written file is visible there.",
                fix="free some space there, then run the same again",
            ) from error
        raise StoreError(
            f"{path} in {url} cannot be read or written.",
            f"The system said: {error.strerror or error}",
            fix="change the permissions, or choose another store",
        ) from error
