"""Retries failed requests to a store, and writes that another writer got ahead of."""

import contextlib
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from my_datasets.errors import (
    AlreadyInStoreError,
    ChangedInStoreError,
    NotInStoreError,
    StoreError,
    StoreUnavailableError,
)
from my_datasets.storage.store import OnBytes, Store, StoredFile, ignore_bytes

_Result = TypeVar("_Result")
_Value = TypeVar("_Value")

# Between attempts to replace a file that others keep changing.
_LONGEST_PAUSE_SECONDS = 0.5


@dataclass(frozen=True)
class RetryPolicy:
    """How often, and with which pauses, a request is repeated.

    Attributes:
      tries: Consecutive failures after which to give up.
      first_wait: Maximum seconds after the first failure; doubled each time, and randomised.
      longest_wait: Seconds at most.
    """

    tries: int = 6
    first_wait: float = 0.5
    longest_wait: float = 30.0


class RetryingStore:
    """Repeats failed requests to another store, with growing pauses; see `Store`."""

    def __init__(self, store: Store, patience: RetryPolicy | None = None) -> None:
        self._store = store
        self._patience = patience or RetryPolicy()

    @property
    def origin(self) -> Store:
        """The store itself."""
        return self._store

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def is_writable(self) -> bool:
        return self._store.is_writable

    def stat(self, path: str) -> StoredFile:
        return self._again(lambda: self._store.stat(path))

    def list(self, folder: str) -> Iterator[StoredFile]:
        """Fetches the whole list first."""
        yield from self._again(lambda: list(self._store.list(folder)))

    def read(self, path: str, begin: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Resumes if the response ends early."""
        position, failed = begin, 0
        while True:
            try:
                for data in self._store.read(path, position, end):
                    position, failed = position + len(data), 0
                    yield data
                return
            except StoreUnavailableError:
                failed += 1
                self._wait(failed)

    def state(self, path: str, most: int) -> tuple[bytes, str]:
        return self._again(lambda: self._store.state(path, most))

    def create(
        self, path: str, source: Path | bytes, sha256: str, on_bytes: OnBytes = ignore_bytes
    ) -> None:
        """Succeeds even if the response to a successful write was lost."""
        failed = False

        def once() -> None:
            nonlocal failed
            try:
                self._store.create(path, source, sha256, on_bytes)
            except StoreUnavailableError:
                failed = True
                raise
            except AlreadyInStoreError:
                if not failed or self._store.stat(path).sha256 != sha256:
                    raise

        self._again(once)

    def replace(self, path: str, data: bytes, tag: str | None) -> str:
        """After a lost response, our own write may look like another's change."""
        return self._again(lambda: self._store.replace(path, data, tag))

    def move(self, source: str, target: str, last: Sequence[str]) -> None:
        self._again(lambda: self._store.move(source, target, last))

    def delete(self, path: str) -> None:
        self._again(lambda: self._store.delete(path))

    def _again(self, work: Callable[[], _Result]) -> _Result:
        failed = 0
        while True:
            try:
                return work()
            except StoreUnavailableError:
                failed += 1
                self._wait(failed)

    def _wait(self, failed: int) -> None:
        """Waits after consecutive failures; raises the last one if there were too many."""
        how = self._patience
        if failed >= how.tries:
            raise  # the failure that is being handled
        longest = min(how.longest_wait, how.first_wait * 2 ** (failed - 1))
        time.sleep(random.uniform(0, longest))  # noqa: S311 - so that many do not come at once


def put(store: Store, path: str, source: Path | bytes, sha256: str) -> None:
    """Writes a file after removing one with other contents, which no reader may rely on.

    If several writers write one name at the same time, all succeed, and one file remains. `source`
    is a file on this machine, or the contents; `sha256` is in hexadecimal.
    """
    while True:
        try:
            store.create(path, source, sha256)
            return
        except AlreadyInStoreError:
            with contextlib.suppress(NotInStoreError):
                if store.stat(path).sha256 == sha256:
                    return
            store.delete(path)


def compare_and_swap(
    store: Store,
    path: str,
    read: Callable[[], tuple[_Value, str | None]],
    update: Callable[[_Value], _Value],
    encode: Callable[[_Value], bytes],
    attempts: Iterable[int] = range(100),
) -> tuple[_Value, bytes | None]:
    """Changes a small file, again from its new contents if another writer was faster.

    `read` returns the current value with its tag, which is None if there is no such file. `update`
    returns the next value, or the same object for no change; it may be called several times, and
    raise. Returns the value that is in the store now, and the contents that were written; None if
    unchanged.

    Raises:
      StoreError: The store cannot be used, or other writers were faster at each of the `attempts`.
    """
    for attempt in attempts:
        before, tag = read()
        after = update(before)
        if after is before:
            return before, None
        data = encode(after)
        try:
            store.replace(path, data, tag)
        except ChangedInStoreError:
            if not _contains(store, path, data):
                longest = min(_LONGEST_PAUSE_SECONDS, 0.01 * 2 ** min(attempt, 10))
                time.sleep(random.uniform(0, longest))  # noqa: S311
                continue
        return after, data
    raise StoreError(f"Other writers keep changing {path} in {store.url}.", fix="try again later")


def _contains(store: Store, path: str, data: bytes) -> bool:
    """Returns whether a write succeeded although its response was lost."""
    try:
        return store.state(path, len(data))[0] == data
    except StoreError:
        return False
