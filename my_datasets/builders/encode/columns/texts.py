"""Texts and bytes."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from my_datasets.builders.encode.columns.column import ColumnEncoder, is_constant
from my_datasets.building.units import Misfit
from my_datasets.records.tf_example import encoding
from my_datasets.records.tf_example.pieces import Piece


class TextEncoder(ColumnEncoder):
    """Texts and bytes."""

    may_read_files = False

    def own(self, value: Any) -> Any:
        return value if is_constant(type(value)) else super().own(value)

    def quickly(self, values: list[Any]) -> list[Piece] | None:
        if not self.are_safe(set(map(type, values))):
            return None
        return encoding.binaries(self.name, pa.array(values, pa.large_binary()))

    def encode_arrow(self, array: pa.Array) -> list[Piece]:
        return encoding.binaries(self.name, self.cast(self._without_nulls(array)))

    def are_safe(self, kinds: set[type]) -> bool:
        return kinds <= {str, bytes}

    def is_exact(self, values: npt.NDArray[Any]) -> bool:  # noqa: ARG002
        return False  # arrays of texts are rare, and come in several kinds

    def cast(self, array: pa.Array) -> pa.LargeBinaryArray:
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if not is_text(array.type):
            raise Misfit(self.name, repr(self.feature), f"values of type {array.type}")
        return array.cast(pa.large_binary())

    def in_lists(self, values: Any, lengths: npt.NDArray[np.int64]) -> list[Piece]:
        flat = pa.array(values, pa.large_binary()) if isinstance(values, list) else values
        return encoding.ragged_binaries(self.name, flat, lengths)


def is_text(kind: pa.DataType) -> bool:
    """Returns whether an Arrow type is a string or binary type."""
    return any(
        test(kind)
        for test in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_binary,
            pa.types.is_large_binary,
        )
    )
