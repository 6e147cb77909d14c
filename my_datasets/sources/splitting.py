"""Splits a source: rows are assigned to splits by their own contents only."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from my_datasets.building.units import Generator, InvalidValue
from my_datasets.errors import SourceError
from my_datasets.records import shuffle_order
from my_datasets.sources.types import Rows

Mask = npt.NDArray[np.bool_]
# Positions of rows on a line of 64-bit numbers.
Positions = npt.NDArray[np.uint64]
_SALT = "my_datasets split "
_WHOLE = 1 << 64


class Rule(Protocol):
    """Decides which rows belong to a split."""

    def __call__(self, keys: pa.LargeBinaryArray, batch: pa.RecordBatch) -> Mask:
        """Returns a mask of the rows that belong to the split, given their keys and columns."""

    def has_key(self, key: object) -> bool:
        """Returns whether an unreadable row belongs to the split: it must belong to exactly one."""


@dataclass(frozen=True)
class SplitPart:
    """The rows of a source that belong to one split."""

    generate: Generator
    rule: Rule

    def __call__(self, item: object) -> Iterator[Rows]:
        """Yields the selected rows of a unit."""
        for keys, batch in self.generate(item):
            if isinstance(batch, InvalidValue):
                if self.rule.has_key(keys):
                    yield keys, batch
                continue
            given = batch.column(keys) if isinstance(keys, str) else keys
            mask = pa.array(self.rule(shuffle_order.key_array(given), batch))
            chosen = batch.filter(mask)
            if chosen.num_rows:
                yield keys if isinstance(keys, str) else given.filter(mask), chosen


@dataclass(frozen=True)
class Between:
    """Selects rows by the position of their keys, or of their groups."""

    salt: str  # a different text gives a different assignment
    first: int  # the first position
    end: int  # the position after the last
    group: str | None = None  # the column whose values stay together; None to use the keys

    def __call__(self, keys: pa.LargeBinaryArray, batch: pa.RecordBatch) -> Mask:
        """Returns a mask of the rows that belong to the split."""
        texts = keys if self.group is None else _texts(batch.column(self.group))
        return self.within(salted_md5(self.salt, texts)[0])

    def has_key(self, key: object) -> bool:
        """Returns whether an unreadable row with this key belongs to the split."""
        if self.group is not None:
            return self.first == 0
        return bool(self.within(salted_md5(self.salt, shuffle_order.key_array([key]))[0])[0])

    def within(self, positions: Positions) -> Mask:
        """Returns a mask of the positions from `first` up to `end`."""
        if self.first >= self.end:
            return np.zeros(len(positions), np.bool_)
        # 2**64 does not fit into uint64, and no position reaches it.
        last = np.uint64(self.end - 1)
        mask: Mask = (positions >= np.uint64(self.first)) & (positions <= last)
        return mask


@dataclass(frozen=True)
class Stratum:
    """Selects an exact share of the rows of each class."""

    salt: str  # a different text gives a different assignment
    column: str  # of the classes
    bounds: Mapping[str, tuple[int, int]]  # of positions, for each class
    takes_unread: bool  # whether unreadable rows belong to the split

    def __call__(self, keys: pa.LargeBinaryArray, batch: pa.RecordBatch) -> Mask:
        """Returns a mask of the rows that belong to the split.

        Raises:
          SourceError: A row has a class that no row had when the split was computed.
        """
        positions = salted_md5(self.salt, keys)[0]
        mask = np.zeros(len(positions), np.bool_)
        for name, rows in _classes(batch.column(self.column)):
            if name not in self.bounds:
                raise SourceError(
                    f"Column {self.column!r} has the class {name}, which it did not have when "
                    "the split was computed.",
                    f"Classes then: {', '.join(sorted(self.bounds))}",
                    fix="the data changed while it was read; run the build again",
                )
            mask |= rows & Between(self.salt, *self.bounds[name]).within(positions)
        return mask

    def has_key(self, _key: object) -> bool:
        """Returns whether unreadable rows belong to the split."""
        return self.takes_unread


@dataclass(frozen=True)
class ValueRule:
    """Selects rows by their values in a column, and all unreadable rows if `takes_unread`."""

    column: str
    values: tuple[object, ...]
    takes_unread: bool

    def __call__(self, keys: pa.LargeBinaryArray, batch: pa.RecordBatch) -> Mask:  # noqa: ARG002
        """Returns a mask of the rows that belong to the split."""
        column = batch.column(self.column)
        chosen = pc.is_in(column, pa.array(self.values, column.type))
        mask: Mask = chosen.to_numpy(zero_copy_only=False)
        return mask

    def has_key(self, _key: object) -> bool:
        """Returns whether unreadable rows belong to the split."""
        return self.takes_unread


def salted_md5(salt: str, texts: pa.LargeBinaryArray) -> shuffle_order.Hashes:
    """Returns both halves of the MD5s of the salt and each text; uint64 of shape [n].

    The upper half, which comes first, is the position of the text.
    """
    return shuffle_order.hash_keys(_SALT + salt, texts)


def cuts(parts: Mapping[str, float]) -> dict[str, tuple[int, int]]:
    """Returns where each part begins and ends, from 0 to 2**64, given its share from 0 to 1.

    Raises:
      SourceError: The shares are invalid.
    """
    total = math.fsum(parts.values())
    if not parts or min(parts.values()) <= 0 or total > 1 + 1e-9:
        raise SourceError(
            f"The parts are {dict(parts)}.",
            "Expected shares above 0 that add up to 1, or to less to leave some rows out",
            fix="for example, {'train': 0.8, 'test': 0.2}",
        )
    bounds, reached, begin = {}, 0.0, 0
    for name, share in parts.items():
        reached += share
        end = _WHOLE if reached > 1 - 1e-9 else int(reached * _WHOLE)
        bounds[name] = (begin, end)
        begin = end
    return bounds


def renamed(declared: Mapping[str, object], columns: Mapping[str, str]) -> dict[str, object]:
    """Updates the declared rule of a split after its columns were renamed.

    Its `stored` entry is the current name of the column by which rows were split, if it was
    renamed, or None if it was dropped. `columns` has the old names of the columns, by their new
    ones.
    """
    rule = dict(declared)
    by = rule.get("group") or rule.get("stratify") or rule.get("column")
    before = rule.get("stored", by)
    if not isinstance(before, str) or columns.get(before) == before:
        return rule
    rule["stored"] = next((new for new, old in columns.items() if old == before), None)
    return rule


def strata(
    read: Callable[[], Iterator[tuple[pa.LargeBinaryArray, pa.Array]]],
    parts: Mapping[str, float],
    salt: str,
) -> dict[str, dict[str, tuple[int, int]]]:
    """Returns each class's bounds in each part, so that each part gets its share of every class.

    `read` yields the keys and the classes of all rows.
    """
    found: dict[str, list[Positions]] = {}
    for keys, classes in read():
        positions = salted_md5(salt, keys)[0]
        for name, rows in _classes(classes):
            found.setdefault(name, []).append(positions[rows])
    bounds: dict[str, dict[str, tuple[int, int]]] = {name: {} for name in parts}
    for value, some in found.items():
        ordered = np.sort(np.concatenate(some))
        reached, begin = 0.0, 0
        for name, share in parts.items():
            reached += share
            following = round(reached * len(ordered))
            end = int(ordered[following]) if following < len(ordered) else _WHOLE
            bounds[name][value] = (begin, end)
            begin = end
    return bounds


def _classes(column: pa.Array) -> Iterator[tuple[str, Mask]]:
    """Yields each class's `repr` and the mask of its rows; null and NaN are classes, too."""
    encoded = column.dictionary_encode(null_encoding="encode")
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    for code, value in enumerate(encoded.dictionary.to_pylist()):
        yield repr(value), codes == code


def _texts(column: pa.Array) -> pa.LargeBinaryArray:
    """Returns the rows' groups as texts; null becomes an empty text."""
    if pa.types.is_large_binary(column.type) or pa.types.is_binary(column.type):
        return pc.fill_null(column.cast(pa.large_binary()), b"")
    return pc.fill_null(column.cast(pa.large_string()), "").cast(pa.large_binary())


def named(column: str, groups: Mapping[str, Sequence[object]]) -> dict[str, ValueRule]:
    """Returns the rule of each split; raises a `SourceError` if a value is in two splits."""
    seen: dict[object, str] = {}
    for name, values in groups.items():
        for value in values:
            if value in seen:
                raise SourceError(
                    f"The value {value!r} of {column!r} is in two splits.",
                    f"The splits: {seen[value]} and {name}",
                    fix="list each value once",
                )
            seen[value] = name
    first = next(iter(groups), "")
    return {
        name: ValueRule(column, tuple(values), name == first) for name, values in groups.items()
    }
