"""A partial download: its bytes, and the file that they come from."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import filelock

_BLOCK = 1 << 20


@dataclass(frozen=True)
class DownloadOrigin:
    """The origin of a download.

    Attributes:
      url: The requested address.
      validator: The server's strong ETag, or its modification date, which change when the file
        does. Empty if the server sent neither.
      file_name: The file's name according to the server or the address.
    """

    url: str
    validator: str
    file_name: str


class Partial:
    """The file that a download is written to; it persists after this process ends."""

    def __init__(self, directory: Path, url: str) -> None:
        """Opens the partial download of a URL, which an earlier process may have left."""
        self._stem = hashlib.sha256(url.encode()).hexdigest()[:32]
        self._directory = directory
        self.path = directory / f"{self._stem}.partial"
        self._facts = directory / f"{self._stem}.partial.json"

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Waits until no other process downloads the same file."""
        self._directory.mkdir(parents=True, exist_ok=True)
        lock = self._directory / f"{self._stem}.partial.lock"
        # The lock file is never deleted: another process may be waiting for it.
        with filelock.FileLock(lock):
            yield

    @property
    def size(self) -> int:
        """How many bytes have been downloaded."""
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def origin(self) -> DownloadOrigin | None:
        """The origin of the bytes; None if unknown."""
        try:
            return DownloadOrigin(**json.loads(self._facts.read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def begin(self, origin: DownloadOrigin) -> None:
        """Starts from scratch and discards the existing bytes."""
        self.path.unlink(missing_ok=True)
        self._facts.write_text(json.dumps(vars(origin)), "utf-8")
        self.path.touch()

    def append(self) -> BinaryIO:
        """Opens the file for appending."""
        return self.path.open("ab")

    def sha256(self) -> str:
        """Returns the SHA-256 of the downloaded bytes, in hexadecimal."""
        found = hashlib.sha256()
        with self.path.open("rb") as file:
            while block := file.read(_BLOCK):
                found.update(block)
        return found.hexdigest()

    def finish(self, target: Path) -> None:
        """Moves the complete file to its target."""
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        self.path.replace(target)
        self.discard()

    def discard(self) -> None:
        """Deletes the partial download."""
        self.path.unlink(missing_ok=True)
        self._facts.unlink(missing_ok=True)
