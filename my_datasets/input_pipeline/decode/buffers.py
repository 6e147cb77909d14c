"""Large arrays whose memory is reused once nothing refers to them, and images as floats in them.

The first access to fresh memory takes about as long as filling it: batches of photographs would
spend as much time on that as on resizing. Floats are from 0 to 1, as `tf.image.convert_image_dtype`
makes them.
"""

import math
import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from my_datasets.core.arrays import Array
from my_datasets.input_pipeline.decode.pytree import Ragged
from my_datasets.input_pipeline.stopwatch import timed
from my_datasets.metadata.features import Leaf

Bytes = npt.NDArray[np.uint8]

# The largest value of EIGEN_MAX_ALIGN_BYTES on any platform.
_ALIGNMENT = 64
# The C library itself keeps smaller blocks.
_LARGE = 1 << 20
# The most idle blocks and bytes to keep: enough for a few batches in turn.
_KEPT, _KEPT_BYTES = 4, 256 << 20

# Bytes converted at a time: pixels are converted while they are still in the processor's cache.
_AT_ONCE = 256 << 10


class BufferPool:
    """Reuses the memory of large arrays."""

    def __init__(self) -> None:
        self._idle: deque[Bytes] = deque()

    def aligned(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """Returns an uninitialized array that TensorFlow accepts without a copy.

        Its memory returns to the pool when the last view of it is gone.
        """
        kind = np.dtype(dtype)
        size = math.prod(shape) * kind.itemsize
        if size < _LARGE or kind.hasobject:
            return _lent(np.empty(size + _ALIGNMENT, np.uint8), shape, kind)
        memory = self._taken(size + _ALIGNMENT)
        found = _lent(memory, shape, kind)
        # Views of views have the same base, so it lives as long as any of them.
        weakref.finalize(found.base, self._give_back, memory).atexit = False
        return found

    @property
    def idle(self) -> int:
        """The number of bytes waiting to be reused."""
        return sum(memory.nbytes for memory in list(self._idle))

    def _taken(self, size: int) -> Bytes:
        # Each step is atomic in CPython: no other thread, and no finalizer, can interrupt it.
        for _ in range(len(self._idle)):
            try:
                memory = self._idle.popleft()
            except IndexError:
                break
            if memory.nbytes == size:
                return memory
            self._idle.append(memory)
        return np.empty(size, np.uint8)

    def _give_back(self, memory: Bytes) -> None:
        if memory.nbytes > _KEPT_BYTES:
            return
        self._idle.append(memory)
        while len(self._idle) > _KEPT or self.idle > _KEPT_BYTES:
            try:
                self._idle.popleft()
            except IndexError:
                break


def _lent(memory: Bytes, shape: tuple[int, ...], kind: np.dtype[Any]) -> Array:
    begin = -memory.ctypes.data % _ALIGNMENT
    size = math.prod(shape) * kind.itemsize
    # From a memoryview: otherwise NumPy makes the memory itself the base of the view.
    whole = np.frombuffer(memory.data, np.uint8)
    return whole[begin : begin + size].view(kind).reshape(shape)


aligned = BufferPool().aligned


def leaf_of(leaf: Leaf) -> Leaf:
    """Returns the leaf after conversion: images become float32."""
    return replace(leaf, dtype="float32") if leaf.form == "image" else leaf


def scale(pixels: Array, out: Array) -> None:
    """Converts unsigned integer pixels to floats in `out`; copies pixels that are floats."""
    with timed("scale"):
        if pixels.dtype.kind == "f":
            out[...] = pixels
            return
        factor = np.float32(1 / np.iinfo(pixels.dtype).max)
        np.multiply(pixels, factor, out=out, dtype=np.float32)


def runs(count: int, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Iterator[tuple[slice, Array]]:
    """Yields slices of `count` images, each with a scratch buffer for their unconverted pixels."""
    size = max(1, int(np.prod(shape)) * np.dtype(dtype).itemsize)
    step = max(1, min(count, _AT_ONCE // size))
    scratch = np.empty((step, *shape), dtype)
    for begin in range(0, count, step):
        end = min(begin + step, count)
        yield slice(begin, end), scratch[: end - begin]


@overload
def of(column: Array) -> Array: ...
@overload
def of(column: Ragged) -> Ragged: ...
def of(column: Array | Ragged) -> Array | Ragged:
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
