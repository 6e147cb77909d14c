"""Leases: the right to do something in a store, which ends by itself when its holder dies."""

import itertools
import json
import platform
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from my_datasets.core.logs import get_logger
from my_datasets.errors import (
    BuildInterruptedError,
    ChangedInStoreError,
    NotInStoreError,
    StoreError,
)
from my_datasets.storage.retry import compare_and_swap
from my_datasets.storage.store import Store

_LOGGER = get_logger(__name__)

# Seconds between two renewals of a lease, and without a renewal until it expires. Each waiting
# process measures them by its own clock.
RENEWAL_SECONDS = 15.0
EXPIRY_SECONDS = 90.0
_POLL_SECONDS = 1.0
_MOST_BYTES = 4096


class Lease:
    """A lease that is held as long as its thread can renew it in the store.

    `holder` says who holds it: the machine, a name of the place there, and a random mark.
    """

    def __init__(self, store: Store, path: str, holder: dict[str, Any]) -> None:
        """Waits until no other process holds the lease, takes it, and starts renewing it."""
        self._store, self._path, self._holder = store, path, holder
        self._is_lost = False
        self._write(self._wait_until_free)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"lease on {path}", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Checks that the lease is still held, before a step that requires it.

        Raises:
          BuildInterruptedError: Another process may have taken it.
        """
        if self._is_lost or _now() - self._renewed >= EXPIRY_SECONDS:
            raise BuildInterruptedError(
                f"Another process may have taken over {self._path} of {self._store.url}.",
                "This process could not renew its lease in time.",
                "Finished work is kept.",
                fix="run the same again",
            )

    def end(self) -> None:
        """Releases the lease."""
        self._ended.set()
        self._thread.join()
        with suppress(StoreError):
            if not self._is_lost:
                self._read_own()
                self._store.delete(self._path)

    def _run(self) -> None:
        while not self._ended.wait(RENEWAL_SECONDS):
            try:
                self._write(self._read_own)
            except (ChangedInStoreError, NotInStoreError):
                self._is_lost = True
                return
            except StoreError as error:
                _LOGGER.warning("The lease %s was not renewed: %s", self._path, error)

    def _write(self, read: Callable[[], tuple[dict[str, Any], str | None]]) -> None:
        began = 0.0

        def renewed(_: dict[str, Any]) -> dict[str, Any]:
            nonlocal began
            began = _now()
            self._holder = {**self._holder, "count": self._holder["count"] + 1}
            return self._holder

        compare_and_swap(
            self._store, self._path, read, renewed, lambda holder: json.dumps(holder).encode(),
            attempts=itertools.count(),
        )  # fmt: skip
        self._renewed = began

    def _read_own(self) -> tuple[dict[str, Any], str]:
        """Returns the lease in the store with its tag.

        Raises:
          ChangedInStoreError: Another process has written it.
          NotInStoreError: Another process has removed it.
        """
        data, tag = self._store.state(self._path, _MOST_BYTES)
        found = _parsed(data)
        if found.get("mark") != self._holder["mark"]:
            raise ChangedInStoreError(
                f"{self._path} belongs to another process.", fix="run the same again later"
            )
        return found, tag

    def _wait_until_free(self) -> tuple[dict[str, Any], str | None]:
        seen: str | None = None
        since = 0.0
        while True:
            try:
                data, tag = self._store.state(self._path, _MOST_BYTES)
            except NotInStoreError:
                return {}, None
            found = _parsed(data)
            if all(found.get(name) == self._holder[name] for name in ("machine", "place")):
                return found, tag
            if tag != seen:
                if seen is None:
                    where = found.get("machine", "an unknown machine")
                    _LOGGER.warning("Waiting for %s: a process on %s holds it.", self._path, where)
                seen, since = tag, _now()
            if _now() - since >= EXPIRY_SECONDS:
                _LOGGER.warning(
                    "%s was not renewed for %.0f seconds: taking it.", self._path, EXPIRY_SECONDS
                )
                return found, tag
            time.sleep(_POLL_SECONDS)


@contextmanager
def hold(store: Store, path: str, place: str) -> Iterator[Lease]:
    """Holds a lease in a file; waits while another process holds it.

    `place` names, on this machine, work that only one process does at a time: a lease with the same
    machine and place belongs to a process that died.
    """
    mark = secrets.token_hex(8)
    lease = Lease(
        store, path, {"machine": platform.node(), "place": place, "mark": mark, "count": 0}
    )
    try:
        yield lease
    finally:
        lease.end()


def _now() -> float:
    """Returns seconds by a clock that also runs while this machine is suspended.

    `time.monotonic` stops then on Linux, so a resumed process would take its lease for fresh.
    """
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def _parsed(data: bytes) -> dict[str, Any]:
    """Returns what a lease says; nothing if it is not one."""
    with suppress(ValueError, RecursionError):
        found = json.loads(data)
        if isinstance(found, dict):
            return found
    return {}
