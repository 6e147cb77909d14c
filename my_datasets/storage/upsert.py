"""Replaces files in stores that only create files."""

from pathlib import Path

from my_datasets.errors import AlreadyInStoreError, NotInStoreError
from my_datasets.storage.store import Store


def put(store: Store, path: str, source: Path | bytes, sha256: str) -> None:
    """Writes a file after removing one with other contents, which no reader may rely on.

    If several writers write one name at the same time, all succeed, and one file remains.

    Args:
      store: The store.
      path: The file.
      source: A file on this machine, or the contents.
      sha256: The SHA-256 of the contents, in hexadecimal.

    Raises:
      StoreError: The store cannot be used.
    """
    while True:
        try:
            store.create(path, source, sha256)
            return
        except AlreadyInStoreError:
            if _sha256(store, path) == sha256:
                return
            store.delete(path)


def _sha256(store: Store, path: str) -> str | None:
    try:
        return store.stat(path).sha256
    except NotInStoreError:
        return None
