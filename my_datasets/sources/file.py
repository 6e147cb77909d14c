"""A file of a source, on this machine or in an object store, which may be compressed.

Compressed files are read from any offset, so their parts can be read in parallel. rapidgzip
decompresses gzip and bzip2 with several threads and builds an index of seek points on the way. The
index is kept for processes forked from this one; a process without the index rebuilds it.
"""

import atexit
import importlib.util
import io
import posixpath
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from my_datasets.core.processes import PerProcess, cores
from my_datasets.storage.file_systems import buffered, file_system

if TYPE_CHECKING:
    import rapidgzip

    Decompressed: TypeAlias = rapidgzip.RapidgzipFile | rapidgzip.IndexedBzip2File

# The codecs that rapidgzip supports.
_CODECS = ("gzip", "bz2")
# Smaller files, in bytes, are decompressed as a whole before parallel readers would have started.
SMALLEST = 8 << 20
_CORES_TO_GAIN = 4
# The number of indexes that are kept. Each is about 1/50 of the size of its file.
_MOST_NOTES = 16

# Seek points, as rapidgzip exports them.
Notes: TypeAlias = Any

# File name suffixes of streams that pyarrow decompresses on the fly.
CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}


@dataclass(frozen=True)
class FileState:
    """Identifies the state of a file when it was listed: it may be replaced later.

    Attributes:
      location: Its path or URL.
      size: Its size in bytes.
      modified: The modification time, in nanoseconds since 1970; None if unknown.
    """

    location: str
    size: int
    modified: int | None


_notes: dict[FileState, Notes] = {}
# One file stays open: loading an index takes as long as reading many parts.
_opened = PerProcess[dict[FileState, "Decompressed"]]()


def supports_random_access(codec: str | None, size: int) -> bool:
    """Returns whether random access to a compressed file is possible and worthwhile."""
    return (
        codec in _CODECS and size >= SMALLEST and importlib.util.find_spec("rapidgzip") is not None
    )


def read_all(snapshot: FileState, codec: str, raw: Callable[[], io.IOBase | str]) -> "IndexedFile":
    """Opens a file for reading it once from beginning to end, decompressed with all cores.

    Discards the index of an earlier read: not every store reports when a file was modified.
    """
    close()
    _notes.pop(snapshot, None)
    # Threads that start inside a gzip file lack the preceding window and take more than twice as
    # long as a single thread: on two cores, 0.8 s rather than 0.5 s for 184 MB.
    threads = cores() if codec == "bz2" or cores() >= _CORES_TO_GAIN else 1
    return IndexedFile(snapshot, codec, _decompressed(codec, raw(), threads))


def open_random_access(
    snapshot: FileState, codec: str, raw: Callable[[], io.IOBase | str]
) -> io.RawIOBase:
    """Returns the decompressed file for random access; the caller must not close it.

    The arguments are those of `read_all`.
    """
    files = _opened.get(dict)
    if snapshot not in files:
        close()
        stream = _decompressed(codec, raw(), 1)
        if snapshot in _notes:
            _take_notes(stream, codec, _notes[snapshot])
        files[snapshot] = stream
    found: io.RawIOBase = files[snapshot]
    return found


def close() -> None:
    """Closes the open file: rapidgzip aborts the process if its threads outlive Python."""
    files = _opened.get(dict)
    while files:
        files.popitem()[1].close()


atexit.register(close)


class IndexedFile:
    """A decompressed file whose index is kept once it has been read to its end."""

    def __init__(self, snapshot: FileState, codec: str, stream: "Decompressed") -> None:
        """Takes ownership of the stream, which is closed with this object."""
        self._snapshot = snapshot
        self._codec = codec
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        """Returns the next bytes; empty at the end of the file."""
        data: bytes = self._stream.read(size)
        if not data:
            while len(_notes) >= _MOST_NOTES:
                del _notes[next(iter(_notes))]
            _notes[self._snapshot] = _notes_of(self._stream, self._codec)
        return data

    def __enter__(self) -> "IndexedFile":
        return self

    def __exit__(self, *exception: object) -> None:
        self._stream.close()


def _decompressed(codec: str, raw: io.IOBase | str, threads: int) -> "Decompressed":
    import rapidgzip

    if codec == "bz2":
        return rapidgzip.IndexedBzip2File(raw, parallelization=threads)
    return rapidgzip.open(raw, parallelization=threads)


def _notes_of(stream: "Decompressed", codec: str) -> Notes:
    if codec == "bz2":
        return stream.block_offsets()
    notes = io.BytesIO()
    stream.export_index(notes)
    return notes.getvalue()


def _take_notes(stream: "Decompressed", codec: str, notes: Notes) -> None:
    if codec == "bz2":
        stream.set_block_offsets(notes)
    else:
        stream.import_index(io.BytesIO(notes))


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
        return self.codec is None or supports_random_access(self.codec, self.size)

    def read_all(self) -> "pa.NativeFile | IndexedFile":
        """Opens the file for reading it once from beginning to end, decompressed."""
        if self.codec is not None and self.is_splittable:
            return read_all(self._snapshot, self.codec, self._raw)
        return self.stream()

    def read_at(self, start: int, size: int) -> bytes:
        """Returns some bytes of the file, decompressed; it must be splittable.

        Args:
          start: The offset of the first byte.
          size: The number of bytes; fewer are returned at the end of the file.
        """
        if self.codec is not None:
            found = open_random_access(self._snapshot, self.codec, self._raw)
            found.seek(start)
            return found.read(size) or b""
        with self.open() as stream:
            stream.seek(start)
            data: bytes = stream.read(size)
            return data

    @property
    def _snapshot(self) -> FileState:
        return FileState(self.location, self.size, self.modified)

    def _raw(self) -> io.IOBase | str:
        return buffered(self.location) if "://" in self.location else self.location

    def open(self) -> pa.NativeFile:
        """Opens the file for random access, without decompressing it."""
        system, path = file_system(self.location)
        return system.open_input_file(path)

    def stream(self) -> pa.NativeFile:
        """Opens the file for sequential reading, decompressed."""
        system, path = file_system(self.location)
        return system.open_input_stream(path, compression=self.codec)

    def row_key(self, number: int) -> str | int:
        """Returns the default key of a row: its number (from 0), prefixed with `name` if set."""
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
