"""Files that take the place of others, in stores that only create them."""

from pathlib import Path

from my_datasets.errors import AlreadyInStoreError, NotInStoreError
from my_datasets.storage.store import Store


def put(store: Store, path: str, source: Path | bytes, sha256: str) -> None:
    """Writes a file; one with other contents, which nobody relies on, is removed before.

    Of several that write one name at the same time, all succeed, and the file of one stays.

    Args:
      store: The store.
      path: The file.
      source: A file on this machine, or the contents.
      sha256: That of the contents, in hexadecimal.

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
