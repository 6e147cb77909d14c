"""The file systems that paths and URLs mean: this machine's, or those of object stores."""

import io
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs as pafs

from my_datasets.core.processes import cached_per_process
from my_datasets.errors import SourceError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# The least bytes of a request, for readers that request few at a time.
_BUFFER = 1 << 16
# The object stores that pyarrow itself reads; fsspec is asked for all others.
_BY_PYARROW = ("s3", "gs", "hdfs")


def buffered(location: str) -> io.BufferedReader:
    """Opens a file for random access, without pyarrow."""
    system, path = file_system(location)
    return io.BufferedReader(_PyarrowFile(system.open_input_file(path)), _BUFFER)


class PositionedFile(io.RawIOBase):
    """A file of known size that is read in parts, and whose position moves without a request."""

    def __init__(self, size: int, read_at: Callable[[int, int], bytes]) -> None:
        """Reads nothing yet; `read_at` returns the bytes from a begin to an end."""
        super().__init__()
        self._size = size
        self._read_at = read_at
        self._position = 0

    def readable(self) -> bool:
        """Returns True."""
        return True

    def seekable(self) -> bool:
        """Returns True."""
        return True

    def tell(self) -> int:
        """Returns the position."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Moves to another position, and returns it."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Fills the buffer as far as possible; returns the number of bytes."""
        view = memoryview(buffer)
        end = min(self._position + len(view), self._size)
        data = self._read_at(self._position, end) if self._position < end else b""
        view[: len(data)] = data
        self._position += len(data)
        return len(data)


class _PyarrowFile(PositionedFile):
    """A pyarrow file that seeks only when it is read.

    pyarrow sends Google's store a request at each seek, and fails at the end of a file, where
    readers of zip files and others begin.
    """

    def __init__(self, file: pa.NativeFile) -> None:
        super().__init__(file.size(), lambda begin, end: file.read_at(end - begin, begin))
        self._file = file

    def close(self) -> None:
        self._file.close()
        super().close()


def file_system(location: str) -> tuple[pafs.FileSystem, str]:
    """Returns the file system of a location, and the path in it.

    Raises:
      SourceError: No installed library reads such a URL.
    """
    scheme, separator, rest = location.partition("://")
    if not separator:
        return pafs.LocalFileSystem(), location
    if scheme == "file":
        return pafs.LocalFileSystem(), rest
    try:
        if scheme in _BY_PYARROW:
            system = _by_pyarrow(f"{scheme}://{rest.partition('/')[0]}")
            # Before an `@` stand credentials, or gs://anonymous@bucket that there are none.
            bucket, slash, path = rest.partition("/")
            return system, bucket.rpartition("@")[2] + slash + path
        import fsspec

        system, path = fsspec.core.url_to_fs(location)
        return pafs.PyFileSystem(pafs.FSSpecHandler(system)), str(path)
    except (ImportError, ValueError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SourceError(
            f"{location} cannot be read here: {error}",
            fix="install the fsspec backend for it (adlfs, huggingface_hub, ...)",
        ) from error


@cached_per_process(maxsize=32)
def _by_pyarrow(url: str) -> pafs.FileSystem:
    return pafs.FileSystem.from_uri(url)[0]
