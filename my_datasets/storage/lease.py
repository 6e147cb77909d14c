"""Leases: the right to do something in a store, which ends by itself when its holder dies."""

import json
import platform
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from my_datasets.core.logs import get_logger
from my_datasets.errors import (
    BuildInterruptedError,
    ChangedInStoreError,
    NotInStoreError,
    StoreError,
)
from my_datasets.storage.store import Store

_LOGGER = get_logger(__name__)

# Seconds between two renewals of a lease, and without a renewal until it expires. Each waiting
# process measures them by its own clock.
EVERY = 15.0
BELIEVED = 90.0
_LOOK = 1.0
_MOST_BYTES = 4096


class Lease:
    """A lease that is held as long as its thread can renew it in the store."""

    def __init__(
        self, store: Store, path: str, said: dict[str, Any], tag: str, began: float
    ) -> None:
        """Starts renewing the lease.

        Args:
          store: The store.
          path: The lease's file.
          said: Who holds it.
          tag: That of the file.
          began: When its write began, by `_now`.
        """
        self._store, self._path = store, path
        self._said, self._tag = said, tag
        self._renewed = began
        self._is_lost = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"lease on {path}", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Checks that the lease is still held, before a step that requires it.

        Raises:
          BuildInterruptedError: Another process may have taken it.
        """
        if self._is_lost or _now() - self._renewed >= BELIEVED:
            raise BuildInterruptedError(
                f"Another process may have taken over {self._path} of {self._store.url}.",
                "This process could not renew its lease in time.",
                "Finished work is kept.",
                fix="run the same again",
            )

    def end(self) -> None:
        """Releases the lease."""
        self._over.set()
        self._thread.join()
        with suppress(StoreError):
            if not self._is_lost:
                self._tag_of_mine()  # not by the tag: the answer to the last renewal may be lost
                self._store.delete(self._path)

    def _run(self) -> None:
        while not self._over.wait(EVERY):
            try:
                while not self._is_renewed():
                    self._tag = self._tag_of_mine()
            except (ChangedInStoreError, NotInStoreError):
                self._is_lost = True
                return
            except StoreError as error:
                _LOGGER.warning("The lease %s was not renewed: %s", self._path, error)

    def _is_renewed(self) -> bool:
        began = _now()
        self._said["count"] += 1
        try:
            self._tag = self._store.replace(self._path, _written(self._said), self._tag)
        except ChangedInStoreError:
            return False
        self._renewed = began
        return True

    def _tag_of_mine(self) -> str:
        """Returns the tag of this lease's own write, whose response was lost.

        Raises:
          ChangedInStoreError: Another process has written it.
          NotInStoreError: Another process has removed it.
        """
        data, tag = self._store.state(self._path, _MOST_BYTES)
        with suppress(ValueError):
            if json.loads(data).get("mark") == self._said["mark"]:
                return tag
        raise ChangedInStoreError(
            f"{self._path} belongs to another process.", fix="run the same again later"
        )


@contextmanager
def held(store: Store, path: str, place: str) -> Iterator[Lease]:
    """Holds a lease; waits while another process holds it.

    Args:
      store: The store.
      path: The lease's file.
      place: A name, on this machine, for work that only one process does at a time. A lease with
        the same machine and place belongs to a process that died.

    Raises:
      StoreError: The store cannot be used.
    """
    said = {
        "machine": platform.node(), "place": place, "mark": secrets.token_hex(8), "count": 0,
    }  # fmt: skip
    lease = Lease(store, path, said, *_taken(store, path, said))
    try:
        yield lease
    finally:
        lease.end()


def _taken(store: Store, path: str, said: dict[str, Any]) -> tuple[str, float]:
    """Waits for a lease; returns its tag, and when its write began."""
    seen: str | None = None
    since = 0.0
    while True:
        try:
            data, tag = store.state(path, _MOST_BYTES)
        except NotInStoreError:
            tag = None
        if tag is not None and not _is_of_this_machine(data, said):
            if tag != seen:
                if seen is None:
                    _LOGGER.warning("Waiting for %s: %s", path, _holder_of(data))
                seen, since = tag, _now()
            if _now() - since < BELIEVED:
                time.sleep(_LOOK)
                continue
            _LOGGER.warning("%s was not renewed for %.0f seconds: taking it.", path, BELIEVED)
        began = _now()
        with suppress(ChangedInStoreError):
            return store.replace(path, _written(said), tag), began


def _now() -> float:
    """Returns seconds by a clock that also runs while this machine is suspended.

    `time.monotonic` stops then on Linux, so a resumed process would take its lease for fresh.
    """
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def _is_of_this_machine(data: bytes, said: dict[str, Any]) -> bool:
    with suppress(ValueError):
        other = json.loads(data)
        return all(other.get(name) == said[name] for name in ("machine", "place"))
    return False


def _holder_of(data: bytes) -> str:
    with suppress(ValueError):
        return f"it is held by a process on {json.loads(data).get('machine')}."
    return "another process holds it."


def _written(said: dict[str, Any]) -> bytes:
    return json.dumps(said).encode()
