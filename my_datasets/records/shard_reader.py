"""Reads the records of a shard sequentially, in any supported file format, without TensorFlow.

The page headers of a Parquet file are read first, to bound memory: a page is decompressed in one
step, to the size that its header declares, which may be 2 GiB for a few stored bytes. Arrow reads
as many pages as the rows of a batch need, without a limit. The footer may declare less than the
headers, so the headers are read, from the first to the last.
"""

import contextlib
import os
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from my_datasets.core.processes import unless_out_of_memory
from my_datasets.core.sizes import human_size
from my_datasets.errors import missing_shard
from my_datasets.printable import PrintableError
from my_datasets.records import tfrecord
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
    """Yields a shard's records in lists of at most `at_once`.

    `source` may be a file positioned at its beginning, unless the format is `array_record`; the
    others are `tfrecord` and `parquet`.

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


# Pages larger than MOST_BYTES are refused if they expand by more than a factor of _EXPANDED.
MOST_BYTES = 1 << 30
_EXPANDED = 16
# Bytes of pages read for one batch, unless a single page is larger.
_PAGES_AT_ONCE = 64 << 20
# Initial and maximum size of a header. Headers include a page's minimum and maximum value; Arrow
# accepts none longer than this.
_HEADER, _MOST_HEADER = 1 << 10, 16 << 20
_DICTIONARY = 2
# Field numbers in a `PageHeader`, and those of the value count and encoding in the version 1 and 2
# data page headers.
_KIND, _EXPANDS_TO, _STORED, _OF_DATA, _OF_DATA_2 = 1, 2, 3, 5, 8
_VALUES, _ENCODING, _ENCODING_2 = 1, 2, 4
# Plain values, and dictionary indices.
_PLAIN = 0
_ENCODINGS = frozenset({_PLAIN, 2, 8})
_DEEPEST = 8
# Of a Thrift struct: integers and structs by field number; other values are skipped.
_Struct: TypeAlias = "dict[int, _Value]"
_Value: TypeAlias = "int | _Struct | None"


@dataclass(frozen=True)
class Page:
    """A page, as declared by its header.

    Attributes:
      values: The number of values; 0 for a dictionary page.
      expands_to: The decompressed size in bytes.
      stored: The size in the file in bytes.
      encoding: Parquet's number for the encoding of the values.
      is_dictionary: Whether this is a dictionary page, with the values that other pages index.
    """

    values: int
    expands_to: int
    stored: int
    encoding: object
    is_dictionary: bool


def _ways_to_read(
    source: Path | BinaryIO, group: pq.RowGroupMetaData, most: int
) -> tuple[int, bool]:
    """Returns how many rows to read at a time, at most `most`, and whether as a dictionary.

    A dictionary keeps a value that many rows share in memory only once, but Arrow then keeps all
    values of the row group.

    Raises:
      ValueError: A page expands far beyond its stored size, or has no valid header.
    """
    expands_to = stored = 0
    has_dictionary = False
    opened = open_regular(source) if isinstance(source, Path) else contextlib.nullcontext(source)
    with opened as file:
        for page in parquet_pages(file, group):
            _check_expansion(page.expands_to, page.stored, "A page")
            expands_to, stored = expands_to + page.expands_to, stored + page.stored
            has_dictionary |= page.is_dictionary
            if page.encoding not in _ENCODINGS:  # others reuse a part of the previous value
                raise ValueError(f"A page has the encoding {page.encoding}, which is not read here")
            if page.values > 0 and page.expands_to > 0:
                most = min(most, max(1, _PAGES_AT_ONCE * page.values // page.expands_to))
    if has_dictionary:
        _check_expansion(expands_to, stored, "A row group with a dictionary")
    return most, has_dictionary


def _check_expansion(expands_to: int, stored: int, what: str) -> None:
    if expands_to > max(MOST_BYTES, _EXPANDED * stored):
        raise ValueError(
            f"{what} has {stored:,} bytes that expand to {human_size(expands_to)}; at most "
            f"{human_size(MOST_BYTES)} are read"
        )


def parquet_pages(file: BinaryIO, group: pq.RowGroupMetaData) -> Iterator[Page]:
    """Yields the pages of a row group's column of records, as their headers declare them.

    Raises:
      ValueError: A page has no valid header.
    """
    for chunk in map(group.column, range(group.num_columns)):
        if chunk.path_in_schema.partition(".")[0] != _COLUMN:
            continue
        at, dictionary = chunk.data_page_offset, chunk.dictionary_page_offset
        if dictionary is not None and 0 < dictionary < at:
            at = dictionary
        end = at + chunk.total_compressed_size
        while at < end:
            fields, length = _page_header(file, at)
            stored, expands_to = fields.get(_STORED), fields.get(_EXPANDS_TO)
            is_dictionary = fields.get(_KIND) == _DICTIONARY
            of_data, encoded = fields.get(_OF_DATA), _ENCODING
            if not isinstance(of_data, dict):
                of_data, encoded = fields.get(_OF_DATA_2), _ENCODING_2
            if is_dictionary or not isinstance(of_data, dict):
                of_data = {}
            values, encoding = of_data.get(_VALUES, 0), of_data.get(encoded, _PLAIN)
            if not (isinstance(stored, int) and isinstance(expands_to, int) and stored >= 0):
                raise ValueError("A page has no header that can be read")
            values = values if isinstance(values, int) else 0
            yield Page(values, expands_to, stored, encoding, is_dictionary)
            at += length + stored


def _page_header(file: BinaryIO, at: int) -> tuple[_Struct, int]:
    """Returns a header's integers by field number, and the header's length in bytes."""
    size = _HEADER
    while True:
        file.seek(at)
        data = file.read(size)
        reader = _Compact(data)
        try:
            return reader.struct(), reader.at
        except IndexError:
            if size >= _MOST_HEADER:
                raise ValueError("A page has no header that can be read") from None
            size *= 16


class _Compact:
    """Reads structs in Thrift's compact protocol; of their fields, only integers and structs."""

    def __init__(self, data: bytes) -> None:
        self.at, self._data = 0, data

    def struct(self, depth: int = 0) -> _Struct:
        if depth > _DEEPEST:
            raise ValueError("A page has no header that can be read")
        found: _Struct = {}
        number = 0
        while byte := self._byte():
            kind, step = byte & 0x0F, byte >> 4
            number = number + step if step else self._number()
            found[number] = self._value(kind, depth)
        return found

    def _value(self, kind: int, depth: int) -> _Value:
        if kind in (1, 2):  # true and false, which have no further bytes
            return None
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._number()
        if kind in (7, 8):
            self._skip(8 if kind == 7 else self._varint())
            return None
        if kind == 12:
            return self.struct(depth + 1)
        raise ValueError("A page has no header that can be read")

    def _skip(self, count: int) -> None:
        self.at += count  # past the end, the next read raises IndexError

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        found = shift = 0
        while True:
            byte = self._byte()
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80 or shift > 63:
                return found

    def _number(self) -> int:
        found = self._varint()
        return found >> 1 ^ -(found & 1)
