"""What a store has: its indexes, read with all that must be checked, and changed in one step."""

import contextlib
import hashlib
import random
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from my_datasets.core.declared import MALFORMED
from my_datasets.errors import (
    ChangedInStoreError,
    CorruptReleaseError,
    NotInStoreError,
    SignatureError,
    StoreError,
    explain,
)
from my_datasets.publishing import index as indexes
from my_datasets.publishing import places, record
from my_datasets.publishing.index import Index, Release
from my_datasets.publishing.memory import Memory, Seen
from my_datasets.publishing.record import Record
from my_datasets.publishing.sealing import Signs, Trusts, sealed, unsealed
from my_datasets.publishing.settings import MOST_BYTES, Settings
from my_datasets.stores.patience import PatientStore
from my_datasets.stores.store import read_only

# What signatures are made for: one of an index says nothing of a release.
STORE_PURPOSE = "my-datasets-store"
INDEX_PURPOSE = "my-datasets-index"
RELEASE_PURPOSE = "my-datasets-release"
# How often somebody else may come first.
_TURNS = 100
_LONGEST_TURN_SECONDS = 0.5


class Ledger:
    """The indexes of a store."""

    def __init__(
        self,
        store: PatientStore,
        *,
        keys: Trusts | None = None,
        signer: Signs | None = None,
        memory: Memory | None = None,
    ) -> None:
        """Reads nothing yet.

        Args:
          store: The store.
          keys: Whose signatures count; with them, what is not signed is refused. None for the
            signer's own, where the store requires signatures.
          signer: By what changes are signed; None if they are not.
          memory: What was seen of stores before; with keys, an older state is refused.
        """
        self.store = store
        self._keys = keys
        self._signer = signer
        self._memory = memory or Memory()

    def settings(self) -> Settings | None:
        """Returns what holds for the store; None if it is none yet.

        Raises:
          StoreError: It cannot be read, or is no store.
          SignatureError: It is not signed as it should be, or older than it was.
        """
        found = self._settings()
        return found[0] if found else None

    def required(self) -> Settings:
        """Returns what holds for the store.

        Raises:
          StoreError: There is none.
        """
        found = self.settings()
        if found is None:
            raise StoreError(
                explain(
                    f"There is no store at {self.store.url}.",
                    mend="correct its address, or make it: my-datasets publish NAME --to "
                    f"{self.store.url}",
                )
            )
        return found

    def index(self, dataset: str) -> Index:
        """Returns the index of a dataset; an empty one if it has none.

        Raises:
          StoreError, SignatureError: As `settings`.
        """
        settings = self.settings()
        if settings is None:
            return Index(dataset)
        return self._index(dataset, settings)[0]

    def change(
        self, dataset: str, update: Callable[[Index], Index], *, anew: bool = False
    ) -> Index:
        """Changes the index of a dataset in one step; who else does comes before or after.

        Args:
          dataset: The dataset.
          update: Given the index, returns the next one, or the same for no change; may be called
            several times, and raise.
          anew: Whether it is written, and signed, also if nothing changes.

        Returns:
          The index that is there now.

        Raises:
          StoreError: It cannot be written.
          SignatureError: The store wants signatures, and there is nothing to sign by.
        """
        settings = self._with(dataset)
        for turn in range(_TURNS):
            before, tag = self._index(dataset, settings)
            after = update(before)
            if after is before:
                if not anew or tag is None:
                    return before
                after = replace(before, serial=before.serial + 1)
            data = sealed(after.to_json(), INDEX_PURPOSE, self._signer)
            if self._replaced(places.index_of(dataset), data, tag):
                self._note(f"index of {dataset}", Seen(), after.serial, data)
                return after
            time.sleep(random.uniform(0, min(_LONGEST_TURN_SECONDS, 0.01 * 2**turn)))  # noqa: S311
        raise self._crowded()

    def set(self, **changes: Any) -> Settings:
        """Changes what holds for the store, and signs it anew; it is made if there is none.

        Args:
          changes: Fields of `Settings`.

        Raises:
          StoreError, SignatureError: As `change`.
        """
        return self._set(lambda found: replace(found, **changes), anew=True)

    def record(self, dataset: str, key: str, release: Release, folder: str | None = None) -> Record:
        """Returns the record of a release.

        Args:
          dataset: The dataset.
          key: The release.
          release: What the index says of it.
          folder: Where it lies, if that is not its place.

        Raises:
          NotInStoreError: It is not there.
          CorruptReleaseError: It is not the one that the index names.
          SignatureError: It is not signed as it should be.
        """
        if self._keys is not None:
            message = indexes.claim(dataset, key, release.record)
            what = f"The release {dataset}:{key} in {self.store.url}"
            self._keys.check(RELEASE_PURPOSE, message, release.signatures, what)
        path = f"{folder or places.release_of(dataset, key)}/{record.FILE_NAME}"
        data, _ = self.store.state(path, record.MOST_BYTES)
        found = hashlib.sha256(data).hexdigest()
        if found != release.record:
            raise _damaged(self.store.url, path, f"SHA-256 {found}; published was {release.record}")
        parsed = Record.parse(data, f"{self.store.url}/{path}")
        if (parsed.name, parsed.key) != (dataset, key) or parsed.data != data:
            raise _damaged(self.store.url, path, f"the record of {parsed.name}:{parsed.key}")
        return parsed

    def signed(self, dataset: str, key: str, release: Release) -> Release:
        """Returns a release, signed if there is anything to sign by."""
        if self._signer is None:
            return release
        message = indexes.claim(dataset, key, release.record)
        signature = self._signer.sign(RELEASE_PURPOSE, message)
        others = tuple(one for one in release.signatures if one.key != signature.key)
        return replace(release, signatures=(*others, signature))

    @property
    def by(self) -> str:
        """Who makes changes: the fingerprint of the key; empty if there is none."""
        return self._signer.fingerprint if self._signer is not None else ""

    def _with(self, dataset: str) -> Settings:
        """Returns the settings of the store, which know the dataset from then on."""

        def known(found: Settings) -> Settings:
            if dataset in found.datasets:
                return found
            return replace(found, datasets=tuple(sorted({*found.datasets, dataset})))

        return self._set(known)

    def _set(self, update: Callable[[Settings], Settings], *, anew: bool = False) -> Settings:
        if not self.store.is_writable:
            raise read_only(self.store.url)
        for turn in range(_TURNS):
            found = self._settings()
            before, tag = found or (Settings(uuid.uuid4().hex), None)
            after = update(before)
            if (before.requires_signatures or after.requires_signatures) and self._signer is None:
                raise SignatureError(
                    explain(
                        f"{self.store.url} takes only what is signed.",
                        mend="name the private key to sign by: --sign-key ~/.ssh/id_ed25519",
                    )
                )
            if found is not None and after == before and not anew:
                return before
            after = replace(after, serial=before.serial + 1)
            data = sealed(after.to_json(), STORE_PURPOSE, self._signer)
            if self._replaced(places.STORE, data, tag):
                self._note("store", Seen(), after.serial, data)
                return after
            time.sleep(random.uniform(0, min(_LONGEST_TURN_SECONDS, 0.01 * 2**turn)))  # noqa: S311
        raise self._crowded()

    def _settings(self) -> tuple[Settings, str] | None:
        seen = self._seen("store")
        try:
            data, tag = self.store.state(places.STORE, MOST_BYTES)
        except NotInStoreError:
            if seen.serial:
                self._note("store", seen, 0, b"")
            return None
        with _understood(self.store.url, places.STORE):
            value, message, signatures = unsealed(data)
            found = Settings.from_json(value)
        self._check(STORE_PURPOSE, message, signatures, found, "The list of datasets")
        self._note("store", seen, found.serial, data)
        return found, tag

    def _index(self, dataset: str, settings: Settings) -> tuple[Index, str | None]:
        document, path = f"index of {dataset}", places.index_of(dataset)
        seen = self._seen(document)
        try:
            data, tag = self.store.state(path, indexes.MOST_BYTES)
        except NotInStoreError:
            if seen.serial:
                self._note(document, seen, 0, b"")
            return Index(dataset), None
        with _understood(self.store.url, path):
            value, message, signatures = unsealed(data)
            found = Index.from_json(value, dataset)
        self._check(INDEX_PURPOSE, message, signatures, settings, f"The index of {dataset}")
        self._note(document, seen, found.serial, data)
        return found, tag

    def _check(
        self, purpose: str, message: bytes, signatures: Any, settings: Settings, what: str
    ) -> None:
        keys = self._keys
        if keys is None and settings.requires_signatures and self._signer is not None:
            keys = self._signer.public
        if keys is not None:
            keys.check(purpose, message, signatures, f"{what} in {self.store.url}")
        elif settings.requires_signatures:
            raise SignatureError(
                explain(
                    f"{self.store.url} has signed releases, and nobody said whose keys to trust.",
                    mend="name a file of public keys: --trusted-keys FILE; ask who publishes there "
                    "for theirs",
                )
            )

    def _seen(self, document: str) -> Seen:
        # Who trusts nobody in particular can be given anything, of any serial.
        return self._memory.seen(self.store.url, document) if self._keys is not None else Seen()

    def _note(self, document: str, before: Seen, serial: int, data: bytes) -> None:
        if self._keys is None:
            return
        now = Seen(serial, hashlib.sha256(data).hexdigest())
        self._memory.note(self.store.url, document, before, now)

    def _replaced(self, path: str, data: bytes, tag: str | None) -> bool:
        """Returns whether a document is there now; False if somebody else came first."""
        try:
            self.store.replace(path, data, tag)
        except ChangedInStoreError:
            try:
                # An answer may have been lost that said so.
                return self.store.state(path, len(data))[0] == data
            except StoreError:
                return False
        return True

    def _crowded(self) -> StoreError:
        return StoreError(
            explain(f"{self.store.url} is changed by others all the time.", mend="try again later")
        )


@contextlib.contextmanager
def _understood(url: str, path: str) -> Iterator[None]:
    try:
        yield
    except MALFORMED as error:
        said = f"{type(error).__name__}: {str(error)[:200]}"
        raise _damaged(url, path, f"nothing that can be understood: {said}") from error


def _damaged(url: str, path: str, found: str) -> CorruptReleaseError:
    return CorruptReleaseError(
        explain(
            f"{path} in {url} is not what was published.",
            f"Found: {found}",
            mend="ask who publishes there to look at it; nothing of it is used",
        )
    )
