"""Reads text files with one row per line: the common part of CSV, JSON Lines and plain text.

This module only finds the ends of rows, so that parts of a file can be read in parallel; parsers
read their contents. A newline inside quotes does not end a row. Whether a newline is inside quotes
depends on the number of quotes before it in the file, which are counted for whole blocks at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from my_datasets.building.units import InvalidValue
from my_datasets.errors import SourceError
from my_datasets.sources.file import SourceFile
from my_datasets.sources.source import Source
from my_datasets.sources.types import Rows

if TYPE_CHECKING:
    from _typeshed import SupportsRead

_NEWLINE, _RETURN = 10, 13
_BOM = b"\xef\xbb\xbf"
# A longer row is considered an error: a quote that is never closed, or a file that is not text.
LONGEST_ROW = 256 << 20
# Errors that readers of compressed files raise for corrupt data.
_UNREADABLE = (OSError, EOFError, ValueError, RuntimeError)

Ends = npt.NDArray[np.int64]

# Bytes of text that are read and parsed at once; parsing takes several times as much memory.
PIECE = 8 << 20


@dataclass(frozen=True)
class LineRange:
    """A part of a file that contains whole rows."""

    file: SourceFile
    start: int  # the offset of the first byte
    stop: int | None  # the offset after the last byte; None for a whole file that is not seekable
    first_row: int  # its number, from 0, without blank lines and the rows before the data
    rows: int | None  # their number; None if unknown


@dataclass(frozen=True)
class LineRows:
    """Some whole rows of a file."""

    data: bytes
    ends: Ends  # the position after each row that is not blank
    first_row: int  # the number of the first row
    start: int  # their offset in the decompressed file

    def part(self, begin: int, end: int) -> bytes:
        """Returns the bytes of the rows from `begin` up to `end`."""
        start = int(self.ends[begin - 1]) if begin else 0
        return self.data[start : int(self.ends[end - 1])]

    def __len__(self) -> int:
        return len(self.ends)


def parts(file: SourceFile, *, quote: str | None, skip: int) -> list[LineRange]:
    """Returns the parts in which to read a file: a single one if it is not seekable.

    The file is read completely once, unless it is a single part. Newlines between two `quote`
    characters do not end a row; None for no quoting. `skip` rows, such as the header, precede the
    data.

    Raises:
      SourceError: A row is longer than `LONGEST_ROW`.
    """
    if not file.is_splittable:
        return [LineRange(file, 0, None, 0, None)]
    with file.read_all() as stream:
        return [
            LineRange(file, rows.start, rows.start + len(rows.data), rows.first_row, len(rows))
            for rows in _without_head(_pieces(stream, file, size=PIECE, quote=quote), skip)
        ]


def read(part: LineRange, *, quote: str | None, skip: int) -> Iterator[LineRows]:
    """Yields the rows of a part, about `PIECE` bytes at a time; see `parts`.

    Raises:
      SourceError: A row is longer than `LONGEST_ROW`, or the file changed after `parts` read it.
    """
    if part.stop is not None:
        try:
            data = part.file.read_at(part.start, part.stop - part.start)
        except _UNREADABLE as error:
            raise _damaged(part.file, error) from error
        ends, _ = row_ends(data, quote)
        if len(data) != part.stop - part.start or len(ends) != part.rows:
            raise SourceError(f"{part.file} changed while it was read.", fix="build again")
        yield LineRows(data, ends, part.first_row, part.start)
        return
    with part.file.stream() as stream:
        yield from _without_head(_pieces(stream, part.file, size=PIECE, quote=quote), skip)


def _without_head(pieces: Iterator[LineRows], skip: int) -> Iterator[LineRows]:
    """Yields the rows after the first `skip`, and numbers them from 0."""
    for rows in pieces:
        head = max(0, min(len(rows), skip - rows.first_row))
        if len(rows) > head:
            start = int(rows.ends[head - 1]) if head else 0
            first_row = rows.first_row + head - skip
            data = rows.data[start:] if start else rows.data
            yield LineRows(data, rows.ends[head:] - start, first_row, rows.start + start)


def first_rows(file: SourceFile, size: int, *, quote: str | None, at_least: int) -> LineRows:
    """Returns the first rows of a file: about `size` bytes, but no fewer than `at_least` rows."""
    found = LineRows(b"", np.zeros(0, np.int64), 0, 0)
    with file.stream() as stream:
        for rows in _pieces(stream, file, size=size, quote=quote):
            ends = np.concatenate([found.ends, rows.ends + len(found.data)])
            found = LineRows(found.data + rows.data, ends, 0, 0)
            if len(found) >= at_least:
                break
    return found


def row_ends(data: bytes, quote: str | None, *, is_last: bool = True) -> tuple[Ends, int]:
    """Returns the position after each row that is not blank, and where the last whole row ends.

    `data` starts at the beginning of a row; `quote` is as in `parts`. If it `is_last`, bytes after
    the last newline are also a row.
    """
    array = np.frombuffer(data, np.uint8)
    newlines = np.flatnonzero(array == _NEWLINE)
    if quote is not None and quote.encode() in data:
        quotes = np.flatnonzero(array == ord(quote))
        newlines = newlines[np.searchsorted(quotes, newlines) % 2 == 0]
    ends = newlines.astype(np.int64) + 1
    whole = int(ends[-1]) if len(ends) else 0
    if is_last and whole < len(data):
        whole = len(data)
        ends = np.append(ends, whole)
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])[: len(ends)]
    lengths = ends - starts
    blank = (lengths == 1) & (array[starts] == _NEWLINE)
    blank |= (lengths == 2) & (array[starts] == _RETURN) & (array[ends - 1] == _NEWLINE)
    return ends[~blank], whole


def _pieces(
    stream: "SupportsRead[bytes]", file: SourceFile, *, size: int, quote: str | None
) -> Iterator[LineRows]:
    """Yields a whole stream in pieces of whole rows, without a UTF-8 byte order mark."""
    rest, row, start, is_first = b"", 0, 0, True
    while True:
        try:
            read = stream.read(size)
        except _UNREADABLE as error:
            raise _damaged(file, error) from error
        data = rest + read
        if is_first and data.startswith(_BOM):
            data, start = data[len(_BOM) :], len(_BOM)
        is_first = False
        ends, whole = row_ends(data, quote, is_last=not read)
        if whole:
            yield LineRows(data[:whole], ends, row, start)
            row += len(ends)
            start += whole
        rest = data[whole:]
        if not read:
            return
        if len(rest) > LONGEST_ROW:
            raise SourceError(
                f"{file} has a row of more than {LONGEST_ROW >> 20} MiB.",
                f"It is row {row + 1}.",
                f"A {quote} before it may not be closed." if quote else "",
                fix="check that this is a text file, and how its texts are quoted",
            )


def _damaged(file: SourceFile, error: Exception) -> SourceError:
    return SourceError(f"{file} cannot be read to its end: {error}", fix="download the file again")


class RowParser(Protocol):
    """Parses the rows of a text format."""

    def __call__(self, data: bytes) -> pa.Table:
        """Parses the bytes of some rows to a table; raises `ArrowInvalid` or `ValueError`."""

    def invalid(self, data: bytes, error: Exception | None, rows: int) -> InvalidValue:
        """Describes an invalid row, given its bytes and the error that parsing it raised.

        Without an error, it was parsed to another number of rows.
        """


@dataclass(frozen=True)
class TextReader:
    """Reads parts of text files; the generator of their units."""

    parser: RowParser
    key: str | None  # the column of the keys; None for the row numbers
    quote: str | None  # as in `parts`
    skip: int  # as in `parts`

    def __call__(self, part: LineRange) -> Iterator[Rows]:
        """Yields the keys and rows of a part."""
        for rows in read(part, quote=self.quote, skip=self.skip):
            for begin, found in self._parsed(rows, 0, len(rows)):
                row = rows.first_row + begin
                if isinstance(found, InvalidValue):
                    yield part.file.row_key(row), found
                    continue
                keys = self.key or part.file.row_keys(row, found.num_rows)
                yield keys, found.combine_chunks().to_batches()[0]

    def _parsed(
        self, rows: LineRows, begin: int, end: int
    ) -> Iterator[tuple[int, pa.Table | InvalidValue]]:
        """Yields (first row, table) or (row, what is wrong with it).

        Finds invalid rows by bisection, because the parser's row numbers are relative to its own
        blocks.
        """
        if begin == end:
            return
        error: Exception | None = None
        table = None
        try:
            table = self.parser(rows.part(begin, end))
        except (pa.ArrowInvalid, ValueError) as raised:
            error = raised
        if table is not None and table.num_rows == end - begin:
            yield begin, table
        elif end - begin == 1:
            data = rows.part(begin, end)
            invalid = self.parser.invalid(data, error, table.num_rows if table is not None else 0)
            invalid.__cause__ = error
            yield begin, invalid
        else:
            middle = (begin + end) // 2
            yield from self._parsed(rows, begin, middle)
            yield from self._parsed(rows, middle, end)


def text_source(
    files: list[SourceFile],
    parser: RowParser,
    schema: pa.Schema,
    nullable: frozenset[str] = frozenset(),
    *,
    key: str | None = None,
    quote: str | None = None,
    skip: int = 0,
) -> Source:
    """Returns the rows of text files, whose parts are the units."""
    units = [part for file in files for part in parts(file, quote=quote, skip=skip)]
    return Source(TextReader(parser, key, quote, skip), units, schema, nullable)


def shown(data: bytes) -> str:
    """Returns the beginning of a row, for an error message."""
    text = data.rstrip(b"\r\n").decode(errors="backslashreplace")
    return repr(text if len(text) <= 200 else text[:197] + "...")
