"""Images: arrays that become PNG files, files already encoded, and their paths."""

import contextlib
import os
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from my_datasets.builders.columns.column import Column
from my_datasets.records import example, png
from my_datasets.records.pieces import Piece


class Images(Column):
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

    def encode_arrow(self, array: pa.Array) -> list[Piece]:
        array = self._without_nulls(array)
        if pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type):
            return example.binaries(self.name, array.cast(pa.large_binary()))
        uniform = self._uniform(array)
        if uniform is not None and uniform[1]:
            return self.encode(list(self._cast(uniform[0]).reshape(len(array), *uniform[1])))
        if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
            pixels = self._cast(self._flattened(array)[0])
            return self.encode([np.array(image, pixels.dtype) for image in array.to_pylist()])
        return super().encode_arrow(array)

    def _cast(self, flat: pa.Array) -> npt.NDArray[Any]:
        # Which checks the range: lists of other integers may hold pixels, too.
        pixels: npt.NDArray[Any] = flat.cast(pa.from_numpy_dtype(self.feature.np_dtype)).to_numpy()
        return pixels

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


def _contents(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
