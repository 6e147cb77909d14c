"""The metadata of releases on this machine: in a store here, or verified copies of them."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from my_datasets.catalog.summaries import in_usual_order
from my_datasets.core import hashes
from my_datasets.core.declared import Declared, is_plain_name
from my_datasets.errors import CorruptReleaseError, StoreError, explain
from my_datasets.publishing import places
from my_datasets.publishing.index import Release
from my_datasets.publishing.ledger import Ledger
from my_datasets.publishing.record import FIRST, Record, ReleasedFile
from my_datasets.records.index import SUFFIX

# Other files than shards are small, and names of classes.
_LABELS = ".labels.txt"
_MOST_LABELS = 16 << 20
# Larger shards are not brought here.
MOST_SHARD_BYTES = 64 << 20


class Metadata:
    """The metadata of releases: where they are, or copies of them."""

    def __init__(
        self, ledger: Ledger, cache: Path | None, local: Path | None, *, is_checked: bool
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
        folder = places.release_of(dataset, key)
        if self._local is not None:
            directory = self._local / folder
            self._records[directory] = record
            for one in _metadata_of(record):
                self._compare(directory / one.name, one)
            return directory
        if self._cache is None:
            raise StoreError(
                explain(
                    f"{self._ledger.store.url} is not on this machine.",
                    mend="name a directory in which metadata can be kept",
                )
            )
        directory = self._cache / record.identity
        self._records[directory] = record
        for one in _metadata_of(record):
            if not (directory / one.name).is_file():
                self._fetch(f"{folder}/{one.name}", one, directory)
        return directory

    def bring_shard(self, directory: Path) -> str:
        """Brings the first shard of a version's first split beside its metadata, and compares it.

        In a store on this machine it lies there, and may be of any size. Large ones are compared
        only where signatures count: then nothing is shown that nobody has signed.

        Args:
          directory: What `of` returned.

        Returns:
          The split; empty if its first shard is not to be had.

        Raises:
          CorruptReleaseError: It is not what was published.
          StoreError, ValueError: It cannot be read.
        """
        record = self._records[directory]
        splits = Declared.read(directory).splits
        filled = in_usual_order(name for name, some in splits.items() if some and some[0].examples)
        if not filled:
            return ""
        name = splits[filled[0]][0].name
        files = {one.name: one for one in record.files}
        is_large = files[name].bytes > MOST_SHARD_BYTES
        if self._local is not None:
            for one in filter(None, map(files.get, (name, name + SUFFIX))):
                if self._is_checked or not is_large:
                    self._compare(directory / one.name, one)
            return filled[0]
        if is_large:
            return ""
        folder = places.release_of(record.name, record.key)
        # With what makes it readable at random, if that was published.
        for one in filter(None, map(files.get, (name, name + SUFFIX))):
            if not (directory / one.name).is_file():
                self._fetch(f"{folder}/{one.name}", one, directory)
        return filled[0]

    def _fetch(self, path: str, wanted: ReleasedFile, directory: Path) -> None:
        data = b"".join(self._ledger.store.read(path, 0, wanted.bytes))
        if hashlib.sha256(data).hexdigest() != wanted.sha256:
            raise self._altered(path)
        directory.mkdir(parents=True, exist_ok=True)
        partial = directory / f".{wanted.name}.{os.getpid()}.partial"
        partial.write_bytes(data)
        partial.replace(directory / wanted.name)

    def _compare(self, path: Path, wanted: ReleasedFile) -> None:
        """Compares a file with what was published.

        Raises:
          CorruptReleaseError: It is another one, or none.
        """
        try:
            found = hashes.of_file(path)
        except OSError as error:
            raise self._altered(str(path)) from error
        if found != wanted.sha256:
            raise self._altered(str(path))

    def _altered(self, path: str) -> CorruptReleaseError:
        return CorruptReleaseError(
            explain(
                f"{path} in {self._ledger.store.url} is not what was published.",
                mend="ask who publishes there to look at it",
            )
        )


def _metadata_of(record: Record) -> Iterator[ReleasedFile]:
    for one in record.files:
        is_labels = one.name.endswith(_LABELS) and one.bytes <= _MOST_LABELS
        if is_plain_name(one.name) and (one.name in FIRST or is_labels):
            yield one
