"""Reads TFRecord files of `tf.Example`s written by any program."""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import google_crc32c
import numpy as np
import pyarrow as pa

from my_datasets.building.units import InvalidValue
from my_datasets.errors import SourceError
from my_datasets.records import tfrecord
from my_datasets.sources.file import SourceFile
from my_datasets.sources.folders import Where, files
from my_datasets.sources.source import Source
from my_datasets.sources.types import Rows, check_key, stored_schema

if TYPE_CHECKING:
    from tensorflow.core.example import example_pb2, feature_pb2

# How many records are read to infer the columns.
_INSPECTED = 100
# Maximum number of records per batch, and their approximate size in bytes.
_ROWS, _BYTES = 4096, 16 << 20
# A record longer than this is considered corrupt.
_LONGEST = 1 << 31

_KINDS: dict[str, pa.DataType] = {
    "bytes_list": pa.large_binary(),
    "float_list": pa.float32(),
    "int64_list": pa.int64(),
}


def tfrecords(
    where: Where, *, columns: Mapping[str, pa.DataType] | None = None, key: str | None = None
) -> Source:
    """Returns the `tf.Example`s of TFRecord files; each file is a unit.

    Args:
      where: A file, a directory, a pattern such as `folder/train.tfrecord-*`, or several; paths, or
        URLs in an object store; may be compressed with gzip, if their names say so.
      columns: The features to read, and their types: `pa.large_string()` and `pa.large_binary()`
        for bytes, `pa.int64()`, `pa.bool_()` and so on for integers, `pa.float32()`;
        `pa.list_(...)` of them for any number of values. None for all features in the first 100
        records: a list, unless each of these records has exactly one value.
      key: The column of the keys; None for the record numbers, prefixed with the file's name if
        there are several files.

    Raises:
      SourceError: There is no such file, it does not contain `tf.Example`s, or has no such feature.
    """
    found = files(where)
    schema = stored_schema(
        pa.schema(list(columns.items())) if columns else _inferred_schema(found[0])
    )
    check_key(key, schema, found[0])
    return Source(_Reader(schema, key), found, schema)


def _inferred_schema(file: SourceFile) -> pa.Schema:
    kinds: dict[str, pa.DataType] = {}
    single: dict[str, int] = {}
    count = 0
    for _, (_, example) in zip(range(_INSPECTED), examples(file), strict=False):
        count += 1
        for name, feature in example.features.feature.items():
            which = feature.WhichOneof("kind")
            if which is not None:
                kinds.setdefault(name, _KINDS[which])
                single[name] = single.get(name, 0) + (len(getattr(feature, which).value) == 1)
    if not kinds:
        raise SourceError(
            f"{file} has no features in its first {count} records.",
            fix="check that these are tf.Examples, or name the columns",
        )
    for name, number in single.items():
        if number < count:
            kinds[name] = pa.list_(kinds[name])
    return pa.schema(sorted(kinds.items()))


@dataclass(frozen=True)
class _Reader:
    schema: pa.Schema
    key: str | None

    def __call__(self, file: SourceFile) -> Iterator[Rows]:
        rows: list[Mapping[str, feature_pb2.Feature]] = []
        size, first = 0, 0
        for length, example in examples(file):
            rows.append(example.features.feature)
            size += length
            if len(rows) == _ROWS or size >= _BYTES:
                yield from self._batches(file, first, rows)
                first += len(rows)
                rows, size = [], 0
        if rows:
            yield from self._batches(file, first, rows)

    def _batches(
        self, file: SourceFile, first: int, rows: list[Mapping[str, "feature_pb2.Feature"]]
    ) -> Iterator[Rows]:
        """Yields rows as one batch; if any of them does not fit, each as a batch of its own."""
        keys = file.row_keys(first, len(rows))
        try:
            arrays = [self._column(field, rows) for field in self.schema]
        except InvalidValue as invalid:
            if len(rows) == 1:
                yield keys[0].as_py(), invalid
                return
            for i, row in enumerate(rows):
                yield from self._batches(file, first + i, [row])
            return
        yield self.key or keys, pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, field: pa.Field, rows: list[Mapping[str, "feature_pb2.Feature"]]) -> pa.Array:
        is_list = pa.types.is_list(field.type)
        of = field.type.value_type if is_list else field.type
        kind = _list_of(of)
        values: list[object] = []
        ends = np.zeros(len(rows) + 1, np.int32)
        for i, row in enumerate(rows):
            feature = row.get(field.name)
            which = feature.WhichOneof("kind") if feature is not None else None
            found = getattr(feature, which).value if which else ()
            if found and which != kind:
                raise InvalidValue(field.name, f"values in its {kind}", f"values in its {which}")
            if not is_list and len(found) != 1:
                raise InvalidValue(field.name, "one value", f"{len(found)} values")
            values.extend(found)
            ends[i + 1] = len(values)
        try:
            flat = pa.array(values, of)
        except (pa.ArrowInvalid, UnicodeError, OverflowError) as error:
            raise InvalidValue(field.name, f"values of type {of}", "other values") from error
        return pa.ListArray.from_arrays(pa.array(ends), flat) if is_list else flat


def _list_of(kind: pa.DataType) -> str:
    if pa.types.is_floating(kind):
        return "float_list"
    return "int64_list" if pa.types.is_integer(kind) or pa.types.is_boolean(kind) else "bytes_list"


def examples(file: SourceFile) -> Iterator[tuple[int, "example_pb2.Example"]]:
    """Yields each record's size in bytes, and its `tf.Example`."""
    from google.protobuf.message import DecodeError
    from tensorflow.core.example import example_pb2

    for number, (begin, record) in enumerate(_records(file)):
        try:
            yield len(record), example_pb2.Example.FromString(record)
        except DecodeError as error:
            raise SourceError(
                f"Record {number} of {file} is not a tf.Example: {error}",
                f"It starts at byte {begin:,} and has {len(record):,} bytes",
                fix="check whether the file contains other messages",
            ) from error


def _records(file: SourceFile) -> Iterator[tuple[int, bytes]]:
    """Yields each record's offset in the file and its bytes, after verifying both checksums."""
    at = 0
    with file.stream() as stream:
        while header := stream.read(tfrecord.HEADER):
            length = struct.unpack("<Q", header[:8].ljust(8, b"\0"))[0]
            if header != tfrecord.header(length):
                raise _damaged(file, at, "no record length, or a damaged one")
            if length > _LONGEST:
                raise _damaged(file, at, f"a record of {length:,} bytes")
            record, footer = stream.read(length), stream.read(tfrecord.FOOTER)
            if len(record) + len(footer) < length + tfrecord.FOOTER:
                raise _damaged(file, at, "the file ends within a record")
            if footer != tfrecord.footer(google_crc32c.value(record)):
                raise _damaged(file, at, "a record whose checksum is wrong")
            yield at, record
            at += tfrecord.OVERHEAD + length


def _damaged(file: SourceFile, at: int, found: str) -> SourceError:
    return SourceError(
        f"{file} is not a complete TFRecord file.",
        f"At byte {at:,}: {found}",
        fix="download the file again; if it is compressed, its name must end in .gz",
    )
