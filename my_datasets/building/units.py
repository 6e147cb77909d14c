"""Units: the independently processable pieces of a split's input."""

import hashlib
import os
import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

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


class Misfit(Exception):  # noqa: N818 - becomes an ExampleError once unit and key are known
    """A value does not fit its feature.

    Attributes:
      feature: The feature's path, such as `objects/label`.
      expected: What the feature takes.
      found: What was given.
      row: The row of the record batch, for the columnar path.
    """

    def __init__(self, feature: str, expected: str, found: str, *, row: int = 0) -> None:
        super().__init__(feature, expected, found)
        self.feature = feature
        self.expected = expected
        self.found = found
        self.row = row


class Encoder(Protocol):
    """What turns examples into records; the engine knows no features."""

    @property
    def names(self) -> Collection[str]:
        """The names of the top-level features."""

    def rows(self, examples: Sequence[Any]) -> pa.LargeBinaryArray:
        """Returns a serialised record for each example; raises anything if one does not fit."""

    def row(self, item: Any) -> pa.LargeBinaryArray:
        """Returns one example's record; raises `Misfit`."""

    def columns(self, batch: pa.RecordBatch) -> pa.LargeBinaryArray:
        """Returns a serialised record for each row of a record batch; raises `Misfit`."""


@dataclass(frozen=True)
class SplitInput:
    """What one split is made from.

    Attributes:
      name: The split's name, which is also the salt of its keys' hashes.
      units: Its pieces; for a plain generator one, which runs in the building process.
      is_plain: Whether it is a plain generator, which can be run only once.
    """

    name: str
    units: Units
    is_plain: bool = False

    def unit_name(self, unit: int) -> str:
        """Returns a unit as messages call it."""
        if self.is_plain:
            return "0 (the whole split)"
        item = self.units.items[unit]
        shown = os.fspath(item) if isinstance(item, os.PathLike) else str(item)
        return f"{unit} ({shown if len(shown) <= 120 else shown[:117] + '...'})"


def _identity(item: Any) -> str:
    if isinstance(item, (str, os.PathLike)):
        path = os.fspath(item)
        try:
            stat = Path(path).stat()
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
    try:
        return f"{type(item).__qualname__} {hashlib.sha256(pickle.dumps(item)).hexdigest()}"
    except Exception:
        return type(item).__qualname__
