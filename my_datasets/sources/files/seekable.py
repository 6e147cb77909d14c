"""Reads compressed files from any offset, so that their parts can be read in parallel.

rapidgzip decompresses gzip and bzip2 with several threads and builds an index of seek points on the
way. The index is kept for processes forked from this one; a process without the index rebuilds it.
"""

import atexit
import importlib.util
import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from my_datasets.core.machine import cores

# The codecs that rapidgzip supports.
_CODECS = ("gzip", "bz2")
# Smaller files, in bytes, are decompressed as a whole before parallel readers would have started.
SMALLEST = 8 << 20
_CORES_TO_GAIN = 4
# The number of indexes that are kept. Each is about 1/50 of the size of its file.
_MOST_NOTES = 16


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


@dataclass
class _Opened:
    snapshot: FileState
    process: int
    stream: Any


_notes: dict[FileState, Any] = {}
# One file stays open: loading an index takes as long as reading many parts.
_opened: _Opened | None = None
# Files opened by the process this one was forked from: closing them would wait for its threads.
_inherited: list[_Opened] = []


def is_possible(codec: str | None, size: int) -> bool:
    """Returns whether random access to a compressed file is possible and worthwhile.

    Args:
      codec: Its compression.
      size: Its size in bytes.
    """
    return (
        codec in _CODECS and size >= SMALLEST and importlib.util.find_spec("rapidgzip") is not None
    )


def read_all(snapshot: FileState, codec: str, raw: Callable[[], Any]) -> "_Noting":
    """Opens a file for reading it once from beginning to end, decompressed with all cores.

    Discards the index of an earlier read: not every store reports when a file was modified.

    Args:
      snapshot: The file.
      codec: Its compression.
      raw: Opens it.
    """
    close()
    _notes.pop(snapshot, None)
    # Threads that start inside a gzip file lack the preceding window and take more than twice as
    # long as a single thread: on two cores, 0.8 s rather than 0.5 s for 184 MB.
    threads = cores() if codec == "bz2" or cores() >= _CORES_TO_GAIN else 1
    return _Noting(snapshot, codec, _decompressed(codec, raw(), threads))


def anywhere(snapshot: FileState, codec: str, raw: Callable[[], Any]) -> io.RawIOBase:
    """Returns the decompressed file for random access; the caller must not close it.

    The arguments are those of `read_all`.
    """
    global _opened
    if _opened is not None and (_opened.snapshot, _opened.process) != (snapshot, os.getpid()):
        close()
    if _opened is None:
        stream = _decompressed(codec, raw(), 1)
        if snapshot in _notes:
            _take_notes(stream, codec, _notes[snapshot])
        _opened = _Opened(snapshot, os.getpid(), stream)
    found: io.RawIOBase = _opened.stream
    return found


def close() -> None:
    """Closes the open file: rapidgzip aborts the process if its threads outlive Python."""
    global _opened
    if _opened is not None and _opened.process == os.getpid():
        _opened.stream.close()
    elif _opened is not None:
        _inherited.append(_opened)
    _opened = None


atexit.register(close)


class _Noting:
    """A decompressed file whose index is kept once it has been read to its end."""

    def __init__(self, snapshot: FileState, codec: str, stream: Any) -> None:
        """Takes ownership of the stream, which is closed with this object."""
        self._snapshot = snapshot
        self._codec = codec
        self._stream = stream

    def read(self, size: int) -> bytes:
        data: bytes = self._stream.read(size)
        if not data:
            while len(_notes) >= _MOST_NOTES:
                del _notes[next(iter(_notes))]
            _notes[self._snapshot] = _notes_of(self._stream, self._codec)
        return data

    def __enter__(self) -> "_Noting":
        return self

    def __exit__(self, *exception: object) -> None:
        self._stream.close()


def _decompressed(codec: str, raw: Any, threads: int) -> Any:
    import rapidgzip

    if codec == "bz2":
        return rapidgzip.IndexedBzip2File(raw, parallelization=threads)
    return rapidgzip.open(raw, parallelization=threads)


def _notes_of(stream: Any, codec: str) -> Any:
    if codec == "bz2":
        return stream.block_offsets()
    notes = io.BytesIO()
    stream.export_index(notes)
    return notes.getvalue()


def _take_notes(stream: Any, codec: str, notes: Any) -> None:
    if codec == "bz2":
        stream.set_block_offsets(notes)
    else:
        stream.import_index(io.BytesIO(notes))
