"""`Source`: a split's input with known columns."""

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from my_datasets.building.units import Generator, InvalidValue, Units
from my_datasets.errors import SourceError
from my_datasets.records import shuffle_order
from my_datasets.sources import splitting
from my_datasets.sources.types import Rows, check_columns, features_of, with_nulls

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

# How many rows of a mapped source are read to infer its columns.
_SAMPLE = 1000


@dataclass(frozen=True)
class Source(Units):
    """Units whose examples come as columns.

    Return it from `_split_generators` instead of a generator: `{"train": sources.csv(path)}`.

    Attributes:
      generate: Yields `(keys, record batch)` of one unit, `(key, InvalidValue)` for an unreadable
        row, which fails the build, or is quarantined with `on_error="quarantine"`.
      items: The units.
      schema: The columns, as Arrow types.
      nullable: The columns that may contain nulls: because the sampled rows do, or because it is
        not known.
      special: Creates the features of columns whose type is ambiguous: an image's bytes are a
        binary.
      declared: The rule by which these rows were selected from another source, for the manifest.
    """

    schema: pa.Schema
    nullable: frozenset[str] = frozenset()
    special: Mapping[str, "Callable[[], tfds.features.FeatureConnector]"] = field(
        default_factory=dict
    )
    declared: Mapping[str, object] = field(default_factory=dict)

    def features(
        self,
        labels: Mapping[str, Sequence[str]] | None = None,
        optional: Collection[str] | None = None,
    ) -> "tfds.features.FeaturesDict":
        """Returns TFDS features for the columns; see `docs/sources.md` for the table of types.

        Args:
          labels: The columns that are class labels, with the names of the classes.
          optional: The columns in which nulls are allowed; None for those in `nullable`.
        """
        chosen = self.nullable if optional is None else frozenset(optional)
        return features_of(self.schema, labels or {}, chosen, self.special)

    def head(self, rows: int = 10) -> pa.Table:
        """Returns the first readable rows, as they are passed to the features."""
        batches: list[pa.RecordBatch] = []
        for _, batch in self:
            if isinstance(batch, pa.RecordBatch):
                batches.append(batch.slice(0, rows))
                rows -= batches[-1].num_rows
                if rows <= 0:
                    break
        return pa.Table.from_batches(batches, batches[0].schema if batches else self.schema)

    def select(self, columns: Sequence[str] | Mapping[str, str]) -> "Source":
        """Returns the source with some of its columns.

        Args:
          columns: Their names; a mapping from new to existing names renames them. The key column
            may be left out.

        Raises:
          SourceError: There is no such column.
        """
        names = dict(columns) if isinstance(columns, Mapping) else {name: name for name in columns}
        check_columns(names.values(), self.schema.names, "The source")
        return dataclasses.replace(
            self,
            generate=_Mapped(self.generate, functools.partial(_picked, columns=names)),
            schema=pa.schema([self.schema.field(old).with_name(new) for new, old in names.items()]),
            nullable=frozenset(new for new, old in names.items() if old in self.nullable),
            special={new: self.special[old] for new, old in names.items() if old in self.special},
            declared=splitting.renamed(self.declared, names),
        )

    def split(
        self,
        parts: Mapping[str, float],
        *,
        group: str | None = None,
        stratify: str | None = None,
        salt: str = "",
    ) -> dict[str, "Source"]:
        """Splits the rows into parts, in the form that `_split_generators` returns.

        A row is assigned by the MD5 of its key, or of its group: the assignment does not change
        when rows are added or removed, and is the same on every machine. Each part reads the whole
        source and keeps its own rows.

        Args:
          parts: Each split's share of the rows, from 0 to 1: `{"train": 0.8, "test": 0.2}`. If they
            add up to less than 1, some rows are left out.
          group: A column; rows with the same value in it go to the same split. The shares are then
            shares of the groups.
          stratify: A column; each split gets its exact share of the rows of each value, to the row.
            Adding rows may then move others, a few at each cut. The keys and this column are read
            once when the source is created.
          salt: A different text gives a different assignment of rows.

        Raises:
          SourceError: There is no such column, the shares are invalid, or a part is split again
            with the same salt.
        """
        cuts = splitting.cuts(parts)
        if group is not None and stratify is not None:
            raise SourceError(
                f"A split cannot be grouped by {group!r} and stratified by {stratify!r}.",
                "Whole groups cannot have exact shares of each class",
                fix="choose one of them",
            )
        before = self.declared
        if stratify is None and (before.get("salt"), before.get("group")) == (salt, group):
            raise SourceError(
                f"This part of a source was already split with the salt {salt!r}.",
                "With the same hashes, all of its rows could end up in one split",
                fix=f"pass another one, such as salt={salt + 'again'!r}",
            )
        rules: dict[str, splitting.Rule]
        if stratify is None:
            self._require_single(group)
            rules = {name: splitting.Between(salt, *cut, group) for name, cut in cuts.items()}
        else:
            self._require_single(stratify)
            bounds = splitting.strata(lambda: self._keys_and(stratify), parts, salt)
            first = next(iter(parts))
            rules = {
                name: splitting.Stratum(salt, stratify, bounds[name], name == first)
                for name in parts
            }
        # The cuts depend on the order of the parts, which a JSON object may not preserve.
        declared = {
            "parts": dict(parts), "order": list(parts), "group": group, "stratify": stratify,
            "salt": salt,
        }  # fmt: skip
        return self._parts(rules, declared)

    def folds(
        self, number: int, *, group: str | None = None, salt: str = ""
    ) -> dict[str, "Source"]:
        """Splits the rows into parts of about the same size: `fold_0`, `fold_1`, ...

        Args:
          number: The number of folds, at least 2.
          group: A column; rows with the same value in it go to the same fold.
          salt: A different text gives a different assignment of rows.

        Raises:
          SourceError: There is no such column, or `number` is less than 2.
        """
        if number < 2:
            raise SourceError(f"The number of folds is {number}.", fix="request at least two folds")
        return self.split({f"fold_{i}": 1 / number for i in range(number)}, group=group, salt=salt)

    def split_by(self, column: str, groups: Mapping[str, Sequence[object]]) -> dict[str, "Source"]:
        """Splits the rows by the values of a column.

        Args:
          column: The column.
          groups: The values of each split: `{"train": ["a", "b"], "test": ["c"]}`. Rows with other
            values are left out.

        Raises:
          SourceError: There is no such column, or a value is in two splits.
        """
        rules = splitting.named(column, groups)
        self._require_single(column)
        values = {name: list(some) for name, some in groups.items()}
        return self._parts(rules, {"column": column, "groups": values})

    def _parts(
        self, rules: Mapping[str, splitting.Rule], declared: Mapping[str, object]
    ) -> dict[str, "Source"]:
        return {
            name: dataclasses.replace(
                self,
                generate=splitting.SplitPart(self.generate, rule),
                declared={**declared, "part": name},
            )
            for name, rule in rules.items()
        }

    def _require_single(self, column: str | None) -> None:
        if column is None:
            return
        check_columns([column], self.schema.names, "The source")
        kind = self.schema.field(column).type
        if pa.types.is_nested(kind):
            raise SourceError(
                f"Rows cannot be split by {column!r}, which contains lists or structs.",
                f"Found: {kind}",
                fix="choose a column of single values",
            )

    def _keys_and(self, column: str) -> Iterator[tuple[pa.LargeBinaryArray, pa.Array]]:
        for keys, batch in self:
            if isinstance(batch, pa.RecordBatch):
                given = batch.column(keys) if isinstance(keys, str) else keys
                yield shuffle_order.key_array(given), batch.column(column)

    def map(self, function: Callable[[pa.RecordBatch], pa.RecordBatch]) -> "Source":
        """Returns the source with a function applied to each of its record batches.

        Args:
          function: Returns a record batch with the same number of rows. It runs in the build
            processes.
        """
        mapped = dataclasses.replace(self, generate=_Mapped(self.generate, function))
        sample = mapped.head(_SAMPLE)
        nullable = self.nullable & set(sample.column_names) | with_nulls(sample)
        same = {
            name: feature
            for name, feature in self.special.items()
            if name in sample.schema.names
            and sample.schema.field(name).type == self.schema.field(name).type
        }
        return dataclasses.replace(mapped, schema=sample.schema, nullable=nullable, special=same)


def _picked(batch: pa.RecordBatch, columns: Mapping[str, str]) -> pa.RecordBatch:
    arrays = [batch.column(old) for old in columns.values()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


@dataclass(frozen=True)
class _Mapped:
    generate: Generator
    function: Callable[[pa.RecordBatch], pa.RecordBatch]

    def __call__(self, item: object) -> Iterator[Rows]:
        for keys, batch in self.generate(item):
            if isinstance(batch, InvalidValue):
                yield keys, batch
                continue
            given = batch.column(keys) if isinstance(keys, str) else keys
            changed = self.function(batch)
            if not isinstance(changed, pa.RecordBatch) or changed.num_rows != batch.num_rows:
                raise SourceError(
                    f"{self.function!r} did not return a record batch of {batch.num_rows} rows.",
                    f"Found: {getattr(changed, 'num_rows', changed)!r}",
                    fix="return a pyarrow.RecordBatch with the same number of rows",
                )
            yield given, changed
