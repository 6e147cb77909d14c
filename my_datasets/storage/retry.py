"""Retries a store's failed requests, and detects truncated HTTP answers.

Python's `http.client` takes a connection that ends within the head of an answer for the end of the
head, so what arrived looks like an answer without contents. Servers send the length of their
contents; an answer without it was cut off.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

import requests
from requests.adapters import HTTPAdapter

from my_datasets.errors import AlreadyInStoreError, StoreUnavailableError
from my_datasets.storage.store import OnBytes, Store, StoredFile, ignore_bytes

_Result = TypeVar("_Result")

_CONNECTIONS = 32
_WITHOUT_CONTENTS = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})


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
        """Takes the store."""
        self._store = store
        self._patience = patience or RetryPolicy()

    @property
    def origin(self) -> Store:
        """The store itself."""
        return self._store

    @property
    def url(self) -> str:
        """As the store."""
        return self._store.url

    @property
    def is_writable(self) -> bool:
        """As the store."""
        return self._store.is_writable

    def stat(self, path: str) -> StoredFile:
        """As the store."""
        return self._again(lambda: self._store.stat(path))

    def list(self, folder: str) -> Iterator[StoredFile]:
        """As the store, but fetches the whole list first."""
        yield from self._again(lambda: list(self._store.list(folder)))

    def read(self, path: str, begin: int = 0, end: int | None = None) -> Iterator[bytes]:
        """As the store; resumes if the response ends early."""
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
        """As the store."""
        return self._again(lambda: self._store.state(path, most))

    def create(
        self, path: str, source: Path | bytes, sha256: str, on_bytes: OnBytes = ignore_bytes
    ) -> None:
        """As the store; succeeds even if the response to a successful write was lost."""
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
        """As the store. After a lost response, our own write may look like another's change."""
        return self._again(lambda: self._store.replace(path, data, tag))

    def move(self, source: str, target: str, last: Sequence[str]) -> None:
        """As the store."""
        self._again(lambda: self._store.move(source, target, last))

    def delete(self, path: str) -> None:
        """As the store."""
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


def is_whole(status: int, headers: Mapping[str, Any]) -> bool:
    """Returns whether the headers of an answer give the length of its contents.

    Args:
      status: The answer's status.
      headers: Its headers; case does not matter.
    """
    names = {name.lower() for name in headers}
    return status in _WITHOUT_CONTENTS or bool(names & {"content-length", "transfer-encoding"})


class WholeAnswers(HTTPAdapter):
    """An adapter for `requests` that fails if the head of an answer was truncated."""

    def __init__(self) -> None:
        super().__init__(pool_maxsize=_CONNECTIONS)

    def build_response(self, req: Any, resp: Any) -> requests.Response:
        """Returns the answer.

        Raises:
          requests.ConnectionError: It was truncated.
        """
        if not is_whole(resp.status, resp.headers):
            resp.close()
            raise requests.ConnectionError("the answer ended within its head", request=req)
        return super().build_response(req, resp)
