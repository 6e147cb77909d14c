"""`gc`: what nobody needs any more, deleted from a store."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from my_datasets.core.reference import DatasetReference
from my_datasets.publishing.admin.releases import releases
from my_datasets.publishing.catalog_client import CatalogClient
from my_datasets.publishing.model import store_layout
from my_datasets.publishing.model.index import Index, Release, ReleaseState
from my_datasets.resolving.lock import Lock
from my_datasets.storage.store import HALF_WRITTEN, Store, StoredFile

# An upload that nobody went on with for so long is given up.
ABANDONED_SECONDS = 7 * 24 * 3600.0
# Whose absence hides the others: it is deleted first.
_FIRST = "features.json"


@dataclass(frozen=True)
class Garbage:
    """Something that is not needed.

    Attributes:
      folder: Where it is.
      reason: Why it is not needed.
      files: How many files it has.
      bytes: Their size.
    """

    folder: str
    reason: str
    files: int
    bytes: int

    def to_json(self) -> dict[str, Any]:
        """Returns it for scripts."""
        return dict(vars(self))


def collect(
    ledger: CatalogClient,
    *,
    delete: bool = False,
    yanked: bool = False,
    locks: Sequence[Lock] = (),
    older_than: float = ABANDONED_SECONDS,
    report: Callable[[Garbage], None] = lambda _: None,
) -> list[Garbage]:
    """Finds what no release needs, and deletes it if asked to.

    That is: uploads that were never finished, the remains of a deletion, and, if asked for,
    releases that were withdrawn and are in no lock. Their versions stay used up: other bytes are
    refused under them for ever. What is no upload and no release of ours is never touched.

    Args:
      ledger: Of the store.
      delete: Whether to delete; otherwise it is only looked for.
      yanked: Whether releases that were withdrawn count.
      locks: Whose releases are kept.
      older_than: Seconds after which an upload that nobody went on with counts.
      report: Told of each thing before it is deleted.

    Returns:
      What was found.
    """
    listed = releases(ledger)
    found: list[Garbage] = []

    def note(folder: str, reason: str, files: list[StoredFile]) -> None:
        one = Garbage(folder, reason, len(files), sum(file.bytes for file in files))
        found.append(one)
        report(one)

    wanted = {
        store_layout.upload_of(one.dataset, one.key, one.release.record)
        for one in listed
        if one.release.state is ReleaseState.PLACING
    }
    for folder, files in _abandoned(ledger.store, older_than):
        if folder not in wanted:
            note(folder, "an upload that was never finished", files)
            _delete(ledger.store, files, delete=delete)
    locked = {digest for lock in locks for digest in _locked(lock)}
    for one in listed:
        is_unwanted = yanked and one.release.state is ReleaseState.YANKED
        if is_unwanted and (one.dataset, one.key, one.release.digest) not in locked:
            reason = f"withdrawn: {one.release.message}"
        elif one.release.state is ReleaseState.DELETED:
            reason = "the remains of a deletion"
        else:
            continue
        folder = store_layout.release_of(one.dataset, one.key)
        files = list(ledger.store.list(folder))
        if not files:
            continue
        note(folder, reason, files)
        if delete and not _is_marked_deleted(ledger, one.dataset, one.key, one.release):
            continue  # somebody took it back in the meantime
        _delete(ledger.store, files, delete=delete)
    return found


def _abandoned(store: Store, older_than: float) -> Iterator[tuple[str, list[StoredFile]]]:
    """Yields folders of files of which none was written for some time."""
    folders: dict[str, list[StoredFile]] = {}
    for root in (store_layout.UPLOADS, HALF_WRITTEN):
        for one in store.list(root):
            folders.setdefault(one.path.rpartition("/")[0], []).append(one)
    for folder, files in sorted(folders.items()):
        groups: Iterable[list[StoredFile]] = [files]
        if folder == HALF_WRITTEN:  # of many writers
            groups = [[one] for one in files]
        for group in groups:
            if time.time() - max(one.modified for one in group) > older_than:
                yield folder, group


def _locked(lock: Lock) -> Iterator[tuple[str, str, str]]:
    for text, one in lock.datasets.items():
        name = DatasetReference.parse(text).name
        config = f"{one.config}/" if one.config else ""
        yield name, f"{config}{one.version}", one.digest


def _is_marked_deleted(ledger: CatalogClient, dataset: str, key: str, seen: Release) -> bool:
    """Says first that a release is gone, so that nobody finds half of it; returns if that holds."""

    def deleted(index: Index) -> Index:
        one = index.releases[key]
        if one != seen or one.state is ReleaseState.DELETED:
            return index
        return index.with_release(
            key, replace(one, state=ReleaseState.DELETED), "delete", by=ledger.by
        )

    return ledger.change(dataset, deleted).releases[key].state is ReleaseState.DELETED


def _delete(store: Store, files: list[StoredFile], *, delete: bool) -> None:
    first = [one for one in files if one.path.endswith(f"/{_FIRST}")]
    for one in [*first, *(one for one in files if one not in first)] if delete else ():
        store.delete(one.path)
