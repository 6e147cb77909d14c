"""The end of publishing: from where a release was uploaded to where TFDS looks for it.

It can be interrupted anywhere, and completed by anybody who may write to the store.
"""

import hashlib
from dataclasses import replace

from my_datasets.errors import CorruptReleaseError, NotInStoreError, explain
from my_datasets.metadata.layout import METADATA_FILES
from my_datasets.publishing.catalog_client import CatalogClient
from my_datasets.publishing.model import record, store_layout
from my_datasets.publishing.model.index import Index, ReleaseState
from my_datasets.publishing.model.record import Record, ReleasedFile
from my_datasets.storage.store import OnBytes, Store, untold

# TFDS takes a directory for a dataset from features.json on: as long as that is missing it finds
# nothing there, and with it, all.
LAST = tuple(sorted(METADATA_FILES))


def place(ledger: CatalogClient, dataset: str, key: str) -> Index:
    """Puts the files of a release in their place, and then makes it visible.

    Args:
      ledger: Of the store.
      dataset: The dataset.
      key: The release, which is being placed; otherwise nothing happens.

    Returns:
      The index that is there then.

    Raises:
      CorruptReleaseError: Files of it are not in the store.
    """
    index = ledger.index(dataset)
    found = index.releases[key]
    if found.state is not ReleaseState.PLACING:
        return index
    source = store_layout.upload_of(dataset, key, found.record)
    target = store_layout.release_of(dataset, key)
    try:
        wanted = ledger.record(dataset, key, found, source)
    except NotInStoreError:
        wanted = ledger.record(dataset, key, found)
    _refuse_others(ledger.store, wanted, target)
    ledger.store.move(source, target, LAST)
    missing = lacking(ledger.store, wanted)
    if missing:
        raise CorruptReleaseError(
            explain(
                f"{dataset}:{key} cannot be completed in {ledger.store.url}.",
                f"Not there, or of another size: {', '.join(missing[:5])}",
                fix="publish the same version again: what is missing is uploaded; what is of "
                f"another size in {target} must be deleted there first",
            )
        )

    def published(now: Index) -> Index:
        state = now.releases[key]
        if state.state is not ReleaseState.PLACING:
            return now
        return now.with_release(
            key, replace(state, state=ReleaseState.PUBLISHED), "placed", by=ledger.by
        )

    return ledger.change(dataset, published)


def is_same(store: Store, path: str, one: ReleasedFile, on_bytes: OnBytes | None = None) -> bool:
    """Returns whether a file in a store is one of a release.

    Args:
      store: The store.
      path: The file.
      one: What it should be.
      on_bytes: If given, it is read, and this is told of the bytes; otherwise it is read only if
        the store does not know its SHA-256.
    """
    stored = store.stat(path)
    if stored.bytes != one.bytes:
        return False
    if stored.sha256 is not None and on_bytes is None:
        return stored.sha256 == one.sha256
    found = hashlib.sha256()
    for block in store.read(path):
        found.update(block)
        (on_bytes or untold)(len(block))
    return found.hexdigest() == one.sha256


def _refuse_others(store: Store, wanted: Record, folder: str) -> None:
    """Sees that what lies where a release is to lie is a part of it: who began was interrupted."""
    files = {one.name: one for one in wanted.files}
    files[record.FILE_NAME] = ReleasedFile(record.FILE_NAME, len(wanted.data), wanted.identity)
    for there in list(store.list(folder)):
        one = files.get(there.path.removeprefix(f"{folder}/"))
        if one is None or not is_same(store, there.path, one):
            raise CorruptReleaseError(
                explain(
                    f"{there.path} in {store.url} is in the way: it is no part of the release that "
                    "is to lie there.",
                    fix="delete it there, and run the same again",
                )
            )


def lacking(store: Store, wanted: Record) -> list[str]:
    """Returns the names of files of a release that are not in their place, as far as sizes tell."""
    folder = store_layout.release_of(wanted.name, wanted.key)
    there = {one.path.rpartition("/")[2]: one.bytes for one in store.list(folder)}
    expected = {one.name: one.bytes for one in wanted.files} | {record.FILE_NAME: len(wanted.data)}
    return sorted(name for name, size in expected.items() if there.get(name) != size)
