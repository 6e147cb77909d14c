"""`Source`: a split's input that knows its columns."""

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from my_datasets.building.units import Generator, Misfit, Units
from my_datasets.errors import SourceError, explain
from my_datasets.sources.types import with_nulls

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

# Rows of a mapped source from which its columns are known.
_LOOKED_AT = 1000


@dataclass(frozen=True)
class Source(Units):
    """Units whose examples come as columns.

    Return it from `_split_generators` in place of a generator: `{"train": sources.csv(path)}`.

    Attributes:
      generate: Yields `(keys, record batch)` of one unit, and `(key, Misfit)` for a row that
        cannot be read: an error at build, or set aside with `on_error="quarantine"`.
      items: The units.
      schema: The columns, as Arrow types.
      nullable: The columns in which nulls are to be expected: there are some in the rows that were
        looked at when the source was made, or nobody knows.
      special: What makes the feature of a column, where its type alone does not tell: an image's
        bytes are a binary.
    """

    schema: pa.Schema
    nullable: frozenset[str] = frozenset()
    special: Mapping[str, Callable[[], Any]] = field(default_factory=dict)

    def features(
        self,
        labels: Mapping[str, Sequence[str]] | None = None,
        optional: Collection[str] | None = None,
    ) -> "tfds.features.FeaturesDict":
        """Returns TFDS features for the columns; see `docs/sources.md` for the table of types.

        Args:
          labels: The columns that are class labels, with the names of the classes.
          optional: The columns in which a null is no error; None for those of `nullable`.
        """
        from my_datasets.sources.features import features_of

        chosen = self.nullable if optional is None else frozenset(optional)
        return features_of(self.schema, labels or {}, chosen, self.special)

    def head(self, rows: int = 10) -> pa.Table:
        """Returns the first rows that can be read, as they are given to the features."""
        batches: list[pa.RecordBatch] = []
        for _, batch in self:
            if isinstance(batch, pa.RecordBatch):
                batches.append(batch.slice(0, rows - sum(found.num_rows for found in batches)))
                if sum(found.num_rows for found in batches) >= rows:
                    break
        return pa.Table.from_batches(batches, batches[0].schema if batches else self.schema)

    def select(self, columns: Sequence[str] | Mapping[str, str]) -> "Source":
        """Returns the source with some of its columns.

        Args:
          columns: Their names; a mapping of new names to present ones renames them. The column of
            the keys may be left out.

        Raises:
          SourceError: There is no such column.
        """
        wanted = dict(columns) if isinstance(columns, Mapping) else {name: name for name in columns}
        missing = sorted(set(wanted.values()) - set(self.schema.names))
        if missing:
            raise SourceError(
                explain(
                    f"The source has no column {', '.join(map(repr, missing))}.",
                    f"Its columns: {', '.join(self.schema.names)}",
                    mend="choose among those",
                )
            )
        schema = pa.schema([self.schema.field(old).with_name(new) for new, old in wanted.items()])
        nullable = frozenset(new for new, old in wanted.items() if old in self.nullable)
        special = {new: self.special[old] for new, old in wanted.items() if old in self.special}
        picked = self._with(functools.partial(_picked, columns=wanted), schema, nullable)
        return dataclasses.replace(picked, special=special)

    def map(self, function: Callable[[pa.RecordBatch], pa.RecordBatch]) -> "Source":
        """Returns the source with each of its record batches changed.

        Args:
          function: Returns a record batch of as many rows. It runs in the processes that build.
        """
        mapped = self._with(function, self.schema, self.nullable)
        sample = mapped.head(_LOOKED_AT)
        nullable = self.nullable & set(sample.column_names) | with_nulls(sample)
        same = {
            name: feature
            for name, feature in self.special.items()
            if name in sample.schema.names
            and sample.schema.field(name).type == self.schema.field(name).type
        }
        return dataclasses.replace(mapped, schema=sample.schema, nullable=nullable, special=same)

    def _with(
        self,
        function: Callable[[pa.RecordBatch], pa.RecordBatch],
        schema: pa.Schema,
        nullable: frozenset[str],
    ) -> "Source":
        generate = _Mapped(self.generate, function)
        return dataclasses.replace(self, generate=generate, schema=schema, nullable=nullable)


def _picked(batch: pa.RecordBatch, columns: Mapping[str, str]) -> pa.RecordBatch:
    arrays = [batch.column(old) for old in columns.values()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


@dataclass(frozen=True)
class _Mapped:
    generate: Generator
    function: Callable[[pa.RecordBatch], pa.RecordBatch]

    def __call__(self, item: Any) -> Iterator[tuple[Any, Any]]:
        for keys, batch in self.generate(item):
            if isinstance(batch, Misfit):
                yield keys, batch
                continue
            given = batch.column(keys) if isinstance(keys, str) else keys
            changed = self.function(batch)
            if not isinstance(changed, pa.RecordBatch) or changed.num_rows != batch.num_rows:
                raise SourceError(
                    explain(
                        f"{self.function!r} made something else of {batch.num_rows} rows.",
                        f"Found: {getattr(changed, 'num_rows', changed)!r}",
                        mend="return a pyarrow.RecordBatch of as many rows",
                    )
                )
            yield given, changed
