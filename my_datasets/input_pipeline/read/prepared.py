"""A prepared version whose records are read without TensorFlow."""

import functools
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from my_datasets.metadata import subsplits
from my_datasets.metadata.features import Schema
from my_datasets.metadata.version_metadata import VersionMetadata
from my_datasets.records.random_access import RecordReader, RecordShard
from my_datasets.resolving.resolver import Reference, resolve
from my_datasets.resolving.shard_fetcher import ShardProvider

# A split or slice as text, or what TFDS takes for one.
Split = Any


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
    """Returns the prepared version that a reference means, if it can be read without TFDS.

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
    resolved = resolve(reference, data_dir, shards_dir=shards_dir)
    provider = resolved.provider  # an attached release: verifies the metadata that is read below
    resolved.require_tfrecords()
    found = Prepared(resolved.metadata, provider)
    _ = found.schema
    resolved.check_lock()
    return found


class OpenedVersions:
    """The versions that one call has opened, so that it reads the metadata of each once.

    Make one for each call: it does not see later changes of the files.
    """

    def __init__(self, *found: Prepared) -> None:
        self._found = {os.fspath(one): one for one in found}

    def at(self, path: str, shards_dir: str | None) -> Prepared:
        """Returns what `find` returns for a directory or the address of one."""
        if path not in self._found:
            self._found[path] = find(path, shards_dir=shards_dir)
        return self._found[path]
