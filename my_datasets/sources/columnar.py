"""Reads tables by column: Parquet and Feather files, and Arrow, pandas and NumPy in memory."""

import hashlib
import io
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from my_datasets.core.arrays import Array
from my_datasets.errors import SourceError
from my_datasets.sources.file import SourceFile
from my_datasets.sources.folders import Where, files
from my_datasets.sources.source import Source
from my_datasets.sources.types import Rows, check_key, stored, stored_schema, with_nulls
from my_datasets.storage.file_systems import buffered

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# Maximum number of rows per batch.
_AT_ONCE = 16_384
# Groups of fewer rows are combined with the following ones into a unit.
_LEAST = 8_192

# Rows per unit: enough units that processes finish at about the same time, but no more than needed.
_LEAST_ROWS, _MOST, _UNITS = 1024, 65_536, 64


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
    """Returns the rows of files of a kind that stores them in groups, from which units are made.

    `groups_of` returns the columns of an open file, the number of rows in each group, and the
    columns that may contain nulls; `batches` yields the rows of some groups.
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


def table(data: object, *, key: str | None = None) -> Source:
    """Returns the rows of a table in memory.

    Args:
      data: A `pyarrow.Table` or record batch, a pandas `DataFrame` (without its index), or any
        object with the Arrow PyCapsule interface (polars, DuckDB, ...).
      key: The column of the keys; None for the row numbers.

    Raises:
      SourceError: It is something else, or has a column that TFDS cannot store.
    """
    if isinstance(data, pa.RecordBatch):
        found = pa.Table.from_batches([data])
    elif isinstance(data, pa.Table):
        found = data
    elif type(data).__module__.partition(".")[0] == "pandas":
        found = pa.Table.from_pandas(data, preserve_index=False)
    elif hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        found = pa.table(data)
    else:
        raise SourceError(
            f"A {type(data).__name__} is not a table.",
            "Expected a pyarrow.Table, a pandas.DataFrame, or an object that exports Arrow data",
            fix="for arrays, use sources.arrays({'column': array})",
        )
    schema = stored_schema(found.schema)
    check_key(key, schema, "The table")
    found = stored(found.replace_schema_metadata(None), schema)
    step = _rows_of_unit(found.num_rows)
    units = [
        _Range(i, min(i + step, found.num_rows), _digest(found.slice(i, step)))
        for i in range(0, found.num_rows, step)
    ]
    return Source(_TableReader(found, key), units, schema, with_nulls(found))


@dataclass(frozen=True)
class _Range:
    """The rows from `begin` up to `end` of data in memory.

    `content` identifies the data, so that a build is never resumed with results of other data: the
    files it comes from, or its digest.
    """

    begin: int
    end: int
    content: str | tuple[str, ...]


class _Hashing(io.RawIOBase):
    """A file that only computes the digest of what is written."""

    def __init__(self) -> None:
        self.digest = hashlib.blake2b(digest_size=16)

    def writable(self) -> bool:
        return True

    def write(self, data: "ReadableBuffer") -> int:
        self.digest.update(data)
        return memoryview(data).nbytes


def _digest(rows: pa.Table) -> str:
    file = _Hashing()
    with pa.ipc.new_stream(pa.PythonFile(file, mode="w"), rows.schema) as stream:
        stream.write_table(rows.combine_chunks())
    return file.digest.hexdigest()


def _rows_of_unit(rows: int) -> int:
    return min(max(_LEAST_ROWS, -(-rows // _UNITS)), _MOST)


@dataclass(frozen=True)
class _TableReader:
    table: pa.Table
    key: str | None

    def __call__(self, rows: _Range) -> Iterator[Rows]:
        begin = rows.begin
        some = self.table.slice(begin, rows.end - begin)
        for batch in some.to_batches(max_chunksize=_AT_ONCE):
            yield self.key or pa.array(np.arange(begin, begin + batch.num_rows)), batch
            begin += batch.num_rows


def arrays(data: Mapping[str, Array] | Where, *, key: str | None = None) -> Source:
    """Returns the rows of NumPy arrays, whose first dimension is the number of examples.

    Args:
      data: Arrays by column name; an `.npz` file; or a directory of `.npy` files, one per column
        and named after it, which are memory-mapped if they are local.
      key: The column of the keys; None for the row numbers.

    Raises:
      SourceError: The arrays have different lengths, or contain values that TFDS cannot store.
    """
    of_kind = [] if isinstance(data, Mapping) else files(data, (".npz", ".npy"))
    found = data if isinstance(data, Mapping) else _load(of_kind)
    lengths = {name: len(array) if array.ndim else None for name, array in found.items()}
    if not found or len(set(lengths.values())) != 1 or None in lengths.values():
        raise SourceError(
            "The arrays are not the columns of one table.",
            f"Their lengths: {lengths}",
            fix="pass arrays whose first dimensions are equal",
        )
    schema = stored_schema(
        pa.schema([(name, column(name, array[:1]).type) for name, array in found.items()])
    )
    check_key(key, schema, "The source")
    size = sum(array[:1].nbytes for array in found.values())
    length = len(next(iter(found.values())))
    step = max(1, min(_rows_of_unit(length), (32 << 20) // max(1, size)))
    reader = _ArrayReader(found, schema, key, max(1, step // 8))
    names = tuple(file.location for file in of_kind)
    units = [
        _Range(i, end := min(i + step, length), names or _digest(reader.rows(i, end)))
        for i in range(0, length, step)
    ]
    return Source(reader, units, schema, with_nulls(reader.rows(0, min(step, length))))


@dataclass(frozen=True)
class _ArrayReader:
    arrays: Mapping[str, Array]
    schema: pa.Schema
    key: str | None
    at_once: int

    def __call__(self, rows: _Range) -> Iterator[Rows]:
        for begin in range(rows.begin, rows.end, self.at_once):
            end = min(begin + self.at_once, rows.end)
            (batch,) = self.rows(begin, end).to_batches()
            yield self.key or pa.array(np.arange(begin, end)), batch

    def rows(self, begin: int, end: int) -> pa.Table:
        """Returns some rows as they are stored."""
        columns = [column(name, array[begin:end]) for name, array in self.arrays.items()]
        return stored(pa.Table.from_arrays(columns, names=list(self.arrays)), self.schema)


def column(name: str, array: Array) -> pa.Array:
    """Returns an array as an Arrow column: tensors as nested fixed-size lists, one per dimension.

    Raises:
      SourceError: Arrow has no such type; `name` is the column's name.
    """
    try:
        if array.ndim == 1:
            return pa.array(array)
        flat = pa.array(np.ascontiguousarray(array).reshape(-1))
        for size in array.shape[:0:-1]:
            flat = pa.FixedSizeListArray.from_arrays(flat, size)
        return flat
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise SourceError(
            f"The array {name!r} of {array.dtype} cannot be a column: {error}",
            fix="convert it to a dtype of numbers, texts or bytes",
        ) from error


def _load(found: list[SourceFile]) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    for file in found:
        try:
            path = Path(file.location)
            if path.suffix.lower() == ".npy" and path.is_file():
                loaded: Any = {path.stem: np.lib.format.open_memmap(path, mode="r")}
            else:
                # An .npz must not be passed as a path: TFDS's test mocks refuse that.
                loaded = np.load(buffered(file.location), allow_pickle=False)
                if isinstance(loaded, np.ndarray):
                    loaded = {path.stem: loaded}
            arrays.update(loaded)
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise SourceError(
                f"The arrays in {file} cannot be read: {error}",
                "Expected .npz or .npy files without Python objects, or a directory of .npy files",
                fix="save them with numpy.save or numpy.savez",
            ) from error
    return arrays
