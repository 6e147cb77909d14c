"""Columns of sequences of numbers or texts, and of optional features.

TFDS leaves an optional feature without a value out of the record.
"""

import itertools
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow_datasets as tfds

from my_datasets.builders.encode.column import ColumnEncoder, Values, is_constant
from my_datasets.building.units import InvalidValue
from my_datasets.core.arrays import Array
from my_datasets.errors import BuilderError
from my_datasets.records.tf_example import encoding
from my_datasets.records.tf_example.pieces import Piece, spread


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
