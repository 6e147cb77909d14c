"""Administers a store: garbage collection, listing, yanking, signing, and its required keys."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace

from my_datasets.core.json_types import Json
from my_datasets.core.reference import DatasetReference
from my_datasets.core.version import VersionNumber
from my_datasets.errors import (
    InvalidReferenceError,
    PublishError,
    ReleaseNotFoundError,
    SignatureError,
)
from my_datasets.publishing.catalog_client import CatalogClient
from my_datasets.publishing.model import store_layout
from my_datasets.publishing.model.record import key_of
from my_datasets.publishing.model.store_layout import Event, Index, Release, ReleaseState, Settings
from my_datasets.resolving.lock import Lock
from my_datasets.storage.store import HALF_WRITTEN, Store, StoredFile

# Age after which an unfinished upload counts as abandoned.
ABANDONED_SECONDS = 7 * 24 * 3600.0
# Deleted first, because TFDS does not find a version without it.
_FIRST = "features.json"

_AT_ONCE = 16


@dataclass(frozen=True)
class Garbage:
    """A folder that is not needed, with the reason, the number of its files and their size."""

    folder: str
    reason: str
    files: int
    bytes: int

    def to_json(self) -> dict[str, Json]:
        """Returns a form for scripts."""
        return dict(vars(self))


def collect_garbage(
    client: CatalogClient,
    *,
    delete: bool = False,
    yanked: bool = False,
    locks: Sequence[Lock] = (),
    older_than: float = ABANDONED_SECONDS,
    report: Callable[[Garbage], None] = lambda _: None,
) -> list[Garbage]:
    """Finds what no release needs, and optionally deletes it.

    That is: uploads without a write for `older_than` seconds, the remains of a deletion, and
    optionally `yanked` releases that are in none of the `locks`. Their versions cannot be published
    again with other bytes. Anything that is neither an upload nor a release is never touched.
    `report` is called with each item before it is deleted.
    """
    listed = releases(client)
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
    for folder, files in _abandoned(client.store, older_than):
        if folder not in wanted:
            note(folder, "an abandoned upload", files)
            if delete:
                _delete(client.store, files)
    locked = {digest for lock in locks for digest in _locked(lock)}
    for one in listed:
        is_unwanted = yanked and one.release.state is ReleaseState.YANKED
        if is_unwanted and (one.dataset, one.key, one.release.digest) not in locked:
            reason = f"yanked: {one.release.message}"
        elif one.release.state is ReleaseState.DELETED:
            reason = "the remains of a deletion"
        else:
            continue
        folder = store_layout.release_of(one.dataset, one.key)
        files = list(client.store.list(folder))
        if not files:
            continue
        note(folder, reason, files)
        # Otherwise its state was changed concurrently.
        if delete and _is_marked_deleted(client, one.dataset, one.key, one.release):
            _delete(client.store, files)
    return found


def _abandoned(store: Store, older_than: float) -> Iterator[tuple[str, list[StoredFile]]]:
    """Yields folders without a recently written file."""
    folders: dict[str, list[StoredFile]] = {}
    for root in (store_layout.UPLOADS, HALF_WRITTEN):
        for one in store.list(root):
            folders.setdefault(one.path.rpartition("/")[0], []).append(one)
    for folder, files in sorted(folders.items()):
        groups: Iterable[list[StoredFile]] = [files]
        if folder == HALF_WRITTEN:  # its files have different writers
            groups = [[one] for one in files]
        for group in groups:
            if time.time() - max(one.modified for one in group) > older_than:
                yield folder, group


def _locked(lock: Lock) -> Iterator[tuple[str, str, str]]:
    for text, one in lock.datasets.items():
        name = DatasetReference.parse(text).name
        config = f"{one.config}/" if one.config else ""
        yield name, f"{config}{one.version}", one.digest


def _is_marked_deleted(client: CatalogClient, dataset: str, key: str, seen: Release) -> bool:
    """Marks a release as deleted before its files are; returns False if it has changed."""

    def deleted(index: Index) -> Index:
        one = index.releases[key]
        if one != seen or one.state is ReleaseState.DELETED:
            return index
        return index.with_release(
            key, replace(one, state=ReleaseState.DELETED), "delete", by=client.by
        )

    return client.change(dataset, deleted).releases[key].state is ReleaseState.DELETED


def _delete(store: Store, files: list[StoredFile]) -> None:
    for one in sorted(files, key=lambda one: not one.path.endswith(f"/{_FIRST}")):
        store.delete(one.path)


@dataclass(frozen=True)
class Listed:
    """A release, by dataset and key, with its entry in the index."""

    dataset: str
    key: str
    release: Release

    @property
    def name(self) -> str:
        """The full name of the release."""
        config, slash, version = self.key.rpartition("/")
        return f"{self.dataset}{slash}{config}:{version}"

    def to_json(self) -> dict[str, Json]:
        """Returns a form for scripts."""
        return {"name": self.name, **asdict(self.release), "state": self.release.state.value}


def releases(client: CatalogClient, dataset: str | None = None) -> list[Listed]:
    """Returns the releases in a store, by dataset and config, lowest version first.

    Raises:
      ReleaseNotFoundError: The dataset has no releases.
    """
    names = client.required().datasets if dataset is None else (_known(client, dataset),)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(client.index, names))
    return [
        Listed(index.dataset, key_of(config, version), one)
        for index in found
        for config in [None, *index.configs]
        for version, one in index.versions(config).items()
    ]


def history(client: CatalogClient, dataset: str) -> tuple[Event, ...]:
    """Returns the history of a dataset's releases, oldest first.

    Raises:
      ReleaseNotFoundError: The dataset has no releases.
    """
    return client.index(_known(client, dataset)).log


def yank(client: CatalogClient, reference: str, message: str) -> Listed:
    """Withdraws a release: wildcards skip it, and exact references fail. The bytes stay.

    `message` says why, and what to use instead; errors show it.

    Raises:
      InvalidReferenceError: The version is not exact.
      ReleaseNotFoundError: There is no such release.
    """
    if not message.strip():
        raise PublishError(
            "yank requires a reason.",
            fix="say what is wrong, and what to use instead; errors show it",
        )
    return _change_state(client, reference, "yank", ReleaseState.YANKED, message)


def unyank(client: CatalogClient, reference: str) -> Listed:
    """Undoes `yank`."""
    return _change_state(client, reference, "unyank", ReleaseState.PUBLISHED, "")


def sign(client: CatalogClient, dataset: str | None = None) -> list[Listed]:
    """Signs the releases of a dataset, or of all datasets.

    A signature asserts that these bytes are those releases: pull and verify them first.

    Raises:
      ReleaseNotFoundError: The dataset has no releases.
    """
    client.set()  # which signs the list of datasets
    found = []
    for name in dict.fromkeys(one.dataset for one in releases(client, dataset)):

        def signed(index: Index) -> Index:
            for key, one in index.releases.items():
                mine = client.signed(index.dataset, key, one)
                if one.is_visible and mine != one:
                    index = index.with_release(key, mine, "sign", by=client.by)
            return index

        client.change(name, signed, anew=True)
        found += releases(client, name)
    if dataset is None and not client.required().names_store:
        client.set(names_store=True)
    return found


def set_validity(client: CatalogClient, seconds: int) -> None:
    """Sets for how many seconds signatures are valid, 0 for ever, and renews them."""
    client.set(valid_seconds=seconds)
    for name in client.required().datasets:
        client.change(name, lambda index: index, anew=True)


def add_key(client: CatalogClient, key: str) -> Settings:
    """Adds a public key to a store, which is trusted by everyone who trusts the signer."""
    return client.change_key("add", key)


def revoke_key(client: CatalogClient, key: str) -> Settings:
    """Revokes a public key, after signing again what it signed.

    Raises:
      SignatureError: It is the signer's own key.
    """
    from my_datasets.publishing.model.signing import TrustedKeys

    if client.by in TrustedKeys.of([key], "the key to revoke").fingerprints:
        raise SignatureError(
            "A key cannot revoke itself: it could not sign anything any more.",
            fix="add another key, then use that to revoke this one: --sign-key NEW",
        )
    sign(client)
    return client.change_key("revoke", key)


def require_signatures(client: CatalogClient, *, required: bool) -> Settings:
    """Sets whether a store requires signatures; creates the store if it does not exist."""
    return client.set(requires_signatures=required)


def _change_state(
    client: CatalogClient, reference: str, action: str, state: ReleaseState, message: str
) -> Listed:
    parsed = DatasetReference.parse(reference)
    pattern = parsed.version
    exact = VersionNumber.parse(str(pattern)) if pattern is not None else None
    if exact is None:
        raise InvalidReferenceError(
            f"{reference!r} does not name an exact version.",
            fix="write it as digits:1.0.0; my-datasets ls shows the releases",
        )
    known = client.required().datasets
    if parsed.name not in known:
        raise _unknown(client, reference, known)

    def changed(index: Index) -> Index:
        key = key_of(parsed.config or index.default_config, exact)
        one = index.releases.get(key)
        if one is None or not one.is_visible:
            raise _unknown(client, reference, [*index.releases])
        new = replace(one, state=state, message=message)
        return index if new == one else index.with_release(key, new, action, client.by, message)

    index = client.change(parsed.name, changed)
    key = key_of(parsed.config or index.default_config, exact)
    return Listed(parsed.name, key, index.releases[key])


def _known(client: CatalogClient, dataset: str) -> str:
    known = client.required().datasets
    if dataset not in known:
        raise _unknown(client, dataset, known)
    return dataset


def _unknown(client: CatalogClient, wanted: str, known: Iterable[str]) -> ReleaseNotFoundError:
    return ReleaseNotFoundError(
        f"{client.store.url} has no release of {wanted!r}.",
        f"Found: {', '.join(list(known)[:20]) or 'nothing'}",
        fix="choose one of those; my-datasets ls shows all",
    )
