"""What a catalog lists: the releases of a store or a data directory, and the changes between them.

Metadata of a remote store is copied, and verified. Changes from each version to the next are found
by comparing both.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from my_datasets._version import __version__
from my_datasets.catalog import first_records
from my_datasets.catalog.first_records import Beginning, beginning
from my_datasets.comparison.diff import diff
from my_datasets.core.json_types import JsonObject
from my_datasets.core.progress import OnProgress, Progress, ignore
from my_datasets.core.sizes import human_size
from my_datasets.core.version import VersionNumber
from my_datasets.errors import (
    CorruptReleaseError,
    DataDirNotFoundError,
    MyDatasetsError,
    SignatureError,
    StoreError,
    problem_of,
)
from my_datasets.metadata import layout, manifest
from my_datasets.metadata.dataset_info import MALFORMED
from my_datasets.metadata.layout import METADATA_FILES
from my_datasets.publishing.catalog_client import CatalogClient
from my_datasets.publishing.model import store_layout
from my_datasets.publishing.model.record import (
    MOST_SHOWN_LABELS,
    Record,
    ReleasedFile,
    is_metadata,
    parse_key,
)
from my_datasets.publishing.model.rollback_state import RollbackState
from my_datasets.publishing.model.signed_json import Trusts
from my_datasets.publishing.model.store_layout import Index, Release, ReleaseState
from my_datasets.records import shard_reader, tfrecord
from my_datasets.records.shard_reader import DamagedError
from my_datasets.storage import regular_files
from my_datasets.storage.backends import open_store
from my_datasets.storage.backends.local import LocalStore
from my_datasets.storage.regular_files import write_whole
from my_datasets.storage.retry import RetryingStore
from my_datasets.storage.store import Store

_AT_ONCE = 16
# Shards up to this size are verified, and downloaded for that if signatures are required.
MOST_SHARD_BYTES = 64 << 20
# Shards up to this size are always downloaded whole: their beginning is not much smaller.
SMALL_SHARD_BYTES = 4 << 20
_FIRST_RECORDS = "first-records"


class ReleaseMetadata:
    """The metadata of releases: in a local store, or copied to a cache."""

    def __init__(
        self, client: CatalogClient, cache: Path | None, local: Path | None, *, is_checked: bool
    ) -> None:
        """Reads nothing yet.

        Args:
          client: The client for the store's catalog.
          cache: The directory for copies from a remote store.
          local: The store's directory, if it is local.
          is_checked: Whether signatures are required.
        """
        self._client = client
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
        record = self._client.record(dataset, key, release)
        if self._local is not None:
            directory = self._local / store_layout.release_of(dataset, key)
        elif self._cache is not None:
            directory = self._cache / record.identity
        else:
            raise StoreError(
                f"{self._client.store.url} is a remote store.",
                fix="name a cache directory for its metadata",
            )
        self._records[directory] = record
        for one in record.files:
            if is_metadata(one, MOST_SHOWN_LABELS):
                if self._local is not None:
                    self._compare(directory / one.name, one)
                else:
                    self._fetch(record, one, directory)
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
            self._fetch(record, shard, directory)
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
                return b"".join(self._client.store.read(path, begin, end))

            try:
                records = first_records.first_records(fetch, shard.bytes, first.file_format)
            except first_records.TooMuchError as error:
                return None, f"{error}."
            _write(cached, b"".join(map(tfrecord.framed_one, records)))
        return Beginning(first.split, (cached,), "tfrecord"), ""

    def _fetch(self, record: Record, file: ReleasedFile, directory: Path) -> None:
        """Downloads a file of a release, unless an earlier run has."""
        if (directory / file.name).is_file():
            return
        path = f"{store_layout.release_of(record.name, record.key)}/{file.name}"
        data = b"".join(self._client.store.read(path, 0, file.bytes))
        self._require(hashlib.sha256(data).hexdigest(), file, path)
        _write(directory / file.name, data)

    def _compare(self, path: Path, file: ReleasedFile) -> None:
        try:
            found = regular_files.sha256_of(path)
        except OSError:
            found = ""
        self._require(found, file, str(path))

    def _require(self, sha256: str, file: ReleasedFile, path: str) -> None:
        if sha256 != file.sha256:
            raise CorruptReleaseError(
                f"{path} in {self._client.store.url} is not what was published.",
                fix="report it to the publisher",
            )


def _write(path: Path, data: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, data, fsync=False)


ELSEWHERE = "Its examples are in a remote store, and were not compared."


@dataclass(frozen=True)
class CatalogVersion:
    """A published or prepared version.

    Attributes:
      version: The version.
      path: The directory with its metadata; None if the metadata cannot be verified.
      has_shards: Whether its shards are in that directory, too.
      first: Where its verified first examples are; None if they were not read.
      no_examples: Why its examples are not shown, although they exist.
      is_yanked: Whether it was yanked.
      message: Why it was yanked, or cannot be shown.
      published: Time of publication in ISO 8601; empty if it is only prepared.
      signed_by: The fingerprints of the keys that signed it.
      is_trusted: Whether it has a valid signature of a trusted key.
      record: The SHA-256 of all its bytes; empty if it is only prepared.
    """

    version: VersionNumber
    path: Path | None
    has_shards: bool = True
    first: Beginning | None = None
    no_examples: str = ""
    is_yanked: bool = False
    message: str = ""
    published: str = ""
    signed_by: tuple[str, ...] = ()
    is_trusted: bool = False
    record: str = ""


@dataclass(frozen=True)
class Dataset:
    """A dataset, or one config of it, with its versions, newest first."""

    name: str
    config: str | None
    versions: tuple[CatalogVersion, ...]
    is_default: bool = True

    @property
    def full_name(self) -> str:
        """Its name with the config."""
        return f"{self.name}/{self.config}" if self.config else self.name

    @property
    def shown(self) -> CatalogVersion:
        """The version to show: the newest that was not yanked, if there is one."""
        good = [one for one in self.versions if one.path is not None and not one.is_yanked]
        return good[0] if good else self.versions[0]


@dataclass(frozen=True)
class CatalogContents:
    """All datasets of a store or data directory, by name, default configs first."""

    origin: str
    is_store: bool
    datasets: tuple[Dataset, ...]


def collect(
    source: str | os.PathLike[str] | Store,
    *,
    keys: Trusts | None = None,
    memory: RollbackState | None = None,
    cache: str | os.PathLike[str] | None = None,
    with_examples: bool = True,
    report: OnProgress = ignore,
) -> CatalogContents:
    """Returns the datasets of a store or data directory.

    Metadata of a remote store is downloaded; it never changes. All of it is verified.

    Args:
      source: A store's URL, or a data directory.
      keys: Trusted keys.
      memory: The rollback state of this machine.
      cache: The directory for metadata of remote stores.
      with_examples: Whether to download the first examples of each dataset, too.
      report: Called after each dataset.

    Raises:
      DataDirNotFoundError: The directory does not exist.
      StoreError: The store cannot be used, does not respond, or is not a store.
      SignatureError: A required signature is invalid, or `keys` is missing.
    """
    store = open_store(source)
    if isinstance(store, LocalStore) and not (Path(store.url) / store_layout.STORE).is_file():
        return _prepared(Path(store.url))
    client = CatalogClient(RetryingStore(store), keys=keys, memory=memory)
    metadata = ReleaseMetadata(
        client,
        None if cache is None else Path(cache),
        Path(store.url) if isinstance(store, LocalStore) else None,
        is_checked=client.keys is not None,
    )
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        names = client.required().datasets
        datasets = []
        for done, index in enumerate(pool.map(client.index, names), 1):
            found = _released(index, metadata, pool, is_checked=client.keys is not None)
            if with_examples:
                found = [_with_examples(one, metadata) for one in found]
            datasets += found
            report(Progress(f"reading {index.dataset}", done, len(names)))
    return CatalogContents(store.url, True, tuple(datasets))


def _prepared(data_dir: Path) -> CatalogContents:
    if not data_dir.is_dir():
        raise DataDirNotFoundError(
            f"The directory {data_dir} does not exist.",
            fix="name a store, or a data directory as shown by my-datasets list",
        )
    found: dict[tuple[str, str | None], list[CatalogVersion]] = {}
    for one in layout.prepared_versions(data_dir):
        versions = found.setdefault((one.name, one.config), [])
        versions.insert(0, CatalogVersion(one.version, one.path))
    datasets = []
    for (name, config), available in found.items():
        default = layout.default_config(data_dir / name) if config else None
        datasets.append(Dataset(name, config, tuple(available), default in (None, config)))
    return CatalogContents(str(data_dir), False, tuple(_in_order(datasets)))


def _released(
    index: Index, metadata: ReleaseMetadata, pool: ThreadPoolExecutor, *, is_checked: bool
) -> list[Dataset]:
    found: dict[str | None, list[CatalogVersion]] = {}
    visible = {key: one for key, one in index.releases.items() if one.is_visible}

    def available(key: str) -> CatalogVersion:
        return _available(index.dataset, key, visible[key], metadata, is_checked=is_checked)

    for key, one in zip(visible, pool.map(available, visible), strict=True):
        found.setdefault(parse_key(key)[0], []).append(one)
    datasets = []
    for config, some in found.items():
        some.sort(key=lambda one: one.version, reverse=True)
        is_default = index.default_config in (None, config)
        datasets.append(Dataset(index.dataset, config, tuple(some), is_default))
    return list(_in_order(datasets))


def _available(
    dataset: str, key: str, release: Release, metadata: ReleaseMetadata, *, is_checked: bool
) -> CatalogVersion:
    _, version = parse_key(key)
    signed_by = tuple(one.key for one in release.signatures)
    is_yanked = release.state is ReleaseState.YANKED
    try:
        path = metadata.of(dataset, key, release)
    except (SignatureError, CorruptReleaseError) as error:
        return CatalogVersion(
            version, None, has_shards=False, is_yanked=is_yanked, message=problem_of(error),
            published=release.published, signed_by=signed_by, record=release.record,
        )  # fmt: skip
    return CatalogVersion(
        version, path, metadata.has_shards, None, "", is_yanked, release.message, release.published,
        signed_by, is_checked and bool(signed_by), release.record,
    )  # fmt: skip


def _with_examples(dataset: Dataset, metadata: ReleaseMetadata) -> Dataset:
    """Adds the first examples of the version to show, or the reason why there are none."""
    shown = dataset.shown
    if shown.path is None:
        return dataset
    first, reason = None, ""
    try:
        first, reason = metadata.first_examples(shown.path)
    except CorruptReleaseError as error:
        reason = problem_of(error)
    except (OSError, DamagedError, *MALFORMED) as error:
        reason = f"{type(error).__name__}: {error}"
    with_examples = replace(shown, first=first, no_examples=reason)
    versions = tuple(with_examples if one is shown else one for one in dataset.versions)
    return replace(dataset, versions=versions)


def _in_order(datasets: Sequence[Dataset]) -> Iterator[Dataset]:
    """Yields datasets by name, with the default config first, and as the only default."""
    last = None
    for one in sorted(datasets, key=lambda one: (one.name, not one.is_default, one.config or "")):
        is_first = one.name != last
        last = one.name
        yield Dataset(one.name, one.config, one.versions, is_first)


@dataclass(frozen=True)
class Changes:
    """The changes since another version, as `Diff.to_json`, or a note why they are unknown."""

    since: str
    found: JsonObject | None
    note: str = ""


class VersionComparer:
    """Compares versions, and caches the results, since versions do not change."""

    def __init__(self, cache: Path | None, *, workers: int | None = None) -> None:
        self._cache = cache
        self._workers = workers

    def changes(self, old: CatalogVersion, new: CatalogVersion) -> Changes:
        """Returns the changes from one version to another."""
        since = str(old.version)
        if old.path is None or new.path is None:
            return Changes(since, None, "One of the two cannot be read.")
        cached = self._file(old, new)
        if cached is not None and cached.is_file():
            try:
                return Changes(since, json.loads(cached.read_text("utf-8")))
            except ValueError:
                cached.unlink(missing_ok=True)  # incomplete
        try:
            found = diff(old.path, new.path, workers=self._workers).to_json()
        except (MyDatasetsError, OSError, *MALFORMED) as error:
            if not (old.has_shards and new.has_shards):
                return Changes(since, None, ELSEWHERE)
            return Changes(since, None, problem_of(error))
        if cached is not None:
            _write(cached, json.dumps(found))
        return Changes(since, found)

    def _file(self, old: CatalogVersion, new: CatalogVersion) -> Path | None:
        """Returns the cache file; None without a manifest, which identifies the bytes."""
        if self._cache is None:
            return None
        identity = hashlib.sha256(__version__.encode())
        for one in (old, new):
            for name in (manifest.FILE_NAME, *METADATA_FILES):
                path = (one.path or Path()) / name
                if not path.is_file():
                    return None
                identity.update(hashlib.sha256(path.read_bytes()).digest())
        return self._cache / f"{identity.hexdigest()}.json"
