"""What the manifest records of files other than shards, so that changes to them are found.

It has a copy of TFDS's metadata, except for the sizes of splits and the names of classes, which it
records separately. Of other files, such as sidecars, it has the size and the SHA-256.
"""

import functools
import os
import re
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from my_datasets.core.logs import get_logger
from my_datasets.core.sizes import human_size
from my_datasets.errors import DataDirError
from my_datasets.metadata import sidecars
from my_datasets.metadata.dataset_info import FILE_NAME, dataset_info, is_plain_name
from my_datasets.metadata.feature_classes import FILE_NAME as FEATURES
from my_datasets.metadata.feature_classes import read_unchecked
from my_datasets.storage import regular_files
from my_datasets.storage.verified_files import VerifiedFiles, verified_files

if TYPE_CHECKING:
    from my_datasets.metadata.version_metadata import VersionMetadata

# Files hashed at the same time.
_AT_ONCE = 8
# From this many bytes on, a log message says that hashing takes a while.
_TOLD = 4 << 30
_LOGGER = get_logger(__name__)

_METADATA = (FILE_NAME, FEATURES)
# Files that are recorded separately, or come and go with publishing, pulling and attaching.
_OWN = "my_datasets_"
_SIDECARS = ".npy"
_LABELS = ".labels.txt"
_QUARANTINE = "quarantine.jsonl"
# Fields of a split that the manifest's list of shards and `dataset_info.essentials_of` have.
_OF_SHARDS = frozenset({"shardLengths", "numBytes"})
_HEX = re.compile("[0-9a-f]{64}")


def check_indexes(version_dir: Path, shards: Mapping[str, str]) -> None:
    """Checks the record index of each shard that has one; see `sidecars.check_index`.

    `shards` has the SHA-256 of each, by name; they are verified.

    Raises:
      CorruptShardError: An index does not match its shard.
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
    """Yields the names of files with other contents; stopping early cancels the remaining work.

    `files` has the size in bytes and the SHA-256 that each must have, by name. A link stands for
    what it leads to. Files that this machine has verified, and that have not changed since, are not
    read. `standard` is what they are compared with, for messages.
    """
    verified = _verified()
    # Readers follow links.
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


class Edit(NamedTuple):
    """A metadata value that differs from the recorded one.

    Attributes:
      field: Its name, from the top of the file on, such as `citation` or
        `featuresDict.features.label.pythonClassName`.
      recorded: The value in the manifest; None if there was no such field.
      found: The value in the file; None if there is no such field.
    """

    field: str
    recorded: object
    found: object


def of_version(version_dir: Path) -> dict[str, Any]:
    """Returns the copy of TFDS's metadata, by the name of the file.

    Raises:
      IncompleteVersionError: `dataset_info.json` is not what TFDS writes.
      OSError: A file cannot be read.
      ValueError: It is not JSON, or no object.
    """
    return {
        FILE_NAME: _checked(FILE_NAME, dataset_info(version_dir)),
        FEATURES: _checked(FEATURES, read_unchecked(version_dir)),
    }


def edits(recorded: Mapping[str, Any], version: "VersionMetadata") -> Iterator[tuple[str, Edit]]:
    """Yields the file name and the edit for each value that differs from the recorded one."""
    for name in _METADATA:
        before = recorded.get(name)
        if before is None:
            continue
        now = _checked(name, version.info if name == FILE_NAME else version.features_as_written)
        if name == FILE_NAME:
            before, splits = _without_splits(before)
            now, splits_now = _without_splits(now)
            # Older manifests do not record splits here.
            for edit in _edits_of_splits(splits, splits_now) if splits is not None else ():
                yield name, edit
        for edit in _edits(before, now, ()):
            yield name, edit


def of_files(version_dir: Path, shards: Collection[str]) -> dict[str, Any]:
    """Returns the size and SHA-256 of the files that are neither shards nor TFDS's own metadata."""
    return {
        path.name: {"bytes": path.stat().st_size, "sha256": regular_files.sha256_of(path)}
        for path in sorted(version_dir.iterdir())
        if path.is_file() and is_recorded(path.name) and path.name not in shards
    }


def check_files(files: Mapping[str, Any]) -> None:
    """Checks that a value has the form that `of_files` returns.

    Raises:
      ValueError, KeyError, TypeError: It has not.
    """
    for name, one in files.items():
        if not is_plain_name(name) or not is_recorded(name):
            raise ValueError(f"no name of a file that is recorded: {name[:80]!r}")
        if type(one["bytes"]) is not int or not _HEX.fullmatch(one["sha256"]):
            raise ValueError(f"no size and SHA-256: {name[:80]!r}")


def is_recorded(name: str) -> bool:
    """Returns whether the manifest records the size and SHA-256 of a file of this name."""
    if name.startswith(".") or name.endswith((".partial", _LABELS)):
        return False
    if name.startswith(_OWN) and not name.endswith(_SIDECARS):
        return False
    return name not in _METADATA and name != _QUARANTINE


def _checked(name: str, found: object) -> dict[str, Any]:
    """Returns one of TFDS's files without what is recorded separately."""
    if not isinstance(found, dict):
        raise ValueError(f"{name} is no object")
    if name != FILE_NAME:
        return found
    splits = [
        {name: value for name, value in split.items() if name not in _OF_SHARDS}
        for split in found["splits"]
    ]
    return {**found, "splits": splits}


def _without_splits(info: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """Returns `dataset_info.json` without its splits, and these by name; None if there are none."""
    found = {name: value for name, value in info.items() if name != "splits"}
    return found, {one["name"]: one for one in info["splits"]} if "splits" in info else None


def _edits_of_splits(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Edit]:
    """Yields the edits of splits that are in both: a part of a release has some of them."""
    names = [name for name in before if name in now]
    in_order = [name for name in now if name in before]
    if names != in_order:
        yield Edit("splits", names, in_order)
    for name in names:
        yield from _edits(before[name], now[name], ("splits", name))


def _edits(before: object, now: object, at: tuple[str, ...]) -> Iterator[Edit]:
    if isinstance(before, dict) and isinstance(now, dict):
        for name in sorted({*before, *now}):
            yield from _edits(before.get(name), now.get(name), (*at, name))
    elif before != now or type(before) is not type(now):
        yield Edit(".".join(at), before, now)
