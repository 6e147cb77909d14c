"""Installs a release in the data directory, once it is complete and verified."""

import os
import shutil
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from my_datasets.building import staging
from my_datasets.core.json_types import Json
from my_datasets.errors import (
    CorruptReleaseError,
    CorruptShardError,
    LockError,
    MyDatasetsError,
    OverwriteError,
    SplitNotFoundError,
    UnregisteredFeatureError,
)
from my_datasets.metadata import layout, sidecars
from my_datasets.metadata.content import Content
from my_datasets.metadata.dataset_info import Declared
from my_datasets.metadata.manifest import Manifest
from my_datasets.metadata.recorded_files import check_indexes
from my_datasets.publishing.catalog_client import CatalogClient
from my_datasets.publishing.model import record
from my_datasets.publishing.model.record import (
    REWRITTEN,
    Record,
    ReleasedFile,
    is_metadata,
    is_part_made_here,
    only_splits,
    parse_metadata,
    remember_part,
    shards_of,
)
from my_datasets.publishing.transfer import (
    Fetched,
    Transfer,
    TransferProgress,
    discard,
    fetch,
    keep_only_files,
    known_files,
)
from my_datasets.storage.regular_files import sync_directory, write_whole
from my_datasets.storage.verified_files import verified_files

_WORK = ".pull"


@dataclass(frozen=True)
class Pulled:
    """The result of `pull`; usable as a path to the version's directory.

    Attributes:
      name: The full name of the release.
      path: The version's directory.
      store: The address of the store.
      digest: The content digest of the whole release.
      splits: The splits on this machine; None for all.
      downloaded: Bytes downloaded from the store.
      linked: Bytes linked from other versions on this machine.
      was_there: Whether the release existed already.
    """

    name: str
    path: Path
    store: str
    digest: str
    splits: tuple[str, ...] | None
    downloaded: int
    linked: int
    was_there: bool = False

    def __fspath__(self) -> str:
        return str(self.path)

    def to_json(self) -> dict[str, Json]:
        """Returns a form for scripts."""
        return {**vars(self), "path": str(self.path)}


class ReleaseInstall:
    """The installation of one release.

    `check` raises an error if it refuses a directory with the metadata of the whole release.
    """

    def __init__(
        self, client: CatalogClient, wanted: Record, version_dir: Path, overwrite: bool = False,
        workers: int = 8, report: Callable[[TransferProgress], None] = lambda _: None,
        check: Callable[[Path], None] = lambda _: None,
    ) -> None:  # fmt: skip
        self._client = client
        self._record = wanted
        self._dir = version_dir
        self._root = version_dir.parents[1 if wanted.config is None else 2]
        self._overwrite = overwrite
        self._workers = workers
        self._report = report
        self._check = check
        self._found: _Existing | None = None

    def run(self, splits: Sequence[str] | None) -> Pulled:
        """Installs the release, unless it is installed."""
        if (found := self.installed(splits)) is not None:
            return found
        staging.require_inside(self._dir, self._root)
        with staging.exclusive(self._dir):
            if (found := self.installed(splits)) is not None:
                return found  # another process installed it
            return self._install(splits)

    def installed(self, splits: Sequence[str] | None) -> Pulled | None:
        """Returns the result if nothing is left to do; otherwise None.

        Raises:
          OverwriteError: Other data exists under that version.
        """
        existing = self._found = self._existing()
        if existing is None or (existing.is_other and self._overwrite):
            return None
        if existing.is_other:
            raise self._other_data()
        has_all = existing.splits is None or (
            splits is not None and set(splits) <= set(existing.splits)
        )
        if has_all and existing.is_verified:
            check_indexes(self._dir, self._shards_in(self._dir))
            return self._pulled(existing.splits, 0, 0, was_there=True)
        return None

    def _existing(self) -> "_Existing | None":
        """Inspects the version's directory; returns None if it is missing or empty."""
        if not layout.is_prepared(self._dir):
            return _Existing(is_other=True) if _has_anything(self._dir) else None
        try:
            made = Manifest.read(self._dir)
        except MyDatasetsError:
            made = None
        if made is None or made.content is None:
            return _Existing(is_other=True)
        if made.content.digest == self._record.digest:
            return _Existing(is_verified=self._are_verified(self._record.files))
        splits = made.options.get("splits")
        if isinstance(splits, list) and self._record.read_from(self._dir):
            some = tuple(map(str, splits))
            return _Existing(some, is_verified=self._is_verified_part(some))
        return _Existing(is_other=True)

    def _are_verified(self, files: Iterable[ReleasedFile]) -> bool:
        """Returns whether files are the published ones; hashes those not known as verified."""
        verified = verified_files()

        def is_right(one: ReleasedFile) -> bool:
            found = verified.has(self._dir / one.name, one.sha256, one.bytes)
            transfer(one.bytes)
            return found

        left = [
            one for one in sorted(files, key=lambda one: one.bytes)
            if not verified.knows(self._dir / one.name, one.sha256, one.bytes)
        ]  # fmt: skip
        if not left:
            return True
        transfer = Transfer("verifying", sum(one.bytes for one in left), self._report)
        with ThreadPoolExecutor(self._workers) as pool:
            for found in pool.map(is_right, left):
                if not found:
                    pool.shutdown(cancel_futures=True)
                    return False
        return True

    def _is_verified_part(self, splits: tuple[str, ...]) -> bool:
        """Returns whether a partial version is what this machine pulled."""
        if not is_part_made_here(self._dir, self._record, splits):
            return False
        files = {one.name: one for one in self._record.files if one.name not in REWRITTEN}
        existing = {path.name for path in self._dir.iterdir()} & files.keys()
        wanted = shards_of(Declared.read(self._dir))
        return wanted <= existing and self._are_verified(files[name] for name in existing)

    def _other_data(self) -> OverwriteError:
        return OverwriteError(
            f"{self._dir} has other data than the release, or is damaged.",
            f"Expected: digest {self._record.digest[:16]}, as in {self._client.store.url}",
            fix="pull into another --data-dir; or use --overwrite, which replaces it once the "
            "download is complete",
        )

    def _install(self, splits: Sequence[str] | None) -> Pulled:
        work = self._dir.parent / f".{self._dir.name}{_WORK}"
        begin(work, self._record)
        first = [one for one in self._record.files if is_metadata(one)]
        rest = [one for one in self._record.files if not is_metadata(one)]
        fetched = [self._fetch(work, first)]
        declared, content = read_metadata(self._client, self._record, work, self._check)
        self._require_same_shards(work, declared)
        wanted = self._wanted(splits, declared)
        if wanted is not None:
            left_out = _files_of(declared, set(declared.splits) - set(wanted))
            rest = [one for one in rest if one.name not in left_out]
        fetched.append(self._fetch(work, rest))
        if wanted is not None:
            only_splits(work, wanted, content)
            remember_part(work, self._record, wanted)
        finish(work, {one.name for one in (*first, *rest)})
        self._require_own_indexes(work)
        if self._found is None and not self._overwrite and _has_anything(self._dir):
            raise self._other_data()  # it appeared during the download
        replace_version(work, self._dir)
        return self._pulled(
            wanted, sum(one.downloaded for one in fetched), sum(one.linked for one in fetched)
        )

    def _shards_in(self, version_dir: Path) -> dict[str, str]:
        """Returns the SHA-256 of each shard that a directory declares."""
        names = shards_of(Declared.read(version_dir))
        return {one.name: one.sha256 for one in self._record.files if one.name in names}

    def _require_own_indexes(self, work: Path) -> None:
        """Refuses a release whose record indexes do not match its shards."""
        try:
            check_indexes(work, self._shards_in(work))
        except CorruptShardError as error:
            discard(work)
            raise CorruptReleaseError(
                f"{self._client.store.url} has a wrong record index in this release.",
                error.problem,
                fix="ask the publisher to check it; this machine uses nothing of it",
            ) from error

    def _require_same_shards(self, work: Path, declared: Declared) -> None:
        """Refuses to replace a version that claims to be the release but has other shards."""
        existing = self._found
        if existing is None or self._overwrite:
            return
        splits = declared.splits if existing.splits is None else existing.splits
        names = {one.name for name in splits for one in declared.splits.get(name, ())}
        if not self._are_verified(one for one in self._record.files if one.name in names):
            discard(work)
            raise self._other_data()

    def _wanted(self, splits: Sequence[str] | None, declared: Declared) -> tuple[str, ...] | None:
        """Returns the splits to install, including existing ones; None for all."""
        if splits is None:
            return None
        unknown = [name for name in splits if name not in declared.splits]
        if unknown or not splits:
            raise SplitNotFoundError(
                f"{declared.name} has no split {', '.join(map(repr, unknown)) or 'called so'}.",
                f"Its splits: {', '.join(declared.splits)}",
                fix="choose among those",
            )
        existing: tuple[str, ...] | None = ()
        if self._found is not None and not self._found.is_other:
            existing = self._found.splits
        if existing is None:
            return None
        found = tuple(sorted({*splits, *existing}))
        return found if set(found) != set(declared.splits) else None

    def _fetch(self, work: Path, files: list[ReleasedFile]) -> Fetched:
        known = known_files(
            path
            for path in self._dir.parent.iterdir()
            if not path.name.startswith(".") and path.is_dir()
        )
        return fetch(
            self._client, self._record, work, files, known=known, workers=self._workers,
            report=self._report,
        )  # fmt: skip

    def _pulled(
        self, splits: tuple[str, ...] | None, downloaded: int, linked: int, was_there: bool = False
    ) -> Pulled:
        mine = self._record
        return Pulled(
            mine.full_name, self._dir, self._client.store.url, mine.digest,
            splits, downloaded, linked, was_there,
        )  # fmt: skip


@dataclass(frozen=True)
class _Existing:
    """The content of a version's directory; `splits` is None for all splits of the release."""

    splits: tuple[str, ...] | None = None
    is_other: bool = False
    is_verified: bool = False


def _has_anything(path: Path) -> bool:
    """Returns whether a path has anything that could be user data."""
    if path.is_symlink() or not path.is_dir():
        return os.path.lexists(path)
    return any(path.iterdir())


def _files_of(declared: Declared, splits: Collection[str]) -> set[str]:
    shards = [one.name for split in splits for one in declared.splits[split]]
    return {name for shard in shards for name in (shard, *sidecars.names_of(shard))}


def begin(work: Path, wanted: Record) -> None:
    """Creates the work directory, or empties the one of another release."""
    if work.is_symlink() or (os.path.lexists(work) and not wanted.read_from(work)):
        discard(work)
    work.mkdir(parents=True, exist_ok=True)
    keep_only_files(work)
    write_whole(work / record.FILE_NAME, wanted.data)


def read_metadata(
    client: CatalogClient, wanted: Record, work: Path, check: Callable[[Path], None]
) -> tuple[Declared, Content]:
    """Reads the downloaded metadata; deletes it if the record or `check` refuses it."""
    try:
        found = parse_metadata(wanted, work, client.store.url)
        check(work)
    except (CorruptReleaseError, LockError, UnregisteredFeatureError):
        shutil.rmtree(work, ignore_errors=True)
        raise
    return found


def finish(work: Path, names: set[str]) -> None:
    """Deletes files that do not belong to the release, and syncs the directory."""
    for path in work.iterdir():
        if path.name not in {*names, record.FILE_NAME}:
            discard(path)
    sync_directory(work)


def replace_version(work: Path, version_dir: Path) -> None:
    """Makes the work directory the version's, instead of what was there."""
    if os.path.lexists(version_dir):
        staging.swap(work, version_dir)
        discard(work)
    else:
        work.rename(version_dir)
