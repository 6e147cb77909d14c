"""Collects the examples or tables that a generator yields into batches."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa

from my_datasets.building.units import InvalidValue, Pair
from my_datasets.errors import BuilderError, InvalidKeyError

# Examples are encoded in batches of this many, or of about this many bytes.
ROWS, BYTES = 1024, 4 << 20
_NUMBERS = frozenset({bool, int, float})

# The keys of a table: the name of their column, the keys, or a function that makes them.
Keys: TypeAlias = (
    str | Sequence[object] | pa.Array | pa.ChunkedArray | Callable[[pa.RecordBatch], "Keys"]
)
Batch: TypeAlias = list[Pair] | tuple[Keys, pa.RecordBatch]


def batches(
    examples: Iterator[Pair], limit: int | None, own: Callable[[object], object]
) -> Iterator[tuple[int, Batch]]:
    """Yields (position of the first example, pairs), or (position, (keys, record batch)).

    A generator may reuse a dict, array or file for its next example, as it can with TFDS. So a
    batch copies its examples. An example that cannot be copied, or a record batch, is yielded
    before the generator continues.

    Args:
      examples: The generator's pairs; an `InvalidValue` instead of an example stands for one that
        could not be read.
      limit: The most examples to yield; None for all.
      own: Copies an example; returns None if it cannot.

    Raises:
      BuilderError: The generator yielded something other than a pair.
      InvalidKeyError: A table came with too few or too many keys.
    """
    first, size = 0, 0
    pairs: list[Pair] = []
    for pair in examples:
        if limit is not None and first + len(pairs) >= limit:
            break
        try:
            key, item = pair
        except (TypeError, ValueError):
            raise BuilderError(
                f"The generator yielded a {type(pair).__name__}, not a pair.",
                fix="yield (key, example), with the example as a dict of features",
            ) from None
        if isinstance(item, (pa.RecordBatch, pa.Table)):
            if pairs:
                yield first, pairs
                first, pairs, size = first + len(pairs), [], 0
            for keys, batch in _record_batches(key, item):
                if limit is not None:
                    room = limit - first
                    keys = keys if isinstance(keys, str) or callable(keys) else keys[:room]
                    batch = batch.slice(0, room)
                if batch.num_rows:
                    yield first, (keys, batch)
                first += batch.num_rows
            continue
        owned = None if isinstance(item, InvalidValue) else own(item)
        pairs.append((key, item if owned is None else owned))
        size += rough_size(owned)
        if owned is None or len(pairs) == ROWS or size >= BYTES:
            yield first, pairs
            first, pairs, size = first + len(pairs), [], 0
    if pairs:
        yield first, pairs


def _record_batches(
    keys: Keys, table: pa.RecordBatch | pa.Table
) -> Iterator[tuple[Keys, pa.RecordBatch]]:
    if isinstance(table, pa.RecordBatch):
        yield keys, table
        return
    if isinstance(keys, str) or callable(keys):
        yield from ((keys, batch) for batch in table.to_batches())
        return
    if len(keys) != table.num_rows:
        raise InvalidKeyError(
            f"A table of {table.num_rows} rows came with {len(keys)} keys.",
            fix="yield as many keys as the table has rows",
        )
    begin = 0
    for batch in table.to_batches():
        yield keys[begin : begin + batch.num_rows], batch
        begin += batch.num_rows


def with_keys(
    keys: Keys, batch: pa.RecordBatch, features: Collection[str], unit: str
) -> tuple[pa.Array, pa.RecordBatch]:
    """Returns a record batch's keys, and the batch without a key column that is no feature.

    Args:
      keys: The keys of the batch.
      batch: The rows.
      features: The names of the features.
      unit: The unit's name for messages.

    Raises:
      InvalidKeyError: There is no such column, or not one key per row.
    """
    if callable(keys):
        keys = keys(batch)
    if isinstance(keys, str):
        if keys not in batch.schema.names:
            raise InvalidKeyError(
                f"The record batches of unit {unit} have no key column {keys!r}.",
                f"Their columns: {', '.join(batch.schema.names)}",
                fix="yield (name of the key column, batch) or (array of keys, batch)",
            )
        column = batch.column(keys)
        return column, batch if keys in features else batch.drop_columns([keys])
    array = keys if isinstance(keys, (pa.Array, pa.ChunkedArray)) else pa.array(keys)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if len(array) != batch.num_rows:
        raise InvalidKeyError(
            f"Unit {unit} gave {len(array)} keys for {batch.num_rows} rows.",
            fix="yield as many keys as the record batch has rows",
        )
    return array, batch


def rough_size(item: object) -> int:
    """Returns an example's approximate size in bytes, to keep batches of large ones short."""
    if isinstance(item, dict):
        values = item.values()
        if set(map(type, values)) <= _NUMBERS:  # most rows: avoids a call for each value
            return 8 * len(values)
        return sum(map(rough_size, values))
    if isinstance(item, (list, tuple)):
        # One element stands for all, because this runs for each example.
        return len(item) * rough_size(item[0]) if item else 0
    if isinstance(item, (bytes, str)):
        return len(item)
    return int(getattr(item, "nbytes", 8))
