"""A file of a source, wherever it lies: this machine, or an object store."""

import functools
import os
import posixpath
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from my_datasets.errors import SourceError, explain

# File name endings of streams that pyarrow decompresses on the fly.
CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
# The object stores that pyarrow itself reads; fsspec is asked for all others.
_BY_PYARROW = ("s3", "gs", "hdfs")


@dataclass(frozen=True)
class File:
    """A file to be read.

    Attributes:
      location: Its path, or its URL in an object store.
      name: What tells it from the other files of the source, whatever directory they all lie in;
        empty if it is the only one.
      size: Its size in bytes.
    """

    location: str
    name: str
    size: int

    @property
    def codec(self) -> str | None:
        """How it is compressed, by the ending of its name; None if it is not."""
        return CODECS.get(posixpath.splitext(self.location)[1].lower())

    @property
    def is_splittable(self) -> bool:
        """Whether parts of it can be read in parallel."""
        return self.codec is None

    def open(self) -> Any:
        """Returns the file for reading from anywhere in it, as a `pyarrow.NativeFile`."""
        system, path = file_system(self.location)
        return system.open_input_file(path)

    def stream(self) -> Any:
        """Returns the file for reading from its beginning, decompressed."""
        system, path = file_system(self.location)
        return system.open_input_stream(path, compression=self.codec)

    def __str__(self) -> str:
        return self.location


def file_system(location: str) -> tuple[Any, str]:
    """Returns the file system of a location, and the path in it.

    Raises:
      SourceError: Nothing that is installed reads such a URL.
    """
    scheme, separator, rest = location.partition("://")
    if not separator:
        return pafs.LocalFileSystem(), location
    if scheme == "file":
        return pafs.LocalFileSystem(), rest
    try:
        if scheme in _BY_PYARROW:
            # Connections do not survive a fork: each process makes its own.
            return _by_pyarrow(f"{scheme}://{rest.partition('/')[0]}", os.getpid()), rest
        import fsspec

        system, path = fsspec.core.url_to_fs(location)
        return pafs.PyFileSystem(pafs.FSSpecHandler(system)), str(path)
    except (ImportError, ValueError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SourceError(
            explain(
                f"{location} cannot be read here: {error}",
                mend="install the fsspec backend for it (adlfs, huggingface_hub, ...)",
            )
        ) from error


@functools.lru_cache(maxsize=32)
def _by_pyarrow(url: str, process: int) -> Any:  # noqa: ARG001
    return pafs.FileSystem.from_uri(url)[0]
