"""Images as numbers from 0 to 1, as `tf.image.convert_image_dtype` makes them."""

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

# Pixels are made floats while they are in the processor's cache: so many bytes at a time.
_AT_ONCE = 256 << 10


def leaf_of(leaf: Leaf) -> Leaf:
    """Returns what becomes of a leaf: images are floats."""
    return replace(leaf, dtype="float32") if leaf.form == "image" else leaf


def scale(pixels: Pixels, out: Pixels) -> None:
    """Makes pixels of unsigned integers floats; those that are floats are copied."""
    with timed("scale"):
        if pixels.dtype.kind == "f":
            out[...] = pixels
            return
        factor = np.float32(1 / np.iinfo(pixels.dtype).max)
        np.multiply(pixels, factor, out=out, dtype=np.float32)


def runs(
    count: int, shape: tuple[int, ...], dtype: npt.DTypeLike
) -> Iterator[tuple[slice, Pixels]]:
    """Yields which of some images come next, and where to put them before they are made floats.

    Args:
      count: How many images there are.
      shape: Of one.
      dtype: Of their pixels.
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
