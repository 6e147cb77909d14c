"""Local metadata of releases: in a local store, or as verified copies from a remote one."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from my_datasets.catalog import first_records
from my_datasets.catalog.first_records import Beginning, beginning
from my_datasets.core.sizes import human_size
from my_datasets.errors import CorruptReleaseError, StoreError
from my_datasets.metadata.dataset_info import is_plain_name
from my_datasets.publishing.catalog_client import CatalogClient
from my_datasets.publishing.model import store_layout
from my_datasets.publishing.model.index import Release
from my_datasets.publishing.model.record import FIRST, Record, ReleasedFile
from my_datasets.records import shard_reader, tfrecord
from my_datasets.storage import regular_files
from my_datasets.storage.regular_files import write_whole

# Files with class names.
_LABELS = ".labels.txt"
_MOST_LABELS = 16 << 20
# Shards up to this size are verified, and downloaded for that if signatures are required.
MOST_SHARD_BYTES = 64 << 20
# Shards up to this size are always downloaded whole: their beginning is not much smaller.
SMALL_SHARD_BYTES = 4 << 20
_FIRST_RECORDS = "first-records"


class Metadata:
    """The metadata of releases: in a local store, or copied to a cache."""

    def __init__(
        self, ledger: CatalogClient, cache: Path | None, local: Path | None, *, is_checked: bool
    ) -> None:
        """Reads nothing yet.

        Args:
          ledger: The client for the store's catalog.
          cache: The directory for copies from a remote store.
          local: The store's directory, if it is local.
          is_checked: Whether signatures are required.
        """
        self._ledger = ledger
        self._cache = cache
        self._local = local
        self._is_checked = is_checked
        self._records: dict[Path, Record] = {}

    @property
    def has_shards(self) -> bool:
        """Whether shards are local, too."""
        return self._local is not None

    def of(self, dataset: str, key: str, release: Release) -> Path:
        """Returns the directory with the metadata of a release.

        Raises:
          SignatureError, CorruptReleaseError, StoreError: The metadata cannot be verified.
        """
        record = self._ledger.record(dataset, key, release)
        folder = store_layout.release_of(dataset, key)
        if self._local is not None:
            directory = self._local / folder
            self._records[directory] = record
            for one in _metadata_of(record):
                self._compare(directory / one.name, one)
            return directory
        if self._cache is None:
            raise StoreError(
                f"{self._ledger.store.url} is a remote store.",
                fix="name a cache directory for its metadata",
            )
        directory = self._cache / record.identity
        self._records[directory] = record
        for one in _metadata_of(record):
            if not (directory / one.name).is_file():
                self._fetch(f"{folder}/{one.name}", one, directory)
        return directory

    def first_examples(self, directory: Path) -> tuple[Beginning | None, str]:
        """Returns where the first examples of a version are, or why they are not available.

        In a local store, shards of moderate size are verified; where signatures are required, all
        are. From a remote store, small shards are downloaded whole. Of larger ones, only the
        beginning is read, which can be verified only by the format's own checksums: where
        signatures are required, they are downloaded whole, too, or not at all.

        Args:
          directory: The directory that `of` returned.

        Raises:
          CorruptReleaseError: The data differs from what was published.
          DamagedError: The shard is damaged.
          StoreError, ValueError: The data cannot be read.
        """
        record = self._records[directory]
        first = beginning(directory)
        if first is None:
            return None, ""
        if first.file_format not in shard_reader.FORMATS:
            return None, f"{first.file_format} files are not read here."
        path = first.files[0]
        shard = next(one for one in record.files if one.name == path.name)
        if self._local is not None:
            if self._is_checked or shard.bytes <= MOST_SHARD_BYTES:
                self._compare(path, shard)
            return (replace(first, files=(path,)) if self._is_checked else first), ""
        if shard.bytes <= (MOST_SHARD_BYTES if self._is_checked else SMALL_SHARD_BYTES):
            if not path.is_file():
                release = store_layout.release_of(record.name, record.key)
                self._fetch(f"{release}/{path.name}", shard, directory)
            return replace(first, files=(path,)), ""
        if self._is_checked:
            return None, (
                f"{path.name} has {human_size(shard.bytes)}: too large to download for a check of "
                "its signature."
            )
        return self._from_ranges(first, shard, directory)

    def _from_ranges(
        self, first: Beginning, shard: ReleasedFile, directory: Path
    ) -> tuple[Beginning | None, str]:
        """Reads the beginning of a shard, unless it is cached; see `first_examples`."""
        record = self._records[directory]
        path = f"{store_layout.release_of(record.name, record.key)}/{shard.name}"
        cached = directory / f"{shard.name}.{_FIRST_RECORDS}"
        if not cached.is_file():

            def fetch(begin: int, end: int) -> bytes:
                return b"".join(self._ledger.store.read(path, begin, end))

            try:
                records = first_records.first_records(fetch, shard.bytes, first.file_format)
            except first_records.TooMuchError as error:
                return None, f"{error}."
            _write(cached, b"".join(map(tfrecord.framed_one, records)))
        return Beginning(first.split, (cached,), "tfrecord"), ""

    def _fetch(self, path: str, wanted: ReleasedFile, directory: Path) -> None:
        data = b"".join(self._ledger.store.read(path, 0, wanted.bytes))
        if hashlib.sha256(data).hexdigest() != wanted.sha256:
            raise self._altered(path)
        _write(directory / wanted.name, data)

    def _compare(self, path: Path, wanted: ReleasedFile) -> None:
        try:
            found = regular_files.sha256_of(path)
        except OSError as error:
            raise self._altered(str(path)) from error
        if found != wanted.sha256:
            raise self._altered(str(path))

    def _altered(self, path: str) -> CorruptReleaseError:
        return CorruptReleaseError(
            f"{path} in {self._ledger.store.url} is not what was published.",
            fix="report it to the publisher",
        )


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, data, fsync=False)


def _metadata_of(record: Record) -> Iterator[ReleasedFile]:
    for one in record.files:
        is_labels = one.name.endswith(_LABELS) and one.bytes <= _MOST_LABELS
        if is_plain_name(one.name) and (one.name in FIRST or is_labels):
            yield one
