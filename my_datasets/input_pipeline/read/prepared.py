"""A prepared version on this machine: where its records are, and what is in them. No TensorFlow."""

import functools
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from my_datasets.errors import (
    DataDirError,
    NotPreparedError,
    explain,
)
from my_datasets.input_pipeline.read.attached_release import origin_of
from my_datasets.input_pipeline.read.bucket_cache import BucketFile, ObjectStore, mirror
from my_datasets.metadata import features, layout, subsplits
from my_datasets.metadata.dataset_info import Declared
from my_datasets.metadata.features import Schema
from my_datasets.metadata.manifest import Manifest
from my_datasets.records.random_access import RecordReader, RecordShard
from my_datasets.records.shard_provider import ShardProvider
from my_datasets.resolving import resolve_prepared
from my_datasets.resolving.request import Request
from my_datasets.resolving.resolve_prepared import Reference, root_of
from my_datasets.storage import addresses
from my_datasets.storage.user_folders import cache_folder

# A split or slice as text, or what TFDS takes for one.
Split = Any
# Shards that come when they are read, whose examples are put into an order together; and windows of
# them that lie here: one, one that not all threads are through with, and the next one.
WINDOW = 4
WINDOWS_HELD = 3


@dataclass(frozen=True)
class Prepared:
    """A prepared version.

    Attributes:
      path: Its directory.
      name: The dataset's full name, `name/config:version`.
      schema: Its features.
      shards: The shards of each split.
      origin: Where its shards come from, if they are not here; `path` then holds its metadata.
    """

    path: Path
    name: str
    schema: Schema
    shards: Mapping[str, list[RecordShard]]
    origin: ShardProvider | None = None

    @functools.cached_property
    def content(self) -> str:
        """Which data it is: a hash of what made it, and of the shards' names, sizes and lengths."""
        made_by = Manifest.read(self.path)
        shards = [(one.path.name, one.length, self._size(one.path)) for one in self._all_shards()]
        described = [self.name, shards, made_by.fingerprint if made_by else None]
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()

    def _size(self, path: Path) -> int:
        if self.origin is not None:
            return self.origin.sizes.get(path.name, -1)
        return path.stat().st_size if path.exists() else -1

    @property
    def modified(self) -> int:
        """When a shard was written last, in nanoseconds of the epoch."""
        if self.origin is not None:
            return self.origin.modified
        times = [one.path.stat().st_mtime_ns for one in self._all_shards() if one.path.exists()]
        return max(times, default=0)

    def _all_shards(self) -> list[RecordShard]:
        return [one for some in self.shards.values() for one in some]

    def text_of(self, split: Split) -> str:
        """Returns a split or slice as text; see `subsplits.text_of`."""
        return subsplits.text_of(split, self._lengths)

    @property
    def _lengths(self) -> dict[str, list[int]]:
        return {name: [one.length for one in some] for name, some in self.shards.items()}

    def records(self, split: str, held: int | None = None) -> RecordReader:
        """Returns the records of a split or slice.

        Args:
          split: The split or slice.
          held: Of shards that come when they are read, how many may lie here at a time; None for
            as many as its origin thinks right.

        Raises:
          SplitNotFoundError: There is none of that name.
          InvalidOptionError: There is no room for so many shards.
        """
        lengths = self._lengths
        first, begin = {}, 0
        for name, sizes in lengths.items():
            first[name] = begin
            begin += sum(sizes)
        ranges = [
            (first[one.split] + one.begin, first[one.split] + one.end)
            for one in subsplits.resolve(split, lengths)
        ]
        records = RecordReader(self._all_shards(), ranges)
        if self.origin is None:
            return records
        # Those of other splits come and go by themselves.
        bringer = self.origin.bringer({path.name for path, _ in records.runs()}, held)
        return RecordReader(self._all_shards(), ranges, bringer, bringer.most)


def find(
    reference: Reference,
    data_dir: str | os.PathLike[str] | None = None,
    held_at: str | os.PathLike[str] | None = None,
) -> Prepared:
    """Returns the highest prepared version that a reference means.

    Args:
      reference: For example `digits:1.*.*`; or the directory of a prepared version, or what stands
        for it, such as what `my_datasets.pull` returns. Without a
        version, or with a wildcard, versions that are blocked are passed over.
      data_dir: Where the data is, which may be in an object store; TFDS's default if None.
      held_at: Where copies of what is in an object store lie; a folder of the user's cache if None.

    Raises:
      InvalidReferenceError: `reference` is malformed.
      NotPreparedError: There is no such version.
      VersionBlockedError: It must not be used, as its builder or its own metadata say.
      DataDirError: It cannot be read without TFDS: it is of another file format.
      LockError: It is another one than the project's lock says.
    """
    if data_dir is None and isinstance(reference, (str, os.PathLike)):
        text = os.fspath(reference)
        if addresses.is_remote(text):
            return _remote_version(text, held_at)
    meant = resolve_prepared.directory_or_reference(reference, data_dir)
    if isinstance(meant, Path):
        return replace(_read(meant), origin=origin_of(meant))
    request = Request.of(meant)
    where = root_of(data_dir)
    is_remote = addresses.is_remote(where)
    if is_remote:
        found = _remote(request, where, held_at)
    else:
        folder = Path(where).expanduser() / request.reference.name
        found = _read(resolve_prepared.find_version(request, folder, str(folder.parent)).path)
    request.check(found.path, has_shards=not is_remote)
    return found


def _remote(request: Request, root: str, held_at: str | os.PathLike[str] | None) -> Prepared:
    url = f"{root.rstrip('/')}/{request.reference.name}"
    folder, _ = _mirror(url, held_at)
    found = resolve_prepared.find_version(request, folder, root)
    return _remote_version(f"{url}/{found.path.relative_to(folder).as_posix()}", held_at)


def _mirror(url: str, held_at: str | os.PathLike[str] | None) -> tuple[Path, dict[str, BucketFile]]:
    if ":" in url.partition("://")[2].partition("@")[0] and "@" in url:
        raise DataDirError(
            explain(
                "The URL of an object store has a password in it.",
                fix="give it by the environment, as the store's own tools take it",
            )
        )
    return mirror(url, _held(held_at))


def _held(held_at: str | os.PathLike[str] | None) -> Path:
    return addresses.local_path(held_at, "shards_dir") if held_at else cache_folder("shards")


def _remote_version(url: str, held_at: str | os.PathLike[str] | None) -> Prepared:
    """Returns the version in a folder of an object store."""
    path, files = _mirror(url, held_at)
    if not layout.is_prepared(path):
        raise NotPreparedError(
            explain(f"{url} is no prepared version.", fix="give the folder of a whole one")
        )
    held = os.path.abspath(_held(held_at))
    most = WINDOW * WINDOWS_HELD
    return replace(_read(path), origin=ObjectStore(url, path, files, held, most))


def _read(path: Path) -> Prepared:
    declared = Declared.read(path)
    if declared.file_format != "tfrecord":
        raise DataDirError(
            explain(
                f"{path} holds {declared.file_format} files.",
                "Expected TFRecords",
                fix="read it by TFDS's as_data_source, or build it with file_format='tfrecord'",
            )
        )
    shards = {
        split: [RecordShard(path / one.name, one.examples) for one in some]
        for split, some in declared.splits.items()
    }
    return Prepared(path, declared.name, features.read(path), shards)
