"""Transfers files of a release: in parallel, with progress; downloads resume, and are verified."""

import contextlib
import errno
import hashlib
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeVar

from my_datasets.core import interruption
from my_datasets.core.progress import Progress
from my_datasets.errors import (
    CorruptReleaseError,
    MyDatasetsError,
    NotInStoreError,
    StoreError,
    damaged_release,
)
from my_datasets.metadata.manifest import Manifest
from my_datasets.publishing.catalog_client import CatalogClient
from my_datasets.publishing.model import store_layout
from my_datasets.publishing.model.record import Record, ReleasedFile
from my_datasets.storage import disk_space
from my_datasets.storage.store import BLOCK, OnBytes
from my_datasets.storage.verified_files import verified_files

_Item = TypeVar("_Item")

# Seconds between checks for a signal.
_SIGNALS_EVERY = 0.1
_AT_ONCE = 8
_PARTIAL = ".partial"
# linux/fs.h: makes a file share the blocks of another one until either is written.
_FICLONE = 0x40049409
_NOT_CLONED = frozenset({
    errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.EPERM, errno.ENOSYS,
})  # fmt: skip
# Free space to leave for metadata.
_SPARE = 1 << 20

# The stages are `verifying`, `uploading`, `placing` and `downloading`; counts are bytes.
TransferProgress = Progress


class Transfer:
    """Counts the bytes of many threads."""

    def __init__(self, stage: str, total: int, report: Callable[[TransferProgress], None]) -> None:
        self._stage = stage
        self._total = total
        self._report = report
        self._done = 0
        self._begin = time.monotonic()
        self._lock = threading.Lock()
        self._is_stopped = False
        self(0)

    def each(self, work: Callable[[_Item], None], items: Iterable[_Item], threads: int) -> None:
        """Runs transfers in parallel, and waits until all have ended.

        Raises:
          Exception: The first error of `work`; the others stop when they report more bytes.
        """
        done: SimpleQueue[Future[None]] = SimpleQueue()
        pool = ThreadPoolExecutor(threads)
        # A signal inside the pool's own code could leave a thread that the pool does not know of,
        # or release a lock twice.
        with interruption.postponed():
            try:
                futures = [pool.submit(work, one) for one in items]
                for future in futures:
                    future.add_done_callback(done.put)
                for _ in futures:
                    _next(done).result()
            except BaseException:
                self._is_stopped = True
                raise
            finally:
                pool.shutdown(cancel_futures=True)

    def __call__(self, count: int) -> None:
        """Reports transferred bytes; a negative number if they must be transferred again."""
        if self._is_stopped and count > 0:
            raise StoreError(
                "Stopped because another transfer failed.", fix="see that transfer's error"
            )
        with self._lock:
            self._done += count
            seconds = time.monotonic() - self._begin
            self._report(TransferProgress(self._stage, self._done, self._total, seconds))


def _next(done: "SimpleQueue[Future[None]]") -> "Future[None]":
    """Returns the next finished future; raises if a signal arrives."""
    while True:
        interruption.raise_postponed()
        with contextlib.suppress(Empty):
            return done.get(timeout=_SIGNALS_EVERY)


def partition(
    check: Callable[[_Item], bool], items: Iterable[_Item], threads: int
) -> tuple[list[_Item], list[_Item]]:
    """Returns the items for which a check is true, and the others; checks several at a time."""
    given = list(items)
    with ThreadPoolExecutor(threads) as pool:
        results = list(pool.map(check, given))
    pairs = list(zip(given, results, strict=True))
    return [one for one, is_so in pairs if is_so], [one for one, is_so in pairs if not is_so]


@dataclass(frozen=True)
class Fetched:
    """The bytes downloaded from the store, and those linked from files on this machine."""

    downloaded: int
    linked: int


def fetch(
    client: CatalogClient,
    wanted: Record,
    directory: Path,
    files: Iterable[ReleasedFile] | None = None,
    *,
    known: Mapping[str, Path] | None = None,
    workers: int = _AT_ONCE,
    report: Callable[[TransferProgress], None] = lambda _: None,
) -> Fetched:
    """Downloads files of a release to a directory; each gets its name once it is verified.

    Files in the directory are used if they are known to be verified, or after hashing. No other
    process may write to the directory.

    Args:
      client: The client of the store.
      wanted: The record of the release.
      directory: The directory; created if it does not exist.
      files: The files to download; None for all.
      known: Files on this machine that may have the same content, by SHA-256.
      workers: The number of parallel downloads.
      report: Called with the progress.

    Raises:
      DiskFullError: There is not enough space.
      CorruptReleaseError: The store returns data that differs from what was published.
      StoreUnavailableError: The store does not respond. Downloaded data is kept.
    """
    directory.mkdir(parents=True, exist_ok=True)
    verified = verified_files()
    some = sorted(wanted.files if files is None else files, key=lambda one: -one.bytes)

    def is_whole(one: ReleasedFile) -> bool:
        return verified.has(directory / one.name, one.sha256, one.bytes)

    _, rest = partition(is_whole, some, workers)
    linked, missing = partition(
        lambda one: _linked(directory / one.name, one, known or {}), rest, workers
    )
    need = sum(one.bytes - _size_of(directory / f"{one.name}{_PARTIAL}", one) for one in missing)
    disk_space.require(need + _SPARE, directory, "The files that are to be downloaded have")
    transfer = Transfer("downloading", need, report)
    folder = store_layout.release_of(wanted.name, wanted.key)

    def download(one: ReleasedFile) -> None:
        _download(client, f"{folder}/{one.name}", directory / one.name, one, transfer)

    transfer.each(download, missing, workers)
    return Fetched(need, sum(one.bytes for one in linked))


def known_files(version_dirs: Iterable[Path]) -> dict[str, Path]:
    """Returns the shards of local versions, by the SHA-256 in their manifests."""
    found: dict[str, Path] = {}
    for version_dir in version_dirs:
        with contextlib.suppress(MyDatasetsError, OSError):
            made = Manifest.read(version_dir)
            splits = made.content.splits.values() if made and made.content else ()
            found |= {one.sha256: version_dir / one.name for some in splits for one in some.shards}
    return found


def _download(
    client: CatalogClient, path: str, target: Path, one: ReleasedFile, transfer: OnBytes
) -> None:
    """Downloads or resumes a file; starts over if the partial file is wrong."""
    partial = target.with_name(target.name + _PARTIAL)
    resumed = _size_of(partial, one)
    try:
        _append(client, path, partial, one, transfer)
    except CorruptReleaseError:
        partial.unlink(missing_ok=True)
        if not resumed:
            raise
        transfer(resumed - one.bytes)
        _append(client, path, partial, one, transfer)


def _append(
    client: CatalogClient, path: str, partial: Path, one: ReleasedFile, transfer: OnBytes
) -> None:
    found, source = hashlib.sha256(), f"{path} in {client.store.url}"
    with open(partial, "ab+", opener=_no_link) as file:
        file.seek(0)
        while block := file.read(BLOCK):
            found.update(block)
        size = begin = file.tell()
        try:
            # Never write more than the expected size, whatever the store returns.
            for data in client.store.read(path, begin, one.bytes) if begin < one.bytes else ():
                size += len(data)
                if size > one.bytes:
                    raise damaged_release(source, f"more than {one.bytes:,} bytes")
                file.write(data)
                found.update(data)
                transfer(len(data))
        except NotInStoreError as error:
            raise damaged_release(source, "it is missing") from error
        file.flush()
        os.fsync(file.fileno())
        if size != one.bytes:
            raise damaged_release(source, f"{size:,} bytes, not {one.bytes:,}")
        if found.hexdigest() != one.sha256:
            raise damaged_release(source, f"SHA-256 {found.hexdigest()}, not {one.sha256}")
        partial.rename(partial.with_name(one.name))
        verified_files().remember(file.fileno(), one.sha256)


def _size_of(partial: Path, one: ReleasedFile) -> int:
    """Returns the size of a partial file; deletes one that is too large."""
    try:
        size = partial.lstat().st_size
    except FileNotFoundError:
        return 0
    if size > one.bytes:
        partial.unlink()
        return 0
    return size


def discard(path: Path) -> None:
    """Deletes a file, a link, or a directory tree; does not follow links."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def keep_only_files(directory: Path) -> None:
    """Deletes everything but regular files: links, pipes, directories.

    Also deletes partial files that are hard-linked elsewhere, because writing would change those.
    """
    for path in directory.iterdir():
        found = path.lstat()
        has_other_name = path.suffix == _PARTIAL and found.st_nlink > 1
        if not stat.S_ISREG(found.st_mode) or has_other_name:
            discard(path)


def _linked(path: Path, one: ReleasedFile, known: Mapping[str, Path]) -> bool:
    """Clones or links a known file; returns whether that succeeded."""
    source, verified = known.get(one.sha256), verified_files()
    try:
        if source is None or not verified.has(source, one.sha256, one.bytes):
            return False
        path.unlink(missing_ok=True)
        if not _cloned(source, path):
            os.link(source, path)
        verified.remember(path, one.sha256)
    except OSError:
        return False  # another file system, or no links: download instead
    return True


def _cloned(source: Path, target: Path) -> bool:
    """Clones a file without copying its blocks, if the file system can."""
    try:
        import fcntl
    except ModuleNotFoundError:
        return False
    with source.open("rb") as original, target.open("xb") as copy:
        try:
            fcntl.ioctl(copy.fileno(), _FICLONE, original.fileno())
        except OSError as error:
            if error.errno not in _NOT_CLONED:
                raise
        else:
            shutil.copymode(source, target)
            return True
    target.unlink()
    return False


def _no_link(path: str, flags: int) -> int:
    """Opens a file without following links."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)
