"""From what a generator yields, one example or one table at a time, to batches."""

from collections.abc import Callable, Collection, Iterator
from typing import Any

import pyarrow as pa

from my_datasets.building.units import InvalidValue
from my_datasets.errors import BuilderError, InvalidKeyError, explain

# Examples are encoded in batches of this many,
_ROWS = 1024
# ... or of about this many bytes, whatever comes first.
_BYTES = 4 << 20
_NUMBERS = frozenset({bool, int, float})


def batches(
    examples: Iterator[tuple[Any, Any]], limit: int | None, own: Callable[[Any], Any]
) -> Iterator[tuple[int, Any]]:
    """Yields (position of the first example, pairs), or (position, (keys, record batch)).

    A generator may use the same dict, array or file again for its next example, as it can with
    TFDS. So examples that wait in a batch are the batch's own; an example that cannot be, and a
    record batch, are yielded before the generator goes on.

    Args:
      examples: The generator's pairs; a `Misfit` in place of an example stands for one that
        could not be read.
      limit: At most so many of them; None for all.
      own: Returns an example that no change of the given one reaches; None if there can be none.

    Raises:
      BuilderError: Something else than a pair was yielded.
      InvalidKeyError: A table came with another number of keys than rows.
    """
    first, size = 0, 0
    pairs: list[tuple[Any, Any]] = []
    for pair in examples:
        if limit is not None and first + len(pairs) >= limit:
            break
        try:
            key, item = pair
        except (TypeError, ValueError):
            raise BuilderError(
                explain(
                    f"The generator yielded a {type(pair).__name__}, not a pair.",
                    fix="yield (key, example), with the example as a dict of features",
                )
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
        if owned is None or len(pairs) == _ROWS or size >= _BYTES:
            yield first, pairs
            first, pairs, size = first + len(pairs), [], 0
    if pairs:
        yield first, pairs


def _record_batches(
    keys: Any, table: pa.RecordBatch | pa.Table
) -> Iterator[tuple[Any, pa.RecordBatch]]:
    if isinstance(table, pa.RecordBatch):
        yield keys, table
        return
    begin = 0
    whole = isinstance(keys, str) or callable(keys)
    if not whole and len(keys) != table.num_rows:
        raise InvalidKeyError(
            explain(
                f"A table of {table.num_rows} rows came with {len(keys)} keys.",
                fix="yield as many keys as the table has rows",
            )
        )
    for batch in table.to_batches():
        yield keys if whole else keys[begin : begin + batch.num_rows], batch
        begin += batch.num_rows


def with_keys(
    keys: Any, batch: pa.RecordBatch, features: Collection[str], unit: str
) -> tuple[pa.Array, pa.RecordBatch]:
    """Returns a record batch's keys, and its columns without one that is only the key.

    Args:
      keys: The name of the key column, the keys, or what makes them from the batch.
      batch: The rows.
      features: The names of the features.
      unit: The unit, as messages call it.

    Raises:
      InvalidKeyError: There is no such column, or there are not as many keys as rows.
    """
    if callable(keys):
        keys = keys(batch)
    if isinstance(keys, str):
        if keys not in batch.schema.names:
            raise InvalidKeyError(
                explain(
                    f"The record batches of unit {unit} have no key column {keys!r}.",
                    f"Their columns: {', '.join(batch.schema.names)}",
                    fix="yield (name of the key column, batch) or (array of keys, batch)",
                )
            )
        column = batch.column(keys)
        return column, batch if keys in features else batch.drop_columns([keys])
    array = keys if isinstance(keys, (pa.Array, pa.ChunkedArray)) else pa.array(keys)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if len(array) != batch.num_rows:
        raise InvalidKeyError(
            explain(
                f"Unit {unit} gave {len(array)} keys for {batch.num_rows} rows.",
                fix="yield as many keys as the record batch has rows",
            )
        )
    return array, batch


def rough_size(item: Any) -> int:
    """Returns about how many bytes an example takes: enough to keep a batch of large ones small."""
    if isinstance(item, dict):
        values = item.values()
        if set(map(type, values)) <= _NUMBERS:  # most rows: without a call for each value
            return 8 * len(values)
        return sum(map(rough_size, values))
    if isinstance(item, (list, tuple)):
        # One element stands for all: this is an estimate, made for each example.
        return len(item) * rough_size(item[0]) if item else 0
    if isinstance(item, (bytes, str)):
        return len(item)
    return int(getattr(item, "nbytes", 8))
