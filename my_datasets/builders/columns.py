"""Columns: a top-level feature's values, many at a time, as the map entries of `tf.Example`s.

Each kind of column encodes what it knows in bulk. A value or a feature that it does not know is
given to TFDS's own connector and serialiser, one at a time.
"""

import contextlib
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow_datasets as tfds
from tensorflow_datasets.core import example_serializer

from my_datasets.builders.misfits import is_of_the_machine, located
from my_datasets.building.units import Misfit
from my_datasets.records import example, png
from my_datasets.records.example import Piece


@dataclass(frozen=True)
class _Done:
    """A value that was encoded already."""

    entries: bytes
    misfit: Misfit | None = None

    @property
    def nbytes(self) -> int:
        """How much memory it takes, for those who gather a batch."""
        return len(self.entries)


# Values that nobody can change.
_CONSTANT = frozenset({bool, int, float, str, bytes})


def _is_constant(kind: type) -> bool:
    return kind in _CONSTANT or issubclass(kind, np.generic)


class Column:
    """A top-level feature, encoded by TFDS one value at a time: what the others fall back on."""

    # Whether a text may be the path of a file whose contents are the value.
    may_read_files = True

    def __init__(
        self, name: str, feature: tfds.features.FeatureConnector, *, is_whole: bool = False
    ) -> None:
        """Plans the encoding.

        Args:
          name: The feature's name.
          feature: Its connector.
          is_whole: Whether it is no feature among others, but all there is.
        """
        self.name = name
        self.feature = feature
        self._is_whole = is_whole
        info = feature.get_serialized_info()
        self._serializer = example_serializer.ExampleSerializer(info if is_whole else {name: info})

    def own(self, value: Any) -> Any:
        """Returns a value that no later change of the given one reaches, as `encode` takes it.

        Here it is encoded at once, and once only: it may be a generator, an open file, or the name
        of one that is about to go.
        """
        try:
            return _Done(self._entries(value))
        except Exception as error:
            if is_of_the_machine(error):
                raise
            misfit = located(self.feature, value, error, self.name)
            misfit.__cause__ = error
            return _Done(b"", misfit)

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
            if type(value) is not _Done:
                entries.append(self._entries(value))
            elif value.misfit is not None:
                raise value.misfit
            else:
                entries.append(value.entries)
        return example.raw(entries)

    def _entries(self, value: Any) -> bytes:
        encoded = self.feature.encode_example(value)
        return _entries_of(self._serializer, encoded if self._is_whole else {self.name: encoded})

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
            raise Misfit(self.name, repr(self.feature), "null")
        return array


class _Numbers(Column):
    """Scalars, and tensors of a fixed shape or with one unknown dimension."""

    may_read_files = False

    def __init__(self, name: str, feature: tfds.features.Tensor) -> None:
        super().__init__(name, feature)
        info = feature.get_serialized_info()
        self._dtype = np.dtype(info.np_dtype)
        self._shape = tuple(info.shape)
        self._is_float = self._dtype.kind == "f"

    def own(self, value: Any) -> Any:
        kind = type(value)
        if kind is np.ndarray:
            return value.copy()
        return value if _is_constant(kind) else super().own(value)

    def quickly(self, values: list[Any]) -> list[Piece] | None:
        kinds = set(map(type, values))
        if not self._shape:
            if not self._are_safe(kinds):
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
            wrong = int(lengths[lengths != np.prod(self._shape)][0])
            raise Misfit(self.name, repr(self.feature), f"{wrong} values")
        return self._ragged(numbers, lengths)

    def _are_safe(self, kinds: set[type]) -> bool:
        return all(map(self._is_safe, kinds))

    def _is_exact(self, values: npt.NDArray[Any]) -> bool:
        return bool(values.dtype == self._dtype)

    def _in_lists(self, values: Any, lengths: npt.NDArray[np.int64]) -> list[Piece]:
        return self._ragged(np.asarray(values, self._dtype), lengths)

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


class _Labels(Column):
    """Class labels, as numbers or names."""

    may_read_files = False

    def own(self, value: Any) -> Any:
        return value if _is_constant(type(value)) else super().own(value)

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
                raise self._unknown(array.filter(found.is_null())[0].as_py())
            array = found
        elif not pa.types.is_integer(array.type):
            raise Misfit(self.name, repr(self.feature), f"labels of type {array.type}")
        numbers = array.to_numpy(zero_copy_only=False)
        pieces = self._checked(numbers)
        if pieces is None:
            wrong = (numbers < -1) | (numbers >= self.feature.num_classes)
            raise self._unknown(numbers[wrong][0])
        return pieces

    def _checked(self, numbers: npt.NDArray[Any]) -> list[Piece] | None:
        classes = self.feature.num_classes
        if classes is None or numbers.dtype.kind not in "iu":
            return None
        if len(numbers) and not (numbers.min() >= -1 and numbers.max() < classes):
            return None
        return example.integers(self.name, numbers.astype(np.int64).reshape(-1, 1))

    def _unknown(self, label: object) -> Misfit:
        return Misfit(self.name, repr(self.feature), f"the label {label!r}")


class _Texts(Column):
    """Texts and bytes."""

    may_read_files = False

    def own(self, value: Any) -> Any:
        return value if _is_constant(type(value)) else super().own(value)

    def quickly(self, values: list[Any]) -> list[Piece] | None:
        if not self._are_safe(set(map(type, values))):
            return None
        return example.binaries(self.name, pa.array(values, pa.large_binary()))

    def encode_arrow(self, array: pa.Array) -> list[Piece]:
        return example.binaries(self.name, self._cast(self._without_nulls(array)))

    def _are_safe(self, kinds: set[type]) -> bool:
        return kinds <= {str, bytes}

    def _is_exact(self, values: npt.NDArray[Any]) -> bool:  # noqa: ARG002
        return False  # arrays of texts are rare, and of several kinds

    def _cast(self, array: pa.Array) -> pa.LargeBinaryArray:
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if not is_text(array.type):
            raise Misfit(self.name, repr(self.feature), f"values of type {array.type}")
        return array.cast(pa.large_binary())

    def _in_lists(self, values: Any, lengths: npt.NDArray[np.int64]) -> list[Piece]:
        flat = pa.array(values, pa.large_binary()) if isinstance(values, list) else values
        return example.ragged_binaries(self.name, flat, lengths)


class _Images(Column):
    """Images: arrays that become PNG files, files already encoded, and their paths."""

    def own(self, value: Any) -> Any:
        if type(value) is np.ndarray:
            return value.copy()
        if isinstance(value, (str, os.PathLike)) and "://" not in os.fspath(value):
            with contextlib.suppress(FileNotFoundError):
                return _contents(os.fspath(value))
        return value if type(value) is bytes else super().own(value)

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


class _Lists(Column):
    """Sequences of numbers or texts."""

    may_read_files = False

    def __init__(self, name: str, feature: tfds.features.Sequence, of: "_Numbers | _Texts") -> None:
        super().__init__(name, feature)
        self._of = of
        self._length = feature.get_serialized_info().shape[0]

    def own(self, value: Any) -> Any:
        if type(value) is np.ndarray:
            return value.copy()
        if type(value) in (list, tuple) and all(map(_is_constant, set(map(type, value)))):
            return list(value)
        return super().own(value)

    def quickly(self, values: list[Any]) -> list[Piece] | None:
        kinds = set(map(type, values))
        arrays = kinds == {np.ndarray} and all(value.ndim == 1 for value in values)
        if not arrays and not kinds <= {list, tuple}:
            return None
        lengths = np.array([len(value) for value in values], np.int64)
        if self._length is not None and (lengths != self._length).any():
            return None
        flat: Any
        if arrays:
            flat = np.concatenate(values)
            if not self._of._is_exact(flat):
                return None
        else:
            flat = list(itertools.chain.from_iterable(values))
            if not self._of._are_safe(set(map(type, flat))):
                return None
        return self._of._in_lists(flat, lengths)

    def encode_arrow(self, array: pa.Array) -> list[Piece]:
        flat, lengths, sizes = self._flattened(self._without_nulls(array))
        if lengths is None or len(sizes) != 1:
            raise Misfit(self.name, repr(self.feature), f"a column of {array.type}")
        if self._length is not None and (lengths != self._length).any():
            wrong = int(lengths[lengths != self._length][0])
            raise Misfit(self.name, repr(self.feature), f"{wrong} values")
        return self._of._in_lists(self._of._cast(flat), lengths)


def columns_of(features: tfds.features.FeatureConnector) -> dict[str, Column] | None:
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


def _column(name: str, feature: tfds.features.FeatureConnector) -> Column:
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
        if scalar and isinstance(of, (_Numbers, _Texts)):
            return _Lists(name, feature, of)
    return Column(name, feature)


def _tensor_column(name: str, feature: tfds.features.Tensor) -> Column:
    info = feature.get_serialized_info()
    if isinstance(info, dict) or info.optional or info.np_dtype != feature.np_dtype:
        return Column(name, feature)
    dtype = np.dtype(info.np_dtype)
    if dtype.kind in "OSU":
        return _Texts(name, feature) if info.shape == () else Column(name, feature)
    if dtype.kind in "biuf" and info.shape.count(None) <= 1:
        return _Numbers(name, feature)
    return Column(name, feature)


def is_text(kind: pa.DataType) -> bool:
    """Returns whether a column of an Arrow type holds texts or binaries."""
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


def _entries_of(serializer: example_serializer.ExampleSerializer, encoded: Any) -> bytes:
    """Returns the map entries of a value that TFDS encoded, in the order of their keys."""
    features = serializer.get_tf_example(encoded).features.feature
    return b"".join(
        example.entry(key, features[key].SerializeToString())
        for key in sorted(features, key=str.encode)
    )
