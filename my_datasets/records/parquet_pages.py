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
_VALUES, _ENCODING, _ENCODING_2 = 1, 2, 4
# Plain values, and numbers of those of a dictionary.
_PLAIN = 0
_ENCODINGS = frozenset({_PLAIN, 2, 8})
_DEEPEST = 8


@dataclass(frozen=True)
class Page:
    """A page, as its header says.

    Attributes:
      values: How many values it has; 0 of a dictionary.
      expands_to: Its bytes when it is decompressed.
      stored: Its bytes in the file.
      encoding: How its values are encoded, a number of Parquet's.
      is_dictionary: Whether its values are those that other pages name.
    """

    values: int
    expands_to: int
    stored: int
    encoding: Any
    is_dictionary: bool


def ways_to_read(file: BinaryIO, group: Any, column: str, most: int) -> tuple[int, bool]:
    """Returns how many rows can be read at once, so that they take little memory, and how.

    Args:
      file: The file; its position changes.
      group: What its footer says of a row group, a `pyarrow.parquet.RowGroupMetaData`.
      column: The column, one of single values.
      most: How many rows are wanted.

    Returns:
      The rows, and whether to read the column as a dictionary. Then a value that is stored once for
      many rows is in memory once; but Arrow keeps all values of the row group.

    Raises:
      ValueError: A page is far larger than what is stored of it, or has no header.
    """
    expands_to = stored = 0
    has_dictionary = False
    for page in pages(file, group, column):
        _check(page.expands_to, page.stored, "A page")
        expands_to, stored = expands_to + page.expands_to, stored + page.stored
        has_dictionary |= page.is_dictionary
        if page.encoding not in _ENCODINGS:  # others repeat a part of a value in the next ones
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


def pages(file: BinaryIO, group: Any, column: str) -> Iterator[Page]:
    """Yields the pages of a column in a row group; arguments and errors as `ways_to_read`."""
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
            if size >= _MOST_HEADER:
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
        self.at += count  # if that is beyond what there is, so is the next byte

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
