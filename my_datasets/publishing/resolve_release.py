"""From a reference to the record of the release that is meant, with all that must be checked."""

import os
from dataclasses import dataclass

from my_datasets.core.reference import DatasetReference
from my_datasets.publishing.catalog_client import CatalogClient
from my_datasets.publishing.model import store_layout
from my_datasets.publishing.model.index import Index, Release
from my_datasets.publishing.model.record import Record
from my_datasets.publishing.model.rollback_state import Memory
from my_datasets.publishing.model.signed_json import Trusts
from my_datasets.publishing.version_select import chosen
from my_datasets.resolving.request import Request
from my_datasets.storage.opening import open_store
from my_datasets.storage.retry import RetryingStore, RetryPolicy
from my_datasets.storage.store import Store


@dataclass(frozen=True)
class Resolved:
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


def resolved(
    reference: DatasetReference,
    store: str | os.PathLike[str] | Store,
    *,
    use_lock: bool = True,
    keys: Trusts | None = None,
    patience: RetryPolicy | None = None,
    memory: Memory | None = None,
) -> Resolved:
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
    key, release = chosen(index, exact, ledger.store.url)
    request.check_digest(release.digest, ledger.store.url)
    record = ledger.record(exact.name, key, release)
    return Resolved(ledger, index, key, release, record, request)
