"""A directory of verified files, limited in size, through which remote shards are read.

A file is named by its SHA-256, or by its key if the store gives no SHA-256. A file counts as
verified if this machine has verified it and it has not changed since; any other file is hashed
first. The least recently requested file that is not locked is evicted first; the times of the empty
files in `.used` say when each was requested. The directory has a marker file: a directory that has
files but no marker is refused. Files with other names are left alone.

Any number of threads and processes can share a directory. A file is locked as `.partial` while it
is fetched, so that it is fetched once; a reader may lock a file against eviction
(`my_datasets.records.shard_provider.hold`). Such locks end with their process.
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
# In each directory that was made as a cache.
_MARKER = ".my_datasets_cache"
_USED = ".used"
_LOCK = ".lock"
_KEY = re.compile("[0-9a-f]{64}")
_PAUSE_SECONDS = 0.01
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_ALLOCATION = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


@dataclass(frozen=True)
class RemoteFile:
    """A file of a store, as a cache holds it.

    Attributes:
      bytes: Its size.
      sha256: Of its contents, in hexadecimal; None if nothing says it.
      key: Its name in a cache: its SHA-256, or what stands for it.
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
    """Room for some files; see above.

    Attributes:
      directory: Where they lie.
      most: How many bytes they may have.
    """

    def __init__(self, directory: Path, most: int, ignored: Collection[str] = ()) -> None:
        """Takes a directory, which is made if need be.

        Args:
          directory: The directory.
          most: How many bytes the files in it may have. Only if those that are locked at one
            moment have more, it has so many.
          ignored: The keys of files that do not count and are left alone: others look after them.

        Raises:
          DataDirError: It has files, and was not made as a cache.
        """
        self.directory = directory
        self.most = most
        self._ignored = ignored
        self._used = directory / _USED
        directory.mkdir(parents=True, exist_ok=True)
        if not (directory / _MARKER).is_file():
            # Another process may make it a cache just now, and begin with the marker.
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
        """Returns where a file lies, if it is there."""
        return self.directory / key

    def bring(
        self,
        wanted: RemoteFile,
        read: Callable[[], Iterable[bytes]],
        damaged: Callable[[str], MyDatasetsError],
        *,
        is_optional: bool = False,
    ) -> Path:
        """Sees that a file is there: whole, and the one that is wanted.

        Args:
          wanted: The file.
          read: Gives its contents, piece by piece.
          damaged: Returns the error for other contents, given what was found.
          is_optional: Whether to leave it if it has room only where something is locked.

        Returns:
          Where it is, or would be if it was left.

        Raises:
          MyDatasetsError: They are other contents. Nobody sees a byte of them.
          DiskFullError: The disk has no room for it.
          StoreError: They cannot be read.
        """
        path = self.path_of(wanted.key)
        if wanted.is_at(path):
            self._note_wanted(wanted)
            return path
        partial = path.with_name(path.name + _PARTIAL)
        with _alone(partial) as file:
            if wanted.is_at(path):  # somebody else brought it
                self._note_wanted(wanted)
                return path
            path.unlink(missing_ok=True)  # changed by somebody, or never verified
            if not self._reserve(partial, wanted.bytes, is_optional=is_optional):
                return path
            _write(partial, wanted, read(), damaged)
            self._note_wanted(wanted)
            with self._counting():
                partial.rename(path)
                verified_files().remember(file, wanted.key)
                fcntl.flock(file, fcntl.LOCK_UN)  # so that who counts does not take it for read
        return path

    def _reserve(self, partial: Path, size: int, *, is_optional: bool) -> bool:
        """Takes room for a file, so that others see it taken; returns whether there is."""
        while True:
            with self._counting():
                taken, is_coming = self._made_room(size)
                has_room = taken + size <= self.most
                if has_room or not (is_optional or is_coming):
                    self._allocate(partial, size)
                    break
            if is_optional:
                return False
            time.sleep(_PAUSE_SECONDS)  # what comes just now may go once it is there
        if not has_room:
            _LOGGER.warning(
                "%s has %s for a while, more than %s: so much is being read at the same time.",
                self.directory, human_size(taken + size), human_size(self.most),
            )  # fmt: skip
        return True

    def _note_wanted(self, wanted: RemoteFile) -> None:
        # Not by the time of the file itself, which says that nobody changed it. The file system's
        # own clock may stand still for some milliseconds.
        now = time.time_ns()
        with contextlib.suppress(OSError):  # another user's: the order is not worth an error
            flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
            file = os.open(self._used / wanted.key, flags, 0o666)
            try:
                os.utime(file, ns=(now, now))
            finally:
                os.close(file)

    def _counting(self) -> filelock.BaseFileLock:
        """Returns the lock of who counts what is there, and takes room, or gives it back."""
        return filelock.FileLock(self.directory / _LOCK)

    def _made_room(self, size: int) -> tuple[int, bool]:
        """Removes files until another one has room.

        Returns:
          How many bytes are taken then, and whether some of them are those of files that come.
        """
        there = self._oldest_first()
        taken, is_coming = sum(size_there for _, size_there in there), False
        for path, size_there in there:
            if taken + size <= self.most:
                break
            if self._removed(path):
                taken -= size_there
            elif path.suffix == _PARTIAL and size_there:
                is_coming = True
        return taken, is_coming

    def _allocate(self, partial: Path, size: int) -> None:
        """Gives a file its size; if others fill the disk, less lies here."""
        while not _allocated(partial, size):
            if not any(self._removed(path) for path, _ in self._oldest_first()):
                raise self._full(size)

    def _oldest_first(self) -> list[tuple[Path, int]]:
        found = []
        for entry in os.scandir(self.directory):
            with contextlib.suppress(FileNotFoundError):
                state = entry.stat(follow_symlinks=False)
                if self._counts(entry.name) and stat.S_ISREG(state.st_mode):
                    path = Path(entry.path)
                    found.append((self._wanted_at(path, state), path, state.st_size))
        return [(path, size) for _, path, size in sorted(found)]

    def _counts(self, name: str) -> bool:
        key = name.removesuffix(_PARTIAL)
        return _KEY.fullmatch(key) is not None and key not in self._ignored

    def _wanted_at(self, path: Path, state: os.stat_result) -> int:
        try:
            return (self._used / path.name).stat().st_mtime_ns
        except FileNotFoundError:
            return state.st_mtime_ns

    def _removed(self, path: Path) -> bool:
        """Removes a file unless somebody holds it; returns whether it is gone."""
        if not _removed(path):
            return False
        (self._used / path.name).unlink(missing_ok=True)
        return True

    def _full(self, size: int) -> DiskFullError:
        return DiskFullError(
            f"The disk is full: {self.directory} has no room for a shard.",
            f"It has {human_size(size)}, and all others there are being read",
            fix="free some space, or name another cache_dir (shards_dir, if it is read from a "
            "bucket), then run the same again",
        )


def _no_cache(directory: Path) -> DataDirError:
    return DataDirError(
        f"{directory} has files, and was not made as a cache by this package.",
        f"Expected: a file {_MARKER}, and a folder {_USED} that is no link",
        "A cache removes files to make room",
        fix="name another cache_dir; if it is the cache of an earlier release of my_datasets, "
        "delete it",
    )


@contextlib.contextmanager
def _alone(partial: Path) -> Iterator[int]:
    """Holds an empty file, waiting as long as somebody else does; it is removed in the end.

    Yields:
      Its descriptor.
    """
    while True:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        file = os.open(partial, flags, 0o666)
        fcntl.flock(file, fcntl.LOCK_EX)
        if _is_at(file, partial):
            if os.fstat(file).st_nlink == 1:
                break
            partial.unlink()  # it has another name elsewhere, and is left as it is
        os.close(file)  # who held it was through with it: it has another name, or none
    try:
        os.ftruncate(file, 0)  # of a process that was killed
        yield file
    finally:
        if _is_at(file, partial):
            partial.unlink()
        # Also for children of a fork, which have the descriptor, too.
        fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _removed(path: Path) -> bool:
    """Removes a file unless somebody holds it; returns whether it is gone."""
    try:
        file = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    except FileNotFoundError:
        return True
    except PermissionError:
        return False  # somebody else's
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_at(file, path):
            return False  # there is another one by now
        path.unlink()
    except BlockingIOError:
        return False
    finally:
        os.close(file)
    return True


def _allocated(path: Path, size: int) -> bool:
    """Gives a file its size, and its place on the disk; returns whether there is such a place."""
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
    wanted: RemoteFile,
    data: Iterable[bytes],
    damaged: Callable[[str], MyDatasetsError],
) -> None:
    """Fills a file that has its size already, and compares what came with what is wanted."""
    found = hashlib.sha256()
    came = 0
    with partial.open("r+b") as file:
        for block in data:
            came += len(block)
            # Never more than there should be, whatever the store gives.
            if came > wanted.bytes:
                raise damaged(f"more than {wanted.bytes:,} bytes")
            file.write(block)
            found.update(block)
        file.flush()
        os.fsync(file.fileno())
    if came != wanted.bytes:
        raise damaged(f"{came:,} bytes; expected {wanted.bytes:,}")
    if wanted.sha256 not in (None, found.hexdigest()):
        raise damaged(f"SHA-256 {found.hexdigest()}; expected {wanted.sha256}")
