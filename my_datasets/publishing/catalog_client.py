"""What a store has: its indexes, read with all that must be checked, and changed in one step."""

import base64
import contextlib
import hashlib
import random
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from my_datasets.core.logs import get_logger
from my_datasets.errors import (
    ChangedInStoreError,
    CorruptReleaseError,
    DataDirError,
    NotInStoreError,
    SignatureError,
    StoreError,
    explain,
)
from my_datasets.metadata.dataset_info import MALFORMED
from my_datasets.publishing.model import index as indexes
from my_datasets.publishing.model import record, store_layout
from my_datasets.publishing.model.index import Index, Release
from my_datasets.publishing.model.record import Record
from my_datasets.publishing.model.rollback_state import RollbackState, SeenDocument
from my_datasets.publishing.model.signed_json import (
    KEY_PURPOSE,
    KeyChange,
    Signature,
    Signs,
    Trusts,
    sealed,
    unsealed,
)
from my_datasets.publishing.model.store_layout import MOST_BYTES, Settings
from my_datasets.publishing.model.trust import RELEASE_PURPOSE, configured
from my_datasets.storage.retry import RetryingStore
from my_datasets.storage.store import read_only

# What signatures are made for: one of an index says nothing of a release.
STORE_PURPOSE = "my-datasets-store"
INDEX_PURPOSE = "my-datasets-index"
_SIGNATURE_BYTES = 64
_LOGGER = get_logger(__name__)
# How often somebody else may come first.
_TURNS = 100
_LONGEST_TURN_SECONDS = 0.5


class CatalogClient:
    """The indexes of a store."""

    def __init__(
        self,
        store: RetryingStore,
        *,
        keys: Trusts | None = None,
        signer: Signs | None = None,
        memory: RollbackState | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Reads nothing of the store yet.

        Args:
          store: The store.
          keys: Whose signatures count; with them, what is not signed is refused. None for those
            that the project's lock or the user's settings name for this store; if they name none,
            for the signer's own, where the store requires signatures.
          signer: By what changes are signed; None if they are not.
          memory: What was seen of stores before; with keys, an older state is refused.
          clock: Returns the time, in seconds since 1970.

        Raises:
          LockError, InvalidOptionError: The lock or the settings cannot be read.
          SignatureError: A key in them is none.
        """
        self.store = store
        self._signer = signer
        self._memory = memory or RollbackState()
        self._clock = clock
        named = configured(store.url) if keys is None else None
        self._keys = named.keys if named is not None else keys
        self._ids = named.store_ids if named is not None else frozenset()
        # Those that count once the store has said which it added and revoked.
        self._current = self._keys
        self._warned: set[str] = set()

    @property
    def keys(self) -> Trusts | None:
        """Whose signatures count; None if nothing is checked."""
        return self._current

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
                    fix="correct its address, or make it: my-datasets publish NAME --to "
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

    def change_key(self, action: str, key: str) -> Settings:
        """Says that another key signs for the store from now on, or does not any more.

        Args:
          action: `add` or `revoke`.
          key: The public key, `ssh-ed25519 KEY`.

        Raises:
          StoreError, SignatureError: As `change`.
        """
        signer = self._signer
        if signer is None:
            raise _nothing_to_sign_by(self.store.url)

        def changed(found: Settings) -> Settings:
            unsigned = KeyChange(action, key, self._time(), Signature("", ""))
            message = unsigned.message(found.store, len(found.key_changes))
            done = replace(unsigned, signature=signer.sign(KEY_PURPOSE, message))
            return replace(found, key_changes=(*found.key_changes, done))

        return self._set(changed, anew=True)

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
            after = replace(
                after, store=settings.store, store_serial=settings.serial,
                expires=self._expiry(settings),
            )  # fmt: skip
            data = sealed(after.to_json(), INDEX_PURPOSE, self._signer)
            if self._replaced(store_layout.index_of(dataset), data, tag):
                self._note(f"index of {dataset}", SeenDocument(), after.serial, data)
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
        if self._current is not None:
            message = indexes.claim(dataset, key, release.record)
            what = f"The release {dataset}:{key} in {self.store.url}"
            self._current.check(RELEASE_PURPOSE, message, release.signatures, what)
        path = f"{folder or store_layout.release_of(dataset, key)}/{record.FILE_NAME}"
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
            before, tag = found or (Settings(uuid.uuid4().hex, names_store=True), None)
            self._check_signer(before)
            after = update(before)
            if (before.requires_signatures or after.requires_signatures) and self._signer is None:
                raise _nothing_to_sign_by(self.store.url)
            if found is not None and after == before and not (anew or self._is_due(before)):
                return before
            after = replace(after, serial=before.serial + 1, expires=self._expiry(after))
            data = sealed(after.to_json(), STORE_PURPOSE, self._signer)
            if self._replaced(store_layout.STORE, data, tag):
                self._note("store", SeenDocument(), after.serial, data)
                return after
            time.sleep(random.uniform(0, min(_LONGEST_TURN_SECONDS, 0.01 * 2**turn)))  # noqa: S311
        raise self._crowded()

    def _settings(self) -> tuple[Settings, str] | None:
        seen = self._seen("store")
        try:
            data, tag = self.store.state(store_layout.STORE, MOST_BYTES)
        except NotInStoreError:
            if seen.serial:
                self._note("store", seen, 0, b"")
            return None
        with _understood(self.store.url, store_layout.STORE):
            value, message, signatures = unsealed(data)
            found = Settings.from_json(value)
        self._take_keys(found)
        what = "The list of datasets"
        self._check(STORE_PURPOSE, message, signatures, found, what)
        self._check_store(found)
        self._check_expiry(found.expires, found, what)
        self._note("store", seen, found.serial, data)
        self._note_signatures("store", signatures, found)
        return found, tag

    def _index(
        self, dataset: str, settings: Settings, *, is_first: bool = True
    ) -> tuple[Index, str | None]:
        document, path = f"index of {dataset}", store_layout.index_of(dataset)
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
        if found.store_serial > settings.serial and is_first:
            # Both may just have been changed; if not, the check below refuses it.
            return self._index(dataset, self.required(), is_first=False)
        what = f"The index of {dataset}"
        self._check(INDEX_PURPOSE, message, signatures, settings, what)
        self._check_same_store(found, settings, what)
        self._check_expiry(found.expires, settings, what)
        self._note(document, seen, found.serial, data)
        self._note_signatures(document, signatures, settings)
        return found, tag

    def _check(
        self, purpose: str, message: bytes, signatures: Any, settings: Settings, what: str
    ) -> None:
        keys = self._current
        if keys is None and settings.requires_signatures and self._signer is not None:
            keys = self._signer.public.after(settings.key_changes, settings.store)
        if keys is not None:
            keys.check(purpose, message, signatures, f"{what} in {self.store.url}")
            return
        known = self._facts() if self._signer is None else {}
        if settings.requires_signatures:
            self._note_facts(requires_signatures=True)
            raise SignatureError(
                explain(
                    f"{self.store.url} has signed releases, and nobody said whose keys to trust.",
                    fix="name a file of public keys: --trusted-keys FILE, or for the whole "
                    f"project: my-datasets lock --trust FILE --from {self.store.url}; ask who "
                    "publishes there for theirs",
                )
            )
        if known.get("requires_signatures"):
            raise SignatureError(
                explain(
                    f"{self.store.url} required signatures before, and does not now.",
                    "Whoever removes signatures removes this, too",
                    fix="name the keys that you trust: --trusted-keys FILE; if the publishers "
                    f"changed it on purpose, delete {self._memory.path(self.store.url)}",
                )
            )

    def _take_keys(self, settings: Settings) -> None:
        """Finds which keys count now, by what keys that counted have signed.

        Raises:
          SignatureError: The store takes back a change of keys that it had.
        """
        if self._keys is None:
            return
        known = self._facts().get("key_changes", [])
        now = [one.identity for one in settings.key_changes]
        if now[: len(known)] != known:
            raise SignatureError(
                explain(
                    f"{self.store.url} takes back which keys were added or revoked.",
                    f"Expected: the {len(known)} changes of keys that this machine has seen",
                    f"Found: {len(now)} changes, others",
                    fix="ask who publishes there: whoever has a key that was revoked would do "
                    "this. If the store was put back on purpose, delete "
                    f"{self._memory.path(self.store.url)}",
                )
            )
        self._current = self._keys.after(settings.key_changes, settings.store)

    def _check_store(self, settings: Settings) -> None:
        """Refuses another store at an address than the one that was there, or that is named."""
        if self._keys is None:
            return
        known = self._facts().get("id")
        expected = self._ids or frozenset([known] if known else ())
        if expected and settings.store not in expected:
            raise SignatureError(
                explain(
                    f"{self.store.url} is another store than the one that you trust.",
                    f"Expected: the store with the id {' or '.join(sorted(expected))}",
                    f"Found: {settings.store}",
                    fix="ask who publishes there. If the store was made anew on purpose: "
                    f"my-datasets lock --trust FILE --from {self.store.url}"
                    if self._ids
                    else "ask who publishes there. If the store was made anew on purpose, delete "
                    f"{self._memory.path(self.store.url)}",
                )
            )

    def _check_same_store(self, index: Index, settings: Settings, what: str) -> None:
        """Refuses a signed index of another store, or one that is newer than the list of keys."""
        if self._keys is None:
            return
        renew = f"my-datasets sign --to {self.store.url} --sign-key FILE signs all of it anew"
        if index.store != settings.store and (index.store or settings.names_store):
            raise SignatureError(
                explain(
                    f"{what} in {self.store.url} is signed for another store.",
                    f"Expected: the store with the id {settings.store}",
                    f"Found: {index.store or 'no store is named'}",
                    fix="ask who publishes there to look at it"
                    + ("" if index.store else f"; {renew}"),
                )
            )
        if index.store_serial > settings.serial:
            raise SignatureError(
                explain(
                    f"{self.store.url} gives an older state of its list of datasets and keys.",
                    f"Expected: serial {index.store_serial} or higher, as {what.lower()} says",
                    f"Found: serial {settings.serial}",
                    fix="ask who publishes there to look at it",
                )
            )
        if not index.store:
            self._warn(
                f"{what} in {self.store.url} does not say which store it is of, so that a signed "
                f"index of another store would be taken for it. {renew}."
            )

    def _check_expiry(self, expires: str, settings: Settings, what: str) -> None:
        # Whoever signs renews it.
        if self._keys is None or self._signer is not None:
            return
        renew = f"my-datasets sign --to {self.store.url} --sign-key FILE renews it"
        if not expires and settings.valid_seconds:
            raise SignatureError(
                explain(
                    f"{what} in {self.store.url} does not say when it expires, and should.",
                    fix=f"ask who publishes there to look at it; {renew}",
                )
            )
        if expires and datetime.fromisoformat(expires).timestamp() < self._clock():
            raise SignatureError(
                explain(
                    f"{what} in {self.store.url} has expired.",
                    "There may be a newer one, which this address does not give",
                    f"It was valid until: {expires}",
                    f"By this machine's clock it is: {self._time()}",
                    fix=f"ask who publishes there to renew it: {renew}",
                )
            )

    def _expiry(self, settings: Settings) -> str:
        """Returns until when what is signed now counts; empty if for ever."""
        if self._signer is None or not settings.valid_seconds:
            return ""
        return self._time(settings.valid_seconds)

    def _check_signer(self, settings: Settings) -> None:
        """Refuses to sign by a key that was revoked: readers would refuse all of the store then."""
        signer = self._signer
        if signer is None:
            return
        # Its own word counts against it: it may have added the key that revoked it.
        for keys in (self._keys, signer.public):
            if keys is None:
                continue
            if signer.fingerprint not in keys.after(settings.key_changes, settings.store).revoked:
                continue
            raise SignatureError(
                explain(
                    f"The key {signer.fingerprint} was revoked for {self.store.url}.",
                    "Readers would refuse what it signs",
                    fix="sign by a key that was added in its place: --sign-key NEW",
                )
            )

    def _is_due(self, settings: Settings) -> bool:
        """Returns whether more than half of the time is over for which signatures count."""
        if self._signer is None or not settings.valid_seconds:
            return False
        left = self._clock() + settings.valid_seconds / 2
        return not settings.expires or datetime.fromisoformat(settings.expires).timestamp() < left

    def _time(self, ahead: float = 0) -> str:
        found = datetime.fromtimestamp(self._clock() + ahead, UTC)
        return found.isoformat(timespec="seconds").replace("+00:00", "Z")

    def _note_signatures(
        self, document: str, signatures: tuple[Signature, ...], settings: Settings
    ) -> None:
        """Remembers that a document was signed; warns of signatures that nobody checks."""
        url = self.store.url
        signed = {one for one in self._facts().get("signed", ()) if isinstance(one, str)}
        if self._keys is None and self._signer is None:
            if signatures:
                by = ", ".join(sorted({_shown(one) for one in signatures}))
                self._warn(
                    f"{url} has signatures of {by}, which were not checked, as no trusted keys are "
                    "configured. Ask who publishes there for their public keys, then: my-datasets "
                    f"lock --trust FILE --from {url}"
                )
            elif document in signed:
                self._warn(
                    f"The {document} in {url} was signed when this machine read it before, and is "
                    "not signed now. Ask who publishes there; --trusted-keys FILE refuses it."
                )
        if signatures and document not in signed:
            self._note_facts(signed=sorted({*signed, document}))
        if self._keys is not None:
            self._note_facts(
                id=settings.store, requires_signatures=settings.requires_signatures,
                key_changes=[one.identity for one in settings.key_changes],
                changes=[asdict(one) for one in settings.key_changes],
                revoked=sorted(self._current.revoked if self._current is not None else ()),
            )  # fmt: skip

    def _facts(self) -> dict[str, Any]:
        # Who has no folder for state can read a store without keys, as before.
        with (
            contextlib.nullcontext()
            if self._keys is not None
            else contextlib.suppress(DataDirError)
        ):
            return self._memory.facts(self.store.url)
        return {}

    def _note_facts(self, **facts: Any) -> None:
        with (
            contextlib.nullcontext()
            if self._keys is not None
            else contextlib.suppress(DataDirError)
        ):
            self._memory.note_facts(self.store.url, **facts)

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            _LOGGER.warning("%s", text)

    def _seen(self, document: str) -> SeenDocument:
        # Who trusts nobody in particular can be given anything, of any serial.
        return (
            self._memory.seen(self.store.url, document)
            if self._keys is not None
            else SeenDocument()
        )

    def _note(self, document: str, before: SeenDocument, serial: int, data: bytes) -> None:
        if self._keys is None:
            return
        now = SeenDocument(serial, hashlib.sha256(data).hexdigest())
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
            explain(f"{self.store.url} is changed by others all the time.", fix="try again later")
        )


def _shown(one: Signature) -> str:
    """Returns the key of a signature; says so if it cannot be one."""
    try:
        is_whole = len(base64.b64decode(one.value, validate=True)) == _SIGNATURE_BYTES
    except ValueError:
        is_whole = False
    return one.key if is_whole else f"{one.key} (malformed)"


def _nothing_to_sign_by(url: str) -> SignatureError:
    return SignatureError(
        explain(
            f"{url} takes only what is signed.",
            fix="name the private key to sign by: --sign-key ~/.ssh/id_ed25519",
        )
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
            fix="ask who publishes there to look at it; nothing of it is used",
        )
    )
