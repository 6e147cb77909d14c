"""Encodes, hashes and frames the examples of a split, and writes them as sorted runs."""

import secrets
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from my_datasets.building import runs
from my_datasets.building.runs import SUFFIX, Run, RunBuffer
from my_datasets.building.units import Encoder, Entry, InvalidValue, Pair, UnitState
from my_datasets.errors import BuilderError, InvalidKeyError
from my_datasets.records import shuffle_order, tfrecord
from my_datasets.records.tf_example import pieces

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
    batch copies its examples with `own`. An example for which that returns None, or a record batch,
    is yielded before the generator continues. An `InvalidValue` instead of an example stands for
    one that could not be read. No more than `limit` examples are yielded.

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


# Finished units are written after at most this many seconds.
_FLUSH_SECONDS = 30.0
# Examples of at least this many bytes are encoded in threads beside a plain generator.
_LARGE = 512


@dataclass(frozen=True)
class SplitRules:
    """How the examples of a split are encoded."""

    split: str  # the split's name: the salt of the hashes
    ordered: bool = False  # keep the order of generation, as `disable_shuffling` asks
    quarantine: bool = False  # set examples aside that do not fit, instead of failing
    limit: int | None = None  # the most examples of each unit; None for all
    # With `ordered`, let the keys' text give the order, for a collection that has none.
    by_text: bool = False


@dataclass(frozen=True)
class _Encoded:
    """Encoded examples; shape [n] each."""

    positions: npt.NDArray[np.uint64]
    hashes: shuffle_order.Hashes
    framed: pa.LargeBinaryArray
    keys: pa.LargeBinaryArray
    ordered_by_key: bool | None


# The `UnitState` of units, as JSON, by their numbers.
States = dict[int, Entry]
Report = Callable[[Run | None, States], None]


class Collector:
    """Encodes the examples of one split in one process."""

    def __init__(
        self, directory: Path, rules: SplitRules, encoder: Encoder, capacity: int, report: Report
    ) -> None:
        """Buffers `capacity` bytes for a run; then calls `report` with it and its units' state."""
        self._directory = directory
        self._rules = rules
        self._encoder = encoder
        self._report = report
        self._buffer = RunBuffer(capacity)
        self._states: dict[int, UnitState] = {}
        self._flushed = time.monotonic()

    def generate(
        self,
        unit: int,
        name: str,
        examples: Iterator[Pair],
        between: Callable[[int, int], None],
        *,
        threads: int = 1,
    ) -> None:
        """Encodes a whole unit.

        `between` gets the number of examples and bytes after each batch, and may raise. With more
        than one of `threads`, large examples are encoded beside the generator.
        """
        batched = batches(examples, self._rules.limit, self._encoder.own)
        for first, batch, encoded in self._encoded_ahead(unit, batched, threads):
            between(*self.add(unit, name, first, batch, encoded))
        self.finish_unit(unit)

    def _encoded_ahead(
        self, unit: int, batched: Iterator[tuple[int, Batch]], threads: int
    ) -> Iterator[tuple[int, Batch, _Encoded | None]]:
        """Yields the batches; those of large examples are encoded ahead, in threads.

        Compressing, copying and checking large values releases Python's lock; for small ones the
        generator would only wait for it.
        """
        if threads == 1:
            yield from ((first, batch, None) for first, batch in batched)
            return
        waiting: deque[tuple[int, Batch, Future[_Encoded | None]]] = deque()
        with ThreadPoolExecutor(threads) as pool:
            for first, batch in batched:
                is_large = isinstance(batch, list) and rough_size(batch[0][1]) >= _LARGE
                if isinstance(batch, list) and is_large:
                    waiting.append((first, batch, pool.submit(self._encode, unit, first, batch)))
                while len(waiting) > (threads if is_large else 0):
                    before, earlier, encoded = waiting.popleft()
                    yield before, earlier, encoded.result()
                if not is_large:
                    yield first, batch, None
            for first, batch, encoded in waiting:
                yield first, batch, encoded.result()

    def finish_unit(self, unit: int) -> None:
        """Marks a unit as complete, after all of its batches."""
        self._state(unit).complete = True
        if time.monotonic() - self._flushed >= _FLUSH_SECONDS:
            self.flush()  # bounds what a crash costs

    def _state(self, unit: int) -> UnitState:
        # Looked up each time, because writing a run resets the states.
        return self._states.setdefault(unit, UnitState())

    def add(
        self, unit: int, name: str, first: int, batch: Batch, encoded: _Encoded | None = None
    ) -> tuple[int, int]:
        """Encodes a batch; returns the number of its examples, and the bytes of their records.

        `first` is the position of the first example in the unit. A key column of a table that is no
        feature is left out. `encoded` has the examples as records, if they are encoded already.

        Raises:
          ExampleError: An example does not fit, and there is no quarantine.
          InvalidKeyError: A key has a type or value that keys cannot have.
        """
        if isinstance(batch, tuple):
            return batch[1].num_rows, self._add_columns(unit, name, first, *batch)
        self._state(unit).seen += len(batch)
        encoded = encoded or self._encode(unit, first, batch)
        if encoded is None:
            encoded = self._encode_one_by_one(unit, name, first, batch)
        return len(batch), 0 if encoded is None else self._add(unit, encoded)

    def _encode(self, unit: int, first: int, batch: Sequence[Pair]) -> _Encoded | None:
        """Encodes pairs, in any thread; None if that fails."""
        keys = [key for key, _ in batch]
        positions = np.arange(first, first + len(batch), dtype=np.uint64)
        try:
            records = self._encoder.rows([item for _, item in batch])
            return self._hashed(unit, positions, keys, shuffle_order.key_array(keys), records)
        except Exception:
            return None  # `_encode_one_by_one` raises the error, and names the example

    def _encode_one_by_one(
        self, unit: int, name: str, first: int, batch: Sequence[Pair]
    ) -> _Encoded | None:
        """Sets examples aside that do not fit, or raises; None if no example fits."""
        records, keys, positions = [], [], []
        for position, (key, item) in enumerate(batch, first):
            try:
                if isinstance(item, InvalidValue):
                    raise item
                records.append(self._encoder.row(item))
            except InvalidValue as misfit:
                self._set_aside(misfit, unit, name, position, key)
            else:
                keys.append(key)
                positions.append(position)
        if not keys:
            return None
        try:
            key_array = shuffle_order.key_array(keys)
        except InvalidKeyError as error:
            where = f"In unit {name}, after example {first}"
            raise InvalidKeyError(error.problem, *error.facts, where, fix=error.fix) from None
        numbers = np.array(positions, np.uint64)
        return self._hashed(unit, numbers, keys, key_array, pa.concat_arrays(records))

    def _add_columns(
        self, unit: int, name: str, first: int, keys: Keys, batch: pa.RecordBatch
    ) -> int:
        self._state(unit).seen += batch.num_rows
        keys, batch = with_keys(keys, batch, self._encoder.names, name)
        size, step = 0, self._encoder.rows_at_once(batch)
        left = [(row, step) for row in range(0, batch.num_rows, step)][::-1]
        while left:
            row, count = left.pop()
            rows, some = batch.slice(row, count), keys.slice(row, count)
            key_array = shuffle_order.key_array(some)
            try:
                records = self._encoder.columns(rows)
            except InvalidValue as misfit:
                if rows.num_rows == 1:
                    self._set_aside(misfit, unit, name, first + row, key_array[0].as_py())
                else:  # halved until the row that does not fit is alone
                    half = rows.num_rows // 2
                    left += [(row + half, rows.num_rows - half), (row, half)]
                continue
            positions = np.arange(row, row + len(records), dtype=np.uint64) + np.uint64(first)
            size += self._add(unit, self._hashed(unit, positions, some, key_array, records))
        return size

    def flush(self) -> None:
        """Writes the buffered examples as a run, and reports it."""
        self._flushed = time.monotonic()
        states = {unit: asdict(state) for unit, state in self._states.items()}
        self._states = {
            unit: replace(state, quarantined=[])
            for unit, state in self._states.items()
            if not state.complete
        }
        name = f"{self._rules.split}-{secrets.token_hex(8)}{SUFFIX}"
        run = self._buffer.write(self._directory / name)
        if run or states:
            self._report(run, states)

    def _hashed(
        self,
        unit: int,
        positions: npt.NDArray[np.uint64],
        keys: Sequence[object] | pa.Array,
        key_array: pa.LargeBinaryArray,
        records: pa.LargeBinaryArray,
    ) -> _Encoded:
        is_by_key = None
        if self._rules.ordered:
            texts = key_array if self._rules.by_text else None
            is_by_key, hashes = runs.ordering_numbers(unit, positions, keys, texts)
        else:
            hashes = shuffle_order.hash_keys(self._rules.split, key_array)
        return _Encoded(positions, hashes, records, key_array, is_by_key)

    def _add(self, unit: int, encoded: _Encoded) -> int:
        """Buffers examples; returns the size of their records, without framing."""
        state = self._state(unit)
        if state.ordered_by_key not in (None, encoded.ordered_by_key):
            raise runs.mixed_keys()
        state.ordered_by_key = encoded.ordered_by_key
        framed = encoded.framed
        if not self._buffer.has_room(framed):
            self.flush()
        self._buffer.add(unit, encoded.positions, encoded.hashes, framed, encoded.keys)
        if self._buffer.is_full:
            self.flush()
        return len(pieces.bytes_of(framed)) - len(framed) * tfrecord.OVERHEAD

    def _set_aside(
        self, invalid: InvalidValue, unit: int, name: str, position: int, key: object
    ) -> None:
        """Sets an example aside, or raises the error for it."""
        if not self._rules.quarantine:
            raise invalid.as_error(self._rules.split, name, position, key) from (
                invalid.__cause__ or invalid
            )
        found = invalid.set_aside(self._rules.split, name, position, key)
        self._state(unit).quarantined.append(found)
