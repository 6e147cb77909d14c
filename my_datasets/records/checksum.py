"""CRC-32C of files, computed while writing them or from existing files."""

import contextlib
import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

import google_crc32c
import numpy as np
import numpy.typing as npt

from my_datasets.storage.regular_files import open_regular

_BLOCK = 1 << 20
# Bytes to write before asking the kernel to flush them, in a file that will be synced.
_HANDED_OVER = 4 << 20
_SYNC_FILE_RANGE_WRITE = 2  # linux/fs.h


class Writer:
    """Writes to a file without a buffer, and tracks its checksum and size."""

    def __init__(self, file: FileIO, *, to_be_synced: bool = False) -> None:
        """Starts at the beginning of the file.

        Args:
          file: The file.
          to_be_synced: Whether `sync` will be called. If so, data is flushed to the disk on the
            way, so that `sync` has little left to wait for.
        """
        self._file = file
        self._to_be_synced = to_be_synced
        self._handed_over = 0
        self.checksum = 0
        self.size = 0

    def write(self, data: npt.NDArray[np.uint8]) -> None:
        """Writes all of `data`, uint8 of shape [bytes]."""
        self.checksum = google_crc32c.extend(self.checksum, data)
        self.size += len(data)
        written = 0
        while written < len(data):
            written += self._file.write(data[written:].data)
        if self._to_be_synced and self.size - self._handed_over >= _HANDED_OVER:
            _begin_to_write(self._file.fileno(), self._handed_over, self.size - self._handed_over)
            self._handed_over = self.size

    def sync(self) -> None:
        """Returns once the file has reached the disk."""
        os.fsync(self._file.fileno())


def _begin_to_write(file: int, begin: int, size: int) -> None:
    """Starts writing a part of a file to the disk on Linux, without waiting."""
    with contextlib.suppress(OSError, AttributeError):
        start = ctypes.CDLL(None).sync_file_range
        start(file, ctypes.c_int64(begin), ctypes.c_int64(size), _SYNC_FILE_RANGE_WRITE)


@contextmanager
def writing(path: Path, *, to_be_synced: bool = False) -> Iterator[Writer]:
    """Opens a new file for writing; see `Writer`."""
    with open(path, "wb", buffering=0) as file:
        yield Writer(file, to_be_synced=to_be_synced)


def of_file(path: Path) -> tuple[int, int]:
    """Returns a file's checksum and its size in bytes."""
    checksum = 0
    with open_regular(path) as file:
        while block := file.read(_BLOCK):
            checksum = google_crc32c.extend(checksum, block)
        return checksum, file.tell()


def is_intact(path: Path, checksum: int, size: int) -> bool:
    """Returns whether a file exists with this checksum and size."""
    if not path.is_file() or path.stat().st_size != size:
        return False
    return of_file(path) == (checksum, size)
