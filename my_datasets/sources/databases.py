"""Reads SQL databases in columns through ADBC."""

import contextlib
import importlib
import os
import re
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from my_datasets.building.units import InvalidValue
from my_datasets.dependencies import missing_dependency
from my_datasets.errors import SourceError
from my_datasets.sources.folders import caused
from my_datasets.sources.source import Source
from my_datasets.sources.types import (
    Rows,
    check_columns,
    check_key,
    stored,
    stored_schema,
    with_nulls,
)

# How many rows SQLite's types and nullable columns are inferred from.
_SAMPLE = 10_000
# SQLite only types individual values: ADBC infers a column's type from this many rows at a time.
_SQLITE_ROWS = 8192
_PASSWORD = re.compile(r"(?<=:)[^:@/]+(?=@)|(?<=password=)[^&\s]+")


def sql(
    query: str,
    database: str,
    *,
    key: str,
    split_by: str | None = None,
    parts: int = 16,
    types: Mapping[str, pa.DataType] | None = None,
) -> Source:
    """Returns the rows of a query.

    Each part is read with its own query and connection. They see the same state of the database
    only if it is not modified during the build.

    Args:
      query: A `SELECT` statement.
      database: A SQLite file, or a URL: `postgresql://user@host/database` as libpq takes it, or
        `bigquery://project/dataset`. Keep passwords where the driver looks for them (`PGPASSWORD`,
        `~/.pgpass`) rather than in the URL.
      key: The column whose values are the examples' keys. Databases do not guarantee an order, so a
        row's number would not identify it.
      split_by: A column of integers; large results are read in parallel, by ranges of its values.
        It should have an index, or each part reads the whole table.
      parts: The number of ranges, of equal width.
      types: The types of some columns; the others have the database's types, or with SQLite, which
        has none, those of the first 10,000 rows.

    Raises:
      SourceError: There is no such database or column, or the query is invalid.
      MissingDependencyError: The driver is not installed.
    """
    where = _Database.of(database)
    query = query.strip().rstrip(";")
    with where.rows(_selecting("*", query, f"LIMIT {_SAMPLE}")) as stream:
        sample = stream.read_all()
    named = {*(types or {}), *([split_by] if split_by else [])}
    fix = "choose from those, or select it too"
    check_columns(named, sample.column_names, "The query's result", fix)
    schema = stored_schema(
        pa.schema([f.with_type((types or {}).get(f.name, f.type)) for f in sample.schema])
    )
    check_key(key, schema, "The query's result")
    if split_by is None:
        units = [_Part(query, where.file)]
    else:
        units = _ranges(query, where, split_by, schema, parts)
    return Source(_QueryReader(where, schema, key), units, schema, with_nulls(sample))


@dataclass(frozen=True)
class _Database:
    """A database to read rows from."""

    driver: str  # the module of its ADBC driver
    shown: str  # its name in messages
    file: str | None  # the database's file, which changes when the data does; None for a server
    arguments: Mapping[str, object] = field(repr=False)  # of the connection; may have a password

    @classmethod
    def of(cls, database: str) -> "_Database":
        scheme, separator, rest = database.partition("://")
        shown = _PASSWORD.sub("***", database)
        if not separator or scheme == "sqlite":
            path = Path(rest.removeprefix("/") if separator else database)
            if not path.is_file():
                raise SourceError(
                    f"The SQLite file {path} does not exist.",
                    fix="pass the path of a file, or a URL such as postgresql://host/database",
                )
            arguments = {"uri": sqlite_uri(path)}
            return cls("adbc_driver_sqlite", shown, str(path.absolute()), arguments)
        if scheme in ("postgresql", "postgres"):
            return cls("adbc_driver_postgresql", shown, None, {"uri": database})
        if scheme == "bigquery":
            project, _, dataset = rest.partition("/")
            names = {"project_id": project, **({"dataset_id": dataset} if dataset else {})}
            of_driver = {f"adbc.bigquery.sql.{name}": value for name, value in names.items()}
            return cls("adbc_driver_bigquery", shown, None, {"db_kwargs": of_driver})
        raise SourceError(
            f"{shown} is not a supported database.",
            "Expected a SQLite file, postgresql://..., or bigquery://project/dataset",
            fix="export the table to Parquet, and read that with sources.parquet",
        )

    @contextlib.contextmanager
    def rows(self, query: str) -> Iterator[pa.RecordBatchReader]:
        """Opens the result of a query."""
        try:
            dbapi = importlib.import_module(f"{self.driver}.dbapi")
        except ModuleNotFoundError as error:
            raise missing_dependency(self.driver, needed_for=f"reading {self.shown}") from error
        try:
            # A connection does not survive a fork: each process opens its own.
            with dbapi.connect(**self.arguments) as connection, connection.cursor() as cursor:
                if self.driver == "adbc_driver_sqlite":
                    rows = {"adbc.sqlite.query.batch_rows": str(_SQLITE_ROWS)}
                    cursor.adbc_statement.set_options(**rows)
                cursor.execute(query)
                yield cursor.fetch_record_batch()
        except (dbapi.Error, OSError, pa.ArrowInvalid) as error:
            reason = _PASSWORD.sub("***", str(error).partition("\nquery:")[0])
            raise SourceError(
                f"{self.shown} cannot be read: {reason}",
                f"The query: {query if len(query) <= 500 else query[:497] + '...'}",
                fix="an SQLite column with values of several types needs "
                "CAST(column AS ...) in the query"
                if "mismatch" in reason
                else "check that the database exists, and try the query in its own shell",
            ) from None  # the original may contain the password


@dataclass(frozen=True)
class _Part:
    """A unit: some rows of a query's result."""

    query: str
    file: str | None  # the SQLite file; if it changes, so does the unit
    # Counts and bounds of the whole result, by which changes on a server can be detected.
    all_rows: tuple[int | None, ...] = ()

    def __str__(self) -> str:
        return self.query.rpartition(" AS source ")[2] or self.query


def _ranges(
    query: str, where: _Database, column: str, schema: pa.Schema, parts: int
) -> list[_Part]:
    if not pa.types.is_integer(schema.field(column).type):
        raise SourceError(
            f"The column {column!r} is of type {schema.field(column).type}, which has no ranges.",
            "Expected a column of integers",
            fix="split by another column, or omit split_by",
        )
    named = f"`{column}`" if where.driver == "adbc_driver_bigquery" else quoted(column)
    numbers = f"COUNT(*), COUNT({named}), MIN({named}), MAX({named})"
    with where.rows(_selecting(numbers, query)) as stream:
        all_rows = tuple(column[0].as_py() for column in stream.read_all().columns)
    count, non_null, least, most = all_rows
    conditions = [f"WHERE {named} IS NULL"] if non_null < count else []
    if non_null:
        width = -(-(most - least + 1) // max(1, parts))
        conditions += [
            f"WHERE {named} BETWEEN {begin} AND {min(begin + width - 1, most)}"
            for begin in range(least, most + 1, width)
        ]
    return [
        _Part(_selecting("*", query, condition), where.file, all_rows) for condition in conditions
    ]


def _selecting(columns: str, query: str, condition: str = "") -> str:
    # The query is the user's own. It has its own lines so that a trailing comment ends there.
    return f"SELECT {columns} FROM (\n{query}\n) AS source {condition}"  # noqa: S608


def sqlite_uri(path: str | os.PathLike[str]) -> str:
    """Returns the read-only SQLite URI of a file, whatever characters its path contains."""
    return f"file:{urllib.parse.quote(str(Path(path).absolute()))}?mode=ro"


def quoted(name: str) -> str:
    """Returns a name as a quoted SQL identifier."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


@dataclass(frozen=True)
class _QueryReader:
    database: _Database
    schema: pa.Schema
    key: str

    def __call__(self, part: _Part) -> Iterator[Rows]:
        with self.database.rows(part.query) as stream:
            for batch in stream:
                yield from self._stored(batch)

    def _stored(self, batch: pa.RecordBatch) -> Iterator[Rows]:
        """Yields the rows with the types of the schema; finds invalid rows by bisection."""
        try:
            yield self.key, stored(batch, self.schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            if batch.num_rows > 1:
                middle = batch.num_rows // 2
                yield from self._stored(batch.slice(0, middle))
                yield from self._stored(batch.slice(middle))
                return
            yield batch.column(self.key)[0].as_py(), self._invalid(batch, error)

    def _invalid(self, row: pa.RecordBatch, error: Exception) -> InvalidValue:
        for name in row.schema.names:
            field = self.schema.field(name)
            try:
                stored(row.select([name]), pa.schema([field]))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as its_error:
                value = repr(row.column(name)[0].as_py())[:200]
                return caused(its_error, name, f"a value of type {field.type}", value)
        raise error
