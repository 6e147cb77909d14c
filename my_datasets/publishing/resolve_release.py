"""Resolves a reference to the record of a release: selects the version, and checks it."""

import os
from dataclasses import dataclass

from my_datasets.core.reference import DatasetReference
from my_datasets.core.version import VersionNumber, VersionPattern
from my_datasets.errors import ReleaseNotFoundError, YankedError
from my_datasets.publishing.catalog_client import CatalogClient
from my_datasets.publishing.model import store_layout
from my_datasets.publishing.model.index import Index, Release, ReleaseState
from my_datasets.publishing.model.record import Record, key_of
from my_datasets.publishing.model.rollback_state import RollbackState
from my_datasets.publishing.model.signed_json import Trusts
from my_datasets.resolving.resolver import Request
from my_datasets.storage.opening import open_store
from my_datasets.storage.retry import RetryingStore, RetryPolicy
from my_datasets.storage.store import Store

_SHOWN = 10


def select_version(index: Index, reference: DatasetReference, url: str) -> tuple[str, Release]:
    """Returns the key and entry of the highest matching release that is not yanked.

    Raises:
      ReleaseNotFoundError: No release matches.
      YankedError: All that match are yanked.
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
    messages = [f"{name}:{version}: {one.message}" for version, one in sorted(yanked.items())]
    return YankedError(
        f"Every matching release in {url} was yanked.",
        *messages[-_SHOWN:],
        fix="choose another version; my-datasets ls shows them",
    )


def _missing(
    index: Index, reference: DatasetReference, config: str | None,
    versions: dict[VersionNumber, Release], url: str,
) -> ReleaseNotFoundError:  # fmt: skip
    available = [
        str(version) for version, one in versions.items() if one.state is ReleaseState.PUBLISHED
    ]
    placing = [
        str(version) for version, one in versions.items() if one.state is ReleaseState.PLACING
    ]
    configs = index.configs
    return ReleaseNotFoundError(
        f"{url} has no release of {str(reference)!r}.",
        f"Versions: {', '.join(available[-_SHOWN:]) or 'none'}",
        f"Being published now: {', '.join(placing)}" if placing else "",
        f"Configs: {', '.join(configs[:_SHOWN])}" if configs and config not in configs else "",
        fix="choose one of those; my-datasets ls shows the releases",
    )


@dataclass(frozen=True)
class ResolvedRelease:
    """A resolved release.

    Attributes:
      ledger: The client of its store.
      index: The index of its dataset.
      key: Its key in the index.
      release: Its entry in the index.
      record: Its record.
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
        """The address of its folder, for display."""
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
    """Resolves a reference to the highest matching release that is not yanked.

    The arguments and errors are those of `pull`.
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
