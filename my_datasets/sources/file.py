"""A file of a source, on this machine or in an object store, which may be compressed.

Compressed files are read from any offset, so their parts can be read in parallel. rapidgzip
decompresses gzip and bzip2 with several threads and builds an index of seek points on the way. The
index is kept for processes forked from this one; a process without the index rebuilds it.
"""

import atexit
import importlib.util
import io
import posixpath
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
_INDEXED = ("gzip", "bz2")
# Smaller files, in bytes, are decompressed as a whole before parallel readers would have started.
SMALLEST = 8 << 20
_CORES_TO_GAIN = 4
# The number of indexes that are kept. Each is about 1/50 of the size of its file.
_MOST_INDEXES = 16

# File name suffixes of streams that pyarrow decompresses on the fly.
CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}


# A file's location, size and modification time when it was listed: it may be replaced later.
_State: TypeAlias = tuple[str, int, int | None]

_indexes: dict[_State, Any] = {}  # as rapidgzip exports them
# One file stays open: loading an index takes as long as reading many parts.
_opened = PerProcess[dict[_State, "Decompressed"]]()


def close() -> None:
    """Closes the open file: rapidgzip aborts the process if its threads outlive Python."""
    files = _opened.get(dict)
    while files:
        files.popitem()[1].close()


atexit.register(close)


class IndexedFile:
    """A decompressed file whose index is kept once it has been read to its end."""

    def __init__(self, file: "SourceFile") -> None:
        self._file = file
        # Threads that start inside a gzip file lack the preceding window and take more than twice
        # as long as a single thread: on two cores, 0.8 s rather than 0.5 s for 184 MB.
        is_parallel = file.codec == "bz2" or cores() >= _CORES_TO_GAIN
        self._stream = _decompressed(file, cores() if is_parallel else 1)

    def read(self, size: int = -1) -> bytes:
        """Returns the next bytes; empty at the end of the file."""
        data: bytes = self._stream.read(size)
        if not data:
            while len(_indexes) >= _MOST_INDEXES:
                del _indexes[next(iter(_indexes))]
            _indexes[self._file.state] = self._index()
        return data

    def _index(self) -> Any:
        if self._file.codec == "bz2":
            return self._stream.block_offsets()
        exported = io.BytesIO()
        self._stream.export_index(exported)
        return exported.getvalue()

    def __enter__(self) -> "IndexedFile":
        return self

    def __exit__(self, *exception: object) -> None:
        self._stream.close()


def _decompressed(file: "SourceFile", threads: int) -> "Decompressed":
    import rapidgzip

    raw = buffered(file.location) if "://" in file.location else file.location
    open_file = rapidgzip.IndexedBzip2File if file.codec == "bz2" else rapidgzip.open
    return open_file(raw, parallelization=threads)


def _random_access(file: "SourceFile") -> io.RawIOBase:
    """Returns the decompressed file for random access; the caller must not close it."""
    files = _opened.get(dict)
    if file.state not in files:
        close()
        stream = _decompressed(file, 1)
        index = _indexes.get(file.state)
        if index is not None and file.codec == "bz2":
            stream.set_block_offsets(index)
        elif index is not None:
            stream.import_index(io.BytesIO(index))
        files[file.state] = stream
    found: io.RawIOBase = files[file.state]
    return found


@dataclass(frozen=True)
class SourceFile:
    """A file to be read."""

    location: str  # its path, or its URL in an object store
    # Its path below the common directory of the source's files; empty if it is the only file.
    name: str
    size: int  # in bytes
    # In nanoseconds since 1970; None if unknown.
    modified: int | None = field(default=None, kw_only=True)

    @property
    def codec(self) -> str | None:
        """Its compression, by the suffix of its name; None if it is not compressed."""
        return CODECS.get(posixpath.splitext(self.location)[1].lower())

    @property
    def is_splittable(self) -> bool:
        """Whether parts of it can be read in parallel."""
        return self.codec is None or (
            self.codec in _INDEXED
            and self.size >= SMALLEST
            and importlib.util.find_spec("rapidgzip") is not None
        )

    def read_all(self) -> "pa.NativeFile | IndexedFile":
        """Opens the file for reading it once from beginning to end, decompressed."""
        if self.codec is None or not self.is_splittable:
            return self.stream()
        close()
        # Not every store reports when a file was modified.
        _indexes.pop(self.state, None)
        return IndexedFile(self)

    def read_at(self, start: int, size: int) -> bytes:
        """Returns bytes of the decompressed file, fewer at its end; it must be splittable."""
        if self.codec is not None:
            found = _random_access(self)
            found.seek(start)
            return found.read(size) or b""
        with self.open() as stream:
            stream.seek(start)
            data: bytes = stream.read(size)
            return data

    @property
    def state(self) -> _State:
        """What changes if the file is replaced."""
        return self.location, self.size, self.modified

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
        """Returns the default keys of consecutive rows, as `row_key` does."""
        numbers = pa.array(np.arange(first, first + count))
        if not self.name:
            return numbers
        return pc.binary_join_element_wise(f"{self.name}:", numbers.cast(pa.string()), "")

    def __str__(self) -> str:
        return self.location
