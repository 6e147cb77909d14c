"""One build at a time per version, beside the old data, swapped in at once.

The names follow TFDS: it writes a version in `incomplete.<random>_<version>/` beside the final
directory and renames it when it is whole. A process that is killed leaves that directory behind.
Here a lock distinguishes such leftovers from the work of a live process.
"""

import contextlib
import ctypes
import errno
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from my_datasets.building.runs import SUFFIX
from my_datasets.core.logs import get_logger
from my_datasets.errors import DataDirError, OverwriteError

_LOGGER = get_logger(__name__)

_AT_FDCWD = -100  # linux/fcntl.h: paths are relative to the working directory
_WORK = ".work"
_OLD_WORK_SECONDS = 7 * 24 * 3600
_RENAME_EXCHANGE = 2  # linux/fs.h: renameat2 swaps the two names atomically


@contextmanager
def exclusive(version_dir: Path, *, overwrite: bool = False) -> Iterator[None]:
    """Locks one version for building, and removes what killed builds left behind.

    Waits while another process holds the lock. An overwrite that was killed between its two renames
    is undone. With `overwrite`, the shards of one that was killed after the swap are kept, to be
    used again. The lock is the operating system's, on `.<version>.lock` beside the version, so it
    ends with its process. The empty file stays: removing it would let two processes lock two files
    of one name. `version_dir` is `<data_dir>/<name>[/<config>]/<version>`; its parent is created if
    need be.

    Raises:
      OSError: The directory cannot be created or written.
      DataDirError: The name of the lock is a link.
    """
    version_dir.parent.mkdir(parents=True, exist_ok=True)
    lock = _lock(version_dir)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        _LOGGER.warning("Another process is building %s; waiting for it.", version_dir)
        lock.acquire()
    except OSError as error:
        if not Path(lock.lock_file).is_symlink():
            raise
        raise DataDirError(
            f"{lock.lock_file} is a symbolic link, and my_datasets does not lock links.",
            fix="remove the link, and find out who created it",
        ) from error
    try:
        _recover(version_dir)
        _forget_old_work(version_dir, is_wanted=overwrite)
        try:
            yield
        except BaseException:
            with contextlib.suppress(OSError):
                _recover(version_dir)
            raise
        finally:
            _forget_old_work(version_dir)
    finally:
        lock.release()


def remove_leftovers(version_dir: Path) -> None:
    """Removes what killed builds of a version left behind.

    Does nothing while a build is running, or on a read-only disk.
    """
    if not any(_remains(version_dir)) and not any(_old_work(version_dir)):
        return
    try:
        with _lock(version_dir).acquire(timeout=0):
            _recover(version_dir)
            _forget_old_work(version_dir)
    except OSError:  # filelock.Timeout is one, too
        _LOGGER.info("Not removing what killed builds left beside %s: it is in use.", version_dir)


@contextmanager
def beside(version_dir: Path) -> Iterator[Path]:
    """Yields an empty directory on the version's file system, and removes it at exit."""
    name = f"incomplete.{secrets.token_hex(3).upper()}_{version_dir.name}"
    directory = version_dir.parent / name
    try:
        directory.mkdir()  # inside `try`: Ctrl-C may arrive right after it is created
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def work_dir(version_dir: Path) -> Path:
    """Returns the work directory of a version, from which a later build resumes."""
    return version_dir.parent / f".{version_dir.name}{_WORK}"


def describe_kept(version_dir: Path) -> str:
    """Returns a sentence that says what is kept of an unfinished build."""
    if work_dir(version_dir).exists():
        return "Finished units and shards are kept."
    return "Nothing was finished, and nothing is left behind."


def discard_work(version_dir: Path) -> None:
    """Removes the work directory of a complete version."""
    discard(work_dir(version_dir))


def discard(work: Path) -> None:
    """Removes a work directory; it is renamed first, so no build ever sees a part of it."""
    version = work.name.removeprefix(".").removesuffix(_WORK)
    aside = work.with_name(f"incomplete.{secrets.token_hex(3).upper()}_{version}")
    try:
        work.rename(aside)
    except FileNotFoundError:
        return
    _remove(aside, ignore_errors=True)


def leads_outside(version_dir: Path, data_dir: Path) -> bool:
    """Returns whether a symbolic link puts a version outside its data directory."""
    parent = Path(os.path.realpath(version_dir.parent))
    return not parent.is_relative_to(os.path.realpath(data_dir))


def require_inside(version_dir: Path, data_dir: Path) -> None:
    """Refuses to write through a link that leads out of the data directory.

    Raises:
      OverwriteError: The folder of the dataset, or of the config, is such a link.
    """
    if leads_outside(version_dir, data_dir):
        raise OverwriteError(
            f"{version_dir.parent} is a link that leads out of the data directory {data_dir}.",
            f"It leads to: {os.path.realpath(version_dir.parent)}",
            fix="pass the link's target as --data-dir, or replace the link with a folder",
        )


def swap(new: Path, current: Path) -> None:
    """Swaps the directories `new` and `current`.

    On Linux the swap is atomic: a reader that opens a path always finds one or the other. Where the
    kernel or file system cannot do that, this takes two renames, and `exclusive` restores the old
    directory if the process dies between them.
    """
    if _exchange(new, current):
        return
    aside = _aside(current)
    current.rename(aside)
    try:
        new.rename(current)
    except BaseException:
        aside.rename(current)
        raise
    aside.rename(new)


def _exchange(one: Path, other: Path) -> bool:
    """Swaps two names atomically (renameat2(2)); returns False where that is not supported."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    error = ctypes.get_errno()
    if error in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(error, os.strerror(error), os.fspath(one), None, os.fspath(other))


def _lock(version_dir: Path) -> filelock.BaseFileLock:
    return filelock.FileLock(version_dir.parent / f".{version_dir.name}.lock")


def _aside(version_dir: Path) -> Path:
    return version_dir.parent / f".{version_dir.name}.replaced"


def _recover(version_dir: Path) -> None:
    """Removes what killed builds of this version left behind; the caller holds the lock."""
    aside = _aside(version_dir)
    if aside.is_dir() and not aside.is_symlink():
        if version_dir.exists():
            shutil.rmtree(aside)
        else:
            aside.rename(version_dir)
            _LOGGER.warning("Restored %s from an interrupted overwrite.", version_dir)
    for path in _remains(version_dir):
        _LOGGER.warning("Removing %s, left behind by an interrupted build.", path)
        _remove(path)


def _remove(path: Path, *, ignore_errors: bool = False) -> None:
    """Removes a directory tree, or unlinks anything else, which no build made."""
    if path.is_symlink() or not path.is_dir():
        path.unlink()  # `rmtree` hangs on a named pipe
    else:
        shutil.rmtree(path, ignore_errors=ignore_errors)


def _forget_old_work(version_dir: Path, *, is_wanted: bool = False) -> None:
    """Removes unfinished work that no build will resume; the caller holds the lock."""
    for path in _old_work(version_dir, is_wanted=is_wanted):
        other = version_dir.parent / path.name[1 : -len(_WORK)]
        with contextlib.suppress(OSError):  # in use, or just removed
            if other == version_dir:
                discard(path)
                continue
            with _lock(other).acquire(timeout=0):
                _LOGGER.warning("Removing %s, untouched for more than a week.", path)
                discard(path)


def _old_work(version_dir: Path, *, is_wanted: bool = False) -> Iterator[Path]:
    """Yields work directories that are a week old, of any version, and this one's if spent."""
    for path in version_dir.parent.glob(f".*{_WORK}"):
        is_own = path == work_dir(version_dir)
        with contextlib.suppress(OSError):
            if _is_no_work(path):
                if is_own:
                    yield path
                continue
            # Work of the Beam engine lies one level deeper.
            files = (path, *path.glob("*"), *path.glob("*/*"))
            newest = max(file.stat().st_mtime for file in files)
            is_old = time.time() - newest > _OLD_WORK_SECONDS
            if is_old or (is_own and _is_spent(path, version_dir, is_wanted)):
                yield path


def _is_no_work(path: Path) -> bool:
    """Returns whether no build made this directory: it is a link, or contains links or pipes.

    A link could lead anywhere on the disk, so its target must not be treated as work.
    """
    if path.is_symlink() or not path.is_dir():
        return True
    kinds = (
        stat.S_IFMT(os.lstat(Path(folder, name)).st_mode)
        for folder, folders, files in os.walk(path)
        for name in (*folders, *files)
    )
    return any(kind not in (stat.S_IFREG, stat.S_IFDIR) for kind in kinds)


def _is_spent(work: Path, version_dir: Path, is_wanted: bool) -> bool:
    """Returns whether a work directory has nothing finished, or its version is complete."""
    files = [path.stat() for path in work.rglob("*") if path.is_file()]
    linked = {(one.st_dev, one.st_ino) for one in files if one.st_nlink > 1}
    if linked and not is_wanted and version_dir.is_dir():
        placed = (path.stat() for path in version_dir.rglob("*") if path.is_file())
        if any((one.st_dev, one.st_ino) in linked for one in placed):
            return True
    return not any(work.rglob(f"*{SUFFIX}"))


def _remains(version_dir: Path) -> Iterator[Path]:
    """Yields what killed builds of this version left, or a live one is working on."""
    incomplete = re.compile(rf"incomplete\.\w+_{re.escape(version_dir.name)}")
    for path in list(version_dir.parent.iterdir()):
        if path == _aside(version_dir) or incomplete.fullmatch(path.name):
            yield path
