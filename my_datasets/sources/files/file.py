"""A file of a source, on this machine or in an object store."""

import posixpath
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from my_datasets.sources.files import seekable
from my_datasets.storage.file_systems import buffered, file_system

# File name suffixes of streams that pyarrow decompresses on the fly.
CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}


@dataclass(frozen=True)
class SourceFile:
    """A file to be read.

    Attributes:
      location: Its path, or its URL in an object store.
      name: Its path below the common directory of the source's files; empty if it is the only file.
      size: Its size in bytes.
      modified: The modification time, in nanoseconds since 1970; None if unknown.
    """

    location: str
    name: str
    size: int
    modified: int | None = field(default=None, kw_only=True)

    @property
    def codec(self) -> str | None:
        """Its compression, by the suffix of its name; None if it is not compressed."""
        return CODECS.get(posixpath.splitext(self.location)[1].lower())

    @property
    def is_splittable(self) -> bool:
        """Whether parts of it can be read in parallel."""
        return self.codec is None or seekable.is_possible(self.codec, self.size)

    def read_all(self) -> Any:
        """Opens the file for reading it once from beginning to end, decompressed."""
        if self.codec is not None and self.is_splittable:
            return seekable.read_all(self._snapshot, self.codec, self._raw)
        return self.stream()

    def read_at(self, start: int, size: int) -> bytes:
        """Returns some bytes of the file, decompressed; it must be splittable.

        Args:
          start: The offset of the first byte.
          size: The number of bytes; fewer are returned at the end of the file.
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
    def _snapshot(self) -> seekable.FileState:
        return seekable.FileState(self.location, self.size, self.modified)

    def _raw(self) -> Any:
        return buffered(self.location) if "://" in self.location else self.location

    def open(self) -> Any:
        """Opens the file for random access, without decompressing it, as a `pyarrow.NativeFile`."""
        system, path = file_system(self.location)
        return system.open_input_file(path)

    def stream(self) -> Any:
        """Opens the file for sequential reading, decompressed."""
        system, path = file_system(self.location)
        return system.open_input_stream(path, compression=self.codec)

    def row_key(self, number: int) -> str | int:
        """Returns the default key of a row: its number, prefixed with the file's `name` if set.

        Args:
          number: The row's number, counted from 0.
        """
        return f"{self.name}:{number}" if self.name else number

    def row_keys(self, first: int, count: int) -> pa.Array:
        """Returns the default keys of consecutive rows, as `row_key` does.

        Args:
          first: The first row's number, counted from 0.
          count: The number of rows.
        """
        numbers = pa.array(np.arange(first, first + count))
        if not self.name:
            return numbers
        return pc.binary_join_element_wise(f"{self.name}:", numbers.cast(pa.string()), "")

    def __str__(self) -> str:
        return self.location
