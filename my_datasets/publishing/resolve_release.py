"""From a reference to the record of the release that is meant, with all that must be checked."""

import os
from dataclasses import dataclass

from my_datasets.core.reference import DatasetReference
from my_datasets.core.version import VersionNumber, VersionPattern
from my_datasets.errors import ReleaseNotFoundError, YankedError, explain
from my_datasets.publishing.catalog_client import CatalogClient
from my_datasets.publishing.model import store_layout
from my_datasets.publishing.model.index import Index, Release, ReleaseState
from my_datasets.publishing.model.record import Record, key_of
from my_datasets.publishing.model.rollback_state import RollbackState
from my_datasets.publishing.model.signed_json import Trusts
from my_datasets.resolving.request import Request
from my_datasets.storage.opening import open_store
from my_datasets.storage.retry import RetryingStore, RetryPolicy
from my_datasets.storage.store import Store

_SHOWN = 10


def select_version(index: Index, reference: DatasetReference, url: str) -> tuple[str, Release]:
    """Returns the release that a reference means: the highest one that was not withdrawn.

    Args:
      index: The releases of the dataset.
      reference: What is wanted; without a config, the default one.
      url: The store's, for messages.

    Returns:
      Its name in the index, and what the index says of it.

    Raises:
      ReleaseNotFoundError: There is none.
      YankedError: It was withdrawn.
    """
    config = reference.config or index.default_config
    versions = index.versions(config)
    wanted = reference.version or VersionPattern(None, None, None)
    matching = {version: one for version, one in versions.items() if wanted.matches(version)}
    good = [version for version, one in matching.items() if one.state is ReleaseState.PUBLISHED]
    if good:
        return key_of(config, max(good)), versions[max(good)]
    yanked = {v: one for v, one in matching.items() if one.state is ReleaseState.YANKED}
    if yanked:
        raise _yanked(index.dataset, config, yanked, url)
    raise _missing(index, reference, config, versions, url)


def _yanked(
    dataset: str, config: str | None, yanked: dict[VersionNumber, Release], url: str
) -> YankedError:
    name = f"{dataset}/{config}" if config else dataset
    told = [f"{name}:{version}: {one.message}" for version, one in sorted(yanked.items())]
    return YankedError(
        explain(
            f"What is meant was withdrawn from {url}.",
            *told[-_SHOWN:],
            fix="ask for another version; my-datasets ls shows them",
        )
    )


def _missing(
    index: Index, reference: DatasetReference, config: str | None,
    versions: dict[VersionNumber, Release], url: str,
) -> ReleaseNotFoundError:  # fmt: skip
    there = [
        str(version) for version, one in versions.items() if one.state is ReleaseState.PUBLISHED
    ]
    placing = [
        str(version) for version, one in versions.items() if one.state is ReleaseState.PLACING
    ]
    configs = index.configs
    return ReleaseNotFoundError(
        explain(
            f"{url} has no release of {str(reference)!r}.",
            f"Its versions there: {', '.join(there[-_SHOWN:]) or 'none'}",
            f"Being published right now: {', '.join(placing)}" if placing else "",
            f"Its configs there: {', '.join(configs[:_SHOWN])}"
            if configs and config not in configs
            else "",
            fix="ask for one of those; my-datasets ls shows what there is",
        )
    )


@dataclass(frozen=True)
class ResolvedRelease:
    """A release that is meant.

    Attributes:
      ledger: Of its store.
      index: The releases of its dataset.
      key: Its name among them.
      release: What the index says of it.
      record: Its files.
      request: The requested dataset, with the lock that applies to it.
    """

    ledger: CatalogClient
    index: Index
    key: str
    release: Release
    record: Record
    request: Request

    @property
    def url(self) -> str:
        """Where its files are, for people."""
        return f"{self.ledger.store.url}/{store_layout.release_of(self.record.name, self.key)}"


def resolve_release(
    reference: DatasetReference,
    store: str | os.PathLike[str] | Store,
    *,
    use_lock: bool = True,
    keys: Trusts | None = None,
    patience: RetryPolicy | None = None,
    memory: RollbackState | None = None,
) -> ResolvedRelease:
    """Returns the release that a reference means.

    Args:
      reference: Which one: the highest that fits and was not withdrawn.
      store: Where it is, as `open_store` takes it.
      use_lock: Whether the project's lock says what the reference means.
      keys: Whose signatures count; with them, what is not signed is refused.
      patience: How long the store is given where it does not answer well.
      memory: What this machine has seen of stores.

    Raises:
      ReleaseNotFoundError: There is no such release.
      YankedError: It was withdrawn.
      LockError: It is another one than the project's lock says.
      CorruptReleaseError: The store gives something else than was published.
      SignatureError: A signature is missing or wrong, or the store's state is an older one.
      StoreError: The store cannot be used, or does not answer.
    """
    request = Request.of(reference, use_lock=use_lock)
    exact = request.exact
    ledger = CatalogClient(RetryingStore(open_store(store), patience), keys=keys, memory=memory)
    ledger.required()
    index = ledger.index(exact.name)
    key, release = select_version(index, exact, ledger.store.url)
    request.check_digest(release.digest, ledger.store.url)
    record = ledger.record(exact.name, key, release)
    return ResolvedRelease(ledger, index, key, release, record, request)
