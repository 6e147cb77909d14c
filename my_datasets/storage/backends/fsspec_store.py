"""Read-only stores through fsspec: Azure, Hugging Face, SFTP, WebDAV and so on."""

import contextlib
from collections.abc import Iterator

import fsspec

from my_datasets.errors import StoreError
from my_datasets.storage.store import (
    BLOCK,
    ReadOnlyStore,
    StoredFile,
    no_answer,
    no_file,
    too_large,
)


class OtherStore(ReadOnlyStore):
    """A folder of any file system of fsspec's; see `Store`.

    None of them guarantees the conditional writes that publishing needs, so they are read-only.
    Credentials come from where the backend looks for them.
    """

    def __init__(self, url: str) -> None:
        """Takes the address, such as `abfs://CONTAINER/FOLDER`.

        Raises:
          StoreError: There is no such file system, or its backend is not installed.
        """
        super().__init__(url)
        try:
            self._system, self._root = fsspec.core.url_to_fs(self._url)
        except (ImportError, ValueError) as error:
            raise StoreError(
                f"{url} cannot be read here.",
                f"fsspec says: {error}",
                fix="correct the address, or install the fsspec backend for it (adlfs, "
                "huggingface_hub, sshfs, ...)",
            ) from error

    def stat(self, path: str) -> StoredFile:
        with self._explained(path):
            found = self._system.info(self._full(path))
            if found["type"] != "file":
                raise FileNotFoundError
            return StoredFile(path, int(found["size"]))

    def list(self, folder: str) -> Iterator[StoredFile]:
        root = f"{self._root.rstrip('/')}/"
        with self._explained(folder):
            found = self._system.find(self._full(folder), detail=True)
        for full, one in found.items():
            yield StoredFile(full.removeprefix(root), int(one["size"]))

    def read(self, path: str, begin: int = 0, end: int | None = None) -> Iterator[bytes]:
        size = self.stat(path).bytes
        end = size if end is None else min(end, size)
        while begin < end:
            until = min(begin + BLOCK, end)
            with self._explained(path):
                data = self._system.cat_file(self._full(path), start=begin, end=until)
            if len(data) != until - begin:
                raise no_answer(self.url, path, f"{len(data)} of {until - begin} bytes came")
            begin = until
            yield data

    def state(self, path: str, most: int) -> tuple[bytes, str]:
        if self.stat(path).bytes > most:
            raise too_large(path, most)
        with self._explained(path):
            return self._system.cat_file(self._full(path)), ""

    def _full(self, path: str) -> str:
        return f"{self._root.rstrip('/')}/{path}"

    @contextlib.contextmanager
    def _explained(self, path: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise no_file(self.url, path) from error
        except PermissionError as error:
            raise StoreError(
                f"{self.url} refuses.",
                f"It was about {path}",
                fix="see that the credentials allow it",
            ) from error
        except (StoreError, MemoryError):
            raise
        except Exception as error:  # any error of the backend's own library
            raise no_answer(self.url, path, type(error).__name__) from error


def is_known(scheme: str) -> bool:
    """Returns whether fsspec knows file systems of a scheme, installed or not."""
    return scheme in fsspec.available_protocols()
