"""Columns of scalars and tensors, of sequences of scalars, and of optional features.

Numbers are scalars, or tensors of a fixed shape or with one unknown dimension.

TFDS leaves an optional feature without a value out of the record.
"""

import itertools
import math
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow_datasets as tfds

from my_datasets.builders.encode.column import ColumnEncoder, Values, is_constant
from my_datasets.building.units import InvalidValue
from my_datasets.core.arrays import Array
from my_datasets.errors import BuilderError
from my_datasets.records.tf_example import encoding
from my_datasets.records.tf_example.pieces import Piece, spread


class _ScalarEncoder(ColumnEncoder):
    """Encodes values that may be immutable, and need no copy then."""

    may_read_files = False

    def own(self, value: object) -> object:
        return value if is_constant(type(value)) else super().own(value)


class NumberEncoder(_ScalarEncoder):
    """Encodes scalars, and tensors of a fixed shape or with one unknown dimension."""

    def __init__(self, name: str, feature: tfds.features.Tensor) -> None:
        super().__init__(name, feature)
        info = feature.get_serialized_info()
        self._dtype = np.dtype(info.np_dtype)
        self._shape = tuple(info.shape)
        self._is_float = self._dtype.kind == "f"

    def own(self, value: object) -> object:
        return value.copy() if type(value) is np.ndarray else super().own(value)

    def quickly(self, values: Values) -> list[Piece] | None:
        kinds = set(map(type, values))
        if not self._shape:
            if not self.are_safe(kinds):
                return None
            return self._fixed(np.array(values, self._dtype).reshape(-1, 1))
        if kinds != {np.ndarray} or any(value.dtype != self._dtype for value in values):
            return None
        shapes = {value.shape for value in values}
        if not all(map(self._fits, shapes)):
            return None
        if len(shapes) == 1:
            return self._fixed(np.stack(values).reshape(len(values), -1))
        lengths = np.array([value.size for value in values], np.int64)
        return self._ragged(np.concatenate([value.reshape(-1) for value in values]), lengths)

    def encode_arrow(self, array: pa.Array) -> list[Piece]:
        array = self._without_nulls(array)
        uniform = self._uniform(array)
        if uniform is not None:
            flat, shape = uniform
            in_one_list = None not in self._shape and shape == (math.prod(self._shape),)
            if self._fits(shape) or (self._shape and in_one_list):
                return self._fixed(self.cast(flat).reshape(len(array), math.prod(shape)))
        flat, lengths, sizes = self._flattened(array)
        numbers = self.cast(flat)
        if lengths is None:
            raise InvalidValue(self.name, repr(self.feature), f"one {array.type} for each row")
        if len(sizes) == len(self._shape):
            # As deeply nested as the tensor: each list must be as long as its dimension.
            for side, found in zip(self._shape, sizes, strict=True):
                if side is not None and (found != side).any():
                    wrong = int(found[np.argmax(found != side)])
                    expected = f"{self.feature!r}, lists of {side}"
                    raise InvalidValue(self.name, expected, f"a list of {wrong} values")
        elif len(sizes) != 1 or None in self._shape or not self._shape:
            raise InvalidValue(self.name, repr(self.feature), f"a column of {array.type}")
        elif (lengths != np.prod(self._shape)).any():
            wrong = int(lengths[lengths != np.prod(self._shape)][0])
            raise InvalidValue(self.name, repr(self.feature), f"{wrong} values")
        return self._ragged(numbers, lengths)

    def are_safe(self, kinds: set[type]) -> bool:
        return all(map(self._is_safe, kinds))

    def is_exact(self, values: Array) -> bool:
        return bool(values.dtype == self._dtype)

    def in_lists(self, values: Values | Array, lengths: npt.NDArray[np.int64]) -> list[Piece]:
        return self._ragged(np.asarray(values, self._dtype), lengths)

    def _is_safe(self, kind: type) -> bool:
        """Returns whether a list of such scalars converts exactly as each one alone would."""
        if kind is bool:
            return self._dtype.kind in "biu"
        if kind is int:
            return self._dtype.kind in "iuf"
        if kind is float:
            return bool(self._is_float)
        return issubclass(kind, np.generic) and bool(np.can_cast(kind, self._dtype, "safe"))

    def _fits(self, shape: tuple[int, ...]) -> bool:
        return len(shape) == len(self._shape) and all(
            expected in (None, found) for expected, found in zip(self._shape, shape, strict=True)
        )

    def cast(self, array: pa.Array) -> Array:
        is_float = pa.types.is_floating(array.type)
        is_whole = pa.types.is_integer(array.type) or pa.types.is_boolean(array.type)
        if not (is_whole or (is_float and self._is_float)):
            raise InvalidValue(self.name, repr(self.feature), f"values of type {array.type}")
        if not self._is_float and self._dtype.kind != "b":
            array = array.cast(pa.from_numpy_dtype(self._dtype))  # checks the range
        numbers: Array = array.to_numpy(zero_copy_only=False)
        return numbers.astype(self._dtype, copy=False)

    def _fixed(self, values: Array) -> list[Piece]:
        encode = encoding.floats if self._is_float else encoding.integers
        return encode(self.name, values)

    def _ragged(self, values: Array, lengths: npt.NDArray[np.int64]) -> list[Piece]:
        encode = encoding.ragged_floats if self._is_float else encoding.ragged_integers
        return encode(self.name, values, lengths)


class LabelEncoder(_ScalarEncoder):
    """Class labels, as numbers or names."""

    def quickly(self, values: Values) -> list[Piece] | None:
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
            raise InvalidValue(self.name, repr(self.feature), f"labels of type {array.type}")
        numbers = array.to_numpy(zero_copy_only=False)
        pieces = self._checked(numbers)
        if pieces is None:
            wrong = (numbers < -1) | (numbers >= self.feature.num_classes)
            raise self._unknown(numbers[wrong][0])
        return pieces

    def _checked(self, numbers: Array) -> list[Piece] | None:
        classes = self.feature.num_classes
        if classes is None or numbers.dtype.kind not in "iu":
            return None
        if len(numbers) and not (numbers.min() >= -1 and numbers.max() < classes):
            return None
        return encoding.integers(self.name, numbers.astype(np.int64).reshape(-1, 1))

    def _unknown(self, label: object) -> InvalidValue:
        return InvalidValue(self.name, repr(self.feature), f"the label {label!r}")


class TextEncoder(_ScalarEncoder):
    """Texts and bytes."""

    def quickly(self, values: Values) -> list[Piece] | None:
        if not self.are_safe(set(map(type, values))):
            return None
        return encoding.binaries(self.name, pa.array(values, pa.large_binary()))

    def encode_arrow(self, array: pa.Array) -> list[Piece]:
        return encoding.binaries(self.name, self.cast(self._without_nulls(array)))

    def are_safe(self, kinds: set[type]) -> bool:
        return kinds <= {str, bytes}

    def is_exact(self, values: Array) -> bool:  # noqa: ARG002
        return False  # arrays of texts are rare, and come in several kinds

    def cast(self, array: pa.Array) -> pa.LargeBinaryArray:
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if not is_text(array.type):
            raise InvalidValue(self.name, repr(self.feature), f"values of type {array.type}")
        return array.cast(pa.large_binary())

    def in_lists(
        self, values: Values | pa.LargeBinaryArray, lengths: npt.NDArray[np.int64]
    ) -> list[Piece]:
        flat = pa.array(values, pa.large_binary()) if isinstance(values, list) else values
        return encoding.ragged_binaries(self.name, flat, lengths)


def is_text(kind: pa.DataType) -> bool:
    """Returns whether an Arrow type is a string or binary type."""
    return kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


class ElementColumn(Protocol):
    """The column of the sequences' elements."""

    def are_safe(self, kinds: set[type]) -> bool:
        """Returns whether a list of scalars of these types can be encoded as a whole."""

    def is_exact(self, values: Array) -> bool:
        """Returns whether an array has exactly the feature's dtype."""

    def cast(self, array: pa.Array) -> Array | pa.LargeBinaryArray:
        """Converts an Arrow column to the form that `in_lists` takes, or raises `InvalidValue`."""

    def in_lists(
        self, values: Values | Array | pa.LargeBinaryArray, lengths: npt.NDArray[np.int64]
    ) -> list[Piece]:
        """Returns the map entries of rows that hold `lengths[i]` of the flat `values` each."""


class ListEncoder(ColumnEncoder):
    """Sequences of numbers or texts."""

    may_read_files = False

    def __init__(self, name: str, feature: tfds.features.Sequence, of: ElementColumn) -> None:
        super().__init__(name, feature)
        self._of = of
        self._length = feature.get_serialized_info().shape[0]

    def own(self, value: object) -> object:
        if type(value) is np.ndarray:
            return value.copy()
        if (type(value) is list or type(value) is tuple) and all(
            map(is_constant, set(map(type, value)))
        ):
            return list(value)
        return super().own(value)

    def quickly(self, values: Values) -> list[Piece] | None:
        kinds = set(map(type, values))
        arrays = kinds == {np.ndarray} and all(value.ndim == 1 for value in values)
        if not arrays and not kinds <= {list, tuple}:
            return None
        lengths = np.array([len(value) for value in values], np.int64)
        if self._length is not None and (lengths != self._length).any():
            return None
        flat: list[object] | Array
        if arrays:
            flat = np.concatenate(values)
            if not self._of.is_exact(flat):
                return None
        else:
            flat = list(itertools.chain.from_iterable(values))
            if not self._of.are_safe(set(map(type, flat))):
                return None
        return self._of.in_lists(flat, lengths)

    def encode_arrow(self, array: pa.Array) -> list[Piece]:
        flat, lengths, sizes = self._flattened(self._without_nulls(array))
        if lengths is None or len(sizes) != 1:
            raise InvalidValue(self.name, repr(self.feature), f"a column of {array.type}")
        if self._length is not None and (lengths != self._length).any():
            wrong = int(lengths[lengths != self._length][0])
            raise InvalidValue(self.name, repr(self.feature), f"{wrong} values")
        return self._of.in_lists(self._of.cast(flat), lengths)


class OptionalEncoder(ColumnEncoder):
    """Wraps another column; None and null stand for no value."""

    may_read_files = False

    def __init__(self, name: str, feature: tfds.features.Tensor, of: ColumnEncoder) -> None:
        super().__init__(name, feature)
        self._of = of

    def own(self, value: object) -> object:
        return value if value is None else self._of.own(value)

    def quickly(self, values: Values) -> list[Piece] | None:
        given = [value for value in values if value is not None]
        pieces = self._of.quickly(given) if given else encoding.raw([])
        if pieces is None or len(given) == len(values):
            return pieces
        return [spread(pieces, np.array([value is not None for value in values]))]

    def encode_arrow(self, array: pa.Array) -> list[Piece]:
        if not array.null_count:
            return self._of.encode_arrow(array)
        present = array.is_valid().to_numpy(zero_copy_only=False)
        given = array.drop_null()
        return [spread(self._of.encode_arrow(given) if len(given) else encoding.raw([]), present)]


def check_readable(features: tfds.features.FeatureConnector, dataset: str) -> None:
    """Checks that TFDS can read what it writes for examples with missing values.

    TFDS's readers know the features from the code or from `features.json`. Both must say that a
    value may be missing, and what replaces it.

    Raises:
      BuilderError: A feature is optional in a way that TFDS can write but not read.
    """
    for path, feature, in_sequence in _tensors("", features, in_sequence=False):
        if not getattr(feature, "_optional", False):
            continue
        try:
            info = feature.get_serialized_info()
            saved = tfds.features.FeatureConnector.from_json(feature.to_json())
            read = saved.get_serialized_info()
        except TypeError:
            why = "TFDS has no value to stand for a missing tensor of unknown shape."
            fix = "leave out optional=True; an empty tensor can stand for no value"
        else:
            if not (read.optional or in_sequence):
                why = (
                    "TFDS does not write into features.json that it is optional, so only this "
                    "code could read an example without it."
                )
                fix = "declare tfds.features.Scalar(np.str_, optional=True): the records are equal"
            elif info.np_dtype != feature.np_dtype:
                why = "TFDS cannot read optional tensors with encoding=."
                fix = "leave out encoding=, or optional=True"
            elif in_sequence and feature.shape:
                why = "TFDS cannot read optional tensors in sequences."
                fix = "leave out optional=True: in a sequence no value may be missing"
            else:
                continue
        raise BuilderError(
            f"The feature {path!r} of {dataset!r} cannot be optional.",
            f"It is a tfds.features.{type(feature).__name__}.",
            why,
            fix=fix,
        )


def _tensors(
    path: str, feature: tfds.features.FeatureConnector, *, in_sequence: bool
) -> Iterator[tuple[str, tfds.features.Tensor, bool]]:
    if isinstance(feature, tfds.features.Tensor):
        yield path, feature, in_sequence
    elif isinstance(feature, tfds.features.FeaturesDict):
        for name, inner in feature.items():
            below = f"{path}/{name}" if path else name
            yield from _tensors(below, inner, in_sequence=in_sequence)
    elif isinstance(feature, tfds.features.Sequence):  # or its subclass Dataset
        yield from _tensors(path, feature.feature, in_sequence=True)
