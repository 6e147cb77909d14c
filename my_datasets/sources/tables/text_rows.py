"""Reads text files with one row per line: the common part of CSV, JSON Lines and plain text."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from my_datasets.building.units import Misfit
from my_datasets.sources.files.file import SourceFile
from my_datasets.sources.tables import line_ranges
from my_datasets.sources.tables.line_ranges import LineRange, LineRows

# Bytes of text that are read and parsed at once; parsing takes several times as much memory.
PIECE = 8 << 20

Parse = Callable[[bytes], pa.Table]
Explain = Callable[[bytes, Exception | None, int], Misfit]


@dataclass(frozen=True)
class TextReader:
    """Reads parts of text files; the generator of their units.

    Attributes:
      parse: Parses the bytes of some rows to a table; raises `ArrowInvalid` or `ValueError`.
      misfit: Describes an invalid row, given its bytes, the error that `parse` raised (None if it
        returned a wrong number of rows), and the number of rows it returned.
      key: The column of the keys; None for the row numbers.
      quote: As in `line_ranges.parts`.
      skip: The number of rows before the data.
    """

    parse: Parse
    misfit: Explain
    key: str | None
    quote: str | None
    skip: int

    def __call__(self, part: LineRange) -> Iterator[tuple[Any, Any]]:
        """Yields the keys and rows of a part."""
        for rows in line_ranges.read(part, size=PIECE, quote=self.quote, skip=self.skip):
            for begin, found in self._parsed(rows, 0, len(rows)):
                row = rows.first_row + begin
                if isinstance(found, Misfit):
                    yield part.file.row_key(row), found
                    continue
                keys = self.key or part.file.row_keys(row, found.num_rows)
                yield keys, found.combine_chunks().to_batches()[0]

    def _parsed(self, rows: LineRows, begin: int, end: int) -> Iterator[tuple[int, Any]]:
        """Yields (first row, table) or (row, misfit).

        Finds invalid rows by bisection, because the parser's row numbers are relative to its own
        blocks.
        """
        if begin == end:
            return
        error: Exception | None = None
        table = None
        try:
            table = self.parse(rows.part(begin, end))
        except (pa.ArrowInvalid, ValueError) as raised:
            error = raised
        if table is not None and table.num_rows == end - begin:
            yield begin, table
        elif end - begin == 1:
            data = rows.part(begin, end)
            misfit = self.misfit(data, error, table.num_rows if table is not None else 0)
            misfit.__cause__ = error
            yield begin, misfit
        else:
            middle = (begin + end) // 2
            yield from self._parsed(rows, begin, middle)
            yield from self._parsed(rows, middle, end)


def parts_of(files: list[SourceFile], *, quote: str | None, skip: int) -> list[LineRange]:
    """Returns the units of some text files."""
    return [
        part
        for file in files
        for part in line_ranges.parts(file, size=PIECE, quote=quote, skip=skip)
    ]


def shown(data: bytes) -> str:
    """Returns the beginning of a row, for an error message."""
    text = data.rstrip(b"\r\n").decode(errors="backslashreplace")
    return repr(text if len(text) <= 200 else text[:197] + "...")
