"""The types of a source's columns: from Arrow to those that TFDS can store, and TFDS features.

`docs/sources.md` has the table.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import tensorflow_datasets as tfds

from my_datasets.building.units import InvalidValue
from my_datasets.errors import SourceError

# What a source yields: rows, with the name of the key column or an array of keys; or the key of an
# unreadable row.
Rows: TypeAlias = tuple[pa.Array | str | int, pa.RecordBatch | InvalidValue]

# More columns are considered an error: a wrong delimiter, or swapped rows and columns.
MOST_COLUMNS = 10_000


def stored_type(kind: pa.DataType, column: str) -> pa.DataType:
    """Returns the type in which a column is passed to its feature.

    Dates and times become their integer representation in Arrow, decimals become texts, so that no
    digit is lost, and dictionaries become their values.

    Raises:
      SourceError: TFDS has no feature for it; `column` is its name.
    """
    simple = _simple(kind)
    if simple is not None:
        return simple
    if pa.types.is_dictionary(kind):
        return stored_type(kind.value_type, column)
    if isinstance(kind, pa.FixedShapeTensorType):
        return kind
    if isinstance(kind, pa.BaseExtensionType):
        return stored_type(kind.storage_type, column)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(stored_type(kind.value_type, column), kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(stored_type(kind.value_type, column))
    if pa.types.is_struct(kind):
        return pa.struct(
            [field.with_type(stored_type(field.type, f"{column}/{field.name}")) for field in kind]
        )
    raise SourceError(
        f"The column {column!r} has the Arrow type {kind}, for which TFDS has no feature.",
        fix="leave the column out with select(), or change its type with types={...}"
        if not pa.types.is_null(kind)
        else "all inspected rows are null: pass its type with types={...}, or leave it out with "
        "select()",
    )


def _simple(kind: pa.DataType) -> pa.DataType | None:
    """Returns the stored type of a type that is not nested."""
    t = pa.types
    if t.is_boolean(kind) or t.is_integer(kind) or t.is_floating(kind):
        return kind
    if t.is_string(kind) or t.is_large_string(kind):
        return pa.large_string()
    if t.is_binary(kind) or t.is_large_binary(kind) or t.is_fixed_size_binary(kind):
        return pa.large_binary()
    if t.is_date32(kind) or t.is_time32(kind):
        return pa.int32()
    if t.is_date64(kind) or t.is_time64(kind) or t.is_timestamp(kind) or t.is_duration(kind):
        return pa.int64()
    return pa.string() if t.is_decimal(kind) else None


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Returns the columns with the types in which they are passed to their features.

    Raises:
      SourceError: A type has no feature, there are more than `MOST_COLUMNS`, or two have the same
        name.
    """
    check_names(schema.names)
    return pa.schema([field.with_type(stored_type(field.type, field.name)) for field in schema])


def stored(batch: pa.RecordBatch | pa.Table, schema: pa.Schema) -> pa.RecordBatch | pa.Table:
    """Returns a batch or table cast to the types of a `stored_schema`."""
    if batch.schema.equals(schema):
        return batch
    for i, field in enumerate(batch.schema):
        if isinstance(field.type, pa.BaseExtensionType) and field.type != schema.field(i).type:
            as_stored = batch.column(i).cast(field.type.storage_type)
            batch = batch.set_column(i, field.name, as_stored)
    return batch.cast(schema)


def with_nulls(rows: pa.RecordBatch | pa.Table) -> frozenset[str]:
    """Returns the columns that contain nulls."""
    columns = zip(rows.schema.names, rows.columns, strict=True)
    return frozenset(name for name, column in columns if column.null_count)


def check_key(key: str | None, schema: pa.Schema, where: object) -> None:
    """Raises `SourceError` if there is no such key column; None needs no column."""
    if key is not None and key not in schema.names:
        raise SourceError(
            f"{where} has no column {key!r} for the keys.",
            f"Its columns: {', '.join(schema.names)}",
            fix="choose from those, or omit key",
        )


def check_columns(
    columns: Iterable[str], names: Sequence[str], where: object, fix: str = "choose from those"
) -> None:
    """Raises `SourceError` if one of the columns does not exist."""
    missing = sorted(set(columns) - set(names))
    if missing:
        raise SourceError(
            f"{where} has no column {', '.join(map(repr, missing))}.",
            f"Its columns: {', '.join(names)}",
            fix=fix,
        )


def check_names(names: Iterable[str], where: object = "The source") -> None:
    """Raises `SourceError` if there are too many columns, or a name is empty or occurs twice."""
    names = list(names)
    if len(names) > MOST_COLUMNS:
        found = f"{len(names):,} columns"
        fix = f"check the delimiter; at most {MOST_COLUMNS:,} columns are supported"
    elif len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        found = f"two columns with the same name: {', '.join(map(repr, twice[:5]))}"
        fix = "rename one; for a text file, pass the names with columns=[...]"
    elif "" in names:
        found = f"a column without a name, number {names.index('') + 1} of {len(names)}"
        fix = "name it; for a text file, pass the names with columns=[...]"
    else:
        return
    raise SourceError(f"{where} has {found}.", fix=fix)


def features_of(
    schema: pa.Schema,
    labels: Mapping[str, Sequence[str]],
    optional: Collection[str],
    special: Mapping[str, Callable[[], tfds.features.FeatureConnector]],
) -> tfds.features.FeaturesDict:
    """Returns features that can represent all values of the columns, which have their stored types.

    `labels` has the names of the classes by column. `optional` columns may contain nulls. TFDS does
    not support nulls in labels, lists of variable length and structs: there, a null remains an
    error. `special` creates the features of some columns.

    Raises:
      SourceError: There is no such column.
    """
    check_columns({*labels, *optional}, schema.names, "The source")
    made = {name: tfds.features.ClassLabel(names=list(names)) for name, names in labels.items()}
    for name, feature in special.items():
        made.setdefault(name, feature())
    return tfds.features.FeaturesDict(
        {
            field.name: made.get(field.name)
            or feature_of(field.type, optional=field.name in optional)
            for field in schema
        }
    )


def feature_of(kind: pa.DataType, *, optional: bool = False) -> tfds.features.FeatureConnector:
    """Returns the feature for a stored type; `optional` allows nulls if TFDS supports them."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        # Text does not record in the metadata that it is optional, so nulls could not be read back.
        return tfds.features.Scalar(np.str_, optional=True) if optional else tfds.features.Text()
    if pa.types.is_large_binary(kind):
        return tfds.features.Scalar(np.object_, optional=optional)
    if isinstance(kind, pa.FixedShapeTensorType):
        return _tensor(kind.shape, kind.value_type, optional)
    shape = []
    of = kind
    while pa.types.is_fixed_size_list(of):
        shape.append(of.list_size)
        of = of.value_type
    if shape and not pa.types.is_nested(of):
        return _tensor(shape, of, optional)
    if pa.types.is_nested(kind) and not pa.types.is_struct(kind):
        return tfds.features.Sequence(feature_of(kind.value_type))
    if pa.types.is_struct(kind):
        return tfds.features.FeaturesDict({field.name: feature_of(field.type) for field in kind})
    return tfds.features.Scalar(_dtype(kind), optional=optional)


def _tensor(
    shape: Sequence[int], kind: pa.DataType, optional: bool
) -> tfds.features.FeatureConnector:
    return tfds.features.Tensor(shape=tuple(shape), dtype=_dtype(kind), optional=optional)


def _dtype(kind: pa.DataType) -> np.dtype[np.generic]:
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return np.dtype(object)
    dtype: np.dtype[np.generic] = np.dtype(kind.to_pandas_dtype())
    return dtype
