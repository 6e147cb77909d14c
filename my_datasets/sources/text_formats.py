"""Reads text files: CSV and TSV, JSON Lines (both with pyarrow), and plain text."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.json as pajson

from my_datasets.building.units import InvalidValue
from my_datasets.errors import SourceError
from my_datasets.sources import text_rows
from my_datasets.sources.file import SourceFile
from my_datasets.sources.folders import Where, files
from my_datasets.sources.source import Source
from my_datasets.sources.text_rows import LineRows, shown, text_source
from my_datasets.sources.types import (
    MOST_COLUMNS,
    check_columns,
    check_key,
    check_names,
    stored,
    stored_schema,
    with_nulls,
)

# How many bytes at the beginning of the first file types are inferred from.
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

    Large files are read in parts, in parallel: uncompressed files, and with the extra `compressed`
    also those that end in `.gz` and `.bz2`. Other compressed files (`.zst`, `.lz4`) are read as a
    whole, each in one process.

    Args:
      where: A file, a directory, a pattern such as `folder/*.csv`, or several; paths, or URLs in an
        object store. All files must have the same columns.
      key: The column whose values are the examples' keys; None for the row numbers, prefixed with
        the file's name if there are several files.
      columns: The names of the columns, for files without a header.
      types: The types of some columns. Others are inferred from the first 4 MiB of the first file;
        a later value of another type is an error.
      delimiter: The character between values.
      quote: The character around values that contain a delimiter or newline; None for no quoting.
      encoding: The text encoding; its newlines must be those of ASCII.
      skip_rows: The number of rows above the header, or above the data if there is no header.
      null_values: Texts that mean null, in columns of all types; None for pyarrow's defaults
        (empty, `NA`, `null`, ...), which are not nulls in columns of texts.

    Raises:
      SourceError: There is no such file, or its columns are not valid for a dataset.
    """
    nulls = tuple(null_values) if null_values is not None else None
    dialect = _Dialect(delimiter, quote, encoding, nulls)
    found = files(where, (".csv", ".tsv", ".tab"))
    names = list(columns) if columns is not None else _names(found, dialect, skip_rows)
    if columns is not None:
        check_names(columns)
    used = {*(types or {}), *([key] if key is not None else [])}
    check_columns(used, names, found[0], "choose from those, or name them with columns=[...]")
    skip = skip_rows + (columns is None)
    schema, nullable = _csv_schema(found[0], names, types or {}, dialect, skip)
    parser = _CsvParser(dialect, schema, stored_schema(schema), frozenset(types or {}))
    return text_source(found, parser, parser.stored, nullable, key=key, quote=quote, skip=skip)


def tsv(where: Where, **options: Any) -> Source:
    """Returns the rows of TSV files; takes the options of `csv`, except `delimiter`."""
    return csv(where, delimiter="\t", **options)


@dataclass(frozen=True)
class _Dialect:
    """The format of the files."""

    delimiter: str
    quote: str | None
    encoding: str
    null_values: tuple[str, ...] | None

    def __post_init__(self) -> None:
        for name, mark in (("delimiter", self.delimiter), ("quote", self.quote)):
            if mark is not None and not (len(mark) == 1 and mark.isascii()):
                raise SourceError(
                    f"The {name} {mark!r} is not supported.",
                    "Expected one ASCII character",
                    fix=f"convert the file, or pass another {name}",
                )
        if "\na".encode(self.encoding) != b"\na":
            raise SourceError(
                f"Files in {self.encoding} cannot be read in parts.",
                "Expected an encoding in which newlines are those of ASCII",
                fix="convert the file to UTF-8",
            )

    def read(
        self, data: bytes, names: list[str] | None, types: pa.Schema | None, **parse: object
    ) -> pa.Table:
        """Parses rows; raises `ArrowInvalid`."""
        nulls = {} if self.null_values is None else {"null_values": list(self.null_values)}
        return pacsv.read_csv(
            pa.BufferReader(data),
            # One block, because only `text_rows` knows where blocks may end.
            read_options=pacsv.ReadOptions(
                use_threads=False, block_size=len(data) + 1, column_names=names,
                encoding=self.encoding,
            ),
            parse_options=pacsv.ParseOptions(
                delimiter=self.delimiter, quote_char=self.quote or False, newlines_in_values=True,
                **parse,
            ),
            convert_options=pacsv.ConvertOptions(
                column_types=types, strings_can_be_null=bool(nulls), **nulls
            ),
        )  # fmt: skip


@dataclass(frozen=True)
class _CsvParser:
    """Parses rows to tables."""

    dialect: _Dialect
    schema: pa.Schema  # all columns, with the types that pyarrow parses
    stored: pa.Schema  # the same, with the types in which they are stored
    given: frozenset[str]  # the columns whose types were given rather than inferred

    def __call__(self, data: bytes) -> pa.Table:
        return stored(self.dialect.read(data, self.schema.names, self.schema), self.stored)

    def invalid(self, data: bytes, error: Exception | None, rows: int) -> InvalidValue:
        """Describes what is wrong with a row."""
        found = _CONVERSION.search(str(error))
        if found is not None:
            field = self.schema.field(int(found[1]))
            how = "" if field.name in self.given else ", as inferred (types={...} overrides it)"
            value = found[3].removeprefix("invalid value ").strip()
            return InvalidValue(field.name, f"a value of type {field.type}{how}", value)
        counts = _COUNTS.search(str(error))
        if counts is not None:
            return InvalidValue("", f"{counts[1]} columns", f"{counts[2]} columns: {shown(data)}")
        return InvalidValue("", "one row", f"{shown(data)}, which parses as {rows}")


def _names(found: list[SourceFile], dialect: _Dialect, skip_rows: int) -> list[str]:
    """Returns the column names, which must be the same in the headers of all files."""
    first: list[str] = []
    for file in found:
        head = text_rows.first_rows(file, 1 << 16, quote=dialect.quote, at_least=skip_rows + 1)
        if len(head) <= skip_rows:
            raise SourceError(
                f"{file} ends before its header.",
                fix="leave the file out, or reduce skip_rows",
            )
        header = head.part(skip_rows, skip_rows + 1)
        many = header.count(dialect.delimiter.encode(dialect.encoding)) + 1
        if many > 2 * MOST_COLUMNS:  # before creating a million Python objects
            check_names(map(str, range(many)), file)
        names = dialect.read(header, None, None).column_names
        check_names(names, file)
        if first and names != first:
            raise SourceError(
                f"The columns of {file} differ from those of {found[0]}.",
                f"Expected: {', '.join(first)}",
                f"Found: {', '.join(names)}",
                fix="read files with different columns as separate sources",
            )
        first = names
    return first


def _csv_schema(
    file: SourceFile,
    names: list[str],
    types: Mapping[str, pa.DataType],
    dialect: _Dialect,
    skip: int,
) -> tuple[pa.Schema, frozenset[str]]:
    """Returns all columns with given or inferred types, and those with nulls in the sample."""
    head = text_rows.first_rows(file, _SAMPLE, quote=dialect.quote, at_least=skip + 1)
    found: Mapping[str, pa.DataType] = {}
    nullable: frozenset[str] = frozenset()
    if len(head) > skip:
        # Rows with another number of columns are reported when they are read, and so are values
        # that do not have the given type: here, all types are inferred.
        table = dialect.read(
            head.part(skip, len(head)), names, None, invalid_row_handler=lambda _: "skip"
        )
        found = dict(zip(table.column_names, table.schema.types, strict=True))
        nullable = with_nulls(table)
    missing = [name for name in names if name not in found and name not in types]
    if missing:
        raise SourceError(
            f"{file} has no row from which types could be inferred.",
            fix="pass the types of all columns with types={...}",
        )
    return pa.schema([(name, types.get(name) or found[name]) for name in names]), nullable


_COLUMN = re.compile(r"Column\(/?(.*?)\) (?:changed|was)")


def json_lines(
    where: Where, *, key: str | None = None, types: Mapping[str, pa.DataType] | None = None
) -> Source:
    """Returns the objects of JSON Lines files, with one column per name.

    A name missing from an object is null. Large files are read in parts, in parallel; compressed
    files as by `csv`.

    Args:
      where: A file, a directory, a pattern such as `folder/*.jsonl`, or several; paths, or URLs in
        an object store.
      key: The name whose values are the examples' keys; None for the row numbers, prefixed with the
        file's name if there are several files.
      types: The types of some columns, or of names that the first rows lack. Others are inferred
        from the first 4 MiB of the first file; a name or type that first appears later is an error.

    Raises:
      SourceError: There is no such file, or its first rows are not JSON objects.
    """
    found = files(where, (".jsonl", ".ndjson", ".json"))
    schema, nullable = _json_schema(found[0], types or {})
    check_key(key, schema, found[0])
    parser = _JsonParser(schema, stored_schema(schema))
    return text_source(found, parser, parser.stored, nullable, key=key)


@dataclass(frozen=True)
class _JsonParser:
    """Parses lines to tables; `schema` has the parsed types, and `stored` the stored ones."""

    schema: pa.Schema
    stored: pa.Schema

    def __call__(self, data: bytes) -> pa.Table:
        return stored(_read(data, self.schema, "error"), self.stored)

    def invalid(self, data: bytes, error: Exception | None, rows: int) -> InvalidValue:  # noqa: ARG002
        """Describes what is wrong with a line."""
        column = _COLUMN.search(str(error))
        name = column[1].partition("/")[0] if column is not None else ""
        if name in self.schema.names:
            expected = f"a value of type {self.schema.field(name).type}"
            return InvalidValue(name, f"{expected} (types={{...}} overrides it)", shown(data))
        if "unexpected field" in str(error):
            return InvalidValue("", f"the names {', '.join(self.schema.names)}", shown(data))
        return InvalidValue("", "one JSON object per line", shown(data))


def _read(data: bytes, schema: pa.Schema | None, unexpected: str) -> pa.Table:
    return pajson.read_json(
        pa.BufferReader(data),
        read_options=pajson.ReadOptions(use_threads=False, block_size=len(data) + 1),
        parse_options=pajson.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior=unexpected
        ),
    )


def _json_schema(
    file: SourceFile, types: Mapping[str, pa.DataType]
) -> tuple[pa.Schema, frozenset[str]]:
    """Returns the names with their types, and the names that are missing or null in the sample."""
    rows = text_rows.first_rows(file, _SAMPLE, quote=None, at_least=1)
    given = pa.schema(list(types.items()))
    try:
        tables = list(_tables(rows, given, 0, len(rows)))
        found = pa.unify_schemas([given, *(table.schema for table in tables)])
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise SourceError(
            f"The first lines of {file} have values of different types: {error}",
            "Expected values of the same type for each name",
            fix="pass the types of these names with types={...}",
        ) from error
    if not found.names:
        raise SourceError(
            f"{file} has no line from which names and types could be inferred.",
            "Expected a JSON object in each line",
            fix="pass the types of all names with types={...}; `jq -c '.[]'` converts a JSON "
            "array of objects to JSON Lines",
        )
    nullable = frozenset(
        name
        for name in found.names
        for table in tables
        if name not in table.column_names or table[name].null_count
    )
    return found, nullable


def _tables(rows: LineRows, given: pa.Schema, begin: int, end: int) -> Iterator[pa.Table]:
    """Yields tables of all valid rows; the others are reported when the data is read."""
    if begin == end:
        return
    try:
        yield _read(rows.part(begin, end), given, "infer")
    except pa.ArrowInvalid:
        if end - begin > 1:
            middle = (begin + end) // 2
            yield from _tables(rows, given, begin, middle)
            yield from _tables(rows, given, middle, end)


def text_lines(where: Where, *, column: str = "text", encoding: str = "utf8") -> Source:
    """Returns the non-empty lines of text files, without their line endings.

    Large files are read in parts, in parallel; compressed files as by `csv`.

    Args:
      where: A file, a directory, a pattern such as `folder/*.txt`, or several; paths, or URLs in an
        object store.
      column: The name of the column.
      encoding: The text encoding; its newlines must be those of ASCII.

    Raises:
      SourceError: There is no such file.
    """
    schema = pa.schema([(column, pa.large_string())])
    return text_source(files(where, (".txt",)), _TextParser(schema, encoding), schema)


@dataclass(frozen=True)
class _TextParser:
    schema: pa.Schema
    encoding: str

    def __call__(self, data: bytes) -> pa.Table:
        texts = data.decode(self.encoding).split("\n")
        texts = [text for line in texts if (text := line.removesuffix("\r"))]
        return pa.table([pa.array(texts, pa.large_string())], schema=self.schema)

    def invalid(self, data: bytes, error: Exception | None, rows: int) -> InvalidValue:  # noqa: ARG002
        """Describes what is wrong with a line."""
        return InvalidValue(self.schema.names[0], f"text in {self.encoding}", shown(data))
