"""Images as floats from 0 to 1, converted as `tf.image.convert_image_dtype` does."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from my_datasets.input_pipeline.decode.buffers import aligned
from my_datasets.input_pipeline.decode.ragged import Ragged
from my_datasets.input_pipeline.stopwatch import timed
from my_datasets.metadata.features import Leaf

Pixels = npt.NDArray[Any]

# Bytes converted at a time: pixels are converted while they are still in the processor's cache.
_AT_ONCE = 256 << 10


def leaf_of(leaf: Leaf) -> Leaf:
    """Returns the leaf after conversion: images become float32."""
    return replace(leaf, dtype="float32") if leaf.form == "image" else leaf


def scale(pixels: Pixels, out: Pixels) -> None:
    """Converts unsigned integer pixels to floats in `out`; copies pixels that are floats."""
    with timed("scale"):
        if pixels.dtype.kind == "f":
            out[...] = pixels
            return
        factor = np.float32(1 / np.iinfo(pixels.dtype).max)
        np.multiply(pixels, factor, out=out, dtype=np.float32)


def runs(
    count: int, shape: tuple[int, ...], dtype: npt.DTypeLike
) -> Iterator[tuple[slice, Pixels]]:
    """Yields slices of the images, each with a scratch buffer for their pixels before conversion.

    Args:
      count: The number of images.
      shape: The shape of one image.
      dtype: The type of its pixels.
    """
    size = max(1, int(np.prod(shape)) * np.dtype(dtype).itemsize)
    step = max(1, min(count, _AT_ONCE // size))
    scratch = np.empty((step, *shape), dtype)
    for begin in range(0, count, step):
        end = min(begin + step, count)
        yield slice(begin, end), scratch[: end - begin]


def of(column: Any) -> Any:
    """Returns a column of images as floats: an array, a `Ragged`, or images of different sizes."""
    if isinstance(column, Ragged):
        return Ragged(of(column.values), column.lengths)
    if column.dtype != object:
        found = aligned(column.shape, np.float32)
        scale(column, found)
        return found
    several = np.empty(len(column), object)
    for i, image in enumerate(column):
        several[i] = of(image)
    return several
