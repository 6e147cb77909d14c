"""Encodes a builder's examples as `tf.Example` records, many at a time.

`columns_of` chooses a column for each feature. Common features are encoded a column at a time
(`my_datasets.records.tf_example.encoding`). Other values and features are passed to TFDS's own
connector and serialiser one at a time, so everything TFDS accepts is accepted, and encoded to the
same content.
"""

import itertools
from collections.abc import Collection, Iterator

import numpy as np
import pyarrow as pa
import tensorflow_datasets as tfds

from my_datasets.builders.encode.column import (
    ColumnEncoder,
    Values,
    is_constant,
    located,
    raise_if_not_of_the_example,
)
from my_datasets.builders.encode.media_columns import AudioEncoder, ImageEncoder
from my_datasets.builders.encode.scalar_columns import (
    LabelEncoder,
    ListEncoder,
    NumberEncoder,
    OptionalEncoder,
    TextEncoder,
    is_text,
)
from my_datasets.building.units import InvalidValue
from my_datasets.records import tfrecord
from my_datasets.records.tf_example import encoding
from my_datasets.records.tf_example.pieces import Piece

# Rows of a record batch encoded at once: enough to amortize the cost of a call,
_ROWS = 8192
# ... of about this many bytes in total,
_BYTES = 4 << 20
# ... or this many rows if their values may be paths of files to read.
_FILES = 64


def columns_of(features: tfds.features.FeatureConnector) -> dict[str, ColumnEncoder] | None:
    """Returns a column for each top-level feature, in the order of their entries.

    Returns None if the features are not a dict, or if the entries of one feature would not be
    adjacent when sorted; TFDS then encodes whole examples.
    """
    if type(features) is not tfds.features.FeaturesDict:
        return None
    owners = sorted(
        (key, name)
        for name, feature in features.items()
        for key in _entry_names(name, feature.get_serialized_info())
    )
    names = [name for name, _ in itertools.groupby(name for _, name in owners)]
    if not len(names) == len(set(names)) == len(features):
        return None
    return {name: _column(name, features[name]) for name in names}


def _entry_names(
    name: str, info: tfds.features.TensorInfo | dict[str, tfds.features.TensorInfo]
) -> Iterator[bytes]:
    if isinstance(info, dict):
        for key, inner in info.items():
            yield from _entry_names(f"{name}/{key}", inner)
    elif info.sequence_rank > 1:  # TFDS stores these as flat values and row lengths
        yield f"{name}/ragged_flat_values".encode()
        yield f"{name}/ragged_row_lengths_0".encode()
    else:
        yield name.encode()


def _column(name: str, feature: tfds.features.FeatureConnector) -> ColumnEncoder:
    kind = type(feature)
    if kind is tfds.features.ClassLabel:
        return LabelEncoder(name, feature)
    if kind is tfds.features.Image:
        return ImageEncoder(name, feature)
    if kind is tfds.features.Text and feature.encoder is None:
        return _maybe_optional(name, feature, TextEncoder(name, feature))
    if kind in (tfds.features.Tensor, tfds.features.Scalar):
        return _maybe_optional(name, feature, _tensor_column(name, feature))
    if kind is tfds.features.Audio:
        column = _tensor_column(name, feature)
        return AudioEncoder(name, feature) if type(column) is NumberEncoder else column
    if kind is tfds.features.Sequence:
        of = _column(name, feature.feature)
        scalar = getattr(feature.feature.get_serialized_info(), "shape", None) == ()
        if scalar and isinstance(of, (NumberEncoder, TextEncoder)):
            return ListEncoder(name, feature, of)
    return ColumnEncoder(name, feature)


def _maybe_optional(name: str, feature: tfds.features.Tensor, of: ColumnEncoder) -> ColumnEncoder:
    # TFDS's own encoder also handles nulls.
    optional = type(of) is not ColumnEncoder and feature.get_serialized_info().optional
    return OptionalEncoder(name, feature, of) if optional else of


def _tensor_column(name: str, feature: tfds.features.Tensor) -> ColumnEncoder:
    info = feature.get_serialized_info()
    if isinstance(info, dict) or info.np_dtype != feature.np_dtype:
        return ColumnEncoder(name, feature)
    dtype = np.dtype(info.np_dtype)
    if dtype.kind in "OSU":
        return TextEncoder(name, feature) if info.shape == () else ColumnEncoder(name, feature)
    if dtype.kind in "biuf" and info.shape.count(None) <= 1:
        return NumberEncoder(name, feature)
    return ColumnEncoder(name, feature)


class ExampleEncoder:
    """Encodes the examples of one dataset, given its features."""

    def __init__(self, features: tfds.features.FeatureConnector) -> None:
        self._features = features
        self._columns = columns_of(features)
        self._whole = ColumnEncoder("", features, is_whole=True)
        columns = (self._columns or {}).values()
        self._reads_files = any(column.may_read_files for column in columns)

    @property
    def names(self) -> Collection[str]:
        """The names of the top-level features; empty if the features are not a dict."""
        return self._columns.keys() if self._columns else ()

    def own(self, item: object) -> object:
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

    def rows(self, examples: Values) -> pa.LargeBinaryArray:
        """Returns the framed records of examples as `_generate_examples` yields them.

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

    def row(self, item: object) -> pa.LargeBinaryArray:
        """Returns one example's framed record, as an array of length one.

        Raises:
          InvalidValue: The example does not fit the features.
        """
        try:
            return self.rows([item])
        except InvalidValue:
            raise
        except Exception as error:
            raise_if_not_of_the_example(error, "")
            raise self._invalid(item, error) from error

    def _invalid(self, item: object, error: Exception) -> InvalidValue:
        if self._columns is None or not isinstance(item, dict) or item.keys() != self.names:
            return located(self._features, item, error)
        for name, column in self._columns.items():
            try:
                column.encode([item[name]])
            except InvalidValue as invalid:
                return invalid
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

        It has one column per feature, of the same name: numbers, texts, binaries, fixed-size lists
        for tensors, lists for sequences.

        Raises:
          InvalidValue: A column is missing, unexpected, or has values that its feature does not
            accept.
        """
        if self._columns is None or set(batch.schema.names) != self._columns.keys():
            expected = sorted(self._columns or ())
            raise InvalidValue("", f"the columns {expected}", f"the columns {batch.schema.names}")
        pieces: list[Piece] = []
        for name, column in self._columns.items():
            array = batch.column(name)
            try:
                pieces += column.encode_arrow(array)
            except InvalidValue:
                raise
            except Exception as error:
                raise_if_not_of_the_example(error, name)
                found = f"a column of {array.type}"
                raise InvalidValue(name, repr(column.feature), found) from error
        return _framed(pieces, batch.num_rows)


def _framed(pieces: list[Piece], n: int) -> pa.LargeBinaryArray:
    return tfrecord.framed(encoding.messages(pieces), n)
