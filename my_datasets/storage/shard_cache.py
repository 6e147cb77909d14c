"""A directory of verified files, limited in size, through which remote shards are read.

A file is named by its SHA-256, or by its key if the store gives no SHA-256. A file counts as
verified if this machine has verified it and it has not changed since; any other file is hashed
first. The least recently requested file that is not locked is evicted first; the times of the empty
files in `.used` say when each was requested. The directory has a marker file: a directory that has
files but no marker is refused. Files with other names are left alone.

Any number of threads and processes can share a directory. A file is locked as `.partial` while it
is fetched, so that it is fetched once; a reader may lock a file against eviction
(`my_datasets.records.random_access.lock_shard`). Such locks end with their process.
"""

import contextlib
import errno
import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import filelock

from my_datasets.core.logs import get_logger
from my_datasets.core.sizes import human_size
from my_datasets.errors import DataDirError, DiskFullError, MyDatasetsError
from my_datasets.storage.verified_files import verified_files

with contextlib.suppress(ModuleNotFoundError):  # Windows, where nothing is cached
    import fcntl

_LOGGER = get_logger(__name__)
_PARTIAL = ".partial"
# In each directory that was created as a cache.
_MARKER = ".my_datasets_cache"
_USED = ".used"
_LOCK = ".lock"
_KEY = re.compile("[0-9a-f]{64}")
_PAUSE_SECONDS = 0.01
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_ALLOCATION = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


@dataclass(frozen=True)
class RemoteFile:
    """A file of a store that may be cached.

    Attributes:
      sha256: Of its contents, in hexadecimal; None if unknown.
      key: Its name in a cache: its SHA-256, or a hash that replaces it.
    """

    bytes: int
    sha256: str | None
    key: str

    @classmethod
    def of(cls, sha256: str, size: int) -> "RemoteFile":
        """Returns a file whose SHA-256 is known."""
        return cls(size, sha256, sha256)

    def is_at(self, path: Path) -> bool:
        """Returns whether a file on this machine is a verified copy; links are not followed."""
        verified = verified_files()
        if self.sha256 is None:  # only this machine's own copies count
            return verified.knows(path, self.key, self.bytes)
        return verified.has(path, self.sha256, self.bytes)


class ShardCache:
    """A directory of verified files of at most `most` bytes in all."""

    def __init__(self, directory: Path, most: int, ignored: Collection[str] = ()) -> None:
        """Opens the cache, creating its directory if necessary.

        Its files exceed `most` bytes only while locked files need more. Files with `ignored` keys
        neither count nor are removed, because others manage them.

        Raises:
          DataDirError: It has files, and was not created as a cache.
        """
        self.directory = directory
        self.most = most
        self._ignored = ignored
        self._used = directory / _USED
        directory.mkdir(parents=True, exist_ok=True)
        if not (directory / _MARKER).is_file():
            # Another process may be creating the cache; it creates the marker first.
            if (
                any(one.name != _LOCK for one in directory.iterdir())
                and not (directory / _MARKER).is_file()
            ):
                raise _no_cache(directory)
            (directory / _MARKER).touch()
        if self._used.is_symlink():
            raise _no_cache(directory)
        self._used.mkdir(exist_ok=True)

    def __reduce__(self) -> tuple[type["ShardCache"], tuple[object, ...]]:
        return type(self), (self.directory, self.most, self._ignored)

    def path_of(self, key: str) -> Path:
        """Returns the path of a file, whether or not it is cached."""
        return self.directory / key

    def fetch(
        self,
        remote: RemoteFile,
        read: Callable[[], Iterable[bytes]],
        damaged: Callable[[str], MyDatasetsError],
        *,
        is_optional: bool = False,
    ) -> Path:
        """Fetches and verifies a file unless it is cached; returns its path.

        `read` returns its contents, piece by piece, and `damaged` the error for other contents,
        given what was found. If `is_optional`, the file is skipped if only locked files could make
        room for it; its path is returned all the same.

        Raises:
          MyDatasetsError: The contents do not match. They never become visible.
          DiskFullError: The disk has no room for it.
          StoreError: The contents cannot be read.
        """
        path = self.path_of(remote.key)
        if remote.is_at(path):
            self._note_use(remote)
            return path
        partial = path.with_name(path.name + _PARTIAL)
        with _locked_partial(partial) as file:
            if remote.is_at(path):  # another process fetched it
                self._note_use(remote)
                return path
            path.unlink(missing_ok=True)  # changed, or never verified
            if not self._reserve(partial, remote.bytes, is_optional=is_optional):
                return path
            _write(partial, remote, read(), damaged)
            self._note_use(remote)
            with self._counting():
                partial.rename(path)
                verified_files().remember(file, remote.key)
                fcntl.flock(file, fcntl.LOCK_UN)  # else it counts as locked by a reader
        return path

    def _reserve(self, partial: Path, size: int, *, is_optional: bool) -> bool:
        """Reserves space for a file, visibly to others; returns whether there was enough."""
        while True:
            with self._counting():
                used, is_pending = self._make_room(size)
                has_room = used + size <= self.most
                if has_room or not (is_optional or is_pending):
                    self._allocate(partial, size)
                    break
            if is_optional:
                return False
            time.sleep(_PAUSE_SECONDS)  # a file being fetched may be evicted once complete
        if not has_room:
            _LOGGER.warning(
                "%s temporarily has %s, more than %s: that much is being read at once.",
                self.directory, human_size(used + size), human_size(self.most),
            )  # fmt: skip
        return True

    def _note_use(self, remote: RemoteFile) -> None:
        # Not in the time of the file itself, which shows that it is unchanged. The file system's
        # own clock may lag by some milliseconds.
        now = time.time_ns()
        with contextlib.suppress(OSError):  # another user's: the order is not worth an error
            flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | os.O_NONBLOCK
            file = os.open(self._used / remote.key, flags, 0o666)
            try:
                os.utime(file, ns=(now, now))
            finally:
                os.close(file)

    def _counting(self) -> filelock.BaseFileLock:
        """Returns the lock for counting files and for reserving or freeing space."""
        return filelock.FileLock(self.directory / _LOCK)

    def _make_room(self, size: int) -> tuple[int, bool]:
        """Removes files until `size` more bytes fit.

        Returns:
          The bytes in use afterwards, and whether some belong to files that are being fetched.
        """
        cached = self._oldest_first()
        used, is_pending = sum(one_size for _, one_size in cached), False
        for path, one_size in cached:
            if used + size <= self.most:
                break
            if self._evicted(path):
                used -= one_size
            elif path.suffix == _PARTIAL and one_size:
                is_pending = True
        return used, is_pending

    def _allocate(self, partial: Path, size: int) -> None:
        """Allocates space for a file; if the disk is full, removes cached files."""
        while not _allocated(partial, size):
            if not any(self._evicted(path) for path, _ in self._oldest_first()):
                raise DiskFullError(
                    f"The disk is full: {self.directory} has no room for a shard.",
                    f"It has {human_size(size)}, and all other files in the cache are being read",
                    fix="free some space, or name another cache_dir (shards_dir, if it is read "
                    "from a bucket), then run the same again",
                )

    def _oldest_first(self) -> list[tuple[Path, int]]:
        found = []
        for entry in os.scandir(self.directory):
            with contextlib.suppress(FileNotFoundError):
                state = entry.stat(follow_symlinks=False)
                key = entry.name.removesuffix(_PARTIAL)
                is_ours = _KEY.fullmatch(key) is not None and key not in self._ignored
                if is_ours and stat.S_ISREG(state.st_mode):
                    path = Path(entry.path)
                    found.append((self._used_at(path, state), path, state.st_size))
        return [(path, size) for _, path, size in sorted(found)]

    def _used_at(self, path: Path, state: os.stat_result) -> int:
        try:
            return (self._used / path.name).stat().st_mtime_ns
        except FileNotFoundError:
            return state.st_mtime_ns

    def _evicted(self, path: Path) -> bool:
        is_gone = _removed(path)
        if is_gone:
            (self._used / path.name).unlink(missing_ok=True)
        return is_gone


def _no_cache(directory: Path) -> DataDirError:
    return DataDirError(
        f"{directory} has files, and was not created as a cache by this package.",
        f"Expected: a file {_MARKER}, and a folder {_USED} that is not a link",
        "A cache removes files to make room",
        fix="name another cache_dir; if it is the cache of an earlier release of my_datasets, "
        "delete it",
    )


@contextlib.contextmanager
def _locked_partial(partial: Path) -> Iterator[int]:
    """Locks an empty file, waiting while another process has it; removes it in the end.

    Yields its descriptor.
    """
    while True:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        file = os.open(partial, flags, 0o666)
        # Polled, not a blocking lock: once the file is complete, a reader of its final name may
        # lock it first, and keep it locked until this thread continues.
        while _is_at(file, partial) and not _locked_at_once(file):
            time.sleep(_PAUSE_SECONDS)
        if _is_at(file, partial):
            if os.fstat(file).st_nlink == 1:
                break
            partial.unlink()  # hard-linked elsewhere, where it stays unchanged
        _unlock_and_close(file)  # its owner is done: it was renamed or removed
    _locked_partials.add(file)
    try:
        os.ftruncate(file, 0)  # left by a process that was killed
        yield file
    finally:
        if _is_at(file, partial):
            partial.unlink()
        _locked_partials.discard(file)
        _unlock_and_close(file)


# Descriptors of files that are coming. A forked child closes its copies: if its parent is killed,
# all others would wait for as long as the child lives.
_locked_partials: set[int] = set()


def _close_inherited() -> None:
    while _locked_partials:
        with contextlib.suppress(OSError):
            os.close(_locked_partials.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited)


def _locked_at_once(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unlock_and_close(file: int) -> None:
    # Closing alone leaves the lock to children that were forked meanwhile, as long as they live.
    fcntl.flock(file, fcntl.LOCK_UN)
    os.close(file)


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _removed(path: Path) -> bool:
    """Removes a file unless a process has locked it; returns whether it is gone."""
    try:
        file = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    except FileNotFoundError:
        return True
    except PermissionError:
        return False  # another user's
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_at(file, path):
            return False  # replaced in the meantime
        path.unlink()
    except BlockingIOError:
        return False
    finally:
        _unlock_and_close(file)
    return True


def _allocated(path: Path, size: int) -> bool:
    """Allocates a file's space on the disk; returns whether there is enough."""
    allocate = getattr(os, "posix_fallocate", None)  # macOS has none
    with path.open("r+b") as file:
        try:
            if size and allocate is not None:
                allocate(file.fileno(), 0, size)
            else:
                os.ftruncate(file.fileno(), size)
        except OSError as error:
            if error.errno in _FULL:
                os.ftruncate(file.fileno(), 0)
                return False
            if error.errno not in _NO_ALLOCATION:
                raise
            os.ftruncate(file.fileno(), size)
    return True


def _write(
    partial: Path,
    remote: RemoteFile,
    data: Iterable[bytes],
    damaged: Callable[[str], MyDatasetsError],
) -> None:
    """Fills an allocated file, and compares size and SHA-256 with the expected ones."""
    found = hashlib.sha256()
    received = 0
    with partial.open("r+b") as file:
        for block in data:
            received += len(block)
            # Never more than expected, whatever the store sends.
            if received > remote.bytes:
                raise damaged(f"more than {remote.bytes:,} bytes")
            file.write(block)
            found.update(block)
        file.flush()
        os.fsync(file.fileno())
    if received != remote.bytes:
        raise damaged(f"{received:,} bytes; expected {remote.bytes:,}")
    if remote.sha256 not in (None, found.hexdigest()):
        raise damaged(f"SHA-256 {found.hexdigest()}; expected {remote.sha256}")
