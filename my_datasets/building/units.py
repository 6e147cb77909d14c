"""Units: the independently processable pieces of a split's input."""

import dataclasses
import hashlib
import os
import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from my_datasets.errors import ExampleError, MyDatasetsError, UnitError

# What messages call the unit of an example of a Beam collection.
COLLECTION = "a part of the Beam collection"

# `(key, example)`, or `(keys, table)`; only the builder knows the types.
Pair: TypeAlias = tuple[Any, Any]
Generator: TypeAlias = Callable[[Any], Iterable[Pair]]
# A JSON object of the journal or of a worker's report, as `json.loads` returns it.
Entry: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Units:
    """A split's input in pieces, each turned into examples by one call of a generator function.

    Iterating yields the examples of all units in order, so code that takes a plain generator of
    examples also takes this.

    Attributes:
      generate: Yields the `(key, example)` pairs, or `(keys, record batch)` pairs, of one item.
      items: What each unit is generated from: a path, a range of rows, ...
    """

    generate: Generator
    items: Sequence[object]

    def __iter__(self) -> Iterator[Pair]:
        for item in self.items:
            yield from self.generate(item)

    def identities(self) -> list[str]:
        """Returns a string per unit that changes when its item, or the file it names, changes."""
        return [_identity(item) for item in self.items]


class InvalidValue(Exception):  # noqa: N818 - becomes an ExampleError once unit and key are known
    """A value does not fit its feature, or could not be read.

    A generator may yield one instead of an example: the build then fails, or quarantines it.

    Attributes:
      feature: The feature's path, such as `objects/label`.
      expected: What the feature takes.
      found: The value, as a string.
    """

    def __init__(self, feature: str, expected: str, found: str) -> None:
        super().__init__(feature, expected, found)
        self.feature = feature
        self.expected = expected
        self.found = found

    def as_error(self, split: str, unit: str, position: int, key: object) -> ExampleError:
        """Returns the error that names the example."""
        return ExampleError(
            f"An example of split {split!r} does not fit the features.",
            f"Unit: {unit}, example {position} (counted from 0)",
            f"Key: {_shown(key)}",
            f"Feature: {self.feature or '(the whole example)'}",
            f"Expected: {self.expected}",
            f"Found: {self.found}",
            f"The error was: {self._reason}" if self._reason else "",
            fix="change the input, what the builder yields, or its features; "
            "on_error='quarantine' sets such examples aside",
        )

    def set_aside(self, split: str, unit: str, position: int, key: object) -> "Quarantined":
        """Returns the entry of the quarantine report."""
        return Quarantined(
            split, unit, position, _shown(key), self.feature, self.expected, self.found,
            self._reason,
        )  # fmt: skip

    @property
    def _reason(self) -> str:
        cause = self.__cause__
        return f"{type(cause).__name__}: {cause}" if cause else ""


class Encoder(Protocol):
    """Turns examples into records; the engine itself knows no features."""

    @property
    def names(self) -> Collection[str]:
        """The names of the top-level features."""

    def own(self, item: object) -> object:
        """Returns a copy that later changes of `item` do not affect; None if it cannot copy it."""

    def rows(self, examples: Sequence[object]) -> pa.LargeBinaryArray:
        """Returns a framed record for each example; raises any exception if one does not fit."""

    def row(self, item: object) -> pa.LargeBinaryArray:
        """Returns one example's framed record; raises `InvalidValue`."""

    def rows_at_once(self, batch: pa.RecordBatch) -> int:
        """Returns how many rows of a record batch to encode at once, to bound memory."""

    def columns(self, batch: pa.RecordBatch) -> pa.LargeBinaryArray:
        """Returns a framed record for each row of a record batch; raises `InvalidValue`."""


@dataclass(frozen=True)
class SplitInput:
    """The input of one split."""

    name: str  # the split's name, which is also the salt of its keys' hashes
    units: Units  # its units; a plain generator has one, which runs in the building process
    is_plain: bool = False  # whether it is a plain generator, which can run only once
    # A Beam `PCollection` of `(key, example)` pairs, or a `PTransform` that makes one, in place of
    # units; otherwise None.
    collection: object = None

    def units_left(self, states: "Mapping[int, UnitState]") -> list[int]:
        """Returns the units that are not complete."""
        units = range(len(self.units.items))
        return [unit for unit in units if unit not in states or not states[unit].complete]

    def unit_names(self) -> list[str]:
        """Returns the names of all units."""
        return [self.unit_name(unit) for unit in range(len(self.units.items))]

    def unit_name(self, unit: int) -> str:
        """Returns the unit's name for messages."""
        if self.is_plain:
            return "0 (the whole split)"
        if self.collection is not None:
            return COLLECTION
        item = self.units.items[unit]
        shown = os.fspath(item) if isinstance(item, os.PathLike) else str(item)
        return f"{unit} ({shown if len(shown) <= 120 else shown[:117] + '...'})"


def examples_of(split: str, unit: str, generate: Generator, item: object) -> Iterator[Pair]:
    """Yields a unit's examples; raises `UnitError`, which names the unit, if its code fails."""
    count = 0
    try:
        for pair in generate(item):
            yield pair
            count += 1
    except (MyDatasetsError, OSError):
        raise
    except Exception as error:
        raise UnitError(
            f"The generator of split {split!r} failed.",
            f"Unit: {unit}, after it had yielded {count:,} times",
            f"The error was: {type(error).__name__}: {error}",
            "What was finished is kept.",
            fix="fix the input or the builder, then run the same again",
        ) from error


@dataclass
class Quarantined:
    """An example that was set aside: a line of the quarantine report."""

    split: str
    unit: str
    position: int  # in the unit, counted from 0
    key: str
    feature: str
    expected: str
    found: str
    reason: str  # the original error


@dataclass
class UnitState:
    """How much of a unit has been encoded."""

    seen: int = 0  # examples that the generator yielded
    complete: bool = False  # whether the generator finished
    # Where shuffling is disabled: whether int keys give the order, or the generator; None while
    # neither is known.
    ordered_by_key: bool | None = None
    quarantined: list[Quarantined] = field(default_factory=list)

    @classmethod
    def from_json(cls, entry: Entry) -> "UnitState":
        """Returns the state of a journal's entry."""
        items = [Quarantined(**item) for item in entry["quarantined"]]
        return cls(**{**entry, "quarantined": items})


def update_states(states: dict[int, UnitState], entries: Mapping[str, Entry]) -> None:
    """Updates the states of units by the entries of a later run, whose numbers JSON made texts."""
    for number, entry in entries.items():
        state = UnitState.from_json(entry)
        before = states.get(int(number))
        if before is not None:
            state.quarantined = before.quarantined + state.quarantined
        states[int(number)] = state


def _shown(key: object) -> str:
    return key.decode(errors="backslashreplace") if isinstance(key, bytes) else str(key)


def _identity(item: object) -> str:
    if isinstance(item, (str, os.PathLike)):
        path = os.fspath(item)
        try:
            # pathlib would be slow: there may be a million of them.
            stat = os.stat(path)  # noqa: PTH116
        except (OSError, ValueError):
            return repr(path)
        # Compared for equality only, so a clock that was set back does no harm.
        return f"{path!r}, {stat.st_size} bytes, modified {stat.st_mtime_ns}"
    if isinstance(item, (list, tuple)):
        return "[" + ", ".join(map(_identity, item)) + "]"
    if isinstance(item, dict):
        return "{" + ", ".join(f"{k!r}: {_identity(value)}" for k, value in item.items()) + "}"
    if item is None or isinstance(item, (int, float, bytes, range)):
        return repr(item)
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        fields = {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}
        return f"{type(item).__qualname__} {_identity(fields)}"
    try:
        return f"{type(item).__qualname__} {hashlib.sha256(pickle.dumps(item)).hexdigest()}"
    except Exception:
        return type(item).__qualname__
