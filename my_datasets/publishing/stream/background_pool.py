"""A few threads that do jobs in the background, and keep no process from ending."""

import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

_Job = TypeVar("_Job")
_Jobs = SimpleQueue[_Job | None]


class BackgroundPool(Generic[_Job]):
    """Does jobs in the order in which they are given, several at the same time.

    Threads of `concurrent.futures` are waited for when a process ends, with all that they have
    still to do. These end with it, and with this object.
    """

    def __init__(self, work: Callable[[_Job], None], threads: int) -> None:
        """Begins the threads.

        Args:
          work: A method that does a job, and never fails; its object may go before this one.
          threads: How many jobs are done at the same time.
        """
        self._jobs: _Jobs[_Job] = SimpleQueue()
        doing = weakref.WeakMethod(work)
        for _ in range(threads):
            threading.Thread(
                target=_do, args=(self._jobs, doing), name="my_datasets_errand", daemon=True
            ).start()
        weakref.finalize(self, _end, self._jobs, threads)

    def give(self, job: _Job) -> None:
        """Takes a job, to be done when a thread is free."""
        self._jobs.put(job)


def _do(
    jobs: "SimpleQueue[_Job | None]", doing: "weakref.WeakMethod[Callable[[_Job], None]]"
) -> None:
    while (job := jobs.get()) is not None:
        work = doing()
        if work is None:
            return
        work(job)
        del work  # or it would be kept as long as nothing is to be done


def _end(jobs: _Jobs[_Job], threads: int) -> None:
    for _ in range(threads):
        jobs.put(None)
