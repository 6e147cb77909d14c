"""Amazon S3, and stores with its protocol."""

import base64
import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from my_datasets.dependencies import missing_dependency
from my_datasets.errors import (
    AlreadyInStoreError,
    NotInStoreError,
    StoreError,
    StoreUnavailableError,
)
from my_datasets.storage.backends.bucket import PART_BYTES, SHA256, TIMEOUT, BucketStore
from my_datasets.storage.backends.http import is_whole
from my_datasets.storage.store import (
    BLOCK,
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
    import boto3
    from boto3.s3.transfer import TransferConfig
    from botocore import UNSIGNED
    from botocore import exceptions as failures
    from botocore.config import Config
    from botocore.response import StreamingBody
except ModuleNotFoundError as missing:
    raise missing_dependency(missing.name or "boto3", needed_for="stores in S3") from missing

# Size up to which a file is copied within the store in one request. S3 allows 5 GiB; this takes
# seconds.
_LARGEST_COPY = 1 << 30
# S3 takes parts of 5 MiB to 5 GiB, 10,000 at most.
_MOST_PARTS = 10_000
_CONNECTIONS = 32
_MISSING = frozenset({"404", "NoSuchKey", "NotFound"})
_CHANGED = frozenset({"412", "PreconditionFailed", "409", "ConditionalRequestConflict"})
# Errors that boto3 has already retried; retrying for longer may still help.
_PASSING = frozenset({
    "500", "502", "503", "504", "InternalError", "ServiceUnavailable", "SlowDown", "Throttling",
    "RequestTimeout", "RequestTimeTooSkewed", "OperationAborted", "429", "TooManyRequests",
})  # fmt: skip


class S3Store(BucketStore):
    """A folder of a bucket; see `Store`.

    Credentials and the endpoint come from where boto3 looks for them: the environment, the
    configuration of AWS's tools, the machine's role.
    """

    _scheme = "s3"

    def __init__(
        self, bucket: str, folder: str = "", *, part: int = PART_BYTES, anonymous: bool = False
    ) -> None:
        """Connects on the first request.

        Files of `part` bytes or more are uploaded in parts of that size. `anonymous` uses no
        credentials, for public data.
        """
        super().__init__(bucket, folder)
        self._part = part
        config = Config(
            retries={"mode": "standard", "max_attempts": 3},
            connect_timeout=TIMEOUT[0], read_timeout=TIMEOUT[1],
            max_pool_connections=_CONNECTIONS,
            # Only the checksums that we request: not all servers support newer ones.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            **({"signature_version": UNSIGNED} if anonymous else {}),
        )  # fmt: skip
        # A session of its own: the default one is not made for threads.
        self._client: Any = boto3.session.Session().client("s3", config=config)
        self._client.meta.events.register("before-parse.s3", self._refuse_cut)

    def stat(self, path: str) -> StoredFile:
        with self._explained(path):
            found = self._client.head_object(Bucket=self._bucket_name, Key=self._key(path))
            self._require(found, "ContentLength", "LastModified", "Metadata")
        return StoredFile(
            path, found["ContentLength"], found["LastModified"].timestamp(),
            found["Metadata"].get(SHA256),
        )  # fmt: skip

    def list(self, folder: str) -> Iterator[StoredFile]:
        pages = self._client.get_paginator("list_objects_v2")
        with self._explained(folder):
            for page in pages.paginate(Bucket=self._bucket_name, Prefix=self._prefix(folder)):
                self._require(page, "IsTruncated")
                for one in page.get("Contents", ()):
                    path = self._path(one["Key"])
                    if not path.endswith("/"):  # placeholders that consoles create for folders
                        yield StoredFile(path, one["Size"], one["LastModified"].timestamp())

    def read(self, path: str, begin: int = 0, end: int | None = None) -> Iterator[bytes]:
        if end is not None and end <= begin:
            return
        wanted = f"bytes={begin}-{'' if end is None else end - 1}"
        with self._explained(path):
            try:
                found = self._client.get_object(
                    Bucket=self._bucket_name,
                    Key=self._key(path),
                    **({"Range": wanted} if begin or end else {}),
                )
            except failures.ClientError as error:
                if error.response["Error"]["Code"] in ("InvalidRange", "416"):
                    return  # from its end on there is nothing
                raise
            body: StreamingBody = found["Body"]
            with contextlib.closing(body):
                yield from body.iter_chunks(BLOCK)

    def state(self, path: str, most: int) -> tuple[bytes, str]:
        with self._explained(path):
            found = self._client.get_object(Bucket=self._bucket_name, Key=self._key(path))
            self._require(found, "ContentLength", "ETag")
            with contextlib.closing(found["Body"]) as body:
                data = body.read(most + 1) if found["ContentLength"] > most else body.read()
        if len(data) > most:
            raise too_large(path, most)
        return data, found["ETag"]

    def create(
        self, path: str, source: Path | bytes, sha256: str, on_bytes: OnBytes = ignore_bytes
    ) -> None:
        if isinstance(source, bytes):
            data = source
        else:
            try:
                size = source.stat().st_size
                if size > self._part:
                    with source.open("rb") as file, self._explained(path):
                        self._create_in_parts(path, source, file, size, sha256, on_bytes)
                    return
                data = source.read_bytes()
            except OSError as error:
                if isinstance(error, StoreError):
                    raise
                raise unreadable(source, error) from error
        found = hashlib.sha256(data).hexdigest()
        if found != sha256:
            raise altered(source, sha256, found)
        with self._explained(path):
            done = self._client.put_object(
                Bucket=self._bucket_name, Key=self._key(path), Body=data, IfNoneMatch="*",
                Metadata={SHA256: sha256}, ChecksumSHA256=_base64(sha256),
            )  # fmt: skip
            self._require(done, "ETag")
        on_bytes(len(data))

    def _create_in_parts(
        self, path: str, source: Path, file: Any, size: int, sha256: str, on_bytes: OnBytes
    ) -> None:
        where = {"Bucket": self._bucket_name, "Key": self._key(path)}
        part = max(self._part, -(-size // _MOST_PARTS))
        begun = self._client.create_multipart_upload(
            **where, Metadata={SHA256: sha256}, ChecksumAlgorithm="SHA256"
        )
        self._require(begun, "UploadId")
        upload = {**where, "UploadId": begun["UploadId"]}
        whole, reported = hashlib.sha256(), 0
        parts: list[dict[str, Any]] = []
        try:
            while data := file.read(part):
                whole.update(data)
                checksum = _base64(hashlib.sha256(data).hexdigest())
                number = len(parts) + 1
                done = self._client.upload_part(
                    **upload, PartNumber=number, Body=data, ChecksumSHA256=checksum
                )
                self._require(done, "ETag")
                parts.append(
                    {"PartNumber": number, "ETag": done["ETag"], "ChecksumSHA256": checksum}
                )
                reported += len(data)
                on_bytes(len(data))
            if whole.hexdigest() != sha256:
                raise altered(source, sha256, whole.hexdigest())
            done = self._client.complete_multipart_upload(
                **upload, MultipartUpload={"Parts": parts}, IfNoneMatch="*"
            )
            self._require(done, "ETag")
        except BaseException:
            on_bytes(-reported)
            with contextlib.suppress(failures.BotoCoreError, failures.ClientError):
                self._client.abort_multipart_upload(**upload)
            raise

    def replace(self, path: str, data: bytes, tag: str | None) -> str:
        condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
        try:
            with self._explained(path):
                done = self._client.put_object(
                    Bucket=self._bucket_name, Key=self._key(path), Body=data,
                    ContentType="application/json", CacheControl="no-cache", **condition,
                )  # fmt: skip
                self._require(done, "ETag")
        except (AlreadyInStoreError, NotInStoreError) as error:
            raise changed(self.url, path) from error
        return str(done["ETag"])

    def _copy(self, source: str, target: str) -> None:
        copy_source = {"Bucket": self._bucket_name, "Key": self._key(source)}
        with self._explained(source):
            # In parts, where it is too large for one request.
            config = TransferConfig(
                multipart_threshold=_LARGEST_COPY, multipart_chunksize=_LARGEST_COPY,
                use_threads=False,
            )  # fmt: skip
            self._client.copy(copy_source, self._bucket_name, self._key(target), Config=config)

    def delete(self, path: str) -> None:
        with self._explained(path):
            self._client.delete_object(Bucket=self._bucket_name, Key=self._key(path))

    def _refuse_cut(self, response_dict: dict[str, Any], **_: Any) -> None:
        if not is_whole(response_dict["status_code"], response_dict["headers"]):
            raise failures.ConnectionClosedError(endpoint_url=self.url)

    def _require(self, found: Mapping[str, Any], *fields: str) -> None:
        """Checks that an answer has the usual fields; otherwise its head was truncated."""
        if not all(field in found for field in fields):
            raise failures.ConnectionClosedError(endpoint_url=self.url)

    @contextlib.contextmanager
    def _explained(self, path: str) -> Iterator[None]:
        try:
            yield
        except failures.ClientError as error:
            raise self._translated(path, error) from error
        except (failures.NoCredentialsError, failures.PartialCredentialsError) as error:
            raise StoreError(
                f"There are no credentials for {self.url}.",
                fix="give them as AWS's own tools take them: aws configure, or "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            ) from error
        except (failures.BotoCoreError, ConnectionError) as error:
            found, check = type(error).__name__, "the network and the endpoint"
            raise no_answer(self.url, path, found, check) from error

    def _translated(self, path: str, error: failures.ClientError) -> StoreError:
        code = str(error.response["Error"].get("Code", ""))
        status = str(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", ""))
        if code == "NoSuchBucket":
            return self._no_bucket()
        if code in _MISSING or status == "404":
            return no_file(self.url, path)
        if code in _CHANGED or status in _CHANGED:
            return already_there(self.url, path)
        if code in _PASSING or status in _PASSING:
            return StoreUnavailableError(
                f"{self.url} cannot answer now: {code}.",
                f"It was about {path}",
                fix="run the same again later",
            )
        return StoreError(
            f"{self.url} refuses: {code}.",
            f"It was about {path}, status {status}",
            fix="see that the credentials allow it, and that the clock of this machine is right",
        )


def _base64(sha256: str) -> str:
    return base64.b64encode(bytes.fromhex(sha256)).decode()
