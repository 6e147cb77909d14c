"""Resources of this process: cores, memory, ordered work in threads, and one value per process."""

import errno
import functools
import os
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
# Maximum pending items per thread, so that a slow one does not block the others.
_AHEAD = 4

_K = TypeVar("_K", bound=Hashable)
_T = TypeVar("_T")


def cores() -> int:
    """Returns the number of cores that this process may use."""
    # Batch systems and containers often grant only some of the machine's cores.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether an error means that the system refuses memory to this process."""
    return isinstance(error, MemoryError) or (
        isinstance(error, OSError) and error.errno == errno.ENOMEM
    )


def unless_out_of_memory(error: BaseException) -> None:
    """Raises `MemoryError` if an error is about this process's memory, not about a file."""
    if is_out_of_memory(error):
        raise MemoryError(str(error)) from error


def ordered_results(
    work: Callable[[_Item], _Result], items: Iterable[_Item], threads: int
) -> Iterator[_Result]:
    """Yields the results of work on items, in their order.

    Unlike `Executor.map`, it does not start all of them at once, and so does not hold gigabytes of
    results of millions of items. An item is taken shortly before it is worked on. Raises what
    `work` raised for the first item that failed; no others are started then.
    """
    pending: deque[Future[_Result]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                pending.append(pool.submit(work, item))
                if len(pending) >= _AHEAD * threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for one in pending:
                one.cancel()


class PerProcess(Generic[_T]):
    """A value of which each process has its own; a copy sent to another process has none yet."""

    def __init__(self, *, keeps_inherited: bool = True) -> None:
        """Makes nothing yet.

        With `keeps_inherited`, a child keeps what its parent made, unused. To close a connection
        could wait for a thread that the child does not have; to keep a file takes a descriptor.
        """
        self._keeps_inherited = keeps_inherited
        self._values: dict[int, _T] = {}

    def get(self, make: Callable[[], _T]) -> _T:
        """Returns this process's value, after making it if there is none.

        If several threads make one at the same time, all of them get the same.
        """
        process, values = os.getpid(), self._values
        if process not in values:
            if not self._keeps_inherited:
                # Emptied, not replaced: threads that come here together would have one dict each.
                for other in [one for one in list(values) if one != process]:
                    values.pop(other, None)
            values.setdefault(process, make())
        return values[process]

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_values": {}}


class CachedPerProcess(Generic[_K, _T]):
    """A function whose results are kept, as by `functools.lru_cache`, for the process's own use."""

    def __init__(self, function: Callable[[_K], _T], maxsize: int) -> None:
        self._made = functools.lru_cache(maxsize=maxsize)(lambda key, _: function(key))

    def __call__(self, key: _K) -> _T:
        """Returns the function's result, from this process's cache if it is there."""
        return self._made(key, os.getpid())

    def cache_clear(self) -> None:
        """Forgets all results."""
        self._made.cache_clear()


def cached_per_process(maxsize: int) -> Callable[[Callable[[_K], _T]], CachedPerProcess[_K, _T]]:
    """Returns the decorator that makes a `CachedPerProcess` of so many results."""
    return lambda function: CachedPerProcess(function, maxsize)
