"""How far bytes are on their way."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from my_datasets.errors import StoreError, explain


@dataclass(frozen=True)
class Progress:
    """How far a transfer is.

    Attributes:
      stage: What is done: `verifying`, `uploading`, `placing`, `downloading`.
      done: Bytes so far.
      total: Bytes in all.
      seconds: Since it began.
    """

    stage: str
    done: int
    total: int
    seconds: float = 0.0

    @property
    def seconds_left(self) -> float | None:
        """The time left at the pace so far; None if that is not known yet."""
        return self.seconds * (self.total - self.done) / self.done if self.done > 0 else None


class Transfer:
    """Counts the bytes of many threads."""

    def __init__(self, stage: str, total: int, report: Callable[[Progress], None]) -> None:
        """Tells that it begins.

        Args:
          stage: What is done.
          total: Bytes in all.
          report: Is told.
        """
        self._stage = stage
        self._total = total
        self._report = report
        self._done = 0
        self._begin = time.monotonic()
        self._lock = threading.Lock()
        self._is_stopped = False
        self(0)

    def stop(self) -> None:
        """Ends all threads that tell of more bytes, by an error that nobody is shown."""
        self._is_stopped = True

    def __call__(self, count: int) -> None:
        """Tells of bytes that moved; of a negative number where they must move again."""
        if self._is_stopped and count > 0:
            raise StoreError(
                explain("It was stopped, as another one failed.", fix="see why that one failed")
            )
        with self._lock:
            self._done += count
            seconds = time.monotonic() - self._begin
            self._report(Progress(self._stage, self._done, self._total, seconds))

    @property
    def done(self) -> int:
        """Bytes so far."""
        return self._done
