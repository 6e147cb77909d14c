"""Messages that cannot be decoded: set aside, up to a limit, or an error."""

import base64
import json
import os
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from my_datasets.errors import ExampleError, InvalidOptionError, QuarantineError, explain
from my_datasets.storage import addresses

# Of so many messages, the latest ones, a part may be set aside.
WINDOW = 10_000
# Of a longer message only so many bytes are kept.
_MOST_KEPT = 64 << 10


@dataclass(frozen=True)
class Poison:
    """A message that cannot be decoded.

    Attributes:
      topic: Its topic.
      partition: Its partition.
      offset: Its offset there.
      feature: The feature it does not fit; empty for the whole message.
      expected: What was declared.
      found: What is there.
      value: The message.
    """

    topic: str
    partition: int
    offset: int
    feature: str
    expected: str
    found: str
    value: bytes

    @property
    def facts(self) -> tuple[str, ...]:
        """What it is, line by line."""
        return (
            f"Topic {self.topic}, partition {self.partition}, offset {self.offset}",
            f"Feature: {self.feature}" if self.feature else "",
            f"Expected: {self.expected}",
            f"Found: {self.found}",
        )

    def as_error(self) -> ExampleError:
        """Returns the error for it."""
        return ExampleError(
            explain(
                "A message cannot be decoded.",
                *self.facts,
                fix="correct features or payload; quarantine='FILE' sets such messages aside",
            )
        )

    def to_json(self) -> str:
        """Returns its line in the file."""
        entry: dict[str, Any] = {
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
    """A file of JSON lines, to which messages are added that cannot be decoded.

    They are on the disk before any later message is given out. One that is read again, after a
    restart, is in the file again: partition and offset tell.
    """

    def __init__(self, path: str | os.PathLike[str] | None, limit: float) -> None:
        """Begins.

        Args:
          path: The file; None if such a message is an error.
          limit: The part of the latest 10,000 messages that may be set aside.

        Raises:
          InvalidOptionError: The limit is no part, or the file cannot be written.
        """
        if not 0 < limit <= 1:
            raise InvalidOptionError(
                explain(
                    f"max_quarantined={limit!r} is no part of the messages.",
                    fix="give a number above 0, up to 1",
                )
            )
        self._path = None if path is None else addresses.local_path(path, "quarantine")
        self._most = max(1, int(limit * WINDOW))
        self._recent: deque[int] = deque()
        self._lock = threading.Lock()
        self.count = 0
        if self._path is not None:
            self._append([])

    def add(self, found: Sequence[Poison], seen: int) -> None:
        """Sets messages aside.

        Args:
          found: The messages.
          seen: How many messages there were so far, good and bad.

        Raises:
          ExampleError: They are not to be set aside.
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
            explain(
                f"More than {self._most} of {WINDOW:,} messages cannot be decoded.",
                *found[-1].facts,
                f"They are in {self._path}",
                fix="correct features or payload, or give a higher max_quarantined",
            )
        )

    def _append(self, found: Sequence[Poison]) -> None:
        """Adds lines to the file, in one piece, as others may write to it, too."""
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
                explain(
                    f"The quarantine file {self._path} cannot be written: {error.strerror}.",
                    fix="name a file in a directory that is there and may be written",
                )
            ) from error
