"""Values that each process makes for itself: locks and connections do not survive a fork."""

import functools
import os
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_K = TypeVar("_K", bound=Hashable)
_T = TypeVar("_T")


class PerProcess(Generic[_T]):
    """A value of which each process has its own; a copy sent to another process has none yet."""

    def __init__(self, *, keeps_inherited: bool = True) -> None:
        """Makes nothing yet.

        Args:
          keeps_inherited: Whether a child keeps what its parent made, unused. To close a connection
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
            if values and not self._keeps_inherited:
                values = self._values = {}
            values.setdefault(process, make())
        return values[process]

    def clear(self) -> None:
        """Drops all values."""
        self._values = {}

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
