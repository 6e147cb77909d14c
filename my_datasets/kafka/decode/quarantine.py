"""Quarantines messages that cannot be decoded, up to a limit; or raises an error."""

import base64
import json
import os
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from my_datasets.errors import ExampleError, InvalidOptionError, QuarantineError
from my_datasets.storage import addresses

# The limit applies to the latest messages, this many.
WINDOW = 10_000
# Bytes to keep of a longer message.
_MOST_KEPT = 64 << 10


@dataclass(frozen=True)
class Poison:
    """A message that cannot be decoded; `feature` is empty if the whole message is at fault."""

    topic: str
    partition: int
    offset: int
    feature: str
    expected: str
    found: str
    value: bytes

    @property
    def facts(self) -> tuple[str, ...]:
        """Its description, in lines."""
        return (
            f"Topic {self.topic}, partition {self.partition}, offset {self.offset}",
            f"Feature: {self.feature}" if self.feature else "",
            f"Expected: {self.expected}",
            f"Found: {self.found}",
        )

    def as_error(self) -> ExampleError:
        """Returns the exception for it."""
        return ExampleError(
            "A message cannot be decoded.",
            *self.facts,
            fix="correct features or payload; or keep such messages with quarantine='FILE'",
        )

    def to_json(self) -> str:
        """Returns its line in the quarantine file."""
        entry = {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "feature": self.feature,
            "expected": self.expected,
            "found": self.found,
            "bytes": len(self.value),
            "value": base64.b64encode(self.value[:_MOST_KEPT]).decode(),
        }
        return json.dumps(entry)


class Quarantine:
    """A file of JSON lines, to which messages that cannot be decoded are appended.

    They are on disk before any later message is returned. A message that is read again after a
    restart is in the file twice, with the same partition and offset.
    """

    def __init__(self, path: str | os.PathLike[str] | None, limit: float) -> None:
        """Creates the file, if it does not exist.

        Args:
          path: The file; None to raise an error for such messages.
          limit: The fraction of the latest 10,000 messages that may be quarantined.

        Raises:
          InvalidOptionError: The limit is not above 0 and at most 1, or the file cannot be written.
        """
        if not 0 < limit <= 1:
            raise InvalidOptionError(
                f"max_quarantined={limit!r} is not a fraction of the messages.",
                fix="give a number above 0, up to 1",
            )
        self._path = None if path is None else addresses.local_path(path, "quarantine")
        self._most = max(1, int(limit * WINDOW))
        self._recent: deque[int] = deque()
        self._lock = threading.Lock()
        self.count = 0
        if self._path is not None:
            self._append([])

    def add(self, found: Sequence[Poison], seen: int) -> None:
        """Quarantines messages; `seen` is the number of messages so far, good and bad.

        Raises:
          ExampleError: There is no quarantine file.
          QuarantineError: There are too many.
        """
        if not found:
            return
        if self._path is None:
            raise found[0].as_error()
        with self._lock:
            self._append(found)
            self.count += len(found)
            self._recent.extend([seen] * len(found))
            while self._recent[0] <= seen - WINDOW:
                self._recent.popleft()
            if len(self._recent) <= self._most:
                return
        raise QuarantineError(
            f"More than {self._most} of {WINDOW:,} messages cannot be decoded.",
            *found[-1].facts,
            f"They are in {self._path}",
            fix="correct features or payload, or give a higher max_quarantined",
        )

    def _append(self, found: Sequence[Poison]) -> None:
        """Appends lines to the file as a whole, because other processes may append to it, too."""
        text = "".join(one.to_json() + "\n" for one in found)
        try:
            file = os.open(str(self._path), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                left = text.encode()
                while left:
                    left = left[os.write(file, left) :]
                if text:
                    os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            raise InvalidOptionError(
                f"The quarantine file {self._path} cannot be written: {error.strerror}.",
                fix="name a file in a writable directory",
            ) from error
