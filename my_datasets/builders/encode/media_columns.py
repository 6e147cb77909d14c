"""Columns of images and sounds: arrays, encoded files, and paths of files.

Arrays of pixels are encoded as PNG, many of one size at once, with the same bytes for the same
pixels. The format is ISO/IEC 15948 (PNG, third edition). Each row uses the filter whose output has
the smallest sum of absolute values, the heuristic of section 12.7 (and of libpng), computed for all
images together.
"""

import contextlib
import itertools
import os
import struct
import zlib
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from my_datasets.builders.encode.column import ColumnEncoder, Values
from my_datasets.builders.encode.scalar_columns import NumberEncoder
from my_datasets.core.arrays import Array
from my_datasets.records.tf_example import encoding
from my_datasets.records.tf_example.pieces import Piece

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# Channels -> color type (table 8 of the standard).
_COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}
PNG_CHANNELS = frozenset(_COLOUR_TYPES)
# The default of zlib and libpng.
_LEVEL = 6
# Bytes of pixels filtered at once; the intermediate arrays stay in the processor's cache.
_AT_ONCE = 256 << 10


def encode_png(images: npt.NDArray[Any]) -> list[bytes]:
    """Returns a PNG file for each image.

    Images are uint8 or uint16, shape [n, height, width, channels]: 1 (gray), 2 (gray, alpha), 3
    (RGB) or 4 (RGBA) channels; no side may be 0.
    """
    n, height, width, channels = images.shape
    depth = images.dtype.itemsize
    header = _chunk(
        b"IHDR",
        struct.pack(">IIBBBBB", width, height, depth * 8, _COLOUR_TYPES[channels], 0, 0, 0),
    )
    # Two-byte samples are stored most significant byte first.
    samples = np.ascontiguousarray(images.astype(images.dtype.newbyteorder(">"), copy=False))
    lines = samples.view(np.uint8).reshape(n, height, -1)
    start, end = _SIGNATURE + header, _chunk(b"IEND", b"")
    step = max(1, _AT_ONCE // (height * lines.shape[2]))
    files = []
    for first in range(0, n, step):
        filtered = _filtered(lines[first : first + step], channels * depth)
        files += [start + _chunk(b"IDAT", zlib.compress(rows, _LEVEL)) + end for rows in filtered]
    return files


def _filtered(lines: npt.NDArray[np.uint8], pixel: int) -> npt.NDArray[np.uint8]:
    """Returns the filtered lines, each after its filter's number; shape [n, height, 1 + width].

    `lines` are the images' bytes, shape [n, height, bytes per line]. `pixel` is the bytes per
    pixel, the distance from a byte to its left neighbor.
    """
    left = np.zeros_like(lines)
    left[:, :, pixel:] = lines[:, :, :-pixel]
    up = np.zeros_like(lines)
    up[:, 1:] = lines[:, :-1]
    corner = np.zeros_like(lines)
    corner[:, 1:] = left[:, :-1]
    # Table 9 of the standard: none, sub, up, average, Paeth.
    mean = ((left.astype(np.uint16) + up) >> np.uint16(1)).astype(np.uint8)
    predictions = (None, left, up, mean, _paeth(left, up, corner))
    best = np.empty((*lines.shape[:2], 1 + lines.shape[2]), np.uint8)
    least = None
    for number, prediction in enumerate(predictions):
        difference = lines if prediction is None else lines - prediction
        # A byte above 127 is a negative difference.
        cost = np.abs(difference.view(np.int8).astype(np.int16)).sum(axis=2, dtype=np.int64)
        better = np.ones(cost.shape, np.bool_) if least is None else cost < least
        least = cost if least is None else np.minimum(least, cost)
        best[better, 0] = number
        best[better, 1:] = difference[better]
    return best


def _paeth(
    left: npt.NDArray[np.uint8], up: npt.NDArray[np.uint8], corner: npt.NDArray[np.uint8]
) -> npt.NDArray[np.uint8]:
    """Returns the neighbor nearest to left + up - corner (section 9.4 of the standard)."""
    wide_corner = corner.astype(np.int16)
    from_left = np.abs(up - wide_corner)
    from_up = np.abs(left - wide_corner)
    from_corner = np.abs(up.astype(np.int16) + left - 2 * wide_corner)
    nearest = np.where(from_up <= from_corner, up, corner)
    return np.where((from_left <= from_up) & (from_left <= from_corner), left, nearest)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


class ImageEncoder(ColumnEncoder):
    """Encodes images: arrays (as PNG), encoded files, and paths of files."""

    def own(self, value: object) -> object:
        if type(value) is np.ndarray:
            return value.copy()
        if _is_path(value):
            with contextlib.suppress(FileNotFoundError):
                return _contents(value)
        return value if type(value) is bytes else super().own(value)

    def encode(self, values: Values) -> list[Piece]:
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

    def _cast(self, flat: pa.Array) -> Array:
        # The cast checks the range, so lists of other integer types may contain pixels, too.
        pixels: Array = flat.cast(pa.from_numpy_dtype(self.feature.np_dtype)).to_numpy()
        return pixels

    def _as_files(self, values: Values) -> list[Any]:
        """Returns arrays and paths as the bytes of image files; leaves other values to TFDS."""
        given = (_contents(value) if _is_path(value) else value for value in values)
        files: list[Any] = []
        # Consecutive images of the same size are encoded together.
        for shape, group in itertools.groupby(given, self._png_shape):
            same = list(group)
            files += same if shape is None else encode_png(np.stack(same))
        return files

    def _png_shape(self, value: object) -> tuple[int, ...] | None:
        """Returns the shape of an array that fits the feature and is not to become a JPEG."""
        shape, dtype = self.feature.shape, self.feature.np_dtype
        if type(value) is not np.ndarray:
            return None
        fits = (
            self.feature.encoding_format != "jpeg"
            and dtype in (np.uint8, np.uint16)
            and value.dtype == dtype
            and len(value.shape) == len(shape) == len("hwc")
            and 0 not in value.shape
            and value.shape[2] in PNG_CHANNELS
            and all(side in (None, found) for side, found in zip(shape, value.shape, strict=True))
        )
        return value.shape if fits else None


def _contents(path: str | os.PathLike[str]) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _is_path(value: object) -> TypeGuard[str | os.PathLike[str]]:
    return isinstance(value, (str, os.PathLike)) and "://" not in os.fspath(value)


class AudioEncoder(NumberEncoder):
    """Encodes audio: arrays of samples, or files that TFDS decodes itself."""

    may_read_files = True

    def own(self, value: object) -> object:
        # Anything else is a file or its path, which TFDS reads now because the file may be removed
        # soon.
        return value.copy() if type(value) is np.ndarray else ColumnEncoder.own(self, value)
