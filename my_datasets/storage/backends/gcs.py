"""Google Cloud Storage."""

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import requests

from my_datasets.dependencies import missing_dependency
from my_datasets.errors import (
    AlreadyInStoreError,
    ChangedInStoreError,
    NotInStoreError,
    StoreError,
    StoreUnavailableError,
)
from my_datasets.printable import PrintableError
from my_datasets.storage import server_copy
from my_datasets.storage.retry import WholeAnswers
from my_datasets.storage.store import (
    OnBytes,
    StoredFile,
    altered,
    ignore_bytes,
    too_large,
    unreadable,
)

try:
    from google.api_core import exceptions as failures
    from google.auth import exceptions as auth_failures
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage
except ModuleNotFoundError as missing:
    needed = "google.cloud.storage"
    raise missing_dependency(needed, needed_for="stores in Google's cloud") from missing

_SHA256 = "sha256"
_PIECE = 16 << 20
_TIMEOUT = (15.0, 60.0)


class GcsStore:
    """A folder of a bucket; see `Store`.

    Credentials come from where Google's libraries look for them; `anonymous` uses none.
    """

    def __init__(self, bucket: str, folder: str = "", *, anonymous: bool = False) -> None:
        """Looks for credentials."""
        self._folder = folder.strip("/")
        self._name = bucket
        credentials = AnonymousCredentials() if anonymous else None
        try:
            self._client: Any = storage.Client(project="my-datasets", credentials=credentials)
        except auth_failures.GoogleAuthError as error:
            raise StoreError(
                f"There are no credentials for gs://{bucket}.",
                fix="run gcloud auth application-default login, or write gs://anonymous@"
                f"{bucket} for what everybody may read",
            ) from error
        for scheme in ("https://", "http://"):
            self._client._http.mount(scheme, WholeAnswers())
        self._bucket: Any = self._client.bucket(bucket)

    def __repr__(self) -> str:
        return f"GcsStore({self.url!r})"

    @property
    def url(self) -> str:
        return f"gs://{self._name}/{self._folder}".rstrip("/")

    @property
    def is_writable(self) -> bool:
        return True

    def stat(self, path: str) -> StoredFile:
        with self._explained(path):
            blob = self._bucket.get_blob(self._key(path), timeout=_TIMEOUT)
        if blob is None:
            raise self._missing(path)
        return self._stored(blob)

    def list(self, folder: str) -> Iterator[StoredFile]:
        prefix = f"{self._key(folder)}/" if self._key(folder) else ""
        with self._explained(folder):
            for blob in self._client.list_blobs(self._bucket, prefix=prefix, timeout=_TIMEOUT):
                if not blob.name.endswith("/"):  # placeholders that consoles create for folders
                    yield self._stored(blob)

    def read(self, path: str, begin: int = 0, end: int | None = None) -> Iterator[bytes]:
        blob = self._bucket.blob(self._key(path))
        while end is None or begin < end:
            until = begin + _PIECE if end is None else min(begin + _PIECE, end)
            with self._explained(path):
                try:
                    data = blob.download_as_bytes(
                        start=begin,
                        end=until - 1,
                        raw_download=True,
                        timeout=_TIMEOUT,
                        checksum=None,  # which a part has none of
                    )
                except failures.RequestRangeNotSatisfiable:
                    return  # from its end on there is nothing
            begin += len(data)
            if data:
                yield data
            if begin < until:
                # Google's library takes a truncated response for the end of the file.
                if begin < self.stat(path).bytes:
                    raise self._silent(path, "a file ended early")
                return

    def state(self, path: str, most: int) -> tuple[bytes, str]:
        try:
            return self._state(path, most)
        except AlreadyInStoreError as error:
            raise self._silent(path, "it was replaced in the meantime") from error

    def _state(self, path: str, most: int) -> tuple[bytes, str]:
        with self._explained(path):
            blob = self._bucket.get_blob(self._key(path), timeout=_TIMEOUT)
            if blob is None:
                raise self._missing(path)
            if blob.size > most:
                raise too_large(path, most)
            # Of that generation, whatever is written in the meantime.
            data = blob.download_as_bytes(
                if_generation_match=blob.generation, raw_download=True, timeout=_TIMEOUT
            )
            if len(data) < blob.size:
                raise self._silent(path, "a file ended early")
        return data, str(blob.generation)

    def create(
        self, path: str, source: Path | bytes, sha256: str, on_bytes: OnBytes = ignore_bytes
    ) -> None:
        blob = self._bucket.blob(self._key(path))
        blob.metadata = {_SHA256: sha256}
        if isinstance(source, bytes):
            found = hashlib.sha256(source).hexdigest()
            if found != sha256:
                raise altered(source, sha256, found)
            with self._in_bucket(), self._explained(path):
                blob.upload_from_string(
                    source, "application/octet-stream", if_generation_match=0,
                    checksum="crc32c", timeout=_TIMEOUT,
                )  # fmt: skip
            on_bytes(len(source))
            return
        try:
            file = source.open("rb")
        except OSError as error:
            raise unreadable(source, error) from error
        with file:
            self._create_from(blob, path, source, _Hashed(file, sha256, on_bytes))

    def _create_from(self, blob: Any, path: str, source: Path, file: "_Hashed") -> None:
        size = source.stat().st_size
        if size > _PIECE:
            blob.chunk_size = _PIECE
        try:
            with self._in_bucket(), self._explained(path):
                blob.upload_from_file(
                    file, size=size, content_type="application/octet-stream",
                    if_generation_match=0, checksum="crc32c", timeout=_TIMEOUT,
                )  # fmt: skip
        except _AlteredError as error:
            file.untell()
            raise altered(source, file.expected, file.found) from error
        except BaseException:
            file.untell()
            raise

    def replace(self, path: str, data: bytes, tag: str | None) -> str:
        blob = self._bucket.blob(self._key(path))
        blob.cache_control = "no-cache"
        try:
            with self._in_bucket(), self._explained(path):
                blob.upload_from_string(
                    data, "application/json", if_generation_match=int(tag or 0), checksum="crc32c",
                    timeout=_TIMEOUT,
                )  # fmt: skip
        except AlreadyInStoreError as error:
            raise ChangedInStoreError(
                f"{path} in {self.url} was changed by another process.", fix="run the same again"
            ) from error
        return str(blob.generation)

    def move(self, source: str, target: str, last: Sequence[str]) -> None:
        server_copy.move(self, self._copy, source, target, last)

    def _copy(self, source: str, target: str) -> None:
        original, blob = (self._bucket.blob(self._key(path)) for path in (source, target))
        token = None
        # By another process, in the meantime.
        with contextlib.suppress(AlreadyInStoreError), self._explained(source):
            while True:
                token, _, _ = blob.rewrite(original, token, if_generation_match=0, timeout=_TIMEOUT)
                if token is None:
                    return

    def delete(self, path: str) -> None:
        with contextlib.suppress(NotInStoreError), self._explained(path):
            self._bucket.blob(self._key(path)).delete(timeout=_TIMEOUT)

    def _stored(self, blob: Any) -> StoredFile:
        path = blob.name.removeprefix(f"{self._folder}/" if self._folder else "")
        modified = blob.updated.timestamp() if blob.updated else 0.0
        return StoredFile(path, blob.size, modified, (blob.metadata or {}).get(_SHA256))

    def _key(self, path: str) -> str:
        return "/".join(filter(None, (self._folder, path.strip("/"))))

    def _missing(self, path: str) -> NotInStoreError:
        return NotInStoreError(f"{self.url} has no file {path}.", fix="see my-datasets ls")

    def _silent(self, path: str, found: str) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"{self.url} does not answer, or not well.",
            f"It was about {path}: {found}",
            fix="check the network, then run the same again",
        )

    @contextlib.contextmanager
    def _in_bucket(self) -> Iterator[None]:
        """If a write fails because something is missing, the bucket is missing."""
        try:
            yield
        except NotInStoreError as error:
            raise StoreError(
                f"There is no bucket {self._name}.", fix="make it, or correct its name"
            ) from error

    @contextlib.contextmanager
    def _explained(self, path: str) -> Iterator[None]:
        try:
            yield
        except failures.NotFound as error:
            raise self._missing(path) from error
        except (failures.PreconditionFailed, failures.Conflict) as error:
            raise AlreadyInStoreError(
                f"{path} is in {self.url} already.", fix="choose another name"
            ) from error
        except (
            failures.ServerError, failures.TooManyRequests, failures.RetryError,
            requests.RequestException, ConnectionError, auth_failures.TransportError,
            storage.exceptions.DataCorruption, storage.exceptions.InvalidResponse,
        ) as error:  # fmt: skip
            raise self._silent(path, type(error).__name__) from error
        except (failures.GoogleAPICallError, auth_failures.GoogleAuthError) as error:
            raise StoreError(
                f"{self.url} refuses: {type(error).__name__}.",
                f"It was about {path}",
                fix="see that the credentials allow it",
            ) from error


class _AlteredError(PrintableError):
    """A file has unexpected contents; its last piece was withheld."""


class _Hashed:
    """A file that is hashed as it is read, and withholds its last piece if the hash is wrong."""

    def __init__(self, file: Any, expected: str, on_bytes: OnBytes) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self._hashed = 0
        self._told = 0
        self._on_bytes = on_bytes
        self._size = file.seek(0, 2)
        file.seek(0)
        self.expected = expected

    @property
    def found(self) -> str:
        return self._hash.hexdigest()

    def tell(self) -> int:
        return int(self._file.tell())

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._file.seek(offset, whence))

    def read(self, size: int = -1) -> bytes:
        begin = self._file.tell()
        data: bytes = self._file.read(size)
        end = begin + len(data)
        # Bytes that are sent again are not hashed again.
        if begin <= self._hashed < end:
            self._hash.update(data[self._hashed - begin :])
            self._hashed = end
        self._on_bytes(end - self._told)
        self._told = end
        if self._hashed == self._size and self.found != self.expected:
            raise _AlteredError
        return data

    def untell(self) -> None:
        self._on_bytes(-self._told)
        self._told = 0
