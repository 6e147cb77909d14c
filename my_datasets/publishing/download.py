"""Files of a release, brought to a directory: in parallel, from where they were left, verified."""

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from my_datasets.building import disk_space
from my_datasets.errors import (
    CorruptReleaseError,
    MyDatasetsError,
    NotInStoreError,
    damaged_release,
)
from my_datasets.metadata.manifest import Manifest
from my_datasets.publishing.catalog_client import CatalogClient
from my_datasets.publishing.model import store_layout
from my_datasets.publishing.model.record import Record, ReleasedFile
from my_datasets.publishing.transfer import Transfer, TransferProgress
from my_datasets.storage.store import BLOCK, OnBytes
from my_datasets.storage.verified_files import verified_files

_AT_ONCE = 8
_PARTIAL = ".partial"
# linux/fs.h: the file shares the blocks of another one, until one of them is written.
_FICLONE = 0x40049409
# Metadata, and what else is written beside the files themselves.
_SPARE = 1 << 20


@dataclass(frozen=True)
class Fetched:
    """What was done.

    Attributes:
      downloaded: Bytes that came from the store.
      linked: Bytes that were on this machine already.
    """

    downloaded: int
    linked: int


def fetch(
    ledger: CatalogClient,
    wanted: Record,
    directory: Path,
    files: Iterable[ReleasedFile] | None = None,
    *,
    known: Mapping[str, Path] | None = None,
    workers: int = _AT_ONCE,
    report: Callable[[TransferProgress], None] = lambda _: None,
) -> Fetched:
    """Brings files of a release to a directory. Each has its name there once it is verified.

    What is in the directory already is used if it is verified: this machine knows it, or it is
    hashed. Nobody else may write there.

    Args:
      ledger: Of the store.
      wanted: The record of the release.
      directory: Where to; made if need be.
      files: Which ones; None for all.
      known: Files on this machine that may have the contents wanted, by SHA-256.
      workers: Files that are downloaded at the same time.
      report: Told how far it is.

    Raises:
      DiskFullError: There is no room for them.
      CorruptReleaseError: The store gives something else than was published.
      StoreUnavailableError: The store does not answer. What came is kept.
    """
    directory.mkdir(parents=True, exist_ok=True)
    verified = verified_files()
    some = sorted(wanted.files if files is None else files, key=lambda one: -one.bytes)

    def is_whole(one: ReleasedFile) -> bool:
        return verified.has(directory / one.name, one.sha256, one.bytes)

    with ThreadPoolExecutor(workers) as pool:
        whole = list(pool.map(is_whole, some))
        some = [one for one, is_whole in zip(some, whole, strict=True) if not is_whole]
        there = list(pool.map(lambda one: _linked(directory / one.name, one, known or {}), some))
    linked = [one for one, is_linked in zip(some, there, strict=True) if is_linked]
    missing = [one for one, is_linked in zip(some, there, strict=True) if not is_linked]
    came = {one.name: _came(directory / f"{one.name}{_PARTIAL}", one) for one in missing}
    need = sum(one.bytes - came[one.name] for one in missing)
    disk_space.require(need + _SPARE, directory, "The files that are to be downloaded have")
    transfer = Transfer("downloading", need, report)
    folder = store_layout.release_of(wanted.name, wanted.key)
    transfer.each(
        lambda one: _download(ledger, f"{folder}/{one.name}", directory, one, transfer),
        missing,
        workers,
    )
    return Fetched(need, sum(one.bytes for one in linked))


def known_files(version_dirs: Iterable[Path]) -> dict[str, Path]:
    """Returns the shards of versions on this machine, by the SHA-256 that their manifests say."""
    found: dict[str, Path] = {}
    for version_dir in version_dirs:
        with contextlib.suppress(MyDatasetsError, OSError):
            made = Manifest.read(version_dir)
            splits = made.content.splits.values() if made and made.content else ()
            found |= {one.sha256: version_dir / one.name for some in splits for one in some.shards}
    return found


def _download(
    ledger: CatalogClient, path: str, directory: Path, one: ReleasedFile, transfer: OnBytes
) -> None:
    """Downloads a file; if what was there is no beginning of it, from its beginning."""
    partial = directory / f"{one.name}{_PARTIAL}"
    resumed = _came(partial, one)
    try:
        _append(ledger, path, partial, one, transfer)
    except CorruptReleaseError:
        partial.unlink(missing_ok=True)
        if not resumed:
            raise
        transfer(resumed - one.bytes)
        _append(ledger, path, partial, one, transfer)


def _append(
    ledger: CatalogClient, path: str, partial: Path, one: ReleasedFile, transfer: OnBytes
) -> None:
    found, source = hashlib.sha256(), f"{path} in {ledger.store.url}"
    with open(partial, "ab+", opener=_no_link) as file:
        file.seek(0)
        while block := file.read(BLOCK):
            found.update(block)
        size = begin = file.tell()
        try:
            # Never more than there should be, whatever the store gives.
            for data in ledger.store.read(path, begin, one.bytes) if begin < one.bytes else ():
                size += len(data)
                if size > one.bytes:
                    raise damaged_release(source, f"more than {one.bytes:,} bytes")
                file.write(data)
                found.update(data)
                transfer(len(data))
        except NotInStoreError as error:
            raise damaged_release(source, "it is not there") from error
        file.flush()
        os.fsync(file.fileno())
        if size != one.bytes:
            raise damaged_release(source, f"{size:,} bytes; published were {one.bytes:,}")
        if found.hexdigest() != one.sha256:
            raise damaged_release(
                source, f"SHA-256 {found.hexdigest()}; published was {one.sha256}"
            )
        partial.rename(partial.with_name(one.name))
        verified_files().remember(file.fileno(), one.sha256)


def _came(partial: Path, one: ReleasedFile) -> int:
    """Returns how many bytes of a file are there; what is no beginning of it is discarded."""
    try:
        size = partial.lstat().st_size
    except FileNotFoundError:
        return 0
    if size > one.bytes:
        partial.unlink()
        return 0
    return size


def discard(path: Path) -> None:
    """Removes a file, a link, or a directory with all that is in it; links are not followed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def keep_only_files(directory: Path) -> None:
    """Removes what nobody who downloads leaves in a directory: links, pipes, directories.

    Also beginnings of files that have another name elsewhere: to write there would change that.
    """
    for path in directory.iterdir():
        found = path.lstat()
        has_other_name = path.suffix == _PARTIAL and found.st_nlink > 1
        if not stat.S_ISREG(found.st_mode) or has_other_name:
            discard(path)


def _linked(path: Path, one: ReleasedFile, known: Mapping[str, Path]) -> bool:
    """Returns whether a file is there now, with the blocks of another one on this machine."""
    source, verified = known.get(one.sha256), verified_files()
    try:
        if source is None or not verified.has(source, one.sha256, one.bytes):
            return False
        path.unlink(missing_ok=True)
        if not _cloned(source, path):
            os.link(source, path)
        verified.remember(path, one.sha256)
    except OSError:
        return False  # another file system, or one without links: then it is downloaded
    return True


def _cloned(source: Path, target: Path) -> bool:
    """Copies a file without copying its blocks, where the file system can do that."""
    try:
        import fcntl
    except ModuleNotFoundError:
        return False
    with source.open("rb") as origin, target.open("xb") as copy:
        try:
            fcntl.ioctl(copy.fileno(), _FICLONE, origin.fileno())
        except OSError as error:
            if error.errno not in _NOT_CLONED:
                raise
        else:
            shutil.copymode(source, target)
            return True
    target.unlink()
    return False


_NOT_CLONED = frozenset({
    errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.EPERM, errno.ENOSYS,
})  # fmt: skip


def _no_link(path: Any, flags: int) -> int:
    """Opens a file that is none elsewhere."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)
