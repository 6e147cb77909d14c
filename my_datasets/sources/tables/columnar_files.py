"""Reads files that store groups of rows by column: Parquet and Feather."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from my_datasets.errors import SourceError
from my_datasets.sources.files.file import SourceFile
from my_datasets.sources.files.folders import Where, files
from my_datasets.sources.source import Source
from my_datasets.sources.types import Rows, check_key, stored, stored_schema, with_nulls

# Maximum number of rows per batch.
_AT_ONCE = 16_384
# Groups of fewer rows are combined with the following ones into a unit.
_LEAST = 8_192


def parquet(where: Where, *, key: str | None = None) -> Source:
    """Returns the rows of Parquet files; each row group is a unit, and small ones are combined.

    Args:
      where: A file, a directory, a pattern such as `folder/*.parquet`, or several; paths, or URLs
        in an object store. All files must have the same columns.
      key: The column of the keys; None for the row numbers, prefixed with the file's name if there
        are several files.

    Raises:
      SourceError: There is no such file, it is not a Parquet file, or its columns differ.
    """
    found = files(where, (".parquet", ".pq"))
    return _in_groups(found, "a Parquet file", _row_groups, _parquet_batches, key)


def _row_groups(stream: pa.NativeFile) -> tuple[pa.Schema, list[int], frozenset[str]]:
    with pq.ParquetFile(stream) as opened:
        groups = [opened.metadata.row_group(i) for i in range(opened.num_row_groups)]
        # Statistics, if there are any, count the nulls of columns that are not nested.
        without = {
            opened.schema.column(i).path
            for i in range(len(opened.schema))
            if groups and all(_has_no_null(group.column(i).statistics) for group in groups)
        }
        nullable = {field.name for field in opened.schema_arrow if field.nullable} - without
        return opened.schema_arrow, [group.num_rows for group in groups], frozenset(nullable)


def _has_no_null(statistics: pq.Statistics | None) -> bool:
    return statistics is not None and statistics.has_null_count and statistics.null_count == 0


def _parquet_batches(stream: pa.NativeFile, groups: range) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(stream) as opened:
        yield from opened.iter_batches(_AT_ONCE, row_groups=groups, use_threads=False)


def feather(where: Where, *, key: str | None = None) -> Source:
    """Returns the rows of Feather (Arrow IPC) files; record batches are units, small ones combined.

    Args:
      where: A file, a directory, a pattern such as `folder/*.feather`, or several; paths, or URLs
        in an object store. All files must have the same columns.
      key: The column of the keys; None for the row numbers, prefixed with the file's name if there
        are several files.

    Raises:
      SourceError: There is no such file, it is not a Feather file, or its columns differ.
    """
    found = files(where, (".feather", ".arrow", ".ipc"))
    return _in_groups(found, "a Feather file of version 2", _record_batches, _feather_batches, key)


def _record_batches(stream: pa.NativeFile) -> tuple[pa.Schema, list[int], frozenset[str]]:
    with pa.ipc.open_file(stream) as opened:
        schema = opened.schema
        first = opened.get_batch(0) if opened.num_record_batches else None
        nullable = with_nulls(first) if first is not None else frozenset()
    # One column is enough to count the rows of a batch; the others need not be read.
    one = pa.ipc.IpcReadOptions(included_fields=[0] if schema.names else None)
    stream.seek(0)
    with pa.ipc.open_file(stream, options=one) as opened:
        groups = [opened.get_batch(i).num_rows for i in range(opened.num_record_batches)]
        return schema, groups, nullable


def _feather_batches(stream: pa.NativeFile, groups: range) -> Iterator[pa.RecordBatch]:
    with pa.ipc.open_file(stream) as opened:
        for number in groups:
            whole = opened.get_batch(number)
            for begin in range(0, whole.num_rows, _AT_ONCE):
                yield whole.slice(begin, _AT_ONCE)


@dataclass(frozen=True)
class _Reader:
    batches: Callable[[pa.NativeFile, range], Iterator[pa.RecordBatch]]
    schema: pa.Schema
    key: str | None

    def __call__(self, unit: tuple[SourceFile, range, int]) -> Iterator[Rows]:
        file, groups, row = unit
        with file.open() as stream:
            for batch in self.batches(stream, groups):
                batch = stored(batch.replace_schema_metadata(None), self.schema)
                yield self.key or file.row_keys(row, batch.num_rows), batch
                row += batch.num_rows


def _in_groups(
    found: list[SourceFile],
    kind: str,
    groups_of: Callable[[pa.NativeFile], tuple[pa.Schema, list[int], frozenset[str]]],
    batches: Callable[[pa.NativeFile, range], Iterator[pa.RecordBatch]],
    key: str | None,
) -> Source:
    """Returns the rows of files that store them in groups, from which units are made.

    Args:
      found: The files.
      kind: The expected file type, for error messages.
      groups_of: Returns the columns of an open file, the number of rows in each group, and the
        columns that may contain nulls.
      batches: Yields the rows of some groups of an open file.
      key: The column of the keys.
    """
    first: pa.Schema | None = None
    nullable: frozenset[str] = frozenset()
    units = []
    for file in found:
        try:
            with file.open() as stream:
                schema, groups, with_null = groups_of(stream)
        except pa.ArrowInvalid as error:
            raise SourceError(
                f"{file} is not {kind}: {error}", fix="check that the file is complete"
            ) from error
        schema = schema.remove_metadata()
        if first is not None and not schema.equals(first):
            raise SourceError(
                f"The columns of {file} differ from those of {found[0]}.",
                f"Expected: {_listed(first)}",
                f"Found: {_listed(schema)}",
                fix="read files with different columns as separate sources",
            )
        first = schema
        nullable |= with_null
        units += [(file, *unit) for unit in _units(groups)]
    stored_as = stored_schema(first)
    check_key(key, stored_as, found[0])
    return Source(_Reader(batches, stored_as, key), units, stored_as, nullable)


def _units(rows: list[int]) -> Iterator[tuple[range, int]]:
    """Yields each unit's groups and the number of its first row, given each group's row count."""
    begin = first = row = 0
    for number, count in enumerate(rows):
        row += count
        if row - first >= _LEAST or number == len(rows) - 1:
            yield range(begin, number + 1), first
            begin, first = number + 1, row


def _listed(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} ({field.type})" for field in schema)
