"""Reads JSON Lines (with pyarrow) and plain text: an object, or an example, per line."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.json as pajson

from my_datasets.building.units import InvalidValue
from my_datasets.errors import SourceError
from my_datasets.sources.files.file import SourceFile
from my_datasets.sources.files.folders import Where, files
from my_datasets.sources.source import Source
from my_datasets.sources.tables import text_rows
from my_datasets.sources.tables.text_rows import LineRows, TextReader, parts_of, shown
from my_datasets.sources.types import check_key, stored, stored_schema

_SAMPLE = 4 << 20
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
    schema, nullable = _guessed(found[0], types or {})
    check_key(key, schema, found[0])
    parser = _JsonParser(schema, stored_schema(schema))
    reader = TextReader(parser, parser.misfit, key, None, 0)
    return Source(reader, parts_of(found, quote=None, skip=0), parser.stored, nullable)


@dataclass(frozen=True)
class _JsonParser:
    """Parses lines to tables; `schema` has the parsed types, and `stored` the stored ones."""

    schema: pa.Schema
    stored: pa.Schema

    def __call__(self, data: bytes) -> pa.Table:
        return stored(_read(data, self.schema, "error"), self.stored)

    def misfit(self, data: bytes, error: Exception | None, rows: int) -> InvalidValue:  # noqa: ARG002
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


def _guessed(
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
    found = files(where, (".txt",))
    schema = pa.schema([(column, pa.large_string())])
    parser = _TextParser(schema, encoding)
    reader = TextReader(parser, parser.misfit, None, None, 0)
    return Source(reader, parts_of(found, quote=None, skip=0), schema)


@dataclass(frozen=True)
class _TextParser:
    schema: pa.Schema
    encoding: str

    def __call__(self, data: bytes) -> pa.Table:
        texts = data.decode(self.encoding).split("\n")
        texts = [text for line in texts if (text := line.removesuffix("\r"))]
        return pa.table([pa.array(texts, pa.large_string())], schema=self.schema)

    def misfit(self, data: bytes, error: Exception | None, rows: int) -> InvalidValue:  # noqa: ARG002
        """Describes what is wrong with a line."""
        return InvalidValue(self.schema.names[0], f"text in {self.encoding}", shown(data))
