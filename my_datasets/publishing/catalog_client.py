"""Reads a store's settings and indexes with all checks, and changes them atomically."""

import base64
import contextlib
import hashlib
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar, Unpack

from my_datasets.core.logs import get_logger
from my_datasets.errors import (
    CorruptReleaseError,
    DataDirError,
    NotInStoreError,
    SignatureError,
    StoreError,
)
from my_datasets.metadata.dataset_info import MALFORMED
from my_datasets.publishing.model import record, store_layout
from my_datasets.publishing.model import store_layout as indexes
from my_datasets.publishing.model.record import Record
from my_datasets.publishing.model.rollback_state import Facts, RollbackState, SeenDocument
from my_datasets.publishing.model.signed_json import (
    KEY_PURPOSE,
    KeyChange,
    Signature,
    Signs,
    Trusts,
    parse_signed_json,
    sign_json,
)
from my_datasets.publishing.model.store_layout import MOST_SETTINGS_BYTES, Index, Release, Settings
from my_datasets.publishing.model.trust import RELEASE_PURPOSE, configured
from my_datasets.storage.retry import RetryingStore, compare_and_swap
from my_datasets.storage.store import read_only

# Purposes of signatures: one of an index is not valid for a release.
STORE_PURPOSE = "my-datasets-store"
INDEX_PURPOSE = "my-datasets-index"
_SIGNATURE_BYTES = 64
_LOGGER = get_logger(__name__)
_Document = TypeVar("_Document", Settings, Index)


class CatalogClient:
    """A store's settings and indexes."""

    def __init__(
        self,
        store: RetryingStore,
        *,
        keys: Trusts | None = None,
        signer: Signs | None = None,
        memory: RollbackState | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Initializes the client without reading from the store.

        Without `keys`, trusts those that the project's lock or the user's settings name for this
        store; if they name none, the signer's own, if the store requires signatures. With keys,
        unsigned documents are refused, and so is a state older than `memory` has seen. `clock`
        returns seconds since 1970.

        Raises:
          LockError, InvalidOptionError: The lock or the settings cannot be read.
          SignatureError: A key in them is invalid.
        """
        self.store = store
        self._signer = signer
        self._memory = memory or RollbackState()
        self._clock = clock
        named = configured(store.url) if keys is None else None
        self._keys = named.keys if named is not None else keys
        self._ids = named.store_ids if named is not None else frozenset()
        # The trusted keys after the store's key changes.
        self._current = self._keys
        self._warned: set[str] = set()

    @property
    def keys(self) -> Trusts | None:
        """The trusted keys; None if signatures are not checked."""
        return self._current

    def settings(self) -> Settings | None:
        """Returns the store's settings; None if it does not exist yet.

        Raises:
          StoreError: They cannot be read, or are invalid.
          SignatureError: A signature is missing or invalid, or they are older than before.
        """
        found = self._settings()
        return found[0] if found else None

    def required(self) -> Settings:
        """Returns the store's settings; raises a `StoreError` if it does not exist."""
        found = self.settings()
        if found is None:
            raise StoreError(
                f"There is no store at {self.store.url}.",
                fix="correct its address, or create it: my-datasets publish NAME --to "
                f"{self.store.url}",
            )
        return found

    def index(self, dataset: str) -> Index:
        """Returns the index of a dataset, or an empty one."""
        settings = self.settings()
        if settings is None:
            return Index(dataset)
        return self._index(dataset, settings)[0]

    def change_key(self, action: Literal["add", "revoke"], key: str) -> Settings:
        """Adds or revokes a public key of the store, `ssh-ed25519 KEY`."""
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
        """Changes the index of a dataset atomically; returns the current one.

        `update` returns the next index, or the same one for no change; it may be called several
        times, and raise. With `anew`, the index is written and signed even if it does not change.

        Raises:
          SignatureError: The store requires signatures, and there is no signer.
        """

        def with_dataset(found: Settings) -> Settings:
            return replace(found, datasets=tuple(sorted({*found.datasets, dataset})))

        settings = self._set(with_dataset)

        def next_index(before: Index) -> Index:
            after = update(before)
            if after is before:
                if not anew or not before.serial:
                    return before
                after = replace(before, serial=before.serial + 1)
            expires = self._expiry(settings)
            return replace(
                after, store=settings.store, store_serial=settings.serial, expires=expires
            )

        return self._change(
            f"index of {dataset}", store_layout.index_of(dataset), INDEX_PURPOSE,
            lambda: self._index(dataset, settings), next_index,
        )  # fmt: skip

    def set(self, **changes: Any) -> Settings:
        """Changes fields of the settings and signs them; creates the store if it does not exist."""
        return self._set(lambda found: replace(found, **changes), anew=True)

    def record(self, dataset: str, key: str, release: Release, folder: str | None = None) -> Record:
        """Returns the record of a release; `folder` is where it is if it is not placed yet.

        Raises:
          NotInStoreError: The record is missing.
          CorruptReleaseError: It is not the record that the index names.
          SignatureError: A signature is missing or invalid.
        """
        if self._current is not None:
            message = indexes.claim(dataset, key, release.record)
            what = f"The release {dataset}:{key} in {self.store.url}"
            self._current.check(RELEASE_PURPOSE, message, release.signatures, what)
        path = f"{folder or store_layout.release_of(dataset, key)}/{record.FILE_NAME}"
        data, _ = self.store.state(path, record.MOST_BYTES)
        found = hashlib.sha256(data).hexdigest()
        if found != release.record:
            raise _damaged(self.store.url, path, f"SHA-256 {found}, not {release.record}")
        parsed = Record.parse(data, f"{self.store.url}/{path}")
        if (parsed.name, parsed.key) != (dataset, key) or parsed.data != data:
            raise _damaged(self.store.url, path, f"the record of {parsed.name}:{parsed.key}")
        return parsed

    def signed(self, dataset: str, key: str, release: Release) -> Release:
        """Returns an entry with the signer's signature, if there is a signer."""
        if self._signer is None:
            return release
        message = indexes.claim(dataset, key, release.record)
        signature = self._signer.sign(RELEASE_PURPOSE, message)
        others = tuple(one for one in release.signatures if one.key != signature.key)
        return replace(release, signatures=(*others, signature))

    @property
    def by(self) -> str:
        """The fingerprint of the signer; empty if there is none."""
        return self._signer.fingerprint if self._signer is not None else ""

    def _set(self, update: Callable[[Settings], Settings], *, anew: bool = False) -> Settings:
        if not self.store.is_writable:
            raise read_only(self.store.url)

        def read() -> tuple[Settings, str | None]:
            return self._settings() or (Settings(uuid.uuid4().hex, names_store=True), None)

        def next_settings(before: Settings) -> Settings:
            self._check_signer(before)
            after = update(before)
            if (before.requires_signatures or after.requires_signatures) and self._signer is None:
                raise _nothing_to_sign_by(self.store.url)
            if before.serial and after == before and not (anew or self._is_due(before)):
                return before
            return replace(after, serial=before.serial + 1, expires=self._expiry(after))

        return self._change("store", store_layout.STORE, STORE_PURPOSE, read, next_settings)

    def _change(
        self, document: str, path: str, purpose: str,
        read: Callable[[], tuple[_Document, str | None]], update: Callable[[_Document], _Document],
    ) -> _Document:  # fmt: skip
        """Changes a document atomically, and signs it; see `compare_and_swap`."""
        found, written = compare_and_swap(
            self.store, path, read, update,
            lambda value: sign_json(value.to_json(), purpose, self._signer),
        )  # fmt: skip
        if written is not None:
            self._note(document, SeenDocument(), found.serial, written)
        return found

    def _settings(self) -> tuple[Settings, str] | None:
        seen = self._seen("store")
        try:
            data, tag = self.store.state(store_layout.STORE, MOST_SETTINGS_BYTES)
        except NotInStoreError:
            if seen.serial:
                self._note("store", seen, 0, b"")
            return None
        with _understood(self.store.url, store_layout.STORE):
            value, message, signatures = parse_signed_json(data)
            found = Settings.from_json(value)
        self._apply_key_changes(found)
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
            data, tag = self.store.state(path, indexes.MOST_INDEX_BYTES)
        except NotInStoreError:
            if seen.serial:
                self._note(document, seen, 0, b"")
            return Index(dataset), None
        with _understood(self.store.url, path):
            value, message, signatures = parse_signed_json(data)
            found = Index.from_json(value, dataset)
        if found.store_serial > settings.serial and is_first:
            # Both may just have changed; if they have not, `_check_same_store` refuses it.
            return self._index(dataset, self.required(), is_first=False)
        what = f"The index of {dataset}"
        self._check(INDEX_PURPOSE, message, signatures, settings, what)
        self._check_same_store(found, settings, what)
        self._check_expiry(found.expires, settings, what)
        self._note(document, seen, found.serial, data)
        self._note_signatures(document, signatures, settings)
        return found, tag

    def _check(
        self,
        purpose: str,
        message: bytes,
        signatures: tuple[Signature, ...],
        settings: Settings,
        what: str,
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
                f"{self.store.url} requires signatures, and no trusted keys are configured.",
                fix="name a file of public keys: --trusted-keys FILE, or for the whole "
                f"project: my-datasets lock --trust FILE --from {self.store.url}; ask the "
                "publisher for theirs",
            )
        if known.get("requires_signatures"):
            raise SignatureError(
                f"{self.store.url} no longer requires signatures.",
                "An attacker who removes signatures also removes this requirement",
                fix="name the keys that you trust: --trusted-keys FILE; if the publisher "
                f"changed it on purpose, delete {self._memory.path(self.store.url)}",
            )

    def _apply_key_changes(self, settings: Settings) -> None:
        """Applies the store's key changes to the trusted keys."""
        if self._keys is None:
            return
        known = self._facts().get("key_changes", [])
        now = [one.identity for one in settings.key_changes]
        if now[: len(known)] != known:
            raise SignatureError(
                f"{self.store.url} lacks changes of keys that it had before.",
                f"Expected: the {len(known)} changes that this machine has seen",
                f"Found: {len(now)} other changes",
                fix="ask the publisher: the holder of a revoked key could have done this. If "
                "the store was restored on purpose, delete "
                f"{self._memory.path(self.store.url)}",
            )
        self._current = self._keys.after(settings.key_changes, settings.store)

    def _check_store(self, settings: Settings) -> None:
        """Checks that the store at the address is the configured or previously seen one."""
        if self._keys is None:
            return
        known = self._facts().get("id")
        expected = self._ids or frozenset([known] if known else ())
        if expected and settings.store not in expected:
            raise SignatureError(
                f"{self.store.url} is not the store that you trust.",
                f"Expected: the store with the id {' or '.join(sorted(expected))}",
                f"Found: {settings.store}",
                fix="ask the publisher. If the store was recreated on purpose: "
                f"my-datasets lock --trust FILE --from {self.store.url}"
                if self._ids
                else "ask the publisher. If the store was recreated on purpose, delete "
                f"{self._memory.path(self.store.url)}",
            )

    def _check_same_store(self, index: Index, settings: Settings, what: str) -> None:
        """Checks that an index belongs to this store, and is not newer than its settings."""
        if self._keys is None:
            return
        renew = f"my-datasets sign --to {self.store.url} --sign-key FILE signs everything again"
        if index.store != settings.store and (index.store or settings.names_store):
            raise SignatureError(
                f"{what} in {self.store.url} is signed for another store.",
                f"Expected: the store with the id {settings.store}",
                f"Found: {index.store or 'no store'}",
                fix="ask the publisher to check it" + ("" if index.store else f"; {renew}"),
            )
        if index.store_serial > settings.serial:
            raise SignatureError(
                f"{self.store.url} returns an older state of its list of datasets and keys.",
                f"Expected: serial {index.store_serial} or higher, according to {what.lower()}",
                f"Found: serial {settings.serial}",
                fix="ask the publisher to check it",
            )
        if not index.store:
            self._warn(
                f"{what} in {self.store.url} does not name its store, so a signed index of another "
                f"store could replace it. {renew}."
            )

    def _check_expiry(self, expires: str, settings: Settings, what: str) -> None:
        # A signer renews it.
        if self._keys is None or self._signer is not None:
            return
        renew = f"my-datasets sign --to {self.store.url} --sign-key FILE renews it"
        if not expires and settings.valid_seconds:
            raise SignatureError(
                f"{what} in {self.store.url} has no expiry time, which this store requires.",
                fix=f"ask the publisher to check it; {renew}",
            )
        if expires and datetime.fromisoformat(expires).timestamp() < self._clock():
            raise SignatureError(
                f"{what} in {self.store.url} has expired.",
                "This address may be withholding a newer one",
                f"It was valid until: {expires}",
                f"This machine's clock says: {self._time()}",
                fix=f"ask the publisher to renew it: {renew}",
            )

    def _expiry(self, settings: Settings) -> str:
        """Returns when a signature made now expires; empty for never."""
        if self._signer is None or not settings.valid_seconds:
            return ""
        return self._time(settings.valid_seconds)

    def _check_signer(self, settings: Settings) -> None:
        """Refuses to sign with a revoked key, because readers would refuse the store."""
        signer = self._signer
        if signer is None:
            return
        # Also from the signer's own view: it may have added the key that revoked it.
        for keys in (self._keys or signer.public, signer.public):
            if signer.fingerprint in keys.after(settings.key_changes, settings.store).revoked:
                raise SignatureError(
                    f"The key {signer.fingerprint} was revoked for {self.store.url}.",
                    "Readers refuse what it signs",
                    fix="sign with a key that replaces it: --sign-key NEW",
                )

    def _is_due(self, settings: Settings) -> bool:
        """Returns whether more than half of the signatures' validity has passed."""
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
        """Remembers that a document was signed; warns of unverified or removed signatures."""
        url = self.store.url
        signed = {one for one in self._facts().get("signed", ()) if isinstance(one, str)}
        if self._keys is None and self._signer is None:
            if signatures:
                by = ", ".join(sorted({_shown(one) for one in signatures}))
                self._warn(
                    f"{url} has signatures of {by}, which were not checked, because no trusted "
                    "keys are configured. Ask the publisher for the public keys, then: my-datasets "
                    f"lock --trust FILE --from {url}"
                )
            elif document in signed:
                self._warn(
                    f"The {document} in {url} was signed when this machine last read it, and is "
                    "not signed now. Ask the publisher; --trusted-keys FILE refuses it."
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

    def _facts(self) -> Facts:
        with self._optional_state():
            return self._memory.facts(self.store.url)
        return {}

    def _note_facts(self, **facts: Unpack[Facts]) -> None:
        with self._optional_state():
            self._memory.note_facts(self.store.url, **facts)

    def _optional_state(self) -> contextlib.suppress:
        # Users without a state folder can read stores without keys.
        ignored = (DataDirError,) if self._keys is None else ()
        return contextlib.suppress(*ignored)

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            _LOGGER.warning("%s", text)

    def _seen(self, document: str) -> SeenDocument:
        if self._keys is None:  # serials prove nothing
            return SeenDocument()
        return self._memory.seen(self.store.url, document)

    def _note(self, document: str, before: SeenDocument, serial: int, data: bytes) -> None:
        if self._keys is not None:
            now = SeenDocument(serial, hashlib.sha256(data).hexdigest())
            self._memory.note(self.store.url, document, before, now)


def _shown(one: Signature) -> str:
    """Returns the key of a signature for display."""
    with contextlib.suppress(ValueError):
        if len(base64.b64decode(one.value, validate=True)) == _SIGNATURE_BYTES:
            return one.key
    return f"{one.key} (malformed)"


def _nothing_to_sign_by(url: str) -> SignatureError:
    fix = "name the private key to sign with: --sign-key ~/.ssh/id_ed25519"
    return SignatureError(f"{url} requires signatures.", fix=fix)


@contextlib.contextmanager
def _understood(url: str, path: str) -> Iterator[None]:
    try:
        yield
    except MALFORMED as error:
        said = f"{type(error).__name__}: {str(error)[:200]}"
        raise _damaged(url, path, f"an invalid document: {said}") from error


def _damaged(url: str, path: str, found: str) -> CorruptReleaseError:
    return CorruptReleaseError(
        f"{path} in {url} is not what was published.",
        f"Found: {found}",
        fix="ask the publisher to check it; nothing of it is used",
    )
