"""A file of a source, wherever it lies: this machine, or an object store."""

import functools
import io
import os
import posixpath
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

from my_datasets.errors import SourceError, explain
from my_datasets.sources import seekable

# File name endings of streams that pyarrow decompresses on the fly.
CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
# Bytes that are asked for at once, where a reader asks for few.
_BUFFER = 1 << 16
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
      modified: When it was changed last, in nanoseconds since 1970; None if nobody knows.
    """

    location: str
    name: str
    size: int
    modified: int | None = field(default=None, kw_only=True)

    @property
    def codec(self) -> str | None:
        """How it is compressed, by the ending of its name; None if it is not."""
        return CODECS.get(posixpath.splitext(self.location)[1].lower())

    @property
    def is_splittable(self) -> bool:
        """Whether parts of it can be read in parallel."""
        return self.codec is None or seekable.is_possible(self.codec, self.size)

    def read_all(self) -> Any:
        """Returns the file for reading once from its beginning to its end, decompressed."""
        if self.codec is not None and self.is_splittable:
            return seekable.read_all(self._snapshot, self.codec, self._raw)
        return self.stream()

    def read_at(self, start: int, size: int) -> bytes:
        """Returns some bytes of the file, decompressed; it must be splittable.

        Args:
          start: Where they begin.
          size: How many; fewer come at the end.
        """
        if self.codec is not None:
            found = seekable.anywhere(self._snapshot, self.codec, self._raw)
            found.seek(start)
            return found.read(size) or b""
        with self.open() as stream:
            stream.seek(start)
            data: bytes = stream.read(size)
            return data

    @property
    def _snapshot(self) -> seekable.Snapshot:
        return seekable.Snapshot(self.location, self.size, self.modified)

    def _raw(self) -> Any:
        return buffered(self.location) if "://" in self.location else self.location

    def open(self) -> Any:
        """Returns the file for reading from anywhere in it as it is, a `pyarrow.NativeFile`."""
        system, path = file_system(self.location)
        return system.open_input_file(path)

    def stream(self) -> Any:
        """Returns the file for reading from its beginning, decompressed."""
        system, path = file_system(self.location)
        return system.open_input_stream(path, compression=self.codec)

    def row_key(self, number: int) -> str | int:
        """Returns the key of a row that has none of its own: its number, after the file's name.

        Args:
          number: Counted from 0.
        """
        return f"{self.name}:{number}" if self.name else number

    def row_keys(self, first: int, count: int) -> pa.Array:
        """Returns the keys of rows that have none of their own.

        Args:
          first: The first row's number, counted from 0.
          count: How many rows.
        """
        numbers = pa.array(np.arange(first, first + count))
        if not self.name:
            return numbers
        return pc.binary_join_element_wise(f"{self.name}:", numbers.cast(pa.string()), "")

    def __str__(self) -> str:
        return self.location


def buffered(location: str) -> io.BufferedReader:
    """Returns a file for reading from anywhere in it as it is, for what is not of pyarrow."""
    system, path = file_system(location)
    return io.BufferedReader(_Positioned(system.open_input_file(path)), _BUFFER)


class _Positioned(io.RawIOBase):
    """A file of pyarrow that goes to a position when it is read there, not before.

    pyarrow asks Google's store for bytes when it goes anywhere, and fails at the end of a file,
    where zip files and others begin to read.
    """

    def __init__(self, file: Any) -> None:
        """Reads from the beginning; the file is closed with it."""
        self._file = file
        self._size = file.size()
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = max(0, origin + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), max(0, self._size - self._position))
        data = self._file.read_at(wanted, self._position) if wanted else b""
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


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
            system = _by_pyarrow(f"{scheme}://{rest.partition('/')[0]}", os.getpid())
            # Before an `@` stand credentials, or gs://anonymous@bucket that there are none.
            bucket, slash, path = rest.partition("/")
            return system, bucket.rpartition("@")[2] + slash + path
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
