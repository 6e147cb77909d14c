"""Features that may lack a value, which TFDS then leaves out of the record."""

from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow_datasets as tfds

from my_datasets.builders.columns.column import Column
from my_datasets.records import example
from my_datasets.records.pieces import Piece, spread


class Optionals(Column):
    """Another kind of column, in which None and null stand for no value."""

    may_read_files = False

    def __init__(self, name: str, feature: tfds.features.Tensor, of: Column) -> None:
        super().__init__(name, feature)
        self._of = of

    def own(self, value: Any) -> Any:
        return value if value is None else self._of.own(value)

    def quickly(self, values: list[Any]) -> list[Piece] | None:
        given = [value for value in values if value is not None]
        pieces = self._of.quickly(given) if given else example.raw([])
        if pieces is None or len(given) == len(values):
            return pieces
        return [spread(pieces, np.array([value is not None for value in values]))]

    def encode_arrow(self, array: pa.Array) -> list[Piece]:
        if not array.null_count:
            return self._of.encode_arrow(array)
        present = array.is_valid().to_numpy(zero_copy_only=False)
        given = array.drop_null()
        return [spread(self._of.encode_arrow(given) if len(given) else example.raw([]), present)]
