"""Images: arrays (encoded as PNG), encoded files, and paths of files."""

import contextlib
import os
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from my_datasets.builders.encode.columns.column import ColumnEncoder
from my_datasets.records import png
from my_datasets.records.tf_example import encoding
from my_datasets.records.tf_example.pieces import Piece


class ImageEncoder(ColumnEncoder):
    """Encodes images: arrays (as PNG), encoded files, and paths of files."""

    def own(self, value: Any) -> Any:
        if type(value) is np.ndarray:
            return value.copy()
        if isinstance(value, (str, os.PathLike)) and "://" not in os.fspath(value):
            with contextlib.suppress(FileNotFoundError):
                return _contents(os.fspath(value))
        return value if type(value) is bytes else super().own(value)

    def encode(self, values: list[Any]) -> list[Piece]:
        # How a value is encoded depends on that value only, so its bytes never depend on its
        # neighbours.
        files = self._as_files(values)
        if all(type(file) is bytes for file in files):
            return encoding.binaries(self.name, pa.array(files, pa.large_binary()))
        return self._one_by_one(files)

    def encode_arrow(self, array: pa.Array) -> list[Piece]:
        array = self._without_nulls(array)
        if pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type):
            return encoding.binaries(self.name, array.cast(pa.large_binary()))
        uniform = self._uniform(array)
        if uniform is not None and uniform[1]:
            return self.encode(list(self._cast(uniform[0]).reshape(len(array), *uniform[1])))
        if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
            pixels = self._cast(self._flattened(array)[0])
            return self.encode([np.array(image, pixels.dtype) for image in array.to_pylist()])
        return super().encode_arrow(array)

    def _cast(self, flat: pa.Array) -> npt.NDArray[Any]:
        # The cast checks the range, so lists of other integer types may contain pixels, too.
        pixels: npt.NDArray[Any] = flat.cast(pa.from_numpy_dtype(self.feature.np_dtype)).to_numpy()
        return pixels

    def _as_files(self, values: list[Any]) -> list[Any]:
        """Returns arrays and paths as the bytes of image files; leaves other values to TFDS."""
        files: list[Any] = [
            _contents(os.fspath(value))
            if isinstance(value, (str, os.PathLike)) and "://" not in os.fspath(value)
            else value
            for value in values
        ]
        begin = 0
        while begin < len(files):
            if not self._becomes_png(files[begin]):
                begin += 1
                continue
            end = begin + 1  # consecutive images of the same size are encoded together
            while (
                end < len(files)
                and self._becomes_png(files[end])
                and files[end].shape == files[begin].shape
            ):
                end += 1
            files[begin:end] = png.encode(np.stack(files[begin:end]))
            begin = end
        return files

    def _becomes_png(self, value: Any) -> bool:
        """Returns whether a value is an array that fits the feature and is not to become a JPEG."""
        shape, dtype = self.feature.shape, self.feature.np_dtype
        return (
            type(value) is np.ndarray
            and self.feature.encoding_format != "jpeg"
            and dtype in (np.uint8, np.uint16)
            and value.dtype == dtype
            and len(value.shape) == len(shape) == len("hwc")
            and 0 not in value.shape
            and value.shape[2] in png.CHANNELS
            and all(want in (None, got) for want, got in zip(shape, value.shape, strict=True))
        )


def _contents(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
