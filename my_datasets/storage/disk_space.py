"""Checks that the disk has enough space, and explains errors of the file system.

Errors under a data directory are raised again as this package's errors, which say what to do.
"""

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from my_datasets.core.processes import is_out_of_memory
from my_datasets.errors import (
    DataDirError,
    DataDirNotWritableError,
    DiskFullError,
    FileAccessError,
    MyDatasetsError,
    OutOfMemoryError,
)

_NOT_WRITABLE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_FIXES = {
    errno.ENOENT: "correct the path, or make the folder first",
    errno.ENOTDIR: "correct the path: a part of it is a file, not a folder",
    errno.EISDIR: "name a file: this is a folder",
    errno.EACCES: "change the permissions, or choose another place",
    errno.EPERM: "change the permissions, or choose another place",
    errno.EROFS: "choose another place: this one can only be read",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ELOOP: "correct the path: its links lead back to themselves",
    errno.EMFILE: "allow more open files (ulimit -n)",
}


@contextmanager
def explained(data_dir: Path) -> Iterator[None]:
    """Turns failures to write under `data_dir` into errors that say how to fix them.

    This covers `OSError` and the classes that TensorFlow's file system raises in its place. Errors
    about other paths or with other causes pass unchanged. `data_dir` may not exist yet.

    Raises:
      DiskFullError: No space is left.
      DataDirNotWritableError: Permission denied, a read-only file system, or a file where a
        directory is needed.
      DataDirError: Something removed a file or folder there.
      OutOfMemoryError: The system refuses more memory.
    """
    try:
        yield
    except MyDatasetsError:
        raise
    except Exception as error:
        translated = _translate(error, data_dir)
        if translated is None:
            raise
        raise translated from error


def file_error(error: OSError) -> MyDatasetsError | None:
    """Returns this package's error for an `OSError`; None if it is not about a file."""
    if error.errno == errno.ENOMEM:
        return no_memory(error)
    place = "A file" if isinstance(error.filename, int | None) else os.fsdecode(error.filename)
    if _is_full(error):
        return DiskFullError(
            f"The disk is full: {place} cannot be written.",
            fix="free some space there, or choose another place, then run the same again",
        )
    # click handles EPIPE: the reader of the output has gone.
    if error.errno is None or error.errno == errno.EPIPE:
        return None
    return FileAccessError(
        f"{error}." if error.filename is None else f"{place}: {error.strerror}.",
        fix=_FIXES.get(error.errno, "correct the path, or check what is at it"),
    )


def no_memory(error: BaseException) -> OutOfMemoryError:
    """Returns this package's error for a failed allocation."""
    return OutOfMemoryError(
        "The system gives this process no more memory.",
        f"The error was: {error}" if str(error) else "",
        fix="raise the limit (see ulimit -v, or the container's), or use less: a lower "
        "--max-memory or fewer --workers for a build, a smaller batch_size for a pipeline",
    )


def _translate(error: Exception, data_dir: Path) -> MyDatasetsError | None:
    # TFDS wraps TensorFlow's errors in a RuntimeError when it adds context.
    chain = list(_chain(error))
    full = next(filter(_is_full, chain), None)
    if full is not None:
        # This may not be the data directory: archives, for example, may be extracted elsewhere.
        place = Path(full.filename) if isinstance(full, OSError) and full.filename else data_dir
        free = shutil.disk_usage(_existing(place)).free
        return DiskFullError(
            f"The disk is full: {place} could not be written.",
            f"Free there: {free:,} bytes",
            "No partial version is left. Finished units and shards are kept for the next run.",
            fix="free some space there or choose another directory, then run the same again",
        )
    if any(_is_not_writable(link, data_dir) for link in chain):
        place = _existing(data_dir)
        kind = "cannot be written to" if place.is_dir() else "is not a directory"
        return DataDirNotWritableError(
            f"{place} {kind}, so {data_dir} cannot be created.",
            f"The error was: {error}",
            fix="choose another --data-dir, or change the permissions",
        )
    gone = [link for link in chain if isinstance(link, FileNotFoundError)]
    missing = next((link for link in gone if _is_within(link, data_dir)), None)
    if missing is not None:
        return DataDirError(
            f"{missing.filename} is gone: something removed it while {data_dir} was written.",
            fix="make sure that nothing else removes files there, then run the same again",
        )
    short = next((link for link in chain if is_out_of_memory(link)), None)
    return no_memory(short) if short is not None else None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _is_full(error: BaseException) -> bool:
    if isinstance(error, OSError):
        # TFDS, which checks the free space first, and NumPy's tofile and save set no errno.
        return (
            error.errno in _FULL
            or re.search(r"Not enough disk space|^\d+ requested and \d+ written$", str(error))
            is not None
        )
    return _tensorflow_error(error, "ResourceExhaustedError") and "space" in str(error)


def _is_not_writable(error: BaseException, data_dir: Path) -> bool:
    if isinstance(error, OSError):
        if error.errno not in _NOT_WRITABLE or not isinstance(error.filename, str):
            return False
        failed = os.path.abspath(error.filename)
        return _is_within(error, data_dir) or Path(os.path.abspath(data_dir)).is_relative_to(failed)
    return _tensorflow_error(error, "PermissionDeniedError", "FailedPreconditionError") and (
        os.fspath(data_dir.parent) in str(error)
    )


def _is_within(error: OSError, data_dir: Path) -> bool:
    # A source file that is unreadable or missing elsewhere is not the data directory's fault.
    parent = Path(os.path.abspath(data_dir)).parent
    return isinstance(error.filename, str) and (
        Path(os.path.abspath(error.filename)).is_relative_to(parent)
    )


def _tensorflow_error(error: BaseException, *names: str) -> bool:
    return type(error).__module__.startswith("tensorflow") and type(error).__name__ in names


def _existing(path: Path) -> Path:
    """Returns the nearest ancestor (or the path itself) that exists."""
    path = Path(os.path.abspath(path))
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def require(need: int, directory: Path, what: str) -> None:
    """Raises `DiskFullError` unless `need` bytes are free; `what` is like "The shards take"."""
    free = shutil.disk_usage(directory).free
    if need > free:
        raise DiskFullError(
            f"There is not enough room in {directory.parent}.",
            f"{what} {need:,} bytes; free there: {free:,}",
            "What was finished is kept.",
            fix="free some space or choose another directory, then run the same again",
        )
