"""How far bytes are on their way."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import TypeVar

from my_datasets.core import interruption
from my_datasets.core.progress import Progress
from my_datasets.errors import StoreError, explain

_Item = TypeVar("_Item")

# Seconds after which a signal is looked for.
_SIGNALS_EVERY = 0.1


# The stages are `verifying`, `uploading`, `placing` and `downloading`; counts are bytes.
TransferProgress = Progress


class Transfer:
    """Counts the bytes of many threads."""

    def __init__(self, stage: str, total: int, report: Callable[[TransferProgress], None]) -> None:
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

    def each(self, work: Callable[[_Item], None], items: Iterable[_Item], threads: int) -> None:
        """Moves several files at the same time; none is on its way any more when this ends.

        Args:
          work: Moves one, and tells of its bytes here.
          items: What is to be moved.
          threads: How many at the same time.

        Raises:
          Exception: What `work` raised first; the others end as soon as they tell of more bytes.
        """
        done: SimpleQueue[Future[None]] = SimpleQueue()
        pool = ThreadPoolExecutor(threads)
        # A signal that came at the wrong line of the pool's own code would leave a thread that the
        # pool does not know of, or a lock that is released twice.
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
        """Tells of bytes that moved; of a negative number where they must move again."""
        if self._is_stopped and count > 0:
            raise StoreError(
                explain("It was stopped, as another one failed.", fix="see why that one failed")
            )
        with self._lock:
            self._done += count
            seconds = time.monotonic() - self._begin
            self._report(TransferProgress(self._stage, self._done, self._total, seconds))

    @property
    def done(self) -> int:
        """Bytes so far."""
        return self._done


def _next(done: "SimpleQueue[Future[None]]") -> "Future[None]":
    """Waits for what is done next, or for a signal."""
    while True:
        interruption.raise_postponed()
        with contextlib.suppress(Empty):
            return done.get(timeout=_SIGNALS_EVERY)
