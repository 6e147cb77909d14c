"""Google Cloud Storage."""

import contextlib
import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import requests

from my_datasets.dependencies import missing_dependency
from my_datasets.errors import AlreadyInStoreError, NotInStoreError, StoreError
from my_datasets.printable import PrintableError
from my_datasets.storage.backends.bucket import PART_BYTES, SHA256, TIMEOUT, BucketStore
from my_datasets.storage.backends.http import WholeAnswers
from my_datasets.storage.store import (
    OnBytes,
    StoredFile,
    already_there,
    altered,
    changed,
    ignore_bytes,
    no_answer,
    no_file,
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


class GcsStore(BucketStore):
    """A folder of a bucket; see `Store`.

    Credentials come from where Google's libraries look for them; `anonymous` uses none.
    """

    _scheme = "gs"

    def __init__(self, bucket: str, folder: str = "", *, anonymous: bool = False) -> None:
        super().__init__(bucket, folder)
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

    def stat(self, path: str) -> StoredFile:
        with self._explained(path):
            blob = self._bucket.get_blob(self._key(path), timeout=TIMEOUT)
        if blob is None:
            raise no_file(self.url, path)
        return self._stored(blob)

    def list(self, folder: str) -> Iterator[StoredFile]:
        prefix = self._prefix(folder)
        with self._explained(folder):
            for blob in self._client.list_blobs(self._bucket, prefix=prefix, timeout=TIMEOUT):
                if not blob.name.endswith("/"):  # placeholders that consoles create for folders
                    yield self._stored(blob)

    def read(self, path: str, begin: int = 0, end: int | None = None) -> Iterator[bytes]:
        blob = self._bucket.blob(self._key(path))
        while end is None or begin < end:
            until = begin + PART_BYTES if end is None else min(begin + PART_BYTES, end)
            with self._explained(path):
                try:
                    data = blob.download_as_bytes(
                        start=begin,
                        end=until - 1,
                        raw_download=True,
                        timeout=TIMEOUT,
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
                    raise no_answer(self.url, path, "a file ended early")
                return

    def state(self, path: str, most: int) -> tuple[bytes, str]:
        try:
            return self._state(path, most)
        except AlreadyInStoreError as error:
            raise no_answer(self.url, path, "it was replaced in the meantime") from error

    def _state(self, path: str, most: int) -> tuple[bytes, str]:
        with self._explained(path):
            blob = self._bucket.get_blob(self._key(path), timeout=TIMEOUT)
            if blob is None:
                raise no_file(self.url, path)
            if blob.size > most:
                raise too_large(path, most)
            # Of that generation, whatever is written in the meantime.
            data = blob.download_as_bytes(
                if_generation_match=blob.generation, raw_download=True, timeout=TIMEOUT
            )
            if len(data) < blob.size:
                raise no_answer(self.url, path, "a file ended early")
        return data, str(blob.generation)

    def create(
        self, path: str, source: Path | bytes, sha256: str, on_bytes: OnBytes = ignore_bytes
    ) -> None:
        blob = self._bucket.blob(self._key(path))
        blob.metadata = {SHA256: sha256}
        try:
            opened = io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")
        except OSError as error:
            raise unreadable(source, error) from error
        with opened:
            file = _HashedFile(opened, sha256, on_bytes)
            if file.size > PART_BYTES:
                blob.chunk_size = PART_BYTES
            try:
                with self._in_bucket(), self._explained(path):
                    blob.upload_from_file(
                        file, size=file.size, content_type="application/octet-stream",
                        if_generation_match=0, checksum="crc32c", timeout=TIMEOUT,
                    )  # fmt: skip
            except BaseException as error:
                file.take_back_report()
                if isinstance(error, _AlteredError):
                    raise altered(source, sha256, file.found) from error
                raise

    def replace(self, path: str, data: bytes, tag: str | None) -> str:
        blob = self._bucket.blob(self._key(path))
        blob.cache_control = "no-cache"
        try:
            with self._in_bucket(), self._explained(path):
                blob.upload_from_string(
                    data, "application/json", if_generation_match=int(tag or 0), checksum="crc32c",
                    timeout=TIMEOUT,
                )  # fmt: skip
        except AlreadyInStoreError as error:
            raise changed(self.url, path) from error
        return str(blob.generation)

    def _copy(self, source: str, target: str) -> None:
        original, blob = (self._bucket.blob(self._key(path)) for path in (source, target))
        token = None
        # By another process, in the meantime.
        with contextlib.suppress(AlreadyInStoreError), self._explained(source):
            while True:
                token, _, _ = blob.rewrite(original, token, if_generation_match=0, timeout=TIMEOUT)
                if token is None:
                    return

    def delete(self, path: str) -> None:
        with contextlib.suppress(NotInStoreError), self._explained(path):
            self._bucket.blob(self._key(path)).delete(timeout=TIMEOUT)

    def _stored(self, blob: Any) -> StoredFile:
        modified = blob.updated.timestamp() if blob.updated else 0.0
        sha256 = (blob.metadata or {}).get(SHA256)
        return StoredFile(self._path(blob.name), blob.size, modified, sha256)

    @contextlib.contextmanager
    def _in_bucket(self) -> Iterator[None]:
        """If a write fails because something is missing, the bucket is missing."""
        try:
            yield
        except NotInStoreError as error:
            raise self._no_bucket() from error

    @contextlib.contextmanager
    def _explained(self, path: str) -> Iterator[None]:
        try:
            yield
        except failures.NotFound as error:
            raise no_file(self.url, path) from error
        except (failures.PreconditionFailed, failures.Conflict) as error:
            raise already_there(self.url, path) from error
        except (
            failures.ServerError, failures.TooManyRequests, failures.RetryError,
            requests.RequestException, ConnectionError, auth_failures.TransportError,
            storage.exceptions.DataCorruption, storage.exceptions.InvalidResponse,
        ) as error:  # fmt: skip
            raise no_answer(self.url, path, type(error).__name__) from error
        except (failures.GoogleAPICallError, auth_failures.GoogleAuthError) as error:
            raise StoreError(
                f"{self.url} refuses: {type(error).__name__}.",
                f"It was about {path}",
                fix="see that the credentials allow it",
            ) from error


class _AlteredError(PrintableError):
    """A file has unexpected contents; its last piece was withheld."""


class _HashedFile:
    """A file that is hashed as it is read, and withholds its last piece if the hash is wrong."""

    def __init__(self, file: Any, expected: str, on_bytes: OnBytes) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self._hashed = 0
        self._reported = 0
        self._on_bytes = on_bytes
        self.size = file.seek(0, 2)
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
        self._on_bytes(end - self._reported)
        self._reported = end
        if self._hashed == self.size and self.found != self.expected:
            raise _AlteredError
        return data

    def take_back_report(self) -> None:
        self._on_bytes(-self._reported)
        self._reported = 0
