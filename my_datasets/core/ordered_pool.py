"""Work that waits for a network or a disk, of several things at the same time."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# Things that are begun and not taken, for each thread: one that takes long holds up no others.
_AHEAD = 4


def results(
    work: Callable[[_Item], _Result], items: Iterable[_Item], threads: int
) -> Iterator[_Result]:
    """Yields what work makes of each thing, in their order.

    `Executor.map` begins with all of them, and holds what comes until it is taken: of millions,
    gigabytes.

    Args:
      work: Is given one thing.
      items: The things; no more are taken than are soon begun.
      threads: How many are worked on at the same time.

    Raises:
      Exception: What `work` raised, of the first thing of which it did. None is begun after that.
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
