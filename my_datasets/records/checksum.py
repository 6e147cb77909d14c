"""Files with their CRC-32C: as they are written, and as they are found."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

import google_crc32c
import numpy as np
import numpy.typing as npt

_BLOCK = 1 << 20


class Writer:
    """Writes to a file without a buffer, and keeps the checksum and the size."""

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self.checksum = 0
        self.size = 0

    def write(self, data: npt.NDArray[np.uint8]) -> None:
        """Writes all of `data`, shape [bytes]."""
        self.checksum = google_crc32c.extend(self.checksum, data)
        self.size += len(data)
        written = 0
        while written < len(data):
            written += self._file.write(data[written:].data)

    def sync(self) -> None:
        """Returns once the file has reached the disk."""
        os.fsync(self._file.fileno())


@contextmanager
def writing(path: Path) -> Iterator[Writer]:
    """Opens a new file for writing."""
    with open(path, "wb", buffering=0) as file:
        yield Writer(file)


def of_file(path: Path) -> tuple[int, int]:
    """Returns the checksum of a file, and its size in bytes."""
    checksum = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            checksum = google_crc32c.extend(checksum, block)
        return checksum, file.tell()


def is_intact(path: Path, checksum: int, size: int) -> bool:
    """Returns whether a file is there, with these bytes."""
    if not path.is_file() or path.stat().st_size != size:
        return False
    return of_file(path) == (checksum, size)
