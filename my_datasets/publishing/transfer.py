"""Progress and parallelism of transfers."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import TypeVar

from my_datasets.core import interruption
from my_datasets.core.progress import Progress
from my_datasets.errors import StoreError

_Item = TypeVar("_Item")

# Seconds between checks for a signal.
_SIGNALS_EVERY = 0.1


# The stages are `verifying`, `uploading`, `placing` and `downloading`; counts are bytes.
TransferProgress = Progress


class Transfer:
    """Counts the bytes of many threads."""

    def __init__(self, stage: str, total: int, report: Callable[[TransferProgress], None]) -> None:
        """Reports the start."""
        self._stage = stage
        self._total = total
        self._report = report
        self._done = 0
        self._begin = time.monotonic()
        self._lock = threading.Lock()
        self._is_stopped = False
        self(0)

    def each(self, work: Callable[[_Item], None], items: Iterable[_Item], threads: int) -> None:
        """Runs transfers in parallel, and waits until all have ended.

        Raises:
          Exception: The first error of `work`; the others stop when they report more bytes.
        """
        done: SimpleQueue[Future[None]] = SimpleQueue()
        pool = ThreadPoolExecutor(threads)
        # A signal inside the pool's own code could leave a thread that the pool does not know of,
        # or release a lock twice.
        with interruption.postponed():
            try:
                futures = [pool.submit(work, one) for one in items]
                for future in futures:
                    future.add_done_callback(done.put)
                for _ in futures:
                    _next(done).result()
            except BaseException:
                self._is_stopped = True
                raise
            finally:
                pool.shutdown(cancel_futures=True)

    def __call__(self, count: int) -> None:
        """Reports transferred bytes; a negative number if they must be transferred again."""
        if self._is_stopped and count > 0:
            raise StoreError(
                "Stopped because another transfer failed.", fix="see that transfer's error"
            )
        with self._lock:
            self._done += count
            seconds = time.monotonic() - self._begin
            self._report(TransferProgress(self._stage, self._done, self._total, seconds))


def _next(done: "SimpleQueue[Future[None]]") -> "Future[None]":
    """Returns the next finished future; raises if a signal arrives."""
    while True:
        interruption.raise_postponed()
        with contextlib.suppress(Empty):
            return done.get(timeout=_SIGNALS_EVERY)
