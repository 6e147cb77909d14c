"""What is published: the releases of a store, or what is prepared in a data directory."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from my_datasets._version import __version__
from my_datasets.catalog.release_metadata import Metadata
from my_datasets.catalog.samples.first_records import Beginning
from my_datasets.comparison.diff import diff
from my_datasets.core.version import VersionNumber
from my_datasets.errors import (
    CorruptReleaseError,
    DataDirNotFoundError,
    MyDatasetsError,
    SignatureError,
    problem_of,
)
from my_datasets.metadata import layout, manifest
from my_datasets.metadata.dataset_info import MALFORMED
from my_datasets.metadata.layout import METADATA_FILES
from my_datasets.publishing.catalog_client import CatalogClient
from my_datasets.publishing.model import store_layout
from my_datasets.publishing.model.index import Index, Release, ReleaseState
from my_datasets.publishing.model.record import parse_key
from my_datasets.publishing.model.rollback_state import RollbackState
from my_datasets.publishing.model.signed_json import Trusts
from my_datasets.records.shard_reader import DamagedError
from my_datasets.storage.backends.local import LocalStore
from my_datasets.storage.opening import open_store
from my_datasets.storage.regular_files import write_whole
from my_datasets.storage.retry import RetryingStore
from my_datasets.storage.store import Store

_AT_ONCE = 16


@dataclass(frozen=True)
class CatalogVersion:
    """A version that is published, or prepared.

    Attributes:
      version: The version.
      path: The directory that holds its metadata; None if they are not to be trusted.
      has_shards: Whether its shards are there, too.
      first: Where its first examples are, if they are what was published; None if that was not
        looked for.
      no_examples: Why its examples are not shown, though they are there.
      is_yanked: Whether it was withdrawn.
      message: Why it was, or why it is not shown.
      published: When, in ISO 8601; empty if it is only prepared.
      signed_by: The fingerprints of the keys that signed it.
      is_trusted: Whether one of the signatures was found right, and is of a trusted key.
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
    """A dataset, or one of its configs.

    Attributes:
      name: The dataset's name.
      config: The config; None if there is none.
      versions: Its versions, newest first.
      is_default: Whether it is meant if no config is named.
    """

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
        """The version that stands for it: the newest that was not withdrawn, if there is one."""
        good = [one for one in self.versions if one.path is not None and not one.is_yanked]
        return good[0] if good else self.versions[0]


@dataclass(frozen=True)
class CatalogContents:
    """What there is.

    Attributes:
      origin: Its address.
      is_store: Whether it is a store with releases.
      datasets: What is in it, by name; of a dataset the default config first.
    """

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
    report: Callable[[str], None] = lambda _: None,
) -> CatalogContents:
    """Returns what is in a store, or in a data directory.

    Of a store elsewhere the metadata of each release are brought here; they never change.
    All of it is compared with what was published.

    Args:
      source: A store's address, or a data directory.
      keys: Whose signatures count.
      memory: What this machine has seen of stores.
      cache: Where metadata of stores elsewhere are kept.
      with_examples: Whether of such stores the first examples of each dataset are brought here,
        too.
      report: Is told of each dataset whose releases are known.

    Raises:
      DataDirNotFoundError: There is no such directory.
      StoreError: The store cannot be used, does not answer, or is none.
      SignatureError: The store wants signatures, and has wrong ones, or `keys` is not given.
    """
    store = open_store(source)
    if isinstance(store, LocalStore) and not (Path(store.url) / store_layout.STORE).is_file():
        return _prepared(Path(store.url))
    ledger = CatalogClient(RetryingStore(store), keys=keys, memory=memory)
    where = Metadata(
        ledger,
        None if cache is None else Path(cache),
        Path(store.url) if isinstance(store, LocalStore) else None,
        is_checked=ledger.keys is not None,
    )
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        indexes = pool.map(ledger.index, ledger.required().datasets)
        datasets = []
        for index in indexes:
            found = _released(index, where, pool, is_checked=ledger.keys is not None)
            if with_examples:
                found = [_with_examples(one, where) for one in found]
            datasets += found
            report(index.dataset)
    return CatalogContents(store.url, True, tuple(datasets))


def _prepared(data_dir: Path) -> CatalogContents:
    if not data_dir.is_dir():
        raise DataDirNotFoundError(
            f"There is no directory {data_dir}.",
            fix="name a store, or a data directory such as my-datasets list shows",
        )
    found: dict[tuple[str, str | None], list[CatalogVersion]] = {}
    for one in layout.prepared_versions(data_dir):
        versions = found.setdefault((one.name, one.config), [])
        versions.insert(0, CatalogVersion(one.version, one.path))
    datasets = []
    for (name, config), offered in found.items():
        default = layout.default_config(data_dir / name) if config else None
        datasets.append(Dataset(name, config, tuple(offered), default in (None, config)))
    return CatalogContents(str(data_dir), False, tuple(_in_order(datasets)))


def _released(
    index: Index, where: Metadata, pool: ThreadPoolExecutor, *, is_checked: bool
) -> list[Dataset]:
    found: dict[str | None, list[CatalogVersion]] = {}
    visible = {key: one for key, one in index.releases.items() if one.is_visible}

    def offered(key: str) -> CatalogVersion:
        return _offered(index.dataset, key, visible[key], where, is_checked=is_checked)

    for key, one in zip(visible, pool.map(offered, visible), strict=True):
        found.setdefault(parse_key(key)[0], []).append(one)
    datasets = []
    for config, some in found.items():
        some.sort(key=lambda one: one.version, reverse=True)
        is_default = index.default_config in (None, config)
        datasets.append(Dataset(index.dataset, config, tuple(some), is_default))
    return list(_in_order(datasets))


def _offered(
    dataset: str, key: str, release: Release, where: Metadata, *, is_checked: bool
) -> CatalogVersion:
    _, version = parse_key(key)
    signed_by = tuple(one.key for one in release.signatures)
    is_yanked = release.state is ReleaseState.YANKED
    try:
        path = where.of(dataset, key, release)
    except (SignatureError, CorruptReleaseError) as error:
        return CatalogVersion(
            version, None, has_shards=False, is_yanked=is_yanked, message=problem_of(error),
            published=release.published, signed_by=signed_by, record=release.record,
        )  # fmt: skip
    return CatalogVersion(
        version, path, where.has_shards, None, "", is_yanked, release.message, release.published,
        signed_by, is_checked and bool(signed_by), release.record,
    )  # fmt: skip


def _with_examples(dataset: Dataset, where: Metadata) -> Dataset:
    """Returns a dataset with the first examples of the version that is shown, or why not."""
    shown = dataset.shown
    if shown.path is None:
        return dataset
    first, reason = None, ""
    try:
        first, reason = where.first_examples(shown.path)
    except CorruptReleaseError as error:
        reason = problem_of(error)
    except (OSError, DamagedError, *MALFORMED) as error:
        reason = f"{type(error).__name__}: {error}"
    looked_at = replace(shown, first=first, no_examples=reason)
    versions = tuple(looked_at if one is shown else one for one in dataset.versions)
    return replace(dataset, versions=versions)


def _in_order(datasets: Sequence[Dataset]) -> Iterator[Dataset]:
    """Yields datasets by name; of one the default config first, and no other one is that."""
    last = None
    for one in sorted(datasets, key=lambda one: (one.name, not one.is_default, one.config or "")):
        is_first = one.name != last
        last = one.name
        yield Dataset(one.name, one.config, one.versions, is_first)


# What is not proved, and why.
ELSEWHERE = "Its examples are in a store elsewhere, and were not compared."


@dataclass(frozen=True)
class Changes:
    """What changed since another version.

    Attributes:
      since: The other version.
      found: As `Diff.to_json` gives it; None if it is not known.
      note: Why it is not known.
    """

    since: str
    found: Mapping[str, Any] | None
    note: str = ""


class VersionComparer:
    """Compares versions; what was found is kept, for versions do not change."""

    def __init__(self, cache: Path | None, *, workers: int | None = None) -> None:
        """Takes the directory in which it is kept, None for nowhere, and how many processes."""
        self._cache = cache
        self._workers = workers

    def changes(self, old: CatalogVersion, new: CatalogVersion) -> Changes:
        """Returns what changed from one version to another."""
        since = str(old.version)
        if old.path is None or new.path is None:
            return Changes(since, None, "One of the two cannot be read.")
        kept = self._file(old, new)
        if kept is not None and kept.is_file():
            try:
                return Changes(since, json.loads(kept.read_text("utf-8")))
            except ValueError:
                kept.unlink(missing_ok=True)  # it was not written whole
        try:
            found = diff(old.path, new.path, workers=self._workers).to_json()
        except (MyDatasetsError, OSError, *MALFORMED) as error:
            if not (old.has_shards and new.has_shards):
                return Changes(since, None, ELSEWHERE)
            return Changes(since, None, problem_of(error))
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_whole(kept, json.dumps(found), fsync=False)
        return Changes(since, found)

    def _file(self, old: CatalogVersion, new: CatalogVersion) -> Path | None:
        """Returns where it is kept; None without a manifest, which says which bytes there are."""
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
