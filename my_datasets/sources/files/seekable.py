"""Compressed files read from anywhere in them, so that their parts can be read in parallel.

rapidgzip decompresses gzip and bzip2 with several threads, and notes on the way where one can begin
in between. Its notes are kept for the processes that are forked from this one; a process that does
not have them makes them again.
"""

import atexit
import importlib.util
import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from my_datasets.core.machine import cores

# What rapidgzip reads.
_CODECS = ("gzip", "bz2")
# A smaller file, in bytes, is decompressed as a whole in less time than others take to begin.
SMALLEST = 8 << 20
_CORES_TO_GAIN = 4
# Notes of so many files are kept. Those of one are about a fiftieth of it.
_MOST_NOTES = 16


@dataclass(frozen=True)
class Snapshot:
    """A file as it was when it was found: another may be in its place later.

    Attributes:
      location: Its path or URL.
      size: Its size in bytes.
      modified: When it was changed last, in nanoseconds since 1970; None if nobody knows.
    """

    location: str
    size: int
    modified: int | None


@dataclass
class _Opened:
    snapshot: Snapshot
    process: int
    stream: Any


_notes: dict[Snapshot, Any] = {}
# One stays open: to begin with the notes costs as much as to read many parts.
_opened: _Opened | None = None
# Those of the process that this one was forked from: to close them would wait for its threads.
_inherited: list[_Opened] = []


def is_possible(codec: str | None, size: int) -> bool:
    """Returns whether a compressed file can be, and is worth to be, read from anywhere.

    Args:
      codec: How it is compressed.
      size: Its size in bytes.
    """
    return (
        codec in _CODECS and size >= SMALLEST and importlib.util.find_spec("rapidgzip") is not None
    )


def read_all(snapshot: Snapshot, codec: str, raw: Callable[[], Any]) -> "_Noting":
    """Returns the decompressed file for reading from its beginning to its end, with all cores.

    What is known of it from before is forgotten: not every store tells when a file was changed.

    Args:
      snapshot: The file.
      codec: How it is compressed.
      raw: Opens it.
    """
    close()
    _notes.pop(snapshot, None)
    # Threads that begin amid a gzip file do not know what came before, and take more than twice as
    # long as one that does: on two cores, 0.8 s against 0.5 for 184 MB.
    threads = cores() if codec == "bz2" or cores() >= _CORES_TO_GAIN else 1
    return _Noting(snapshot, codec, _decompressed(codec, raw(), threads))


def anywhere(snapshot: Snapshot, codec: str, raw: Callable[[], Any]) -> io.RawIOBase:
    """Returns the decompressed file for reading from anywhere; it belongs to this module.

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
    """Closes what is open: rapidgzip aborts the process if its threads outlive Python."""
    global _opened
    if _opened is not None and _opened.process == os.getpid():
        _opened.stream.close()
    elif _opened is not None:
        _inherited.append(_opened)
    _opened = None


atexit.register(close)


class _Noting:
    """A decompressed file whose notes are kept when it has been read to its end."""

    def __init__(self, snapshot: Snapshot, codec: str, stream: Any) -> None:
        """Begins to read; the stream is closed with it."""
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
