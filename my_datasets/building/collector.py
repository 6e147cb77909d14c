"""What a process gathers: encoded examples, hashed and framed, written out as sorted runs."""

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from my_datasets.building import runs
from my_datasets.building.runs import Encoded, Run
from my_datasets.building.units import Encoder, Misfit
from my_datasets.errors import BuilderError, ExampleError, InvalidKeyError, explain
from my_datasets.records import hashing, tfrecord

# A plain generator's examples are encoded in batches of this many.
BATCH = 1024
# ... or of about this many bytes, whatever comes first.
BATCH_BYTES = 4 << 20
# Finished units are held no longer than this before they are written, in seconds.
_FLUSH_SECONDS = 30.0
# Rows of a record batch that are encoded at once: large enough to spread the cost of a call,
# small enough for the processor's caches.
_ROWS = 8192
# `ordered` positions: room for 2**40 examples in each of 2**22 units.
_POSITION_BITS = 40


@dataclass
class Quarantined:
    """An example that was set aside.

    Attributes:
      split: The split.
      unit: The unit, as messages call it.
      position: The example's place in the unit, counted from 0.
      key: Its key.
      feature: The path of the feature it does not fit.
      expected: What the feature takes.
      found: What was given.
      reason: The original error.
    """

    split: str
    unit: str
    position: int
    key: str
    feature: str
    expected: str
    found: str
    reason: str


@dataclass
class UnitState:
    """How much of a unit has been gathered.

    Attributes:
      seen: Examples that the generator yielded.
      complete: Whether it came to its end.
      quarantined: Examples set aside.
    """

    seen: int = 0
    complete: bool = False
    quarantined: list[Quarantined] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Returns what the journal records."""
        return {
            "seen": self.seen,
            "complete": self.complete,
            "quarantined": [asdict(item) for item in self.quarantined],
        }

    @classmethod
    def from_json(cls, entry: dict[str, Any]) -> "UnitState":
        """Returns what the journal recorded."""
        items = [Quarantined(**item) for item in entry["quarantined"]]
        return cls(entry["seen"], entry["complete"], items)


@dataclass(frozen=True)
class Rules:
    """What holds for all examples of a split.

    Attributes:
      split: The split's name: the salt of the hashes.
      ordered: Keep the order of generation, as `disable_shuffling` asks for.
      quarantine: Set examples aside that do not fit, instead of failing.
      limit: At most so many examples of each unit; None for all.
    """

    split: str
    ordered: bool = False
    quarantine: bool = False
    limit: int | None = None


Report = Callable[[Run | None, dict[int, dict[str, Any]]], None]


class Collector:
    """Gathers the examples of one split in one process."""

    def __init__(
        self, directory: Path, rules: Rules, encoder: Encoder, capacity: int, report: Report
    ) -> None:
        """Starts empty.

        Args:
          directory: Where the runs are written.
          rules: What holds for the split.
          encoder: Makes the records.
          capacity: Bytes that may be held before a run is written.
          report: Told of each run that was written, with the state of the units in it.
        """
        self._directory = directory
        self._rules = rules
        self._encoder = encoder
        self._capacity = capacity
        self._report = report
        self._parts: list[Encoded] = []
        self._held = 0
        self._states: dict[int, UnitState] = {}
        self._flushed = time.monotonic()

    def generate(
        self, unit: int, name: str, examples: Iterator[tuple[Any, Any]], between: Callable[..., Any]
    ) -> None:
        """Gathers a whole unit.

        Args:
          unit: The unit's number.
          name: What messages call it.
          examples: The generator's pairs.
          between: Called with the number of examples and bytes after each batch; may raise.
        """
        for first, batch in _batches(examples, self._rules.limit):
            if isinstance(batch, tuple):
                size = self.add_columns(unit, name, first, *batch)
                count = batch[1].num_rows
            else:
                size = self.add_rows(unit, name, first, batch)
                count = len(batch)
            between(count, size)
        self.finish_unit(unit)

    def finish_unit(self, unit: int) -> None:
        """Marks a unit, of which all batches were added, as complete."""
        self._state(unit).complete = True
        if time.monotonic() - self._flushed >= _FLUSH_SECONDS:
            self.flush()  # so that a crash does not cost more than that

    def _state(self, unit: int) -> UnitState:
        # Looked up each time: a run that is written in between resets the states.
        return self._states.setdefault(unit, UnitState())

    def add_rows(self, unit: int, name: str, first: int, batch: Sequence[tuple[Any, Any]]) -> int:
        """Encodes pairs of key and example; returns the size of their records in bytes.

        Args:
          unit: The unit's number.
          name: What messages call it.
          first: The first one's position in the unit.
          batch: The pairs.

        Raises:
          ExampleError: An example does not fit, and is not to be set aside.
          InvalidKeyError: A key is no key.
        """
        self._state(unit).seen += len(batch)
        keys = [key for key, _ in batch]
        positions = np.arange(first, first + len(batch), dtype=np.uint64)
        try:
            records = self._encoder.rows([item for _, item in batch])
        except Exception:
            records, fits = self._one_by_one(unit, name, first, batch)
            keys = [keys[i] for i in fits]
            positions = positions[fits]
        if not keys:
            return 0
        try:
            key_array = hashing.key_array(keys)
        except InvalidKeyError as error:
            raise InvalidKeyError(f"{error}\n  In unit {name}, after example {first}") from None
        return self._add(unit, positions, keys, key_array, records)

    def add_columns(
        self, unit: int, name: str, first: int, keys: Any, batch: pa.RecordBatch
    ) -> int:
        """Encodes the rows of a record batch; returns the size of their records in bytes.

        Args:
          unit: The unit's number.
          name: What messages call it.
          first: The first row's position in the unit.
          keys: The name of the key column (one that is no feature is left out of the examples),
            or the keys themselves.
          batch: The rows.

        Raises:
          ExampleError: A column does not fit its feature.
        """
        self._state(unit).seen += batch.num_rows
        size = 0
        keys, batch = self._keys_of(keys, batch, name)
        for begin in range(0, batch.num_rows, _ROWS):
            part = batch.slice(begin, _ROWS)
            part_keys = keys.slice(begin, _ROWS)
            some = hashing.key_array(part_keys)
            positions = np.arange(part.num_rows, dtype=np.uint64) + np.uint64(first + begin)
            try:
                records = self._encoder.columns(part)
            except Misfit as misfit:
                if self._rules.quarantine:
                    records, fits = self._rows_that_fit(unit, name, first + begin, part, some)
                    kept = pa.array(fits, pa.int64())
                    positions, some = positions[fits], some.take(kept)
                    part_keys = part_keys.take(kept)
                    if not len(some):
                        continue
                else:
                    row = misfit.row
                    raise self._error(
                        misfit, name, first + begin + row, _shown(some[row].as_py())
                    ) from misfit
            size += self._add(unit, positions, part_keys, some, records)
        return size

    def _keys_of(
        self, keys: Any, batch: pa.RecordBatch, name: str
    ) -> tuple[pa.Array, pa.RecordBatch]:
        if callable(keys):
            keys = keys(batch)
        if isinstance(keys, str):
            if keys not in batch.schema.names:
                raise InvalidKeyError(
                    explain(
                        f"The record batches of unit {name} have no key column {keys!r}.",
                        f"Their columns: {', '.join(batch.schema.names)}",
                        mend="yield (name of the key column, batch) or (array of keys, batch)",
                    )
                )
            column = batch.column(keys)
            if keys not in self._encoder.names:
                batch = batch.drop_columns([keys])
            return column, batch
        array = keys if isinstance(keys, (pa.Array, pa.ChunkedArray)) else pa.array(keys)
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        if len(array) != batch.num_rows:
            raise InvalidKeyError(
                explain(
                    f"Unit {name} gave {len(array)} keys for {batch.num_rows} rows.",
                    mend="yield as many keys as the record batch has rows",
                )
            )
        return array, batch

    def flush(self) -> None:
        """Writes what is held as a run, and reports it."""
        self._flushed = time.monotonic()
        states = {unit: state.to_json() for unit, state in self._states.items()}
        self._states = {
            unit: UnitState(state.seen)
            for unit, state in self._states.items()
            if not state.complete
        }
        run = None
        if self._parts:
            path = self._directory / f"{self._rules.split}-{secrets.token_hex(8)}.run"
            run = runs.write(path, self._parts)
            self._held = 0
        if run or states:
            self._report(run, states)

    def _add(
        self,
        unit: int,
        positions: npt.NDArray[np.uint64],
        keys: Any,
        key_array: pa.LargeBinaryArray,
        records: pa.LargeBinaryArray,
    ) -> int:
        if self._rules.ordered:
            high, low = _in_order(unit, positions, keys)
        else:
            high, low = hashing.hash_keys(self._rules.split, key_array)
        part = Encoded(unit, positions, high, low, tfrecord.frame(records), key_array)
        self._parts.append(part)
        self._held += part.nbytes
        if self._held >= self._capacity:
            self.flush()
        return len(tfrecord.bytes_of(records))

    def _one_by_one(
        self, unit: int, name: str, first: int, batch: Sequence[tuple[Any, Any]]
    ) -> tuple[pa.LargeBinaryArray, list[int]]:
        records, fits = [], []
        for i, (key, item) in enumerate(batch):
            try:
                records.append(self._encoder.row(item))
                fits.append(i)
            except Misfit as misfit:
                error = self._error(misfit, name, first + i, _shown(key))
                if not self._rules.quarantine:
                    raise error from misfit.__cause__
                self._state(unit).quarantined.append(
                    _set_aside(misfit, self._rules.split, name, first + i, _shown(key))
                )
        return pa.concat_arrays(records or [pa.array([], pa.large_binary())]), fits

    def _rows_that_fit(
        self,
        unit: int,
        name: str,
        first: int,
        batch: pa.RecordBatch,
        keys: pa.LargeBinaryArray,
    ) -> tuple[pa.LargeBinaryArray, list[int]]:
        records, fits = [], []
        for i in range(batch.num_rows):
            try:
                records.append(self._encoder.columns(batch.slice(i, 1)))
                fits.append(i)
            except Misfit as misfit:
                key = _shown(keys[i].as_py())
                self._state(unit).quarantined.append(
                    _set_aside(misfit, self._rules.split, name, first + i, key)
                )
        return pa.concat_arrays(records or [pa.array([], pa.large_binary())]), fits

    def _error(self, misfit: Misfit, name: str, position: int, key: str) -> ExampleError:
        cause = misfit.__cause__
        return ExampleError(
            explain(
                f"An example of split {self._rules.split!r} does not fit the features.",
                f"Unit: {name}, example {position} (counted from 0)",
                f"Key: {key}",
                f"Feature: {misfit.feature or '(the whole example)'}",
                f"Expected: {misfit.expected}",
                f"Found: {misfit.found}",
                f"The error was: {type(cause).__name__}: {cause}" if cause else "",
                mend="change what the builder yields, or its features; on_error='quarantine' "
                "sets such examples aside",
            )
        )


def _set_aside(misfit: Misfit, split: str, name: str, position: int, key: str) -> Quarantined:
    cause = misfit.__cause__
    reason = f"{type(cause).__name__}: {cause}" if cause else ""
    return Quarantined(
        split, name, position, key, misfit.feature, misfit.expected, misfit.found, reason
    )


def _in_order(
    unit: int, positions: npt.NDArray[np.uint64], keys: Any
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Returns numbers that sort as TFDS sorts where shuffling is disabled: by int keys."""
    if isinstance(keys, (pa.Array, pa.ChunkedArray)):
        is_int = pa.types.is_integer(keys.type)
        values = keys.to_numpy(zero_copy_only=False).astype(np.int64) if is_int else None
    else:
        is_int = all(isinstance(key, int) for key in keys)
        values = np.array(keys, np.int64) if is_int else None
        if not is_int and any(isinstance(key, int) for key in keys):
            raise InvalidKeyError(
                explain(
                    "Where shuffling is disabled, keys are all ints or none is.",
                    mend="yield ints that give the order, or texts to keep that of generation",
                )
            )
    if values is None:
        values = (unit << _POSITION_BITS) + positions.astype(np.int64)
    # Shifted so that the order of the unsigned numbers is that of the signed ones.
    high = values.view(np.uint64) ^ np.uint64(1 << 63)
    return high, np.zeros(len(values), np.uint64)


def _batches(examples: Iterator[tuple[Any, Any]], limit: int | None) -> Iterator[tuple[int, Any]]:
    """Yields (position of the first example, pairs), or (position, (keys, record batch))."""
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
                    mend="yield (key, example), with the example as a dict of features",
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
        pairs.append((key, item))
        size += _rough_size(item)
        if len(pairs) == BATCH or size >= BATCH_BYTES:
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
                mend="yield as many keys as the table has rows",
            )
        )
    for batch in table.to_batches():
        yield keys if whole else keys[begin : begin + batch.num_rows], batch
        begin += batch.num_rows


def _rough_size(item: Any) -> int:
    """Returns about how many bytes an example takes: enough to keep a batch of large ones small."""
    if isinstance(item, dict):
        return sum(map(_rough_size, item.values()))
    if isinstance(item, (list, tuple)):
        # One element stands for all: this is an estimate, made for each example.
        return len(item) * _rough_size(item[0]) if item else 0
    if isinstance(item, os.PathLike) or (isinstance(item, str) and "/" in item[:4096]):
        # It may be the path of a file that becomes part of the record.
        with contextlib.suppress(OSError, ValueError):
            return os.stat(item).st_size  # noqa: PTH116 - asked for each example
    if isinstance(item, (bytes, str)):
        return len(item)
    return int(getattr(item, "nbytes", 64))


def _shown(key: Any) -> str:
    return key.decode(errors="backslashreplace") if isinstance(key, bytes) else str(key)
