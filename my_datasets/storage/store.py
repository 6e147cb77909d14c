"""Stores: files under names, which appear whole, and few of which are replaced.

`open_store` opens the one at an address. If you write a store of your own, `Store` says what it
must do, and `my_datasets.testing.store_contract` tests all of it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from my_datasets.errors import (
    AlreadyInStoreError,
    ChangedInStoreError,
    ChecksumError,
    NotInStoreError,
    StoreError,
    StoreUnavailableError,
)

# The file that marks a folder as a store of releases.
MARK = "my-datasets/store.json"
# Called with the number of transferred bytes; negative if they must be transferred again.
OnBytes = Callable[[int], None]
BLOCK = 1 << 20
# In directories: the folder for files that are being written.
HALF_WRITTEN = "my-datasets/half-written"


def ignore_bytes(count: int) -> None:
    """No-op progress callback."""


@dataclass(frozen=True)
class StoredFile:
    """A file in a store.

    Attributes:
      path: Its name in the store: parts separated by `/`, such as `digits/1.0.0/features.json`.
      bytes: Its size.
      modified: When it was written, in seconds since 1970, by the store's clock; 0 if unknown.
      sha256: Of its contents, in hexadecimal; None if the store does not know it without reading
        the file.
    """

    path: str
    bytes: int
    modified: float = 0.0
    sha256: str | None = None


class Store(Protocol):
    """Files under names.

    Any number of threads and processes may use a store at the same time, and any of them may die at
    any instant. All methods raise `StoreUnavailableError` if a retry may help, and `StoreError` for
    permanent errors: permissions, wrong addresses. No message contains credentials.
    """

    @property
    def url(self) -> str:
        """Its address, without credentials."""

    @property
    def is_writable(self) -> bool:
        """Whether the store supports writing at all."""

    def stat(self, path: str) -> StoredFile:
        """Returns what is known of a file without reading it.

        Raises:
          NotInStoreError: There is none.
        """

    def list(self, folder: str) -> Iterator[StoredFile]:
        """Yields all files below a folder, in any order; none if there is no such folder.

        Raises:
          StoreError: Stores of this kind cannot be listed.
        """

    def read(self, path: str, begin: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yields the contents of a file, piece by piece.

        Args:
          path: The file.
          begin: The first byte to read; at most the size.
          end: The byte before which to stop; None for the end of the file.

        Raises:
          NotInStoreError: There is none.
          StoreUnavailableError: The response ended early. The bytes yielded so far are correct.
        """

    def state(self, path: str, most: int) -> tuple[bytes, str]:
        """Returns the contents of a small file, and a tag for `replace`.

        Args:
          path: The file.
          most: How many bytes it may have.

        Raises:
          NotInStoreError: There is none.
          StoreError: It is larger.
        """

    def create(
        self, path: str, source: Path | bytes, sha256: str, on_bytes: OnBytes = ignore_bytes
    ) -> None:
        """Writes a new file: whole and durable, or not at all.

        If several writers write one name at the same time, one succeeds.

        Args:
          path: The file.
          source: A file on this machine, or the contents.
          sha256: That of the contents, in hexadecimal.
          on_bytes: Called with the number of bytes as they are sent.

        Raises:
          AlreadyInStoreError: The file exists, whatever its contents.
          ChecksumError: The source has other contents than its SHA-256 says; nothing is written.
        """

    def replace(self, path: str, data: bytes, tag: str | None) -> str:
        """Replaces a small file atomically, unless it changed in the meantime.

        Args:
          path: The file.
          data: Its new contents.
          tag: The tag of the contents to replace, from `state`; None if the file must not exist.

        Returns:
          The new tag.

        Raises:
          ChangedInStoreError: It has other contents, or is gone; or it exists, and `tag` is None.
        """

    def move(self, source: str, target: str, last: Sequence[str]) -> None:
        """Moves the files of a folder; those in `last` are moved last, in that order.

        If the store can rename a folder, all files appear at once. If it is interrupted, the same
        call completes it, even from several processes at the same time; once complete, it does
        nothing. Files already in the target stay as they are.

        Args:
          source: The folder, with files only.
          target: The target folder, which does not exist yet, or has some of the same files.
          last: Names of files.
        """

    def delete(self, path: str) -> None:
        """Deletes a file, if it exists."""


def no_file(url: str, path: str) -> NotInStoreError:
    """Returns the error for a file that is not in a store."""
    return NotInStoreError(f"{url} has no file {path}.", fix="see my-datasets ls")


def already_there(url: str, path: str) -> AlreadyInStoreError:
    """Returns the error for an attempt to create a file that exists."""
    return AlreadyInStoreError(f"{path} is in {url} already.", fix="choose another name")


def changed(url: str, path: str) -> ChangedInStoreError:
    """Returns the error for an attempt to replace contents that are not there any more."""
    return ChangedInStoreError(
        f"{path} in {url} was changed by another process.", fix="run the same again"
    )


def no_answer(url: str, path: str, found: str, check: str = "the network") -> StoreUnavailableError:
    """Returns the error for a request that may succeed later; `check` says what to check."""
    return StoreUnavailableError(
        f"{url} does not answer, or not well.",
        f"It was about {path}: {found}",
        fix=f"check {check}, then run the same again",
    )


def read_only(url: str) -> StoreError:
    """Returns the error for an attempt to write to a read-only store."""
    return StoreError(
        f"{url} can only be read.", fix="publish to the directory or bucket that is served there"
    )


def too_large(path: str, most: int) -> StoreError:
    """Returns the error for a file that exceeds its size limit."""
    return StoreError(
        f"{path} is larger than any such file is.",
        f"Expected: at most {most:,} bytes",
        fix="look what it is; it was not written by my_datasets",
    )


def altered(source: Path | bytes, expected: str, found: str) -> ChecksumError:
    """Returns the error for a source whose contents do not match its SHA-256."""
    name = str(source) if isinstance(source, Path) else "What is written"
    return ChecksumError(
        f"{name} changed while it was copied, or is damaged.",
        f"Expected: SHA-256 {expected}",
        f"Found: {found}",
        fix="run my-datasets verify, and make sure that no process writes there",
    )


def unreadable(source: object, error: OSError) -> StoreError:
    """Returns the error for a source that cannot be read."""
    return StoreError(
        f"{source} cannot be read.",
        f"The system said: {error.strerror or error}",
        fix="make sure that it is not removed and that it can be read",
    )


class ReadOnlyStore:
    """Base class of read-only stores, whose methods that write raise `StoreError`; see `Store`."""

    is_writable = False

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def url(self) -> str:
        """The store's address."""
        return self._url

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise read_only(self.url)

    create = replace = move = delete = _refuse
