"""From a reference to the record of the release that is meant, with all that must be checked."""

import os
from dataclasses import dataclass
from pathlib import Path

from my_datasets.core.reference import DatasetReference
from my_datasets.publishing.catalog_client import Ledger
from my_datasets.publishing.model import store_layout
from my_datasets.publishing.model.index import Index, Release
from my_datasets.publishing.model.record import Record
from my_datasets.publishing.model.rollback_state import Memory
from my_datasets.publishing.model.signed_json import Trusts
from my_datasets.publishing.version_select import chosen
from my_datasets.resolving.lock import Lock
from my_datasets.storage.opening import open_store
from my_datasets.storage.retry import Patience, PatientStore
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
      reference: As it is written in code.
      lock: The project's lock; None if there is none, or it is ignored.
    """

    ledger: Ledger
    index: Index
    key: str
    release: Release
    record: Record
    reference: DatasetReference
    lock: Lock | None = None

    @property
    def url(self) -> str:
        """Where its files are, for people."""
        return f"{self.ledger.store.url}/{store_layout.release_of(self.record.name, self.key)}"

    def check_lock(self, version_dir: Path, *, has_shards: bool) -> None:
        """Checks that metadata of the release that came are those that are locked.

        Args:
          version_dir: Where they are, with the names of labels.
          has_shards: Whether its shards are there, too.

        Raises:
          LockError: They are other ones.
        """
        if self.lock is not None:
            self.lock.check(self.reference, version_dir, has_shards=has_shards)


def resolved(
    reference: DatasetReference,
    store: str | os.PathLike[str] | Store,
    *,
    use_lock: bool = True,
    keys: Trusts | None = None,
    patience: Patience | None = None,
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
    lock = Lock.find() if use_lock else None
    exact = lock.exact(reference) if lock is not None else reference
    ledger = Ledger(PatientStore(open_store(store), patience), keys=keys, memory=memory)
    ledger.required()
    index = ledger.index(exact.name)
    key, release = chosen(index, exact, ledger.store.url)
    if lock is not None:
        lock.check_digest(reference, release.digest, ledger.store.url)
    record = ledger.record(exact.name, key, release)
    return Resolved(ledger, index, key, release, record, reference, lock)
