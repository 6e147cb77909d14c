"""TFRecord framing, and the CRC-32C of files.

The format (tensorflow/core/lib/io/record_writer.h): the length as 8 bytes, the masked CRC-32C of
those 8 bytes, the record, the masked CRC-32C of the record; all numbers little-endian. A mask is
`rotate_right(crc, 15) + 0xa282ead8`. Many records are framed at once.
"""

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from my_datasets.records.tf_example import pieces
from my_datasets.records.tf_example.pieces import Bytes, Piece
from my_datasets.storage.regular_files import open_regular

_BLOCK = 1 << 20
# Bytes to write before asking the kernel to flush them, in a file that will be synced.
_HANDED_OVER = 4 << 20
_SYNC_FILE_RANGE_WRITE = 2  # linux/fs.h

HEADER = 12
FOOTER = 4
OVERHEAD = HEADER + FOOTER
_MASK_DELTA = np.uint32(0xA282EAD8)
# The checksum of longer records is computed in place; shorter ones are faster as copies, many
# sliced at once:
_SHORT = 2048
# ... as many as fit in the processor's cache and in memory that Python already has.
_AT_ONCE = 256


class Writer:
    """Writes to a file without a buffer, and tracks its checksum and size."""

    def __init__(self, file: FileIO, *, to_be_synced: bool = False) -> None:
        """Starts at the beginning of the file.

        If `sync` will be called, `to_be_synced` flushes data to the disk on the way, so that `sync`
        has little left to wait for.
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


def framed(parts: Sequence[Piece], n: int) -> pa.LargeBinaryArray:
    """Returns n records in TFRecord framing, each of its pieces from left to right."""
    size = pieces.widths(parts)
    found = pieces.joined([pieces.by_length(size, header), *parts, bytes(FOOTER)], n)
    data, offsets = pieces.bytes_of(found), pieces.offsets_of(found)
    if isinstance(size, int):
        rows = data.reshape(n, OVERHEAD + size)
        pieces.put(rows, HEADER + size, _footers(_checksums_of_rows(rows, size)))
    else:
        places = (offsets[1:] - offsets[0])[:, None] + np.arange(-FOOTER, 0)
        data[places] = _footers(_checksums(data, offsets - offsets[0]))
    return found


def header(length: int) -> bytes:
    """Returns the header of a record of `length` bytes."""
    packed = struct.pack("<Q", length)
    return packed + footer(google_crc32c.value(packed))


def footer(checksum: int) -> bytes:
    """Returns the masked checksum that follows a record, or a length, with this CRC-32C."""
    return _footers(np.array([checksum], np.uint32)).tobytes()


def framed_one(record: bytes) -> bytes:
    """Returns one record in TFRecord framing."""
    return header(len(record)) + record + footer(google_crc32c.value(record))


def _checksums_of_rows(rows: Bytes, size: int) -> npt.NDArray[np.uint32]:
    n = len(rows)
    found = np.empty(n, np.uint32)
    if not 0 < size <= _SHORT:
        for i in range(n):
            found[i] = google_crc32c.value(rows[i, HEADER : HEADER + size])
        return found
    record = {"names": ["record"], "formats": [f"V{size}"], "offsets": [HEADER]}
    kind = np.dtype({**record, "itemsize": rows.shape[1]})  # type: ignore[call-overload]
    records = rows.view(kind)["record"][:, 0]
    for begin in range(0, n, _AT_ONCE):
        some = records[begin : begin + _AT_ONCE].tolist()  # as bytes
        found[begin : begin + _AT_ONCE] = list(map(google_crc32c.value, some))
    return found


def _checksums(data: Bytes, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    n = len(offsets) - 1
    found = np.empty(n, np.uint32)
    is_short = len(data) <= n * _SHORT
    for begin in range(0, n, _AT_ONCE):
        some = offsets[begin : begin + _AT_ONCE + 1]
        part = data[some[0] : some[-1]]
        # The checksum function accepts only bytes and arrays without a copy.
        text = part.tobytes() if is_short else part
        begins, ends = some[:-1] - some[0] + HEADER, some[1:] - some[0] - FOOTER
        places = zip(begins.tolist(), ends.tolist(), strict=True)
        found[begin : begin + _AT_ONCE] = [google_crc32c.value(text[a:b]) for a, b in places]
    return found


def _footers(checksums: npt.NDArray[np.uint32]) -> Bytes:
    """Returns masked checksums as stored bytes, shape [n, 4]."""
    return masked(checksums).astype("<u4").view(np.uint8).reshape(-1, FOOTER)


def masked(checksums: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Returns CRC-32Cs in the masked form in which they are stored."""
    rotated = (checksums >> np.uint32(15)) | (checksums << np.uint32(17))
    return rotated + _MASK_DELTA
