"""Encodes a builder's examples as `tf.Example` records, many at a time.

Common features are encoded a column at a time (`my_datasets.records.tf_example.encoding`). Values
and features that this module does not know are passed to TFDS's own connector and serialiser one at
a time, so everything TFDS accepts is accepted, and encoded to the same content.
"""

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
import tensorflow_datasets as tfds

from my_datasets.builders.encode.columns.choice import columns_of
from my_datasets.builders.encode.columns.column import ColumnEncoder, is_constant
from my_datasets.builders.encode.columns.texts import is_text
from my_datasets.builders.encode.validation_errors import located, raise_if_not_of_the_example
from my_datasets.building.units import Misfit
from my_datasets.records import tfrecord
from my_datasets.records.tf_example import encoding
from my_datasets.records.tf_example.pieces import Piece

# Rows of a record batch encoded at once: enough to amortize the cost of a call,
_ROWS = 8192
# ... of about this many bytes in total,
_BYTES = 4 << 20
# ... or this many rows if their values may be paths of files to read.
_FILES = 64


class ExampleEncoder:
    """Encodes the examples of one dataset, given its features."""

    def __init__(self, features: tfds.features.FeatureConnector) -> None:
        """Creates a column for each feature.

        Args:
          features: `builder.info.features`.
        """
        self._features = features
        self._columns = columns_of(features)
        self._whole = ColumnEncoder("", features, is_whole=True)
        columns = (self._columns or {}).values()
        self._reads_files = any(column.may_read_files for column in columns)

    @property
    def names(self) -> Collection[str]:
        """The names of the top-level features; empty if the features are not a dict."""
        return self._columns.keys() if self._columns else ()

    def own(self, item: Any) -> Any:
        """Returns a copy of an example, in the form that `rows` takes, unaffected by later changes.

        Copies values, reads files and immediately encodes what only TFDS can encode. Returns None
        if the example does not match the features; `row` then reports why.
        """
        if self._columns is None:
            return self._whole.own(item)
        if not isinstance(item, dict) or item.keys() != self._columns.keys():
            return None
        # The common case: copying the dict is enough and avoids a call per value.
        if not self._reads_files and all(map(is_constant, set(map(type, item.values())))):
            return dict(item)
        return {name: column.own(item[name]) for name, column in self._columns.items()}

    def rows(self, examples: Sequence[Any]) -> pa.LargeBinaryArray:
        """Returns the framed records of examples as `_generate_examples` yields them.

        Args:
          examples: Values nested as the features are.

        Raises:
          Exception: One of them does not fit its feature; `row` reports which one, and why.
        """
        if self._columns is None:
            return _framed(self._whole.encode(list(examples)), len(examples))
        if set(map(len, examples)) != {len(self._columns)}:
            raise KeyError(f"expected the keys {sorted(self._columns)}")
        pieces: list[Piece] = []
        for name, column in self._columns.items():
            pieces += column.encode([item[name] for item in examples])
        return _framed(pieces, len(examples))

    def row(self, item: Any) -> pa.LargeBinaryArray:
        """Returns one example's framed record, as an array of length one.

        Raises:
          Misfit: The example does not fit the features.
        """
        try:
            return self.rows([item])
        except Misfit:
            raise
        except Exception as error:
            raise_if_not_of_the_example(error, "")
            raise self._misfit(item, error) from error

    def _misfit(self, item: Any, error: Exception) -> Misfit:
        if self._columns is None or not isinstance(item, dict) or item.keys() != self.names:
            return located(self._features, item, error)
        for name, column in self._columns.items():
            try:
                column.encode([item[name]])
            except Misfit as misfit:
                return misfit
            except Exception as its_error:
                return located(column.feature, item[name], its_error, name)
        return located(self._features, item, error)

    def rows_at_once(self, batch: pa.RecordBatch) -> int:
        """Returns how many rows of a record batch to encode at once, to limit memory use."""
        for field in batch.schema:
            column = (self._columns or {}).get(field.name)
            if column is not None and column.may_read_files and is_text(field.type):
                return _FILES
        size: int = max(1, batch.nbytes)
        rows: int = batch.num_rows
        return max(1, min(_ROWS, _BYTES * rows // size))

    def columns(self, batch: pa.RecordBatch) -> pa.LargeBinaryArray:
        """Returns the framed records of the rows of an Arrow record batch.

        Args:
          batch: One column per feature, of the same name: numbers, texts, binaries, fixed-size
            lists for tensors, lists for sequences.

        Raises:
          Misfit: A column is missing, unexpected, or contains values that its feature does not
            accept.
        """
        if self._columns is None or set(batch.schema.names) != self._columns.keys():
            expected = sorted(self._columns or ())
            raise Misfit("", f"the columns {expected}", f"the columns {batch.schema.names}")
        pieces: list[Piece] = []
        for name, column in self._columns.items():
            array = batch.column(name)
            try:
                pieces += column.encode_arrow(array)
            except Misfit:
                raise
            except Exception as error:
                raise_if_not_of_the_example(error, name)
                raise Misfit(name, repr(column.feature), f"a column of {array.type}") from error
        return _framed(pieces, batch.num_rows)


def _framed(pieces: list[Piece], n: int) -> pa.LargeBinaryArray:
    return tfrecord.framed(encoding.messages(pieces), n)
