"""Class labels, as numbers or names."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from my_datasets.builders.encode.columns.column import ColumnEncoder, is_constant
from my_datasets.building.units import Misfit
from my_datasets.records.tf_example import encoding
from my_datasets.records.tf_example.pieces import Piece


class LabelEncoder(ColumnEncoder):
    """Class labels, as numbers or names."""

    may_read_files = False

    def own(self, value: Any) -> Any:
        return value if is_constant(type(value)) else super().own(value)

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
        return encoding.integers(self.name, numbers.astype(np.int64).reshape(-1, 1))

    def _unknown(self, label: object) -> Misfit:
        return Misfit(self.name, repr(self.feature), f"the label {label!r}")
