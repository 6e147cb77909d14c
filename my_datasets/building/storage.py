"""Failures of the file system under a data directory, told in this package's errors."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from my_datasets.errors import (
    DataDirError,
    DataDirNotWritableError,
    DiskFullError,
    MyDatasetsError,
    explain,
)

_NOT_WRITABLE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@contextmanager
def explained(data_dir: Path) -> Iterator[None]:
    """Turns failures to write under `data_dir` into errors that say how to mend them.

    TensorFlow's file system raises its own classes in place of `OSError`; both are covered. An
    error that is about something else (another path, another cause) passes unchanged.

    Args:
      data_dir: The version or data directory that is being written; it may not exist yet.

    Raises:
      DiskFullError: No room is left.
      DataDirNotWritableError: Permission denied, a read-only file system, or a file where a
        directory is needed.
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


def _translate(error: Exception, data_dir: Path) -> DataDirError | None:
    # TFDS wraps TensorFlow's errors in a RuntimeError when it adds context.
    chain = list(_chain(error))
    full = next(filter(_is_full, chain), None)
    if full is not None:
        # Not always the data directory: archives, for one, may be extracted elsewhere.
        place = Path(full.filename) if isinstance(full, OSError) and full.filename else data_dir
        free = shutil.disk_usage(_existing(place)).free
        return DiskFullError(
            explain(
                f"The disk is full: {place} could not be written.",
                f"Free there: {free:,} bytes",
                "No half-made version is left. What was finished of it is kept for the next run.",
                mend="free some space there or choose another directory, then run the same again",
            )
        )
    if any(_is_not_writable(link, data_dir) for link in chain):
        place = _existing(data_dir)
        kind = "is not a directory" if not place.is_dir() else "cannot be written to"
        return DataDirNotWritableError(
            explain(
                f"{place} {kind}, so {data_dir} cannot be made.",
                f"The system said: {error}",
                mend="choose another --data-dir, or change the permissions",
            )
        )
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _is_full(error: BaseException) -> bool:
    if isinstance(error, OSError):
        # TFDS checks the room beforehand and raises an OSError without an errno.
        return error.errno in _FULL or "Not enough disk space" in str(error)
    return _tensorflow_error(error, "ResourceExhaustedError") and "space" in str(error)


def _is_not_writable(error: BaseException, data_dir: Path) -> bool:
    if isinstance(error, OSError):
        if error.errno not in _NOT_WRITABLE or not isinstance(error.filename, str):
            return False
        # A source file elsewhere that cannot be read is not the data directory's fault.
        place, failed = Path(os.path.abspath(data_dir)), Path(os.path.abspath(error.filename))
        return failed.is_relative_to(place.parent) or place.is_relative_to(failed)
    return _tensorflow_error(error, "PermissionDeniedError", "FailedPreconditionError") and (
        os.fspath(data_dir.parent) in str(error)
    )


def _tensorflow_error(error: BaseException, *names: str) -> bool:
    return type(error).__module__.startswith("tensorflow") and type(error).__name__ in names


def _existing(path: Path) -> Path:
    """Returns the nearest ancestor (or the path itself) that exists."""
    path = Path(os.path.abspath(path))
    while not path.exists() and path != path.parent:
        path = path.parent
    return path
