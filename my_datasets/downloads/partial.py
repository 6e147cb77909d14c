"""A download that is not whole yet: its bytes, and what they are the beginning of."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock

_BLOCK = 1 << 20


@dataclass(frozen=True)
class Origin:
    """Where the bytes come from.

    Attributes:
      url: The address that was asked.
      validator: The server's strong ETag, or its date of modification: the same as long as the
        file is. Empty if it gave none.
      file_name: What the server, or the address, calls the file.
    """

    url: str
    validator: str
    file_name: str


class Partial:
    """The file in which a download grows; it survives this process."""

    def __init__(self, directory: Path, url: str) -> None:
        """Looks for what an earlier process has left.

        Args:
          directory: Where it lies.
          url: The address, which is also the file's identity, whatever mirror it comes from.
        """
        self._stem = hashlib.sha256(url.encode()).hexdigest()[:32]
        self._directory = directory
        self.path = directory / f"{self._stem}.partial"
        self._facts = directory / f"{self._stem}.partial.json"

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Waits until no other process downloads the same."""
        self._directory.mkdir(parents=True, exist_ok=True)
        lock = self._directory / f"{self._stem}.partial.lock"
        # The lock's file stays: another process may be waiting for it.
        with filelock.FileLock(lock):
            yield

    @property
    def size(self) -> int:
        """Returns how many bytes are there."""
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def origin(self) -> Origin | None:
        """Returns where they come from; None if that is not known."""
        try:
            return Origin(**json.loads(self._facts.read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def begin(self, origin: Origin) -> None:
        """Starts anew: what is there is given up."""
        self.path.unlink(missing_ok=True)
        self._facts.write_text(json.dumps(vars(origin)), "utf-8")
        self.path.touch()

    def append(self) -> Any:
        """Returns the file, open for more bytes."""
        return self.path.open("ab")

    def sha256(self) -> str:
        """Returns the SHA-256 of what is there."""
        found = hashlib.sha256()
        with self.path.open("rb") as file:
            while block := file.read(_BLOCK):
                found.update(block)
        return found.hexdigest()

    def finish(self, target: Path) -> None:
        """Moves the whole file to where it is wanted."""
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        self.path.replace(target)
        self.discard()

    def discard(self) -> None:
        """Takes away what is there."""
        self.path.unlink(missing_ok=True)
        self._facts.unlink(missing_ok=True)
