"""TFRecord framing: wraps many records at once in their lengths and checksums.

The format (tensorflow/core/lib/io/record_writer.h): the length as 8 bytes, the masked CRC-32C of
those 8 bytes, the record, the masked CRC-32C of the record; all numbers little-endian. A mask is
`rotate_right(crc, 15) + 0xa282ead8`.
"""

import struct
from collections.abc import Sequence

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from my_datasets.records.tf_example import pieces
from my_datasets.records.tf_example.pieces import Bytes, Piece

HEADER = 12
FOOTER = 4
OVERHEAD = HEADER + FOOTER

_MASK_DELTA = np.uint32(0xA282EAD8)
# The checksum of longer records is computed in place; shorter ones are faster as copies, many
# sliced at once:
_SHORT = 2048
# ... as many as fit in the processor's cache and in memory that Python already has.
_AT_ONCE = 256


def framed(parts: Sequence[Piece], n: int) -> pa.LargeBinaryArray:
    """Returns n records in TFRecord framing.

    Args:
      parts: The pieces of each record, from left to right.
      n: The number of records.
    """
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
