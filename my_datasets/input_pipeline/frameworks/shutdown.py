"""Calls from TensorFlow into Python, which must finish before the interpreter shuts down.

TensorFlow's threads prefetch batches. One that calls Python during shutdown never returns, and
TensorFlow waits for it forever: the process would hang after its last line.
"""

import atexit
import threading
import time

# Seconds after which TensorFlow's own queues are full of refusals, once calls are refused.
_QUIET = 0.05
# Seconds after which `close` stops waiting for a running call.
_PATIENCE = 30.0


class RunningCalls:
    """Counts running calls; each call uses this as a context manager."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._last = 0.0
        self._is_closed = False

    def __enter__(self) -> None:
        """Begins a call.

        Raises:
          StopIteration: Calls are refused. This is the exception that TensorFlow does not log.
        """
        with self._lock:
            self._last = time.monotonic()
            if self._is_closed:
                raise StopIteration
            self._running += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._running -= 1

    @property
    def is_closed(self) -> bool:
        """Whether Python is shutting down; long-running calls must then give up."""
        return self._is_closed

    def close(self) -> None:
        """Refuses new calls, and waits for running ones, for at most 30 seconds."""
        with self._lock:
            self._is_closed = True
            self._last = time.monotonic()
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            with self._lock:
                if not self._running and time.monotonic() - self._last > _QUIET:
                    return
            time.sleep(_QUIET / 5)


calls = RunningCalls()
atexit.register(calls.close)
