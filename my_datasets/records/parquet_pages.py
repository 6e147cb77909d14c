"""Page headers of a Parquet file, which bound the memory that reading it takes.

A page is decompressed in one step, to the size that its header declares, which may be 2 GiB for a
few stored bytes. Arrow reads as many pages as the rows of a batch need, without a limit. The footer
may declare less than the headers, so the headers are read, from the first to the last.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, TypeAlias

import pyarrow.parquet as pq

from my_datasets.core.sizes import human_size

# Pages larger than MOST_BYTES are refused if they expand by more than a factor of _EXPANDED.
MOST_BYTES = 1 << 30
_EXPANDED = 16
# Bytes of pages read for one batch, unless a single page is larger.
_AT_ONCE = 64 << 20
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


def ways_to_read(
    file: BinaryIO, group: pq.RowGroupMetaData, column: str, most: int
) -> tuple[int, bool]:
    """Returns how many rows to read at a time to bound memory use, and in which way.

    Args:
      file: The file; its position changes.
      group: The `pyarrow.parquet.RowGroupMetaData` of a row group in the file's footer.
      column: The column; it must not be repeated.
      most: The number of rows wanted.

    Returns:
      The number of rows, and whether to read the column as a dictionary. A dictionary keeps a value
      that many rows share in memory only once, but Arrow then keeps all values of the row group.

    Raises:
      ValueError: A page expands far beyond its stored size, or has no valid header.
    """
    expands_to = stored = 0
    has_dictionary = False
    for page in pages(file, group, column):
        _check(page.expands_to, page.stored, "A page")
        expands_to, stored = expands_to + page.expands_to, stored + page.stored
        has_dictionary |= page.is_dictionary
        if page.encoding not in _ENCODINGS:  # other encodings reuse a part of the previous value
            raise ValueError(f"A page has the encoding {page.encoding}, which is not read here")
        if page.values > 0 and page.expands_to > 0:
            most = min(most, max(1, _AT_ONCE * page.values // page.expands_to))
    if has_dictionary:
        _check(expands_to, stored, "A row group with a dictionary")
    return most, has_dictionary


def _check(expands_to: int, stored: int, what: str) -> None:
    if expands_to > max(MOST_BYTES, _EXPANDED * stored):
        raise ValueError(
            f"{what} has {stored:,} bytes that expand to {human_size(expands_to)}; at most "
            f"{human_size(MOST_BYTES)} are read"
        )


def pages(file: BinaryIO, group: pq.RowGroupMetaData, column: str) -> Iterator[Page]:
    """Yields the pages of a column in a row group; arguments and errors as in `ways_to_read`."""
    for chunk in map(group.column, range(group.num_columns)):
        if chunk.path_in_schema.partition(".")[0] != column:
            continue
        at, dictionary = chunk.data_page_offset, chunk.dictionary_page_offset
        if dictionary is not None and 0 < dictionary < at:
            at = dictionary
        end = at + chunk.total_compressed_size
        while at < end:
            fields, length = _header(file, at)
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


def _header(file: BinaryIO, at: int) -> tuple[_Struct, int]:
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
