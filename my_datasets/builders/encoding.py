"""From the examples of a builder to `tf.Example` records, many at a time.

Common features are encoded a column at a time (`my_datasets.records.example`). A value or a
feature that this module does not know is given to TFDS's own connector and serialiser, one at a
time, so that everything TFDS accepts is accepted, and encoded to the same content.
"""

import os
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow_datasets as tfds
from tensorflow_datasets.core import example_serializer

from my_datasets.building.units import Misfit
from my_datasets.records import example, png
from my_datasets.records.example import Piece


class ExampleEncoder:
    """Encodes the examples of one dataset, given its features."""

    def __init__(self, features: tfds.features.FeatureConnector) -> None:
        """Plans the columns.

        Args:
          features: `builder.info.features`.
        """
        self._features = features
        self._whole = example_serializer.ExampleSerializer(features.get_serialized_info())
        self._columns = _columns(features)

    @property
    def names(self) -> Collection[str]:
        """The names of the top-level features; none if the features are not a dict."""
        return self._columns.keys() if self._columns else ()

    def rows(self, examples: Sequence[Any]) -> pa.LargeBinaryArray:
        """Returns the serialised records of examples as `_generate_examples` yields them.

        Args:
          examples: Values nested as the features are.

        Raises:
          Exception: One of them does not fit; `row` tells which, and why.
        """
        if self._columns is None:
            entries = [_entries(self._whole, self._features.encode_example(x)) for x in examples]
            return example.records(example.raw(entries), len(examples))
        names = self._columns.keys()
        if any(item.keys() != names for item in examples):
            raise KeyError(f"expected the keys {sorted(names)}")
        pieces: list[Piece] = []
        for name, column in self._columns.items():
            pieces += column.encode([item[name] for item in examples])
        return example.records(pieces, len(examples))

    def row(self, item: Any) -> pa.LargeBinaryArray:
        """Returns one example's record, as an array of one.

        Raises:
          Misfit: The example does not fit the features.
        """
        try:
            return self.rows([item])
        except (MemoryError, OSError) as error:
            if not isinstance(error, FileNotFoundError):
                raise  # the machine's trouble, not the example's
            raise _located(self._features, item, error) from error
        except Exception as error:
            raise _located(self._features, item, error) from error

    def columns(self, batch: pa.RecordBatch) -> pa.LargeBinaryArray:
        """Returns the serialised records of the rows of an Arrow record batch.

        Args:
          batch: A column for each feature, of its name: numbers, texts, binaries, fixed-size
            lists for tensors, lists for sequences.

        Raises:
          Misfit: A column is missing, superfluous, or holds what its feature does not take.
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
                raise Misfit(name, repr(column.feature), f"a column of {array.type}") from error
        return example.records(pieces, batch.num_rows)


class _Column:
    """A top-level feature, encoded by TFDS one value at a time: what the others fall back on."""

    def __init__(self, name: str, feature: tfds.features.FeatureConnector) -> None:
        self.name = name
        self.feature = feature
        self._serializer = example_serializer.ExampleSerializer(
            {name: feature.get_serialized_info()}
        )

    def encode(self, values: list[Any]) -> list[Piece]:
        """Returns the map entries of a list of values, as they were yielded."""
        return self.quickly(values) or self._one_by_one(values)

    def encode_arrow(self, array: pa.Array) -> list[Piece]:
        """Returns the map entries of an Arrow column."""
        return self.encode(array.to_pylist())

    def quickly(self, values: list[Any]) -> list[Piece] | None:  # noqa: ARG002
        """Returns the same as `_one_by_one`, sooner, or None if these values are not for it."""
        return None

    def _one_by_one(self, values: list[Any]) -> list[Piece]:
        entries = []
        for value in values:
            encoded = {self.name: self.feature.encode_example(value)}
            entries.append(_entries(self._serializer, encoded))
        return example.raw(entries)

    def _flattened(
        self, array: pa.Array
    ) -> tuple[pa.Array, npt.NDArray[np.int64] | None, list[npt.NDArray[np.int64]]]:
        """Returns what is in the nested lists of a column without nulls.

        Returns:
          The values; how many each row has, None if it holds no lists; the sizes of the lists of
          each level.
        """
        lengths: npt.NDArray[np.int64] | None = None
        levels = []
        while pa.types.is_nested(array.type) and not pa.types.is_struct(array.type):
            sizes = pc.list_value_length(array).to_numpy(zero_copy_only=False).astype(np.int64)
            levels.append(sizes)
            if lengths is None:
                lengths = sizes
            else:
                ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
                starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
                lengths = np.diff(ends[starts]).astype(np.int64)
            array = array.flatten()
            if array.null_count:
                raise Misfit(self.name, repr(self.feature), "null inside a list")
        return array, lengths, levels

    def _without_nulls(self, array: pa.Array) -> pa.Array:
        if array.null_count:
            row = pc.index(array.is_null(), True).as_py()
            raise Misfit(self.name, repr(self.feature), f"null in row {row} of the batch", row=row)
        return array


class _Numbers(_Column):
    """Scalars, and tensors of a fixed shape or with one unknown dimension."""

    def __init__(self, name: str, feature: tfds.features.Tensor) -> None:
        super().__init__(name, feature)
        info = feature.get_serialized_info()
        self._dtype = np.dtype(info.np_dtype)
        self._shape = tuple(info.shape)
        self._is_float = self._dtype.kind == "f"

    def quickly(self, values: list[Any]) -> list[Piece] | None:
        kinds = set(map(type, values))
        if not self._shape:
            if not all(self._is_safe(kind) for kind in kinds):
                return None
            return self._fixed(np.array(values, self._dtype).reshape(-1, 1))
        if kinds != {np.ndarray} or any(value.dtype != self._dtype for value in values):
            return None
        shapes = {value.shape for value in values}
        if not all(self._takes(shape) for shape in shapes):
            return None
        if len(shapes) == 1:
            return self._fixed(np.stack(values).reshape(len(values), -1))
        lengths = np.array([value.size for value in values], np.int64)
        return self._ragged(np.concatenate([value.reshape(-1) for value in values]), lengths)

    def encode_arrow(self, array: pa.Array) -> list[Piece]:
        array = self._without_nulls(array)
        if isinstance(array.type, pa.FixedShapeTensorType):
            if tuple(array.type.shape) != self._shape or array.type.permutation is not None:
                raise Misfit(self.name, repr(self.feature), f"tensors of {array.type}")
            array = array.storage
        flat, lengths, sizes = self._flattened(array)
        numbers = self._cast(flat)
        if lengths is None:
            if self._shape:
                raise Misfit(self.name, repr(self.feature), f"one {array.type} for each row")
            return self._fixed(numbers.reshape(-1, 1))
        if len(sizes) == len(self._shape):
            # As deep as the tensor: each list is as long as its dimension.
            for side, found in zip(self._shape, sizes, strict=True):
                if side is not None and (found != side).any():
                    wrong = int(found[np.argmax(found != side)])
                    expected = f"{self.feature!r}, lists of {side}"
                    raise Misfit(self.name, expected, f"a list of {wrong} values")
        elif len(sizes) != 1 or None in self._shape or not self._shape:
            raise Misfit(self.name, repr(self.feature), f"a column of {array.type}")
        elif (lengths != np.prod(self._shape)).any():
            row = int(np.argmax(lengths != np.prod(self._shape)))
            raise Misfit(self.name, repr(self.feature), f"{lengths[row]} values", row=row)
        return self._ragged(numbers, lengths)

    def _is_safe(self, kind: type) -> bool:
        """Whether a list of such scalars becomes an array exactly as each one by itself would."""
        if kind is bool:
            return self._dtype.kind in "biu"
        if kind is int:
            return self._dtype.kind in "iuf"
        if kind is float:
            return bool(self._is_float)
        return issubclass(kind, np.generic) and bool(np.can_cast(kind, self._dtype, "safe"))

    def _takes(self, shape: tuple[int, ...]) -> bool:
        return len(shape) == len(self._shape) and all(
            expected in (None, found) for expected, found in zip(self._shape, shape, strict=True)
        )

    def _cast(self, array: pa.Array) -> npt.NDArray[Any]:
        is_float = pa.types.is_floating(array.type)
        is_whole = pa.types.is_integer(array.type) or pa.types.is_boolean(array.type)
        if not (is_whole or (is_float and self._is_float)):
            raise Misfit(self.name, repr(self.feature), f"values of type {array.type}")
        if not self._is_float and self._dtype.kind != "b":
            array = array.cast(pa.from_numpy_dtype(self._dtype))  # which checks the range
        numbers: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
        return numbers.astype(self._dtype, copy=False)

    def _fixed(self, values: npt.NDArray[Any]) -> list[Piece]:
        encode = example.floats if self._is_float else example.integers
        return encode(self.name, values)

    def _ragged(self, values: npt.NDArray[Any], lengths: npt.NDArray[np.int64]) -> list[Piece]:
        encode = example.ragged_floats if self._is_float else example.ragged_integers
        return encode(self.name, values, lengths)


class _Labels(_Column):
    """Class labels, as numbers or names."""

    def quickly(self, values: list[Any]) -> list[Piece] | None:
        kinds = set(map(type, values))
        if kinds == {str}:
            try:
                numbers = np.array([self.feature.str2int(value) for value in values], np.int64)
            except (KeyError, ValueError):
                return None
        elif kinds and all(kind is int or issubclass(kind, np.integer) for kind in kinds):
            numbers = np.array(values)
        else:
            return None
        return self._checked(numbers)

    def encode_arrow(self, array: pa.Array) -> list[Piece]:
        array = self._without_nulls(array)
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
            found = pc.index_in(array, pa.array(self.feature.names or [], array.type))
            if found.null_count:
                row = pc.index(found.is_null(), True).as_py()
                raise self._unknown(array[row].as_py(), row)
            array = found
        elif not pa.types.is_integer(array.type):
            raise Misfit(self.name, repr(self.feature), f"labels of type {array.type}")
        numbers = array.to_numpy(zero_copy_only=False)
        pieces = self._checked(numbers)
        if pieces is None:
            row = int(np.argmax((numbers < -1) | (numbers >= self.feature.num_classes)))
            raise self._unknown(numbers[row], row)
        return pieces

    def _checked(self, numbers: npt.NDArray[Any]) -> list[Piece] | None:
        classes = self.feature.num_classes
        if classes is None or numbers.dtype.kind not in "iu":
            return None
        if len(numbers) and not (numbers.min() >= -1 and numbers.max() < classes):
            return None
        return example.integers(self.name, numbers.astype(np.int64).reshape(-1, 1))

    def _unknown(self, label: object, row: int) -> Misfit:
        return Misfit(self.name, repr(self.feature), f"the label {label!r}", row=row)


class _Texts(_Column):
    """Texts and bytes."""

    def quickly(self, values: list[Any]) -> list[Piece] | None:
        if not set(map(type, values)) <= {str, bytes}:
            return None
        return example.binaries(self.name, pa.array(values, pa.large_binary()))

    def encode_arrow(self, array: pa.Array) -> list[Piece]:
        array = self._without_nulls(array)
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if not _is_text(array.type):
            raise Misfit(self.name, repr(self.feature), f"values of type {array.type}")
        return example.binaries(self.name, array.cast(pa.large_binary()))


class _Images(_Column):
    """Images: arrays that become PNG files, files already encoded, and their paths."""

    def quickly(self, values: list[Any]) -> list[Piece] | None:
        files = self._encoded(values)
        return None if files is None else example.binaries(self.name, files)

    def _encoded(self, values: list[Any]) -> pa.LargeBinaryArray | None:
        kinds = set(map(type, values))
        if kinds == {bytes}:
            return pa.array(values, pa.large_binary())
        if all(issubclass(kind, (str, os.PathLike)) for kind in kinds):
            paths = [os.fspath(value) for value in values]
            if any("://" in path for path in paths):
                return None
            return pa.array([_contents(path) for path in paths], pa.large_binary())
        if kinds != {np.ndarray} or self.feature.encoding_format == "jpeg":
            return None
        return self._png(values)

    def _png(self, values: list[Any]) -> pa.LargeBinaryArray | None:
        shape, dtype = self.feature.shape, self.feature.np_dtype
        if dtype not in (np.uint8, np.uint16):
            return None
        for value in values:
            if value.dtype != dtype or len(value.shape) != len(shape) or 0 in value.shape:
                return None
            if any(want not in (None, got) for want, got in zip(shape, value.shape, strict=True)):
                return None
        files: list[bytes] = []
        begin = 0
        while begin < len(values):  # images of one size that follow each other go together
            end = begin + 1
            while end < len(values) and values[end].shape == values[begin].shape:
                end += 1
            files += png.encode(np.stack(values[begin:end]))
            begin = end
        return pa.array(files, pa.large_binary())


class _Lists(_Column):
    """Sequences of scalars, labels or texts; from Arrow's lists in bulk."""

    def __init__(self, name: str, feature: tfds.features.Sequence, of: _Column) -> None:
        super().__init__(name, feature)
        self._of = of

    def encode_arrow(self, array: pa.Array) -> list[Piece]:
        flat, lengths, sizes = self._flattened(self._without_nulls(array))
        if lengths is None or len(sizes) != 1:
            raise Misfit(self.name, repr(self.feature), f"a column of {array.type}")
        expected = self.feature.get_serialized_info().shape[0]
        if expected is not None and (lengths != expected).any():
            row = int(np.argmax(lengths != expected))
            raise Misfit(self.name, repr(self.feature), f"{lengths[row]} values", row=row)
        if isinstance(self._of, _Texts):
            if not _is_text(flat.type):
                raise Misfit(self.name, repr(self.feature), f"values of type {flat.type}")
            return example.ragged_binaries(self.name, flat.cast(pa.large_binary()), lengths)
        if isinstance(self._of, _Numbers):
            return self._of._ragged(self._of._cast(flat), lengths)
        return self.encode(array.to_pylist())


def _columns(features: tfds.features.FeatureConnector) -> dict[str, _Column] | None:
    """Returns a column for each top-level feature, in the order of their entries.

    None if the features are no dict, or if the sorted entries of one feature would not stand
    together; then whole examples are encoded by TFDS.
    """
    if type(features) is not tfds.features.FeaturesDict:
        return None
    owners = sorted(
        (key, name)
        for name, feature in features.items()
        for key in _entry_names(name, feature.get_serialized_info())
    )
    order = [name for _, name in owners]
    together = [name for i, name in enumerate(order) if i == 0 or order[i - 1] != name]
    if len(together) != len(set(together)) or len(together) != len(features):
        return None
    return {name: _column(name, features[name]) for name in together}


def _entry_names(name: str, info: Any) -> Iterator[bytes]:
    if isinstance(info, dict):
        for key, inner in info.items():
            yield from _entry_names(f"{name}/{key}", inner)
    elif info.sequence_rank > 1:  # TFDS stores these as flat values and row lengths
        yield f"{name}/ragged_flat_values".encode()
        yield f"{name}/ragged_row_lengths_0".encode()
    else:
        yield name.encode()


def _column(name: str, feature: tfds.features.FeatureConnector) -> _Column:
    kind = type(feature)
    if kind is tfds.features.ClassLabel:
        return _Labels(name, feature)
    if kind is tfds.features.Image:
        return _Images(name, feature)
    if kind is tfds.features.Text and feature.encoder is None:
        return _Texts(name, feature)
    if kind in (tfds.features.Tensor, tfds.features.Scalar):
        return _tensor_column(name, feature)
    if kind is tfds.features.Sequence:
        of = _column(name, feature.feature)
        scalar = getattr(feature.feature.get_serialized_info(), "shape", None) == ()
        if scalar and type(of) in (_Numbers, _Texts):
            return _Lists(name, feature, of)
    return _Column(name, feature)


def _tensor_column(name: str, feature: tfds.features.Tensor) -> _Column:
    info = feature.get_serialized_info()
    if isinstance(info, dict) or info.optional or info.np_dtype != feature.np_dtype:
        return _Column(name, feature)
    dtype = np.dtype(info.np_dtype)
    if dtype.kind in "OSU":
        return _Texts(name, feature) if info.shape == () else _Column(name, feature)
    if dtype.kind in "biuf" and info.shape.count(None) <= 1:
        return _Numbers(name, feature)
    return _Column(name, feature)


def _is_text(kind: pa.DataType) -> bool:
    return any(
        test(kind)
        for test in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_binary,
            pa.types.is_large_binary,
        )
    )


def _contents(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _entries(serializer: example_serializer.ExampleSerializer, encoded: Any) -> bytes:
    """Returns the map entries of a value that TFDS encoded, in the order of their keys."""
    features = serializer.get_tf_example(encoded).features.feature
    return b"".join(
        example.entry(key, features[key].SerializeToString())
        for key in sorted(features, key=str.encode)
    )


def _located(
    feature: tfds.features.FeatureConnector, value: Any, error: Exception, path: str = ""
) -> Misfit:
    """Returns what is wrong with a value, as deep in the features as it can be told."""
    if isinstance(feature, tfds.features.FeaturesDict):
        if not isinstance(value, dict) or value.keys() != feature.keys():
            found = f"the keys {sorted(map(str, value))}" if isinstance(value, dict) else value
            return Misfit(path, f"the keys {sorted(feature.keys())}", _shortly(found))
        parts: Iterator[tuple[str, Any, Any]] = (
            (f"{path}/{key}" if path else key, feature[key], value[key]) for key in feature
        )
    elif type(feature) is tfds.features.Sequence and isinstance(value, (list, tuple)):
        parts = ((f"{path}[{i}]", feature.feature, item) for i, item in enumerate(value))
    else:
        return Misfit(path, repr(feature), _shortly(value))
    for inner_path, inner, item in parts:
        failure = _failure(inner, item)
        if failure is not None:
            return _located(inner, item, failure, inner_path)
    return Misfit(path, repr(feature), f"{_shortly(value)}: {error}")


def _failure(feature: tfds.features.FeatureConnector, value: Any) -> Exception | None:
    serializer = example_serializer.ExampleSerializer({"value": feature.get_serialized_info()})
    try:
        serializer.get_tf_example({"value": feature.encode_example(value)})
    except Exception as error:
        return error
    return None


def _shortly(value: Any) -> str:
    kind = type(value).__name__
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype}, shape {value.shape}"
    if isinstance(value, str) and not value.startswith("the keys"):
        kind = "str"
    text = repr(value) if not isinstance(value, str) else value
    return f"{text if len(text) <= 100 else text[:100] + '…'} ({kind})"
