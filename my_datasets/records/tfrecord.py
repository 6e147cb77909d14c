"""TFRecord framing: each record between its length and its checksum, for many records at once.

The format (tensorflow/core/lib/io/record_writer.h): the length as 8 bytes, the masked CRC-32C of
those 8 bytes, the record, the masked CRC-32C of the record; all numbers little-endian. A mask is
`rotate_right(crc, 15) + 0xa282ead8`.
"""

import itertools
import struct

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

HEADER = 12
FOOTER = 4
OVERHEAD = HEADER + FOOTER

_MASK_DELTA = np.uint32(0xA282EAD8)


def binary_array(data: pa.Buffer, offsets: npt.NDArray[np.int64]) -> pa.LargeBinaryArray:
    """Returns the Arrow array over bytes that are cut at `offsets`, shape [n + 1]; no copy."""
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), data]
    )


def offsets_of(array: pa.LargeBinaryArray) -> npt.NDArray[np.int64]:
    """Returns where each value of `array` begins, and where the last one ends; shape [n + 1]."""
    offsets = np.frombuffer(array.buffers()[1], np.int64)
    return offsets[array.offset : array.offset + len(array) + 1]


def bytes_of(array: pa.LargeBinaryArray) -> memoryview:
    """Returns the values of `array` one after the other, as they lie in memory."""
    offsets = offsets_of(array)
    data = array.buffers()[2]
    return memoryview(data)[offsets[0] : offsets[-1]] if data is not None else memoryview(b"")


def fixed_array(rows: npt.NDArray[np.uint8]) -> pa.LargeBinaryArray:
    """Returns rows of equal width, shape [n, width], as an Arrow array; no copy if contiguous."""
    n, width = rows.shape
    data = pa.py_buffer(np.ascontiguousarray(rows))
    return binary_array(data, np.arange(n + 1, dtype=np.int64) * width)


def join(*columns: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """Returns the row-wise concatenation of columns of equal length."""
    return pc.binary_join_element_wise(*columns, pa.scalar(b"", pa.large_binary()))


def frame(records: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """Returns records as they stand in a TFRecord file, shape [n]."""
    offsets = offsets_of(records)
    lengths = np.diff(offsets)
    distinct, which = np.unique(lengths, return_inverse=True)
    headers = np.frombuffer(b"".join(map(header, distinct.tolist())), np.uint8)
    footers = _masked(_checksums(records, offsets)).astype("<u4")
    return join(
        fixed_array(headers.reshape(-1, HEADER)[which]),
        records,
        fixed_array(footers.view(np.uint8).reshape(-1, FOOTER)),
    )


def header(length: int) -> bytes:
    """Returns what stands before a record of `length` bytes."""
    packed = struct.pack("<Q", length)
    return (
        packed + _masked(np.array([google_crc32c.value(packed)], np.uint32)).astype("<u4").tobytes()
    )


def _checksums(
    records: pa.LargeBinaryArray, offsets: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint32]:
    data = bytes_of(records).tobytes()  # the checksum takes nothing but bytes
    checksum = google_crc32c.value
    ends = (offsets - offsets[0]).tolist()
    values = [checksum(data[begin:end]) for begin, end in itertools.pairwise(ends)]
    return np.array(values, np.uint32)


def _masked(checksums: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    rotated = (checksums >> np.uint32(15)) | (checksums << np.uint32(17))
    return rotated + _MASK_DELTA
