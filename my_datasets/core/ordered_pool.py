"""Runs I/O-bound work in parallel, and yields results in order."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# Maximum pending items per thread, so that a slow one does not block the others.
_AHEAD = 4


def results(
    work: Callable[[_Item], _Result], items: Iterable[_Item], threads: int
) -> Iterator[_Result]:
    """Yields the results of work on items, in their order.

    Unlike `Executor.map`, it does not start all of them at once, and so does not hold gigabytes of
    results of millions of items.

    Args:
      work: The function.
      items: The items, taken shortly before they are worked on.
      threads: The number of threads.

    Raises:
      Exception: What `work` raised for the first item that failed; no others are started then.
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
