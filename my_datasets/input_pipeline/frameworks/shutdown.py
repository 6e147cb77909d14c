"""Calls from TensorFlow into Python, which must be over when Python ends.

TensorFlow's threads work ahead of who wants batches. One that calls Python while that ends never
comes back, and TensorFlow waits for it for ever: the process would hang after its last line.
"""

import atexit
import threading
import time
from types import TracebackType

# Once calls are refused, TensorFlow's own queues are full of refusals in so many seconds.
_QUIET = 0.05
# A call that takes longer is given up.
_PATIENCE = 30.0


class Calls:
    """The calls that run; used as a context by each of them."""

    def __init__(self) -> None:
        """Begins with none."""
        self._lock = threading.Lock()
        self._running = 0
        self._last = 0.0
        self._is_closed = False

    def __enter__(self) -> None:
        """A call begins.

        Raises:
          StopIteration: No more calls are taken. It is the one that TensorFlow does not log.
        """
        with self._lock:
            self._last = time.monotonic()
            if self._is_closed:
                raise StopIteration
            self._running += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._lock:
            self._running -= 1

    @property
    def is_closed(self) -> bool:
        """Whether Python ends: a call that waits for long is to give up."""
        return self._is_closed

    def close(self) -> None:
        """Takes no more calls, and waits until there are none."""
        with self._lock:
            self._is_closed = True
            self._last = time.monotonic()
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            with self._lock:
                if not self._running and time.monotonic() - self._last > _QUIET:
                    return
            time.sleep(_QUIET / 5)


calls = Calls()
atexit.register(calls.close)
