"""The metadata of releases on this machine: in a store here, or verified copies of them."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from my_datasets.catalog.samples import first_records
from my_datasets.catalog.samples.first_records import Beginning, beginning
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

# Other files than shards are small, and names of classes.
_LABELS = ".labels.txt"
_MOST_LABELS = 16 << 20
# Shards up to here are compared as a whole, and brought here for that if signatures count.
MOST_SHARD_BYTES = 64 << 20
# Up to here they are brought here in any case: the beginning of a shard is not much less.
SMALL_SHARD_BYTES = 4 << 20
_FIRST_RECORDS = "first-records"


class Metadata:
    """The metadata of releases: where they are, or copies of them."""

    def __init__(
        self, ledger: CatalogClient, cache: Path | None, local: Path | None, *, is_checked: bool
    ) -> None:
        """Reads nothing yet.

        Args:
          ledger: Of the store.
          cache: Where copies are kept, if the store is elsewhere.
          local: The store's directory, if it is on this machine.
          is_checked: Whether signatures count.
        """
        self._ledger = ledger
        self._cache = cache
        self._local = local
        self._is_checked = is_checked
        self._records: dict[Path, Record] = {}

    @property
    def has_shards(self) -> bool:
        """Whether shards lie beside them."""
        return self._local is not None

    def of(self, dataset: str, key: str, release: Release) -> Path:
        """Returns the directory that holds the metadata of a release.

        Raises:
          SignatureError, CorruptReleaseError, StoreError: It is not what was published.
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
                f"{self._ledger.store.url} is not on this machine.",
                fix="name a directory in which metadata can be kept",
            )
        directory = self._cache / record.identity
        self._records[directory] = record
        for one in _metadata_of(record):
            if not (directory / one.name).is_file():
                self._fetch(f"{folder}/{one.name}", one, directory)
        return directory

    def first_examples(self, directory: Path) -> tuple[Beginning | None, str]:
        """Returns where the first examples of a version are, and why they are not to be had.

        In a store on this machine they lie there. Shards that are not large are compared with what
        was published; where signatures count all are, for nothing is shown that nobody has signed.
        From a store elsewhere a small shard is brought here whole. Of others the beginning is
        read, of which only the format's own checksums are known: where signatures count, they are
        brought here whole, too, or not at all.

        Args:
          directory: What `of` returned.

        Raises:
          CorruptReleaseError: They are not what was published.
          DamagedError: The shard is damaged.
          StoreError, ValueError: They cannot be read.
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
                f"{path.name} has {human_size(shard.bytes)}, and only as a whole can it be "
                "compared with what was signed."
            )
        return self._from_ranges(first, shard, directory)

    def _from_ranges(
        self, first: Beginning, shard: ReleasedFile, directory: Path
    ) -> tuple[Beginning | None, str]:
        """Reads the beginning of a shard, unless that was done; see `first_examples`."""
        record = self._records[directory]
        path = f"{store_layout.release_of(record.name, record.key)}/{shard.name}"
        kept = directory / f"{shard.name}.{_FIRST_RECORDS}"
        if not kept.is_file():

            def fetch(begin: int, end: int) -> bytes:
                return b"".join(self._ledger.store.read(path, begin, end))

            try:
                records = first_records.first_records(fetch, shard.bytes, first.file_format)
            except first_records.TooMuchError as error:
                return None, f"{error}."
            _write(kept, b"".join(map(tfrecord.framed_one, records)))
        return Beginning(first.split, (kept,), "tfrecord"), ""

    def _fetch(self, path: str, wanted: ReleasedFile, directory: Path) -> None:
        data = b"".join(self._ledger.store.read(path, 0, wanted.bytes))
        if hashlib.sha256(data).hexdigest() != wanted.sha256:
            raise self._altered(path)
        _write(directory / wanted.name, data)

    def _compare(self, path: Path, wanted: ReleasedFile) -> None:
        """Compares a file with what was published.

        Raises:
          CorruptReleaseError: It is another one, or none.
        """
        try:
            found = regular_files.sha256_of(path)
        except OSError as error:
            raise self._altered(str(path)) from error
        if found != wanted.sha256:
            raise self._altered(str(path))

    def _altered(self, path: str) -> CorruptReleaseError:
        return CorruptReleaseError(
            f"{path} in {self._ledger.store.url} is not what was published.",
            fix="ask who publishes there to look at it",
        )


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, data, fsync=False)


def _metadata_of(record: Record) -> Iterator[ReleasedFile]:
    for one in record.files:
        is_labels = one.name.endswith(_LABELS) and one.bytes <= _MOST_LABELS
        if is_plain_name(one.name) and (one.name in FIRST or is_labels):
            yield one
