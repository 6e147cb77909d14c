"""What this machine has seen of stores, to detect a store that was rolled back."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypedDict, Unpack, cast

import filelock

from my_datasets.core.json_types import Json
from my_datasets.core.logs import get_logger
from my_datasets.errors import SignatureError
from my_datasets.metadata.dataset_info import MALFORMED
from my_datasets.publishing.model.signed_json import KeyChange, Trusts
from my_datasets.storage.json_files import MalformedJsonError, convert_json
from my_datasets.storage.regular_files import write_whole
from my_datasets.storage.user_folders import state_folder

_FACTS = "facts"
_LOGGER = get_logger(__name__)

# A parsed state file.
_Known: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class SeenDocument:
    """The last seen state of a document; serial 0 if it was never seen."""

    serial: int = 0
    sha256: str = ""


class Facts(TypedDict, total=False):
    """What is known of a store.

    Attributes:
      id: The store's id.
      requires_signatures: Whether it required signatures.
      signed: The documents that had signatures.
      key_changes: The SHA-256 of each change of its keys.
      changes: Those changes.
      revoked: The fingerprints of its revoked keys.
    """

    id: str
    requires_signatures: bool
    signed: list[str]
    key_changes: list[str]
    changes: list[dict[str, Json]]
    revoked: list[str]


class RollbackState:
    """The highest serial seen of each document of each store, and facts about the stores."""

    def __init__(self, directory: Path | None = None) -> None:
        self._given = directory

    def seen(self, url: str, document: str) -> SeenDocument:
        """Returns the last seen state of a document. Call it before reading the document."""
        return _seen(_read(self.path(url)), document)

    def facts(self, url: str) -> Facts:
        """Returns what is known of a store."""
        found = _read(self.path(url)).get(_FACTS)
        return cast(Facts, found) if isinstance(found, dict) else {}

    def note_facts(self, url: str, **facts: Unpack[Facts]) -> None:
        """Remembers facts about a store, whatever it says later."""
        known = self.facts(url)
        if {**known, **facts} != known:
            self._update(url, lambda whole: {_FACTS: {**whole.get(_FACTS, {}), **facts}})

    def keys_after_changes(self, url: str, keys: Trusts) -> Trusts:
        """Returns the trusted keys after the changes that this machine has seen."""
        facts = self.facts(url)
        try:
            changes = convert_json(facts.get("changes", []), tuple[KeyChange, ...])
            return keys.after(changes, str(facts.get("id", "")))
        except MALFORMED:
            return keys

    def revoked(self) -> set[str]:
        """Returns the fingerprints of the keys revoked in any store."""
        found: set[str] = set()
        for path in sorted(self._directory.glob("*.json")):
            facts = _read(path).get(_FACTS)
            names = facts.get("revoked") if isinstance(facts, dict) else None
            found |= {one for one in names or () if isinstance(one, str)}
        return found

    def note(self, url: str, document: str, before: SeenDocument, now: SeenDocument) -> None:
        """Remembers a document, given what `seen` returned before it was read.

        Raises:
          SignatureError: It is older than `before`, or differs and has the same serial.
        """
        if now == before:
            return
        if now.serial <= before.serial:
            raise SignatureError(
                f"{url} returns an older state of {document} than before.",
                f"Expected: serial {before.serial} or higher, as seen on this machine",
                f"Found: serial {now.serial}"
                + (", with different content" if now.serial == before.serial else ""),
                fix="ask the publisher. If the store was restored from a backup on purpose, delete "
                f"{self.path(url)}",
            )

        def newer(known: _Known) -> _Known:
            return {document: asdict(now)} if _seen(known, document).serial < now.serial else {}

        self._update(url, newer)

    def _update(self, url: str, update: Callable[[_Known], _Known]) -> None:
        path = self.path(url)
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            with filelock.FileLock(f"{path}.lock"):
                known = _read(path)
                if changes := update(known):
                    whole = {**known, "url": url, **changes}
                    write_whole(path, json.dumps(whole, indent=1, sort_keys=True).encode())
        except OSError as error:
            # Stores stay readable when the home is not writable.
            _LOGGER.warning("The state of %s could not be recorded: %s", url, error)

    @property
    def _directory(self) -> Path:
        # Looked up late, because a user without a home and without trusted keys needs none.
        return self._given or state_folder("stores")

    def path(self, url: str) -> Path:
        """Returns the file with what was seen of a store."""
        return self._directory / f"{hashlib.sha256(url.encode()).hexdigest()[:32]}.json"


def _seen(known: _Known, document: str) -> SeenDocument:
    try:
        return convert_json(known[document], SeenDocument)
    except (KeyError, MalformedJsonError):
        return SeenDocument()


def _read(path: Path) -> _Known:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
