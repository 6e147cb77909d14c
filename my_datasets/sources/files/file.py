"""A file of a source, wherever it lies: this machine, or an object store."""

import posixpath
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from my_datasets.sources.files import seekable
from my_datasets.storage.file_systems import buffered, file_system

# File name endings of streams that pyarrow decompresses on the fly.
CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}


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
