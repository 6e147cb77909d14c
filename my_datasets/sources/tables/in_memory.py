"""Tables and arrays in memory: Arrow, pandas, NumPy."""

import hashlib
import io
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from my_datasets.core.value_types import Array
from my_datasets.errors import SourceError
from my_datasets.sources.files.file import SourceFile
from my_datasets.sources.files.folders import Where, files
from my_datasets.sources.source import Source
from my_datasets.sources.types import Rows, check_key, stored, stored_schema, with_nulls
from my_datasets.storage.file_systems import buffered

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# Rows per unit: enough units that processes finish at about the same time, but no more than needed.
_LEAST, _MOST, _UNITS = 1024, 65_536, 64
# Maximum number of rows per batch.
_AT_ONCE = 16_384


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
    """A range of rows of data in memory.

    Attributes:
      begin: The first row.
      end: The row after the last.
      content: Identifies the data, so that a build is never resumed with results of other data: the
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
    sink = pa.PythonFile(file, mode="w")
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows.combine_chunks())
    return file.digest.hexdigest()


def _rows_of_unit(rows: int) -> int:
    return min(max(_LEAST, -(-rows // _UNITS)), _MOST)


@dataclass(frozen=True)
class _TableReader:
    table: pa.Table
    key: str | None

    def __call__(self, rows: _Range) -> Iterator[Rows]:
        begin = rows.begin
        chosen = self.table.slice(begin, rows.end - begin)
        for batch in chosen.to_batches(max_chunksize=_AT_ONCE):
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
    found = dict(data) if isinstance(data, Mapping) else _load(of_kind)
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
    ranges = [(i, min(i + step, length)) for i in range(0, length, step)]
    nullable = with_nulls(reader.rows(0, min(step, length)))
    if isinstance(data, Mapping):
        units = [_Range(i, end, _digest(reader.rows(i, end))) for i, end in ranges]
        return Source(reader, units, schema, nullable)
    names = tuple(file.location for file in of_kind)
    return Source(reader, [_Range(i, end, names) for i, end in ranges], schema, nullable)


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

    Args:
      name: The column's name, for error messages.
      array: Shape (rows, ...).

    Raises:
      SourceError: Arrow has no such type.
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
