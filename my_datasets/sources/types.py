"""Converts Arrow types to those that TFDS can store; `docs/sources.md` has the table."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from my_datasets.errors import SourceError, explain

# More columns are considered an error: a wrong delimiter, or swapped rows and columns.
MOST_COLUMNS = 10_000


def stored_type(kind: pa.DataType, column: str) -> pa.DataType:
    """Returns the type in which a column is passed to its feature.

    Dates and times become their integer representation in Arrow, decimals become texts, so that no
    digit is lost, and dictionaries become their values.

    Args:
      kind: The type.
      column: The column's name, for error messages.

    Raises:
      SourceError: TFDS has no feature for it.
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
        explain(
            f"The column {column!r} is of Arrow's type {kind}, for which TFDS has no feature.",
            fix="leave the column out with select(), or change its type with types={...}"
            if not pa.types.is_null(kind)
            else "it holds nothing but nulls in the rows that were looked at; give its type with "
            "types={...}, or leave it out with select()",
        )
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


def stored(batch: pa.RecordBatch | pa.Table, schema: pa.Schema) -> Any:
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
    return frozenset(
        name for name, column in zip(rows.schema.names, rows.columns, strict=True)
        if column.null_count
    )  # fmt: skip


def check_key(key: str | None, schema: pa.Schema, where: object) -> None:
    """Checks that the key column exists; None needs no column.

    Raises:
      SourceError: It does not exist.
    """
    if key is not None and key not in schema.names:
        raise SourceError(
            explain(
                f"{where} has no column {key!r} for the keys.",
                f"Its columns: {', '.join(schema.names)}",
                fix="choose among those, or leave key out",
            )
        )


def check_names(names: Iterable[str], where: object = "The source") -> None:
    """Checks that the columns are valid for a dataset.

    Raises:
      SourceError: There are too many, two have the same name, or a name is empty.
    """
    names = list(names)
    found = ""
    if len(names) > MOST_COLUMNS:
        found = f"{len(names):,} columns"
        fix = f"see whether the delimiter is right; at most {MOST_COLUMNS:,} columns are read"
    elif len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        found = f"two columns of one name: {', '.join(map(repr, twice[:5]))}"
        fix = "give other names, with columns=[...] where the source is a text file"
    elif "" in names:
        found = f"a column without a name, the {names.index('') + 1}. of {len(names)}"
        fix = "give names, with columns=[...] where the source is a text file"
    if found:
        raise SourceError(explain(f"{where} has {found}.", fix=fix))
