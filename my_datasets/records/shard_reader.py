"""Reads the records of a shard sequentially, in any supported file format, without TensorFlow."""

import contextlib
import os
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from my_datasets.core.processes import unless_out_of_memory
from my_datasets.errors import missing_shard
from my_datasets.printable import PrintableError
from my_datasets.records import parquet_pages, tfrecord
from my_datasets.storage.regular_files import open_regular

# Bytes of a file read at once, and records yielded at once.
_READ_AT_ONCE = 4 << 20
_RECORDS = 1024
# Bytes of a Parquet column read at once, rather than its whole row group.
_COLUMN_BYTES = 1 << 20
# The column of a Parquet shard that holds TFDS's records.
_COLUMN = "data"
_ARRAY_RECORD = "array_record"
# Otherwise it reads ahead in threads, for which a forked process would wait forever.
_ARRAY_RECORD_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"


class UnknownFormatError(PrintableError):
    """The file format of a shard is not supported."""


class DamagedError(PrintableError):
    """A shard is damaged.

    Attributes:
      row: The first record that cannot be read, counted from 0.
      at: The byte offset of that record; None if the format does not provide it.
      reason: What is wrong, as a sentence.
    """

    def __init__(self, row: int, at: int | None, reason: str) -> None:
        super().__init__(f"record {row}: {reason}")
        self.row, self.at, self.reason = row, at, reason


def records(
    source: Path | BinaryIO, file_format: str, at_once: int = _RECORDS
) -> Iterator[list[bytes]]:
    """Yields a shard's records in lists.

    Args:
      source: The shard, or, unless it is in ArrayRecord format, a file positioned at its beginning.
      file_format: `tfrecord`, `array_record` or `parquet`.
      at_once: The maximum number of records per list.

    Raises:
      DamagedError: The shard is damaged.
      UnknownFormatError: The format is not supported.
      CorruptShardError: The file does not exist.
    """
    if file_format not in _READERS:
        raise UnknownFormatError(file_format)
    if isinstance(source, Path) and not source.is_file():
        raise missing_shard(source)
    return _READERS[file_format](source, at_once)


def can_be_read_forked(file_format: str) -> bool:
    """Returns whether processes forked from this one now can read shards of a format.

    The ArrayRecord library starts a thread on first use, and crashes in forked processes, which
    lack that thread.
    """
    return file_format != _ARRAY_RECORD or f"{_ARRAY_RECORD}.python" not in sys.modules


def _tfrecords(source: Path | BinaryIO, at_once: int) -> Iterator[list[bytes]]:
    if isinstance(source, Path):
        open_regular(source).close()
        with source.open("rb", buffering=_READ_AT_ONCE) as file:
            yield from _tfrecords(file, at_once)
        return
    row = 0
    size = source.seek(0, os.SEEK_END)
    source.seek(0)
    found: list[bytes] = []
    pending_bytes = 0
    while header := source.read(tfrecord.HEADER):
        at = source.tell() - len(header)
        if len(header) < tfrecord.HEADER:
            raise DamagedError(row, at, "The file ends within the length of the record.")
        (length,) = struct.unpack("<Q", header[:8])
        if tfrecord.header(length) != header:
            raise DamagedError(row, at, "The checksum of the record's length is wrong.")
        if at + length + tfrecord.OVERHEAD > size:
            raise DamagedError(row, at, "The file ends within the record.")
        record, footer = source.read(length), source.read(tfrecord.FOOTER)
        if tfrecord.footer(google_crc32c.value(record)) != footer:
            raise DamagedError(row, at, "The checksum of the record is wrong.")
        found.append(record)
        pending_bytes += length
        row += 1
        if len(found) >= at_once or pending_bytes >= _READ_AT_ONCE:
            yield found
            found, pending_bytes = [], 0
    yield found


def _array_records(source: Path | BinaryIO, at_once: int) -> Iterator[list[bytes]]:
    from array_record.python import array_record_module

    if not isinstance(source, Path):
        raise TypeError("ArrayRecord's reader takes the names of files only")
    row = 0
    try:
        reader = array_record_module.ArrayRecordReader(os.fspath(source), _ARRAY_RECORD_OPTIONS)
        try:
            count = reader.num_records()
            for row in range(0, count, at_once):
                yield reader.read(row, min(row + at_once, count))
        finally:
            reader.close()
    except RuntimeError as error:  # pybind11 raises all of its errors as this one
        raise DamagedError(row, None, str(error)) from error


def _parquet(source: Path | BinaryIO, at_once: int) -> Iterator[list[bytes]]:
    row = 0
    try:
        with contextlib.ExitStack() as stack:
            opened = {False: stack.enter_context(_parquet_file(source))}
            metadata = opened[False].metadata
            for group in range(metadata.num_row_groups):
                rows, has_dictionary = _ways_to_read(source, metadata.row_group(group), at_once)
                if has_dictionary not in opened:
                    opened[True] = stack.enter_context(
                        _parquet_file(source, read_dictionary=[_COLUMN], metadata=metadata)
                    )
                file = opened[has_dictionary]
                for batch in file.iter_batches(rows, row_groups=[group], columns=[_COLUMN]):
                    column = batch.column(0)
                    kind = column.type
                    is_shared = pa.types.is_dictionary(kind)
                    kind = kind.value_type if is_shared else kind
                    if column.null_count or not (
                        pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
                    ):
                        raise DamagedError(row, None, f"The column {_COLUMN!r} holds no records.")
                    yield from _in_parts(_shared(column) if is_shared else column.to_pylist())
                    row += batch.num_rows
    except (pa.ArrowException, OSError, IndexError, ValueError) as error:
        unless_out_of_memory(error)
        raise DamagedError(row, None, str(error)) from error


def _parquet_file(source: Path | BinaryIO, **options: Any) -> pq.ParquetFile:
    return pq.ParquetFile(
        source, page_checksum_verification=True, buffer_size=_COLUMN_BYTES,
        # Read no more than needed from an open file, because it may be remote.
        pre_buffer=isinstance(source, Path), **options,
    )  # fmt: skip


def _ways_to_read(
    source: Path | BinaryIO, group: pq.RowGroupMetaData, most: int
) -> tuple[int, bool]:
    if not isinstance(source, Path):
        return parquet_pages.ways_to_read(source, group, _COLUMN, most)
    with open_regular(source) as file:
        return parquet_pages.ways_to_read(file, group, _COLUMN, most)


def _shared(column: pa.DictionaryArray) -> list[bytes]:
    """Returns the values of a column; values that are stored once are the same object."""
    used, numbers = np.unique(column.indices.to_numpy(), return_inverse=True)
    values = column.dictionary.take(pa.array(used)).to_pylist()
    return [values[number] for number in numbers.tolist()]


def _in_parts(given: list[bytes]) -> Iterator[list[bytes]]:
    """Yields lists of records of about `_READ_AT_ONCE` bytes, each with at least one record."""
    found: list[bytes] = []
    pending_bytes = 0
    for record in given:
        found.append(record)
        pending_bytes += len(record)
        if pending_bytes >= _READ_AT_ONCE:
            yield found
            found, pending_bytes = [], 0
    if found:
        yield found


_READERS: dict[str, Callable[[Path | BinaryIO, int], Iterator[list[bytes]]]] = {
    "tfrecord": _tfrecords,
    _ARRAY_RECORD: _array_records,
    "parquet": _parquet,
}
# The supported formats.
FORMATS = frozenset(_READERS)
