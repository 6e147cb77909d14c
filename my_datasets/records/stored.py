"""The records of a shard one after the other, whatever the format of its file. No TensorFlow."""

import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import google_crc32c
import pyarrow as pa
import pyarrow.parquet as pq

from my_datasets.records import tfrecord

# Bytes of a file that are read at once, and records that are taken of it.
_READ_AT_ONCE = 4 << 20
_RECORDS = 1024
# The column of a Parquet shard that holds TFDS's records.
_COLUMN = "data"


class UnknownFormatError(Exception):
    """Shards of this format are not read here."""


class DamagedError(Exception):
    """A shard is damaged.

    Attributes:
      row: The first record that cannot be read, counted from 0.
      at: The byte at which it begins; None if the format does not tell.
      reason: What is wrong, a sentence.
    """

    def __init__(self, row: int, at: int | None, reason: str) -> None:
        """Takes the attributes."""
        super().__init__(f"record {row}: {reason}")
        self.row, self.at, self.reason = row, at, reason


def records(path: Path, file_format: str) -> Iterator[list[bytes]]:
    """Yields a shard's records, some at a time.

    Args:
      path: The shard.
      file_format: `tfrecord`, `array_record` or `parquet`.

    Raises:
      DamagedError: It is damaged.
      UnknownFormatError: The format is another one.
    """
    if file_format not in _READERS:
        raise UnknownFormatError(file_format)
    return _READERS[file_format](path)


def _tfrecords(path: Path) -> Iterator[list[bytes]]:
    row = 0
    with path.open("rb", buffering=_READ_AT_ONCE) as file:
        size = os.fstat(file.fileno()).st_size
        found: list[bytes] = []
        held = 0
        while header := file.read(tfrecord.HEADER):
            at = file.tell() - len(header)
            if len(header) < tfrecord.HEADER:
                raise DamagedError(row, at, "The file ends within the length of the record.")
            (length,) = struct.unpack("<Q", header[:8])
            if tfrecord.header(length) != header:
                raise DamagedError(row, at, "The checksum of the record's length is wrong.")
            if at + length + tfrecord.OVERHEAD > size:
                raise DamagedError(row, at, "The file ends within the record.")
            record, footer = file.read(length), file.read(tfrecord.FOOTER)
            if tfrecord.footer(google_crc32c.value(record)) != footer:
                raise DamagedError(row, at, "The checksum of the record is wrong.")
            found.append(record)
            held += length
            row += 1
            if len(found) >= _RECORDS or held >= _READ_AT_ONCE:
                yield found
                found, held = [], 0
        yield found


def _array_records(path: Path) -> Iterator[list[bytes]]:
    from array_record.python import array_record_module

    row = 0
    try:
        reader = array_record_module.ArrayRecordReader(os.fspath(path))
        try:
            count = reader.num_records()
            for row in range(0, count, _RECORDS):
                yield reader.read(row, min(row + _RECORDS, count))
        finally:
            reader.close()
    except RuntimeError as error:  # as pybind11 gives all of them
        raise DamagedError(row, None, str(error)) from error


def _parquet(path: Path) -> Iterator[list[bytes]]:
    row = 0
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for batch in file.iter_batches(_RECORDS, columns=[_COLUMN]):
                column = batch.column(0)
                if column.null_count or not pa.types.is_binary(column.type):
                    raise DamagedError(row, None, f"The column {_COLUMN!r} holds no records.")
                yield column.to_pylist()
                row += batch.num_rows
    except (pa.ArrowException, OSError, IndexError, UnicodeDecodeError) as error:
        raise DamagedError(row, None, str(error)) from error


_READERS: dict[str, Callable[[Path], Iterator[list[bytes]]]] = {
    "tfrecord": _tfrecords,
    "array_record": _array_records,
    "parquet": _parquet,
}
