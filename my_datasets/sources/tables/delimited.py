"""CSV and TSV files, parsed by pyarrow."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv

from my_datasets.building.units import Misfit
from my_datasets.errors import SourceError, explain
from my_datasets.sources.files.file import File
from my_datasets.sources.files.listing import Where, files
from my_datasets.sources.source import Source
from my_datasets.sources.tables import line_ranges
from my_datasets.sources.tables.text_rows import TextReader, parts_of, shown
from my_datasets.sources.types import MOST_COLUMNS, check_names, stored, stored_schema, with_nulls

# What types are guessed from: the beginning of the first file.
_SAMPLE = 4 << 20
_CONVERSION = re.compile(r"In CSV column #(\d+):.*?conversion error to ([^:]+): (.*)", re.DOTALL)
_COUNTS = re.compile(r"Expected (\d+) columns, got (\d+)")


def csv(
    where: Where,
    *,
    key: str | None = None,
    columns: Sequence[str] | None = None,
    types: Mapping[str, pa.DataType] | None = None,
    delimiter: str = ",",
    quote: str | None = '"',
    encoding: str = "utf8",
    skip_rows: int = 0,
    null_values: Sequence[str] | None = None,
) -> Source:
    """Returns the rows of CSV files.

    Large files are read in parts, in parallel: plain ones, and with the extra `compressed` also
    those that end in `.gz` and `.bz2`. Other compressed ones (`.zst`, `.lz4`) are read as a whole,
    each in one process.

    Args:
      where: A file, a directory, a pattern such as `folder/*.csv`, or several; paths, or URLs in an
        object store. All files have the same columns.
      key: The column whose values are the examples' keys; None for the numbers of the rows, with
        the file's name before them if there are several.
      columns: The names of the columns, for files without a header.
      types: The types of some columns. Those of others are guessed from the first file's first
        4 MiB; a later value of another type is an error.
      delimiter: What stands between two values, one character.
      quote: What stands around a value that holds a delimiter or newline; None if nothing does.
      encoding: The encoding of the text; one in which newlines are those of ASCII.
      skip_rows: How many rows stand above the header, or above the data if there is none.
      null_values: Texts that stand for nothing, in columns of all types; None for pyarrow's own
        (empty, `NA`, `null`, ...), which in a column of texts are texts.

    Raises:
      SourceError: There is no such file, or it has no columns that could be a dataset's.
    """
    nulls = tuple(null_values) if null_values is not None else None
    dialect = _Dialect(delimiter, quote, encoding, nulls)
    dialect.check()
    found = files(where, (".csv", ".tsv", ".tab"))
    names = list(columns) if columns is not None else _names(found, dialect, skip_rows)
    if columns is not None:
        check_names(columns)
    unknown = sorted({*(types or {}), *([key] if key is not None else [])} - set(names))
    if unknown:
        raise SourceError(
            explain(
                f"{found[0]} has no column {', '.join(map(repr, unknown))}.",
                f"Its columns: {', '.join(names)}",
                fix="choose among those, or name them with columns=[...]",
            )
        )
    skip = skip_rows + (columns is None)
    schema, nullable = _guessed(found[0], names, types or {}, dialect, skip)
    parser = _Parser(dialect, schema, stored_schema(schema), frozenset(types or {}))
    reader = TextReader(parser, parser.misfit, key, quote, skip)
    return Source(reader, parts_of(found, quote=quote, skip=skip), parser.stored, nullable)


def tsv(where: Where, **options: Any) -> Source:
    """Returns the rows of TSV files; the options are those of `csv`, but for `delimiter`."""
    return csv(where, delimiter="\t", **options)


@dataclass(frozen=True)
class _Dialect:
    """How the files are written."""

    delimiter: str
    quote: str | None
    encoding: str
    null_values: tuple[str, ...] | None

    def check(self) -> None:
        """Sees that files so written can be read.

        Raises:
          SourceError: They cannot.
        """
        for name, mark in (("delimiter", self.delimiter), ("quote", self.quote)):
            if mark is not None and not (len(mark) == 1 and mark.isascii()):
                raise SourceError(
                    explain(
                        f"The {name} {mark!r} cannot be read.",
                        "Expected one character of ASCII",
                        fix=f"convert the file, or give another {name}",
                    )
                )
        if "\na".encode(self.encoding) != b"\na":
            raise SourceError(
                explain(
                    f"Files in {self.encoding} cannot be read in parts.",
                    "Expected an encoding in which newlines are those of ASCII",
                    fix="convert the file to UTF-8 first",
                )
            )

    def read(
        self, data: bytes, names: list[str] | None, types: Mapping[str, pa.DataType], **parse: Any
    ) -> pa.Table:
        """Parses rows; raises `ArrowInvalid`."""
        nulls = {} if self.null_values is None else {"null_values": list(self.null_values)}
        return pacsv.read_csv(
            pa.BufferReader(data),
            # One block: where they could end is known to `lines` only.
            read_options=pacsv.ReadOptions(
                use_threads=False, block_size=len(data) + 1, column_names=names,
                encoding=self.encoding,
            ),
            parse_options=pacsv.ParseOptions(
                delimiter=self.delimiter, quote_char=self.quote or False, newlines_in_values=True,
                **parse,
            ),
            convert_options=pacsv.ConvertOptions(
                column_types=dict(types), strings_can_be_null=bool(nulls), **nulls
            ),
        )  # fmt: skip


@dataclass(frozen=True)
class _Parser:
    """What makes tables of rows.

    Attributes:
      dialect: How they are written.
      schema: All columns, in the types in which pyarrow is to read them.
      stored: The same in the types in which they are stored.
      given: The columns whose types were given, not guessed.
    """

    dialect: _Dialect
    schema: pa.Schema
    stored: pa.Schema
    given: frozenset[str]

    def __call__(self, data: bytes) -> pa.Table:
        types = dict(zip(self.schema.names, self.schema.types, strict=True))
        return stored(self.dialect.read(data, self.schema.names, types), self.stored)

    def misfit(self, data: bytes, error: Exception | None, rows: int) -> Misfit:
        """Says what is wrong with a row."""
        found = _CONVERSION.search(str(error))
        if found is not None:
            field = self.schema.field(int(found[1]))
            how = "" if field.name in self.given else ", as guessed (types={...} says otherwise)"
            value = found[3].removeprefix("invalid value ").strip()
            return Misfit(field.name, f"a value of type {field.type}{how}", value)
        counts = _COUNTS.search(str(error))
        if counts is not None:
            return Misfit("", f"{counts[1]} columns", f"{counts[2]} columns: {shown(data)}")
        return Misfit("", "one row", f"{shown(data)}, which is read as {rows}")


def _names(found: list[File], dialect: _Dialect, skip_rows: int) -> list[str]:
    """Returns the columns that the headers of all files name."""
    first: list[str] = []
    for file in found:
        head = line_ranges.first_rows(file, 1 << 16, quote=dialect.quote, at_least=skip_rows + 1)
        if len(head) <= skip_rows:
            raise SourceError(
                explain(
                    f"{file} has no header: it ends before it.",
                    fix="leave the file out, or lower skip_rows",
                )
            )
        header = head.part(skip_rows, skip_rows + 1)
        many = header.count(dialect.delimiter.encode(dialect.encoding)) + 1
        if many > 2 * MOST_COLUMNS:  # before an object is made of each of a million
            check_names(map(str, range(many)), file)
        names = [str(name) for name in dialect.read(header, None, {}).column_names]
        check_names(names, file)
        if first and names != first:
            raise SourceError(
                explain(
                    f"{file} has other columns than {found[0]}.",
                    f"Expected: {', '.join(first)}",
                    f"Found: {', '.join(names)}",
                    fix="read files of different columns as different sources",
                )
            )
        first = names
    return first


def _guessed(
    file: File, names: list[str], types: Mapping[str, pa.DataType], dialect: _Dialect, skip: int
) -> tuple[pa.Schema, frozenset[str]]:
    """Returns all columns with the types that were given or that the first rows have.

    And which of them hold nulls in those rows.
    """
    head = line_ranges.first_rows(file, _SAMPLE, quote=dialect.quote, at_least=skip + 1)
    found: Mapping[str, pa.DataType] = {}
    nullable: frozenset[str] = frozenset()
    if len(head) > skip:
        # A row of other columns is told of when it is read, and so is a value of another type
        # than the given one: all are guessed here.
        table = dialect.read(
            head.part(skip, len(head)), names, {}, invalid_row_handler=lambda _: "skip"
        )
        found = dict(zip(table.column_names, table.schema.types, strict=True))
        nullable = with_nulls(table)
    missing = [name for name in names if name not in found and name not in types]
    if missing:
        raise SourceError(
            explain(
                f"{file} has no row from which types could be guessed.",
                fix="give the types of all columns with types={...}",
            )
        )
    return pa.schema([(name, types.get(name) or found[name]) for name in names]), nullable
