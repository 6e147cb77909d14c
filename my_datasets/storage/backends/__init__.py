"""The kinds of stores, one module each: directories, S3, Google Cloud Storage, HTTP, fsspec."""

import os
import urllib.parse

from my_datasets.errors import StoreError
from my_datasets.storage import addresses
from my_datasets.storage.store import Store

_KNOWN = "a directory, s3://BUCKET/FOLDER, gs://..., http(s)://HOST/FOLDER, or what fsspec reads"


def open_store(address: "str | os.PathLike[str] | Store") -> Store:
    """Returns the store at an address, without sending a request yet.

    Args:
      address: A directory; or `s3://BUCKET/FOLDER`, `gs://BUCKET/FOLDER`,
        `gs://anonymous@BUCKET/FOLDER` (public data), `https://HOST/FOLDER`, `file:///FOLDER`, or
        another address that fsspec reads. A store is returned unchanged.

    Raises:
      StoreError: It is another kind of address, or has a password in it.
      MissingDependencyError: The extra for that kind of store is not installed.
    """
    if not isinstance(address, (str, os.PathLike)):
        return address
    text = os.fspath(address)
    if "://" not in text:
        return _local(addresses.path_or_address(text, "The store", None))
    try:
        parts = urllib.parse.urlsplit(text)
        host, user = parts.netloc.rpartition("@")[2], parts.username
    except ValueError as error:
        raise _unknown(addresses.parts_without_secrets(text)) from error
    is_anonymous = parts.scheme in ("gs", "s3") and user == "anonymous" and not parts.password
    if (parts.netloc != host and not is_anonymous) or parts.query or parts.fragment:
        raise StoreError(
            f"The address of a store on {host} has a name, password or token in it.",
            fix="give credentials by the environment or the configuration of the store's own "
            "tools, for HTTP by ~/.netrc",
        )
    if parts.scheme == "file":
        return _local(urllib.parse.unquote(parts.path))
    if not host:
        raise _unknown(text)
    if parts.scheme == "s3":
        from my_datasets.storage.backends.s3 import S3Store

        return S3Store(host, parts.path, anonymous=is_anonymous)
    if parts.scheme == "gs":
        from my_datasets.storage.backends.gcs import GcsStore

        return GcsStore(host, parts.path, anonymous=is_anonymous)
    if parts.scheme in ("http", "https"):
        from my_datasets.storage.backends.http import HttpStore

        return HttpStore(text)
    from my_datasets.storage.backends import fsspec_store

    if fsspec_store.is_known(parts.scheme):
        return fsspec_store.OtherStore(text)
    raise _unknown(text)


def _local(directory: str) -> Store:
    from my_datasets.storage.backends.local import LocalStore

    return LocalStore(addresses.local_path(directory, "The store"))


def _unknown(address: str) -> StoreError:
    return StoreError(
        f"{address} is no address of a store.", f"Expected: {_KNOWN}", fix="correct it"
    )
