"""Sequences of numbers or texts."""

import itertools
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow_datasets as tfds

from my_datasets.builders.encode.columns.column import ColumnEncoder, is_constant
from my_datasets.building.units import Misfit
from my_datasets.records.tf_example.pieces import Piece


class Elements(Protocol):
    """The column of the sequences' elements."""

    def are_safe(self, kinds: set[type]) -> bool:
        """Returns whether a list of scalars of these types can be encoded as a whole."""

    def is_exact(self, values: npt.NDArray[Any]) -> bool:
        """Returns whether an array has exactly the feature's dtype."""

    def cast(self, array: pa.Array) -> Any:
        """Converts an Arrow column to the form that `in_lists` takes, or raises `Misfit`."""

    def in_lists(self, values: Any, lengths: npt.NDArray[np.int64]) -> list[Piece]:
        """Returns the map entries of rows that hold `lengths[i]` of the flat `values` each."""


class Lists(ColumnEncoder):
    """Sequences of numbers or texts."""

    may_read_files = False

    def __init__(self, name: str, feature: tfds.features.Sequence, of: Elements) -> None:
        super().__init__(name, feature)
        self._of = of
        self._length = feature.get_serialized_info().shape[0]

    def own(self, value: Any) -> Any:
        if type(value) is np.ndarray:
            return value.copy()
        if type(value) in (list, tuple) and all(map(is_constant, set(map(type, value)))):
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
            raise Misfit(self.name, repr(self.feature), f"a column of {array.type}")
        if self._length is not None and (lengths != self._length).any():
            wrong = int(lengths[lengths != self._length][0])
            raise Misfit(self.name, repr(self.feature), f"{wrong} values")
        return self._of.in_lists(self._of.cast(flat), lengths)
