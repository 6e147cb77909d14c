"""Units: the independently processable pieces of a split's input."""

import dataclasses
import hashlib
import os
import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from my_datasets.errors import ExampleError, MyDatasetsError, UnitError, explain

# What messages call the place of an example of a Beam collection, which has none of its own.
COLLECTION = "a part of the Beam collection"

Generator = Callable[[Any], Iterable[tuple[Any, Any]]]


@dataclass(frozen=True)
class Units:
    """A split's input in pieces, each turned into examples by one call of a generator function.

    Iterating goes through all units one after the other, so that whatever takes a plain generator
    of examples takes this, too.

    Attributes:
      generate: Yields the `(key, example)` pairs, or `(keys, record batch)` pairs, of one item.
      items: What each unit is generated from: a path, a range of rows, ...
    """

    generate: Generator
    items: Sequence[Any]

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for item in self.items:
            yield from self.generate(item)

    def identities(self) -> list[str]:
        """Returns a text for each unit that changes if its item or the file it names does."""
        return [_identity(item) for item in self.items]


class InvalidValue(Exception):  # noqa: N818 - becomes an ExampleError once unit and key are known
    """A value does not fit its feature, or could not be read.

    A generator may yield it in place of an example, which is then an error, or set aside.

    Attributes:
      feature: The feature's path, such as `objects/label`.
      expected: What the feature takes.
      found: What was given.
    """

    def __init__(self, feature: str, expected: str, found: str) -> None:
        super().__init__(feature, expected, found)
        self.feature = feature
        self.expected = expected
        self.found = found

    def as_error(self, split: str, unit: str, position: int, key: Any) -> ExampleError:
        """Returns the error that says which example it is."""
        return ExampleError(
            explain(
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
        )

    def set_aside(self, split: str, unit: str, position: int, key: Any) -> "Quarantined":
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
    """What turns examples into records; the engine knows no features."""

    @property
    def names(self) -> Collection[str]:
        """The names of the top-level features."""

    def own(self, item: Any) -> Any:
        """Returns an example that no later change of `item` reaches; None if there can be none."""

    def rows(self, examples: Sequence[Any]) -> pa.LargeBinaryArray:
        """Returns a framed record for each example; raises anything if one does not fit."""

    def row(self, item: Any) -> pa.LargeBinaryArray:
        """Returns one example's framed record; raises `Misfit`."""

    def rows_at_once(self, batch: pa.RecordBatch) -> int:
        """Returns how many rows of a record batch are to be encoded at once, for its memory."""

    def columns(self, batch: pa.RecordBatch) -> pa.LargeBinaryArray:
        """Returns a framed record for each row of a record batch; raises `Misfit`."""


@dataclass(frozen=True)
class SplitInput:
    """What one split is made from.

    Attributes:
      name: The split's name, which is also the salt of its keys' hashes.
      units: Its pieces; for a plain generator one, which runs in the building process.
      is_plain: Whether it is a plain generator, which can be run only once.
      collection: A Beam collection of `(key, example)` pairs in place of units; otherwise None.
    """

    name: str
    units: Units
    is_plain: bool = False
    collection: Any = None

    def unit_name(self, unit: int) -> str:
        """Returns a unit as messages call it."""
        if self.is_plain:
            return "0 (the whole split)"
        if self.collection is not None:
            return COLLECTION
        item = self.units.items[unit]
        shown = os.fspath(item) if isinstance(item, os.PathLike) else str(item)
        return f"{unit} ({shown if len(shown) <= 120 else shown[:117] + '...'})"


def examples_of(split: str, unit: str, generate: Generator, item: Any) -> Iterator[tuple[Any, Any]]:
    """Yields a unit's examples; an error of the builder's own code says which unit it was.

    Args:
      split: The split.
      unit: The unit, as messages call it.
      generate: Yields the pairs of an item.
      item: What the unit is generated from.

    Raises:
      UnitError: The generator failed.
    """
    count = 0
    try:
        for pair in generate(item):
            yield pair
            count += 1
    except (MyDatasetsError, OSError):
        raise
    except Exception as error:
        raise UnitError(
            explain(
                f"The generator of split {split!r} failed.",
                f"Unit: {unit}, after it had yielded {count:,} times",
                f"The error was: {type(error).__name__}: {error}",
                "What was finished is kept.",
                fix="fix the input or the builder, then run the same again",
            )
        ) from error


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
      ordered_by_key: Where shuffling is disabled: whether int keys give the order, or the
        generator; None as long as neither is known.
    """

    seen: int = 0
    complete: bool = False
    ordered_by_key: bool | None = None
    quarantined: list[Quarantined] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Returns what the journal records."""
        return {
            "seen": self.seen,
            "complete": self.complete,
            "ordered_by_key": self.ordered_by_key,
            "quarantined": [asdict(item) for item in self.quarantined],
        }

    @classmethod
    def from_json(cls, entry: dict[str, Any]) -> "UnitState":
        """Returns what the journal recorded."""
        items = [Quarantined(**item) for item in entry["quarantined"]]
        return cls(**{**entry, "quarantined": items})


def _shown(key: Any) -> str:
    return key.decode(errors="backslashreplace") if isinstance(key, bytes) else str(key)


def _identity(item: Any) -> str:
    if isinstance(item, (str, os.PathLike)):
        path = os.fspath(item)
        try:
            # Not by pathlib: there may be a million of them.
            stat = os.stat(path)  # noqa: PTH116
        except (OSError, ValueError):
            return repr(path)
        # The nanoseconds tell two files apart; nothing depends on which way the clock went.
        return f"{path!r}, {stat.st_size} bytes, modified {stat.st_mtime_ns}"
    if isinstance(item, (list, tuple)):
        return "[" + ", ".join(map(_identity, item)) + "]"
    if isinstance(item, dict):
        return "{" + ", ".join(f"{key!r}: {_identity(item[key])}" for key in item) + "}"
    if item is None or isinstance(item, (int, float, bytes, range)):
        return repr(item)
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        fields = {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}
        return f"{type(item).__qualname__} {_identity(fields)}"
    try:
        return f"{type(item).__qualname__} {hashlib.sha256(pickle.dumps(item)).hexdigest()}"
    except Exception:
        return type(item).__qualname__
