"""What this machine has seen of stores: so that an older state is not taken for the current one."""

import contextlib
import hashlib
import json
import logging
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import filelock

from my_datasets.errors import SignatureError, explain

_LOGGER = logging.getLogger(__name__)


def default_directory() -> Path:
    """Returns where it is kept if nobody says where."""
    return Path.home() / ".local" / "state" / "my_datasets" / "stores"


@dataclass(frozen=True)
class Seen:
    """A document as it was seen last.

    Attributes:
      serial: Its serial; 0 if it was never seen.
      sha256: That of its contents, in hexadecimal.
    """

    serial: int = 0
    sha256: str = ""


class Memory:
    """The highest serials seen, for each store and each of its documents."""

    def __init__(self, directory: Path | None = None) -> None:
        """Takes the directory in which it is kept."""
        self._given = directory

    def seen(self, url: str, document: str) -> Seen:
        """Returns what was seen of a document. To be asked before the document is read."""
        return _seen(_read(self._path(url)), document)

    def note(self, url: str, document: str, before: Seen, now: Seen) -> None:
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
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            with filelock.FileLock(f"{path}.lock"):
                known = _read(path)
                if _seen(known, document).serial < now.serial:
                    _write(path, {**known, "store": url, document: asdict(now)})
        except OSError as error:
            # A home that cannot be written makes no store unreadable.
            _LOGGER.warning("What was seen of %s is not remembered: %s", url, error)

    @property
    def _directory(self) -> Path:
        # Looked up late: a user without a home trusts nobody in particular, and needs none.
        return self._given or default_directory()

    def _path(self, url: str) -> Path:
        return self._directory / f"{hashlib.sha256(url.encode()).hexdigest()[:32]}.json"


def _seen(known: Mapping[str, Any], document: str) -> Seen:
    try:
        return Seen(**known[document])
    except (KeyError, TypeError):
        return Seen()


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(path: Path, value: Mapping[str, Any]) -> None:
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            json.dump(value, file, indent=1, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def _replayed(url: str, document: str, serial: int, seen: int, path: Path) -> SignatureError:
    return SignatureError(
        explain(
            f"{url} gives an older state of {document} than it did before.",
            f"Expected: serial {seen} or higher, as seen on this machine",
            f"Found: serial {serial}" + (", with other contents" if serial == seen else ""),
            mend="ask who publishes there. If the store was put back on purpose, from a backup, "
            f"delete {path}",
        )
    )
