"""A release on its way here: beside the others, until it is whole and verified."""

import os
import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from my_datasets.building import staging
from my_datasets.core import layout
from my_datasets.core.content import Content
from my_datasets.core.declared import Declared
from my_datasets.core.manifest import Manifest
from my_datasets.errors import (
    CorruptReleaseError,
    MyDatasetsError,
    OverwriteError,
    SplitNotFoundError,
    explain,
)
from my_datasets.publishing import record
from my_datasets.publishing.ledger import Ledger
from my_datasets.publishing.metadata import understood
from my_datasets.publishing.partial import only_splits
from my_datasets.publishing.pulling import fetch, known_files
from my_datasets.publishing.record import Record, ReleasedFile
from my_datasets.publishing.transfer import Progress
from my_datasets.records import index as record_index
from my_datasets.records import keys as record_keys

_WORK = ".pull"


@dataclass(frozen=True)
class Pulled:
    """What was done; stands for the version's directory.

    Attributes:
      name: The release's full name.
      path: Where it is now.
      store: Where it came from.
      digest: That of the content of the whole release.
      splits: Those that are there now; None for all.
      downloaded: Bytes that came from the store.
      linked: Bytes that were on this machine already, in other versions.
      was_there: Whether there was nothing to do.
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

    def to_json(self) -> dict[str, Any]:
        """Returns it for scripts."""
        return {**vars(self), "path": str(self.path)}


class Bringing:
    """One release, on its way to this machine."""

    def __init__(
        self, ledger: Ledger, wanted: Record, version_dir: Path, overwrite: bool = False,
        workers: int = 1, report: Callable[[Progress], None] = lambda _: None,
    ) -> None:  # fmt: skip
        self._ledger = ledger
        self._record = wanted
        self._dir = version_dir
        self._overwrite = overwrite
        self._workers = workers
        self._report = report

    def run(self, splits: Sequence[str] | None) -> Pulled:
        """Brings it here, unless it is here."""
        if (found := self.there(splits)) is not None:
            return found
        with staging.exclusive(self._dir):
            if (found := self.there(splits)) is not None:
                return found  # somebody else brought it
            return self._bring(splits)

    def there(self, splits: Sequence[str] | None) -> Pulled | None:
        """Returns what there is to say if there is nothing to do; None if there is something.

        Args:
          splits: The splits that are wanted; None for all.

        Raises:
          OverwriteError: There are other data under that version.
        """
        here = self._here()
        if here is None or (here.is_other and self._overwrite):
            return None
        if here.is_other:
            raise OverwriteError(
                explain(
                    f"{self._dir} holds other data than the release, or damaged ones.",
                    f"Expected: digest {self._record.digest[:16]}, as in {self._ledger.store.url}",
                    mend="pull into another --data-dir; or --overwrite, which replaces it once the "
                    "release is whole",
                )
            )
        if here.splits is None or (splits is not None and set(splits) <= set(here.splits)):
            return self._pulled(here.splits, 0, 0, was_there=True)
        return None

    def _here(self) -> "_Here | None":
        """Returns what there is under that version; None for nothing."""
        if not layout.is_prepared(self._dir):
            return None
        try:
            made = Manifest.read(self._dir)
        except MyDatasetsError:
            return _Here(is_other=True)
        if made is None or made.content is None or not _has_all(self._dir, made.content):
            return _Here(is_other=True)
        if made.content.digest == self._record.digest:
            return _Here()
        if self._record.read_from(self._dir) and "splits" in made.options:
            return _Here(tuple(made.options["splits"]))
        return _Here(is_other=True)

    def _bring(self, splits: Sequence[str] | None) -> Pulled:
        work = self._dir.parent / f".{self._dir.name}{_WORK}"
        begin(work, self._record)
        first = [one for one in self._record.files if one.name in record.FIRST]
        rest = [one for one in self._record.files if one.name not in record.FIRST]
        fetched = [self._fetch(work, first)]
        declared, content = self._understood(work)
        wanted = self._wanted(splits, declared)
        if wanted is not None:
            left_out = _files_of(declared, set(declared.splits) - set(wanted))
            rest = [one for one in rest if one.name not in left_out]
        fetched.append(self._fetch(work, rest))
        if wanted is not None:
            only_splits(work, wanted, content)
        finish(work, {one.name for one in (*first, *rest)})
        if self._dir.exists():
            staging.swap(work, self._dir)
            shutil.rmtree(work, ignore_errors=True)
        else:
            work.rename(self._dir)
        return self._pulled(
            wanted, sum(one.downloaded for one in fetched), sum(one.linked for one in fetched)
        )

    def _wanted(self, splits: Sequence[str] | None, declared: Declared) -> tuple[str, ...] | None:
        """Returns the splits that will be here: those that are stay. None for all."""
        if splits is None:
            return None
        unknown = [name for name in splits if name not in declared.splits]
        if unknown or not splits:
            raise SplitNotFoundError(
                explain(
                    f"{declared.name} has no split {', '.join(map(repr, unknown)) or 'called so'}.",
                    f"Its splits: {', '.join(declared.splits)}",
                    mend="choose among those",
                )
            )
        here = self._here()
        there = (here.splits or ()) if here is not None else ()
        found = tuple(sorted({*splits, *there}))
        return found if set(found) != set(declared.splits) else None

    def _fetch(self, work: Path, files: list[ReleasedFile]) -> Any:
        known = known_files(
            path
            for path in self._dir.parent.iterdir()
            if not path.name.startswith(".") and path.is_dir()
        )
        return fetch(
            self._ledger, self._record, work, files, known=known, workers=self._workers,
            report=self._report,
        )  # fmt: skip

    def _understood(self, work: Path) -> tuple[Declared, Content]:
        """Returns what the metadata say; if they do not fit the record, they are not kept."""
        try:
            return understood(self._record, work, self._ledger.store.url)
        except CorruptReleaseError:
            shutil.rmtree(work, ignore_errors=True)
            raise

    def _pulled(
        self, splits: Any, downloaded: int, linked: int, *, was_there: bool = False
    ) -> Pulled:
        mine = self._record
        config = f"/{mine.config}" if mine.config else ""
        return Pulled(
            f"{mine.name}{config}:{mine.version}", self._dir, self._ledger.store.url, mine.digest,
            splits, downloaded, linked, was_there,
        )  # fmt: skip


@dataclass(frozen=True)
class _Here:
    """What there is under a version.

    Attributes:
      splits: The splits of the release that are there; None for all.
      is_other: Whether it is something else.
    """

    splits: tuple[str, ...] | None = None
    is_other: bool = False


def _files_of(declared: Declared, splits: Collection[str]) -> set[str]:
    shards = [one.name for split in splits for one in declared.splits[split]]
    suffixes = "", record_index.SUFFIX, record_keys.SUFFIX
    return {name + suffix for name in shards for suffix in suffixes}


def begin(work: Path, wanted: Record) -> None:
    """Makes the directory in which a release is put together; that of another one is emptied."""
    marker = work / record.FILE_NAME
    if work.is_symlink() or (work.exists() and not wanted.read_from(work)):
        if work.is_symlink() or not work.is_dir():
            work.unlink()
        else:
            shutil.rmtree(work)
    work.mkdir(parents=True, exist_ok=True)
    partial = marker.with_name(f"{marker.name}.partial")
    partial.write_bytes(wanted.data)
    partial.replace(marker)


def finish(work: Path, names: set[str]) -> None:
    """Removes what does not belong there, and makes the rest durable."""
    for path in work.iterdir():
        if path.name not in {*names, record.FILE_NAME}:
            path.unlink()
    descriptor = os.open(work, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _has_all(version_dir: Path, content: Content) -> bool:
    """Returns whether the shards of a version are there, as far as sizes tell."""
    for one in (shard for split in content.splits.values() for shard in split.shards):
        try:
            if (version_dir / one.name).stat().st_size != one.bytes:
                return False
        except OSError:
            return False
    return True
