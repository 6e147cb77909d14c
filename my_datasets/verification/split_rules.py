"""The rules by which rows were assigned to splits, as declared in the manifest.

The hashes are those by which rows are split. Values within sequences count one by one.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from my_datasets.core import hash_sets
from my_datasets.core.arrays import Array
from my_datasets.core.hash_sets import Hashes, HashPart
from my_datasets.core.json_types import JsonObject
from my_datasets.errors import SourceError, problem_of
from my_datasets.input_pipeline.decode.decoder import Decoder
from my_datasets.input_pipeline.decode.pytree import Ragged
from my_datasets.metadata.dataset_info import MALFORMED
from my_datasets.metadata.features import Leaf
from my_datasets.records.random_access import RecordBatch
from my_datasets.sources import splitting
from my_datasets.verification import shard_reading
from my_datasets.verification.shard_reading import ObservedShard, OnExamples, shown

# The member of a rule that differs between its splits.
_OF_ONE = "part"


@dataclass(frozen=True)
class Hashed:
    """Rows were assigned by the hash of their keys or groups.

    Attributes:
      parts: The share of each part, in order.
      column: The column of the groups; None if rows were assigned by key.
    """

    parts: Mapping[str, float]
    column: str | None
    salt: str


@dataclass(frozen=True)
class Stratified:
    """Each part has its share of the rows of each class in `column`."""

    parts: Mapping[str, float]
    column: str


@dataclass(frozen=True)
class ValueSplit:
    """Each part has the rows with some values of `column`."""

    parts: Mapping[str, tuple[object, ...]]
    column: str


Rule = Hashed | Stratified | ValueSplit


@dataclass(frozen=True)
class Declaration:
    """A rule, and the splits that it made.

    Attributes:
      splits: The split of each part; some parts may have none.
      feature: The feature that stores the column by which rows were split, if any.
    """

    rule: Rule
    splits: Mapping[str, str]
    feature: str | None

    def __str__(self) -> str:
        return ", ".join(self.splits.values())

    @property
    def is_whole(self) -> bool:
        """Whether each part is a split."""
        return self.splits.keys() == self.rule.parts.keys()


def read_rules(declared: JsonObject) -> tuple[list[Declaration], list[str]]:
    """Returns the rules in a manifest's field `splits`, and notes on unknown ones."""
    by_rule: dict[str, dict[str, str]] = {}
    rules: dict[str, tuple[Rule, str | None]] = {}
    notes: list[str] = []
    for split, recorded in declared.items():
        try:
            rule = _rule(recorded)
            feature = recorded.get("stored", rule.column)
            part = recorded[_OF_ONE]
            if part not in rule.parts:
                raise ValueError(f"no part is called {part!r}")
        except (SourceError, *MALFORMED) as error:
            notes.append(
                f"whether the rows of split {split} follow their rule: the rule in the manifest is "
                f"unknown ({problem_of(error)})"
            )
            continue
        key = json.dumps({**recorded, _OF_ONE: None}, sort_keys=True)
        rules[key] = rule, feature
        members = by_rule.setdefault(key, {})
        if part in members:
            notes.append(
                f"whether the rows of split {split} follow their rule: it is declared as the same "
                f"part as split {members[part]}"
            )
            continue
        members[part] = split
    found = []
    for key, members in by_rule.items():
        rule, feature = rules[key]
        in_order = {part: members[part] for part in rule.parts if part in members}
        found.append(Declaration(rule, in_order, feature))
    return found, notes


def _rule(recorded: JsonObject) -> Rule:
    """Parses a rule that `Source.split` or `Source.split_by` declared."""
    if "groups" in recorded:
        return ValueSplit(
            {name: tuple(some) for name, some in recorded["groups"].items()}, recorded["column"]
        )
    order = recorded["order"]
    if sorted(order) != sorted(recorded["parts"]):
        raise ValueError("the order names other parts")
    parts = {name: float(recorded["parts"][name]) for name in order}
    splitting.cuts(parts)  # raises if they are not shares
    if recorded["stratify"] is not None:
        return Stratified(parts, str(recorded["stratify"]))
    group = recorded["group"]
    return Hashed(parts, None if group is None else str(group), str(recorded["salt"]))


Rows = npt.NDArray[np.int64]

# A value in a shard: the MD5 by which rows are split, its first row, and its count. It has as many
# bytes as the hash of an example, as `core.hash_sets` requires.
ROW = np.dtype([("md5", "S16"), ("first", ">i8"), ("count", ">i8")])

Keys = npt.NDArray[np.bytes_]
Counts = npt.NDArray[np.int64]


def is_flat(leaf: Leaf) -> bool:
    """Returns whether `flat` supports the feature: single values, or sequences of them."""
    return len(leaf.sequence) < 2


def flat(leaf: Leaf, column: Any) -> tuple[Any, Rows]:
    """Returns the values of a decoded column in order, and their examples; shape [values]."""
    if isinstance(column, Ragged):
        return column.values, np.repeat(np.arange(len(column)), column.lengths[0])
    if not leaf.sequence:
        return column, np.arange(len(column))
    each = column.shape[1]
    return column.reshape(-1, *column.shape[2:]), np.repeat(np.arange(len(column)), each)


def why_not(leaf: object) -> str | None:
    """Returns why a feature does not hold the values of the column; None if it does."""
    if leaf is None:
        return "it is not stored"
    if not isinstance(leaf, Leaf) or leaf.form == "image" or leaf.sequence or leaf.shape:
        return "it is not stored as single values"
    if leaf.form == "number" and np.dtype(leaf.dtype).kind == "f":
        return "it is stored as rounded floating-point numbers"
    if leaf.is_optional and np.dtype(leaf.dtype).kind in "bu":
        return "missing values are stored like other values"
    return None


@dataclass(frozen=True)
class ColumnHashes:
    """Notes the values of a top-level feature in a shard, as `ROW`s."""

    name: str
    leaf: Leaf
    salt: str

    @contextlib.contextmanager
    def noting(self, target: Path) -> Iterator[OnExamples]:
        """See `shard_reading.ExampleObserver`."""
        parts: list[Array] = []

        def take(values: Any) -> None:
            parts.append(hashes(self.salt, texts_of(self.leaf, values[self.leaf.name])))

        yield take
        found = np.concatenate([np.zeros(0, ROW["md5"]), *parts])
        keys, first, counts = np.unique(found, return_index=True, return_counts=True)
        rows = np.zeros(len(keys), ROW)
        rows["md5"], rows["first"], rows["count"] = keys, first, counts
        rows.tofile(target)

    def value(self, shards: Sequence[ObservedShard], number: int) -> str:
        """Returns the value of a split's example, for a message."""
        shard, row = shard_reading.place(shards, number)
        values: Any = Decoder({self.leaf.name: self.leaf})(RecordBatch.of([shard.record(row)]))
        (text,) = texts_of(self.leaf, values[self.leaf.name]).to_pylist()
        is_text = self.leaf.form == "bytes" or self.leaf.labels
        return repr(text.decode("utf-8", "backslashreplace")) if is_text else str(text, "ascii")


def texts_of(leaf: Leaf, values: Array) -> pa.LargeBinaryArray:
    """Returns decoded values of shape [n] as the texts that `sources.splitting` hashes."""
    if leaf.form == "bytes":
        return pa.array(values.tolist(), pa.large_binary())
    numbers = values.tolist()
    if leaf.labels:
        names = leaf.labels
        texts = [names[n] if 0 <= n < len(names) else str(n) for n in numbers]
    elif leaf.dtype == "bool":
        texts = ["true" if value else "false" for value in numbers]
    else:
        # The decoder's placeholder of a missing value.
        missing = np.iinfo(leaf.dtype).min if leaf.is_optional else None
        texts = ["" if n == missing else str(n) for n in numbers]
    return pa.array(texts, pa.large_string()).cast(pa.large_binary())


def hashes(salt: str, texts: pa.LargeBinaryArray) -> npt.NDArray[np.bytes_]:
    """Returns the MD5 of salted texts, S16 [n]; its upper half is their position."""
    found = np.zeros((len(texts), 2), ">u8")
    found[:, 0], found[:, 1] = splitting.salted_md5(salt, texts)
    return found.view(ROW["md5"]).reshape(-1)


@dataclass(frozen=True)
class DistinctValues:
    """Some distinct values of a split.

    Attributes:
      keys: Their sorted MD5s; S16 of shape [n].
      first: The number within the split of the first example with each; shape [n].
      counts: The number of examples with each; shape [n].
    """

    keys: Keys
    first: Counts
    counts: Counts

    @property
    def places(self) -> npt.NDArray[np.uint64]:
        """Their positions on the line that is cut into parts; shape [n]."""
        words = np.ascontiguousarray(self.keys).view(">u8").reshape(-1, 2)
        return words[:, 0].astype(np.uint64)


@dataclass(frozen=True)
class SplitColumn:
    """A column of some splits: the observer that noted it, and the shards of each split."""

    observer: ColumnHashes
    shards: Mapping[str, Sequence[ObservedShard]]

    @property
    def name(self) -> str:
        """The name of the column."""
        return self.observer.leaf.name

    def pieces(self, at_once: int = hash_sets.AT_ONCE) -> Iterator[dict[str, DistinctValues]]:
        """Yields the distinct values of each split, about `at_once` bytes at a time."""
        noted = {
            split: hash_sets.HashFiles(shard.of(self.observer) for shard in some)
            for split, some in self.shards.items()
        }
        for found in hash_sets.pieces(*noted.values(), at_once=at_once):
            yield {
                split: _merged(piece, noted[split], self.shards[split])
                for split, piece in zip(noted, found, strict=True)
            }

    def value(self, split: str, number: int) -> str:
        """Returns the value of an example, for a message."""
        return self.observer.value(self.shards[split], number)

    def place(self, split: str, number: int) -> str:
        """Returns the place of an example, for a message."""
        return f"split {split}, {shown(self.shards[split], number)}"


def _merged(
    piece: HashPart, parts: Sequence[Hashes], shards: Sequence[ObservedShard]
) -> DistinctValues:
    """Merges the values of a split's shards."""
    rows = np.ascontiguousarray(piece.texts).view(ROW)
    ends = np.cumsum([len(part) for part in parts])
    begins = np.cumsum([0, *(shard.examples for shard in shards)])
    which = np.searchsorted(ends, piece.places, side="right")
    keys, first, inverse = np.unique(rows["md5"], return_index=True, return_inverse=True)
    counts = np.zeros(len(keys), np.int64)
    np.add.at(counts, inverse, rows["count"].astype(np.int64))
    # Values of earlier shards come first.
    return DistinctValues(
        keys, rows["first"][first].astype(np.int64) + begins[which[first]], counts
    )
