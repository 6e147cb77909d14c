"""`gc`: what nobody needs any more, deleted from a store."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

from my_datasets.core.reference import DatasetReference
from my_datasets.core.version import VersionNumber
from my_datasets.errors import (
    InvalidReferenceError,
    PublishError,
    ReleaseNotFoundError,
    SignatureError,
    explain,
)
from my_datasets.publishing.catalog_client import CatalogClient
from my_datasets.publishing.model import store_layout
from my_datasets.publishing.model.index import Event, Index, Release, ReleaseState
from my_datasets.publishing.model.record import key_of
from my_datasets.publishing.model.store_layout import Settings
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


def collect_garbage(
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


_AT_ONCE = 16


@dataclass(frozen=True)
class Listed:
    """A release in a list.

    Attributes:
      dataset: The dataset.
      key: The release: `1.0.0`, or `config/1.0.0`.
      release: What the index says of it.
    """

    dataset: str
    key: str
    release: Release

    @property
    def name(self) -> str:
        """Its full name."""
        config, _, version = self.key.rpartition("/")
        return f"{self.dataset}/{config}:{version}" if config else f"{self.dataset}:{version}"

    def to_json(self) -> dict[str, Any]:
        """Returns it for scripts."""
        return {"name": self.name, **asdict(self.release), "state": self.release.state.value}


def releases(ledger: CatalogClient, dataset: str | None = None) -> list[Listed]:
    """Returns the releases in a store: by dataset and config, lowest version first.

    Args:
      ledger: Of the store.
      dataset: Only those of one; None for all.

    Raises:
      ReleaseNotFoundError: The dataset has none.
    """
    names = ledger.required().datasets
    if dataset is not None:
        if dataset not in names:
            raise _unknown(ledger, dataset, names)
        names = (dataset,)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(ledger.index, names))
    return [
        Listed(index.dataset, key_of(config, version), one)
        for index in found
        for config in [None, *index.configs]
        for version, one in index.versions(config).items()
    ]


def history(ledger: CatalogClient, dataset: str) -> tuple[Event, ...]:
    """Returns all that happened to the releases of a dataset, oldest first.

    Raises:
      ReleaseNotFoundError: It has none.
    """
    names = ledger.required().datasets
    if dataset not in names:
        raise _unknown(ledger, dataset, names)
    return ledger.index(dataset).log


def yank(ledger: CatalogClient, reference: str, message: str) -> Listed:
    """Withdraws a release: wildcards pass it over, who asks for it is told why. The bytes stay.

    Args:
      ledger: Of the store.
      reference: The release, with its exact version.
      message: Why, and what to use in its place.

    Raises:
      InvalidReferenceError: It is no exact version.
      ReleaseNotFoundError: There is no such release.
    """
    if not message.strip():
        raise PublishError(
            explain(
                "There is no reason given.",
                fix="say what is wrong, and what to use in its place; loaders show it",
            )
        )

    def yanked(one: Release) -> Release:
        return replace(one, state=ReleaseState.YANKED, message=message)

    return _changed(ledger, reference, "yank", yanked, message)


def unyank(ledger: CatalogClient, reference: str) -> Listed:
    """Takes back that a release was withdrawn; see `yank`."""

    def published(one: Release) -> Release:
        return replace(one, state=ReleaseState.PUBLISHED, message="")

    return _changed(ledger, reference, "unyank", published)


def sign(ledger: CatalogClient, dataset: str | None = None) -> list[Listed]:
    """Signs the releases of a dataset, or of all, as the ledger's signer.

    Whoever signs says that these bytes are those releases: pull and verify them first.

    Args:
      ledger: Of the store, with a signer.
      dataset: The dataset; None for all.

    Raises:
      ReleaseNotFoundError: It has no releases.
    """
    ledger.set()  # which signs the list of datasets
    found = []
    for name in dict.fromkeys(one.dataset for one in releases(ledger, dataset)):

        def signed(index: Index) -> Index:
            for key, one in index.releases.items():
                mine = ledger.signed(index.dataset, key, one)
                if one.is_visible and mine != one:
                    index = index.with_release(key, mine, "sign", by=ledger.by)
            return index

        ledger.change(name, signed, anew=True)
        found += releases(ledger, name)
    if dataset is None and not ledger.required().names_store:
        ledger.set(names_store=True)
    return found


def set_validity(ledger: CatalogClient, seconds: int) -> None:
    """Says for how long what is signed in a store counts, and signs all of it anew.

    Args:
      ledger: Of the store, with a signer.
      seconds: For how long, from each time it is signed; 0 for ever.
    """
    ledger.set(valid_seconds=seconds)
    for name in ledger.required().datasets:
        ledger.change(name, lambda index: index, anew=True)


def add_key(ledger: CatalogClient, key: str) -> Settings:
    """Says that another key signs for a store, too: whoever trusts the ledger's signer trusts it.

    Args:
      ledger: Of the store, with a signer.
      key: The public key, `ssh-ed25519 KEY`.
    """
    return ledger.change_key("add", key)


def revoke_key(ledger: CatalogClient, key: str) -> Settings:
    """Says that a key does not count any more; what it signed is signed anew before.

    Args:
      ledger: Of the store, with a signer whose key is another one.
      key: The public key, `ssh-ed25519 KEY`.

    Raises:
      SignatureError: It is the key that signs.
    """
    from my_datasets.publishing.model.signing import TrustedKeys

    if ledger.by in TrustedKeys.of([key], "the key to revoke").fingerprints:
        raise SignatureError(
            explain(
                "A key does not revoke itself: nothing could be signed by it any more.",
                fix="add another key, then revoke this one by that: --sign-key NEW",
            )
        )
    sign(ledger)
    return ledger.change_key("revoke", key)


def require_signatures(ledger: CatalogClient, *, required: bool) -> Settings:
    """Says whether a store takes only what is signed; it is made if there is none."""
    return ledger.set(requires_signatures=required)


def _changed(
    ledger: CatalogClient, reference: str, action: str, change: Callable[[Release], Release],
    note: str = "",
) -> Listed:  # fmt: skip
    parsed = DatasetReference.parse(reference)
    pattern = parsed.version
    exact = VersionNumber.parse(str(pattern)) if pattern is not None else None
    if exact is None:
        raise InvalidReferenceError(
            explain(
                f"{reference!r} names no exact version.",
                fix="write it as digits:1.0.0; my-datasets ls shows what there is",
            )
        )
    ledger.required()

    def changed(index: Index) -> Index:
        key = key_of(parsed.config or index.default_config, exact)
        one = index.releases.get(key)
        if one is None or not one.is_visible:
            raise _unknown(ledger, reference, [*index.releases])
        new = change(one)
        return index if new == one else index.with_release(key, new, action, ledger.by, note)

    index = ledger.change(parsed.name, changed) if _has(ledger, parsed.name) else Index(parsed.name)
    key = key_of(parsed.config or index.default_config, exact)
    if key not in index.releases:
        raise _unknown(ledger, reference, ledger.required().datasets)
    return Listed(parsed.name, key, index.releases[key])


def _has(ledger: CatalogClient, dataset: str) -> bool:
    return dataset in ledger.required().datasets


def _unknown(ledger: CatalogClient, wanted: str, there: Any) -> ReleaseNotFoundError:
    return ReleaseNotFoundError(
        explain(
            f"{ledger.store.url} has no release of {wanted!r}.",
            f"There: {', '.join(list(there)[:20]) or 'nothing'}",
            fix="ask for one of those; my-datasets ls shows all",
        )
    )
