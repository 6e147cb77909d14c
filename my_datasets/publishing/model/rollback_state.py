"""What this machine has seen of stores: so that an older state is not taken for the current one."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import filelock

from my_datasets.core.logs import get_logger
from my_datasets.errors import SignatureError, explain
from my_datasets.metadata.dataset_info import MALFORMED
from my_datasets.publishing.model.signed_json import KeyChange, Trusts
from my_datasets.storage.regular_files import write_whole
from my_datasets.storage.user_folders import state_folder

_FACTS = "facts"
_LOGGER = get_logger(__name__)


@dataclass(frozen=True)
class SeenDocument:
    """A document as it was seen last.

    Attributes:
      serial: Its serial; 0 if it was never seen.
      sha256: That of its contents, in hexadecimal.
    """

    serial: int = 0
    sha256: str = ""


class RollbackState:
    """The highest serials seen, for each store and each of its documents."""

    def __init__(self, directory: Path | None = None) -> None:
        """Takes the directory in which it is kept."""
        self._given = directory

    def seen(self, url: str, document: str) -> SeenDocument:
        """Returns what was seen of a document. To be asked before the document is read."""
        return _seen(_read(self._path(url)), document)

    def facts(self, url: str) -> dict[str, Any]:
        """Returns what else is known of a store; see `note_facts`."""
        found = _read(self._path(url)).get(_FACTS)
        return found if isinstance(found, dict) else {}

    def note_facts(self, url: str, **facts: Any) -> None:
        """Remembers something of a store, whatever it says later.

        Args:
          url: The store's.
          facts: `id`, its id; `requires_signatures`, whether it did; `signed`, the documents that
            had signatures; `key_changes`, the SHA-256 of each change of its keys; `changes`, those
            changes; `revoked`, the fingerprints of keys that were revoked.
        """
        path = self._path(url)
        known = self.facts(url)
        if {**known, **facts} == known:
            return
        self._update(path, url, lambda whole: {_FACTS: {**whole.get(_FACTS, {}), **facts}})

    def keys_after_changes(self, url: str, keys: Trusts) -> Trusts:
        """Returns whose signatures count in a store, as far as this machine has seen it.

        Args:
          url: The store's.
          keys: Whose counted before any change.
        """
        facts = self.facts(url)
        try:
            changes = tuple(map(KeyChange.from_json, facts.get("changes", ())))
            return keys.after(changes, str(facts.get("id", "")))
        except MALFORMED:
            return keys

    def revoked(self) -> set[str]:
        """Returns the fingerprints of all keys that any store's publishers revoked."""
        found: set[str] = set()
        for path in sorted(self._directory.glob("*.json")):
            facts = _read(path).get(_FACTS)
            names = facts.get("revoked") if isinstance(facts, dict) else None
            found |= {one for one in names or () if isinstance(one, str)}
        return found

    def path(self, url: str) -> Path:
        """Returns the file in which it is kept what was seen of a store."""
        return self._path(url)

    def note(self, url: str, document: str, before: SeenDocument, now: SeenDocument) -> None:
        """Remembers a document.

        Args:
          url: The store's.
          document: Which one.
          before: What `seen` returned before it was read.
          now: What it is.

        Raises:
          SignatureError: It is older than what was seen, or another one of the same serial.
        """
        path = self._path(url)
        if now == before:
            return
        if now.serial <= before.serial:
            raise _replayed(url, document, now.serial, before.serial, path)

        def newer(known: Mapping[str, Any]) -> dict[str, Any]:
            return {document: asdict(now)} if _seen(known, document).serial < now.serial else {}

        self._update(path, url, newer)

    def _update(
        self, path: Path, url: str, update: Callable[[Mapping[str, Any]], dict[str, Any]]
    ) -> None:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            with filelock.FileLock(f"{path}.lock"):
                known = _read(path)
                if changes := update(known):
                    whole = {**known, "url": url, **changes}
                    write_whole(path, json.dumps(whole, indent=1, sort_keys=True).encode())
        except OSError as error:
            # A home that cannot be written makes no store unreadable.
            _LOGGER.warning("What was seen of %s is not remembered: %s", url, error)

    @property
    def _directory(self) -> Path:
        # Looked up late: a user without a home trusts nobody in particular, and needs none.
        return self._given or state_folder("stores")

    def _path(self, url: str) -> Path:
        return self._directory / f"{hashlib.sha256(url.encode()).hexdigest()[:32]}.json"


def _seen(known: Mapping[str, Any], document: str) -> SeenDocument:
    try:
        return SeenDocument(**known[document])
    except (KeyError, TypeError):
        return SeenDocument()


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _replayed(url: str, document: str, serial: int, seen: int, path: Path) -> SignatureError:
    return SignatureError(
        explain(
            f"{url} gives an older state of {document} than it did before.",
            f"Expected: serial {seen} or higher, as seen on this machine",
            f"Found: serial {serial}" + (", with other contents" if serial == seen else ""),
            fix="ask who publishes there. If the store was put back on purpose, from a backup, "
            f"delete {path}",
        )
    )
