"""A prepared version whose records are read without TensorFlow."""

import functools
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from my_datasets.errors import (
    DataDirError,
    NotPreparedError,
)
from my_datasets.input_pipeline.read.attached_release import provider_of
from my_datasets.input_pipeline.read.bucket_cache import ObjectStore, mirror
from my_datasets.input_pipeline.read.shard_fetcher import ShardProvider
from my_datasets.metadata import layout, subsplits
from my_datasets.metadata.features import Schema
from my_datasets.metadata.version_metadata import VersionMetadata
from my_datasets.records.random_access import RecordReader, RecordShard
from my_datasets.resolving import resolve_prepared
from my_datasets.resolving.request import Request
from my_datasets.resolving.resolve_prepared import Reference, root_of
from my_datasets.storage import addresses
from my_datasets.storage.user_folders import cache_folder

# A split or slice as text, or what TFDS takes for one.
Split = Any
# How many remote shards are shuffled together; and how many such windows are cached: the current
# one, the one before, which some threads may still read, and the next one.
WINDOW = 4
CACHED_WINDOWS = 3


@dataclass(frozen=True)
class Prepared(os.PathLike[str]):
    """A prepared version whose records can be read; usable as the version's directory.

    Attributes:
      metadata: Its metadata, read at most once.
      provider: The provider of its shards; None if they are in its directory.
    """

    metadata: VersionMetadata
    provider: ShardProvider | None = None

    def __fspath__(self) -> str:
        return str(self.path) if self.provider is None else self.provider.address

    @property
    def path(self) -> Path:
        """The directory of its metadata, and of its shards unless it has a provider."""
        return self.metadata.path

    @property
    def name(self) -> str:
        """The dataset's full name, `name/config:version`."""
        return self.metadata.declared.name

    @property
    def schema(self) -> Schema:
        """Its features."""
        return self.metadata.schema

    @functools.cached_property
    def shards(self) -> Mapping[str, list[RecordShard]]:
        """The shards of each split."""
        return {
            split: [RecordShard(self.path / one.name, one.examples) for one in some]
            for split, some in self.metadata.declared.splits.items()
        }

    @functools.cached_property
    def content(self) -> str:
        """A hash of the data's identity: its fingerprint, and its shards' names and sizes."""
        made_by = self.metadata.manifest
        shards = [(one.path.name, one.length, self._size(one.path)) for one in self._all_shards()]
        described = [self.name, shards, made_by.fingerprint if made_by else None]
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()

    def _size(self, path: Path) -> int:
        if self.provider is not None:
            return self.provider.sizes.get(path.name, -1)
        return path.stat().st_size if path.exists() else -1

    @property
    def modified(self) -> int:
        """The last modification time of any shard, in nanoseconds since the epoch."""
        if self.provider is not None:
            return self.provider.modified
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

    def records(self, split: str, max_cached_shards: int | None = None) -> RecordReader:
        """Returns the records of a split or slice.

        Args:
          split: The split or slice.
          max_cached_shards: How many remote shards may be cached at a time; None to let the
            provider decide.

        Raises:
          SplitNotFoundError: There is no such split.
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
        if self.provider is None:
            return records
        # Shards of other splits may be evicted independently.
        names = {path.name for path, _ in records.runs()}
        fetcher = self.provider.fetcher(names, max_cached_shards)
        return RecordReader(self._all_shards(), ranges, fetcher, fetcher.max_open)


def find(
    reference: Reference,
    data_dir: str | os.PathLike[str] | None = None,
    shards_dir: str | os.PathLike[str] | None = None,
) -> Prepared:
    """Returns the newest prepared version that a reference means.

    Args:
      reference: For example `digits:1.*.*`; or the directory of a prepared version, or an object
        that is usable as one, such as the result of `my_datasets.pull`. Without a version, or with
        a wildcard, blocked versions are skipped.
      data_dir: The data directory, which may be in an object store; TFDS's default if None.
      shards_dir: Where files of an object store are cached; a folder of the user's cache if None.

    Raises:
      InvalidReferenceError: `reference` is malformed.
      NotPreparedError: There is no such version.
      VersionBlockedError: Its builder or its own metadata block the version.
      DataDirError: It is not of TFRecord files, so only TFDS reads it.
      LockError: It does not match the project's lock.
    """
    if isinstance(reference, Prepared):
        return reference
    if data_dir is None and isinstance(reference, (str, os.PathLike)):
        text = os.fspath(reference)
        if addresses.is_remote(text):
            return _remote_version(text, _cache_dir(shards_dir))
    where = root_of(data_dir)
    if addresses.is_remote(where):
        meant = resolve_prepared.directory_or_reference(reference, data_dir)
        if not isinstance(meant, Path):
            return _remote(Request.of(meant), where, _cache_dir(shards_dir))
    resolved = resolve_prepared.resolve(reference, data_dir)
    found = _readable(resolved.metadata, provider_of(resolved.path))
    resolved.check_lock()
    return found


def _cache_dir(shards_dir: str | os.PathLike[str] | None) -> Path:
    if not shards_dir:
        return cache_folder("shards")
    return Path(os.path.abspath(addresses.local_path(shards_dir, "shards_dir")))


def _remote(request: Request, root: str, cache_dir: Path) -> Prepared:
    url = f"{root.rstrip('/')}/{request.reference.name}"
    folder, _ = mirror(url, cache_dir)
    version = resolve_prepared.find_version(request, folder, root)
    found = _remote_version(f"{url}/{version.path.relative_to(folder).as_posix()}", cache_dir)
    request.check(found.metadata, has_shards=False)
    return found


def _remote_version(url: str, cache_dir: Path) -> Prepared:
    """Returns the version in a folder of an object store."""
    path, files = mirror(url, cache_dir)
    if not layout.is_prepared(path):
        raise NotPreparedError(
            f"{url} is no prepared version.", fix="give the folder of a whole one"
        )
    provider = ObjectStore(url, path, files, os.fspath(cache_dir), WINDOW * CACHED_WINDOWS)
    return _readable(VersionMetadata(path), provider)


def _readable(metadata: VersionMetadata, provider: ShardProvider | None) -> Prepared:
    """Returns a version, after checking that its records and features can be read without TFDS."""
    if metadata.declared.file_format != "tfrecord":
        raise DataDirError(
            f"{metadata.path} holds {metadata.declared.file_format} files.",
            "Expected TFRecords",
            fix="read it by TFDS's as_data_source, or build it with file_format='tfrecord'",
        )
    found = Prepared(metadata, provider)
    _ = found.schema
    return found


class OpenedVersions:
    """The versions that one call has opened, so that it reads the metadata of each once.

    Make one for each call: it does not see later changes of the files.
    """

    def __init__(self, *found: Prepared) -> None:
        """Begins with versions that are opened already."""
        self._found = {os.fspath(one): one for one in found}

    def at(self, path: str, shards_dir: str | None) -> Prepared:
        """Returns what `find` returns for a directory or the address of one."""
        if path not in self._found:
            self._found[path] = find(path, shards_dir=shards_dir)
        return self._found[path]
