"""Whether the files of a version have the SHA-256 that each must have."""

import functools
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from my_datasets.core.logs import get_logger
from my_datasets.core.sizes import human_size
from my_datasets.errors import DataDirError
from my_datasets.metadata import sidecars
from my_datasets.storage.verified_files import VerifiedFiles, verified_files

# Files hashed at the same time.
_AT_ONCE = 8
# From this many bytes on, a log message says that hashing takes a while.
_TOLD = 4 << 30
_LOGGER = get_logger(__name__)


def check_indexes(version_dir: Path, shards: Mapping[str, str]) -> None:
    """Checks the record index of each shard that has one; see `sidecars.check_index`.

    Args:
      version_dir: Where the shards are, verified.
      shards: The SHA-256 of each, by name.

    Raises:
      CorruptShardError: An index is not the shard's.
    """
    verified = _verified()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        jobs = pool.map(
            lambda one: sidecars.check_index(version_dir / one[0], one[1], verified),
            shards.items(),
        )
        for _ in jobs:
            pass


def _verified() -> VerifiedFiles:
    try:
        return verified_files()
    except DataDirError:
        return _verified_by_this_process()  # a user without a home


def other_files(
    version_dir: Path, files: Mapping[str, tuple[int, str]], standard: str
) -> Iterator[str]:
    """Yields the names of files with other contents; stopping early cancels what is left.

    Files that this machine has verified, and that did not change since, are not read.

    Args:
      version_dir: Where they are; a link stands for what it leads to.
      files: By name, the size in bytes and the SHA-256 that each must have.
      standard: What they are compared with, for messages.
    """
    verified = _verified()
    # What a link leads to is what is read.
    left = {
        name: ((version_dir / name).resolve(), sha256, size)
        for name, (size, sha256) in files.items()
    }
    left = {name: one for name, one in left.items() if not verified.knows(*one)}
    total = sum(size for _, _, size in left.values())
    if total > _TOLD:
        _LOGGER.warning(
            "%s is compared with %s: %s are hashed, once on this machine.",
            version_dir, standard, human_size(total),
        )  # fmt: skip
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        right = pool.map(lambda one: verified.has(*one), left.values())
        try:
            for name, is_right in zip(left, right, strict=True):
                if not is_right:
                    yield name
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


@functools.cache
def _verified_by_this_process() -> VerifiedFiles:
    return VerifiedFiles(Path(os.devnull))
