"""What the pages of a Parquet file are said to have: how much a little of it becomes in memory.

Each page is decompressed at once, into as many bytes as its header says, which may be 2 GiB for a
few that are stored. Arrow reads as many pages as it takes for the rows of a batch, and sets no
limit. The footer may say less than the headers, so these are read, from the first to the last.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from my_datasets.core.sizes import human_size

# A larger page is refused if it is stored in less than one part of so many.
MOST_BYTES = 1 << 30
_EXPANDED = 16
# Bytes of pages that are read for one batch, unless one page has more.
_AT_ONCE = 64 << 20
# Headers with the least and greatest value of a page are as long as these; Arrow takes no more.
_HEADER, _MOST_HEADER = 1 << 10, 16 << 20
_DICTIONARY = 2
# Fields of a `PageHeader`, and in the headers of pages of version 1 and 2 that of their values.
_KIND, _EXPANDS_TO, _STORED, _OF_DATA, _OF_DATA_2 = 1, 2, 3, 5, 8
_VALUES = 1
_DEEPEST = 8


@dataclass(frozen=True)
class Page:
    """A page, as its header says.

    Attributes:
      values: How many values it has; 0 of a dictionary.
      expands_to: Its bytes when it is decompressed.
      stored: Its bytes in the file.
    """

    values: int
    expands_to: int
    stored: int


def rows_at_once(file: BinaryIO, group: Any, column: str, most: int) -> int:
    """Returns how many rows of a column can be read at once, so that they take little memory.

    Args:
      file: The file; its position changes.
      group: What its footer says of a row group, a `pyarrow.parquet.RowGroupMetaData`.
      column: The column, one of single values.
      most: How many are wanted.

    Raises:
      ValueError: A page is far larger than what is stored of it, or has no header.
    """
    for page in pages(file, group, column):
        if page.expands_to > max(MOST_BYTES, _EXPANDED * page.stored):
            raise ValueError(
                f"A page has {page.stored:,} bytes that expand to {human_size(page.expands_to)}; "
                f"at most {human_size(MOST_BYTES)} are read"
            )
        if page.values > 0 and page.expands_to > 0:
            most = min(most, max(1, _AT_ONCE * page.values // page.expands_to))
    return most


def pages(file: BinaryIO, group: Any, column: str) -> Iterator[Page]:
    """Yields the pages of a column in a row group; arguments and errors as `rows_at_once`."""
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
            of_data = fields.get(_OF_DATA) or fields.get(_OF_DATA_2) or {}
            is_dictionary = fields.get(_KIND) == _DICTIONARY
            if not isinstance(of_data, dict) or is_dictionary:
                of_data = {}
            values = of_data.get(_VALUES, 0)
            if not (isinstance(stored, int) and isinstance(expands_to, int) and stored >= 0):
                raise ValueError("A page has no header that can be read")
            yield Page(values if isinstance(values, int) else 0, expands_to, stored)
            at += length + stored


def _header(file: BinaryIO, at: int) -> tuple[dict[int, Any], int]:
    """Returns the numbers in a header, by the numbers of their fields, and its length."""
    size = _HEADER
    while True:
        file.seek(at)
        data = file.read(size)
        reader = _Compact(data)
        try:
            return reader.struct(), reader.at
        except IndexError:
            if len(data) < size or size >= _MOST_HEADER:
                raise ValueError("A page has no header that can be read") from None
            size *= 16


class _Compact:
    """Reads structs in Thrift's compact protocol; of their fields, numbers and structs."""

    def __init__(self, data: bytes) -> None:
        self.at, self._data = 0, data

    def struct(self, depth: int = 0) -> dict[int, Any]:
        if depth > _DEEPEST:
            raise ValueError("A page has no header that can be read")
        found: dict[int, Any] = {}
        number = 0
        while byte := self._byte():
            kind, step = byte & 0x0F, byte >> 4
            number = number + step if step else self._number()
            found[number] = self._value(kind, depth)
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):  # true and false, which are their own values
            return None
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._number()
        if kind == 7:
            return self._skip(8)
        if kind == 8:
            return self._skip(self._varint())
        if kind == 12:
            return self.struct(depth + 1)
        raise ValueError("A page has no header that can be read")

    def _skip(self, count: int) -> None:
        self.at += count
        if self.at > len(self._data):
            raise IndexError

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
