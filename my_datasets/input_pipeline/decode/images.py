"""Decodes image files as TFDS does, without TensorFlow, and crops them.

libjpeg-turbo (simplejpeg) decodes JPEG, with the fast inverse transform that is TensorFlow's
default, so pixels are identical to TensorFlow's. OpenCV decodes everything else. Crops have the
target's aspect ratio, so resizing does not distort the image. Floats are from 0 to 1, as
`tf.image.convert_image_dtype` makes them.
"""

import importlib.util
import math
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from my_datasets.core.arrays import Array
from my_datasets.dependencies import missing_dependency
from my_datasets.input_pipeline.decode.pytree import Ragged
from my_datasets.input_pipeline.order.permutation import Places, uniform
from my_datasets.input_pipeline.plan.stages import CropKind
from my_datasets.input_pipeline.stopwatch import timed
from my_datasets.metadata.features import Leaf
from my_datasets.printable import PrintableError

Bytes = npt.NDArray[np.uint8]

# The largest value of EIGEN_MAX_ALIGN_BYTES on any platform.
_ALIGNMENT = 64
# The C library itself keeps smaller blocks.
_LARGE = 1 << 20
# The most idle blocks and bytes to keep: enough for a few batches in turn.
_MAX_IDLE, _MAX_IDLE_BYTES = 4, 256 << 20

# Bytes converted at a time: pixels are converted while they are still in the processor's cache.
_PIXELS_AT_ONCE = 256 << 10


class BufferPool:
    """Reuses the memory of large arrays once nothing refers to it.

    The first access to fresh memory takes about as long as filling it: batches of photographs would
    spend as much time on that as on resizing.
    """

    def __init__(self) -> None:
        self._idle: deque[Bytes] = deque()

    def aligned(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """Returns an uninitialized array that TensorFlow accepts without a copy.

        Its memory returns to the pool when the last view of it is gone.
        """
        kind = np.dtype(dtype)
        size = math.prod(shape) * kind.itemsize
        if size < _LARGE or kind.hasobject:
            return _view_of(np.empty(size + _ALIGNMENT, np.uint8), shape, kind)
        memory = self._reuse(size + _ALIGNMENT)
        found = _view_of(memory, shape, kind)
        # Views of views have the same base, so it lives as long as any of them.
        weakref.finalize(found.base, self._give_back, memory).atexit = False
        return found

    @property
    def idle(self) -> int:
        """The number of bytes waiting to be reused."""
        return sum(memory.nbytes for memory in list(self._idle))

    def _reuse(self, size: int) -> Bytes:
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
        if memory.nbytes > _MAX_IDLE_BYTES:
            return
        self._idle.append(memory)
        while len(self._idle) > _MAX_IDLE or self.idle > _MAX_IDLE_BYTES:
            try:
                self._idle.popleft()
            except IndexError:
                break


def _view_of(memory: Bytes, shape: tuple[int, ...], kind: np.dtype[Any]) -> Array:
    begin = -memory.ctypes.data % _ALIGNMENT
    size = math.prod(shape) * kind.itemsize
    # From a memoryview: otherwise NumPy makes the memory itself the base of the view.
    whole = np.frombuffer(memory.data, np.uint8)
    return whole[begin : begin + size].view(kind).reshape(shape)


aligned = BufferPool().aligned


def float_leaf(leaf: Leaf) -> Leaf:
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


def pixel_runs(
    count: int, shape: tuple[int, ...], dtype: npt.DTypeLike
) -> Iterator[tuple[slice, Array]]:
    """Yields slices of `count` images, each with a scratch buffer for their unconverted pixels."""
    size = max(1, int(np.prod(shape)) * np.dtype(dtype).itemsize)
    step = max(1, min(count, _PIXELS_AT_ONCE // size))
    scratch = np.empty((step, *shape), dtype)
    for begin in range(0, count, step):
        end = min(begin + step, count)
        yield slice(begin, end), scratch[: end - begin]


@overload
def as_floats(column: Array) -> Array: ...
@overload
def as_floats(column: Ragged) -> Ragged: ...
def as_floats(column: Array | Ragged) -> Array | Ragged:
    """Returns a column of images as floats: an array, a `Ragged`, or images of different sizes."""
    if isinstance(column, Ragged):
        return Ragged(as_floats(column.values), column.lengths)
    if column.dtype != object:
        found = aligned(column.shape, np.float32)
        scale(column, found)
        return found
    several = np.empty(len(column), object)
    for i, image in enumerate(column):
        several[i] = as_floats(image)
    return several


# (top, left, height, width) in pixels.
Box = tuple[int, int, int, int]
Draws = npt.NDArray[np.float32]

# The range of a random crop's aspect ratio, relative to the target's (Szegedy et al., "Going deeper
# with convolutions", 2014, section 6).
_RATIOS = (3 / 4, 4 / 3)
_DRAWS = 4
# Keeps these random numbers independent of others drawn with the same seed.
_SALT = 0x63726F70

_JPEG = b"\xff\xd8\xff"
_GIF = b"GIF8"
# A JPEG that shrinks by this factor or more is decoded with fewer coefficients.
_SCALED = 2
# Images above this size in bytes are decoded into memory of their own.
_SCRATCH = 64 << 20
_threads = threading.local()


@dataclass(frozen=True)
class Crop:
    """Chooses the crop of each image.

    Attributes:
      kind: The largest central crop, or a random one.
      size: (height, width) to which crops are resized, in pixels.
      area: The smallest and the largest area of a random crop, as fractions of the image's area.
    """

    kind: CropKind
    size: tuple[int, int]
    area: tuple[float, float] = (0.08, 1.0)
    seed: int = 0

    def draws(self, epoch: int, examples: Places) -> Draws:
        """Returns random numbers in [0, 1) for the given examples; float32, shape [n, 4]."""
        return uniform(self.seed ^ _SALT, epoch, examples, _DRAWS)

    def box(self, height: int, width: int, draws: Draws) -> Box:
        """Returns the crop of an image of this size, from its random numbers, of shape [4]."""
        ratio = self.size[1] / self.size[0]
        if self.kind == "center":
            part_height, part_width = min(height, width / ratio), min(width, height * ratio)
            top, left = (height - part_height) / 2, (width - part_width) / 2
        else:
            least, most = self.area
            area = height * width * (least + (most - least) * float(draws[0]))
            low, high = map(math.log, _RATIOS)
            ratio *= math.exp(low + (high - low) * float(draws[1]))
            part_height = min(height, math.sqrt(area / ratio))
            part_width = min(width, math.sqrt(area * ratio))
            top = (height - part_height) * float(draws[2])
            left = (width - part_width) * float(draws[3])
        rows, columns = max(1, round(part_height)), max(1, round(part_width))
        return min(round(top), height - rows), min(round(left), width - columns), rows, columns


class UndecodableError(PrintableError):
    """An image cannot be decoded; the text says why."""


@dataclass(frozen=True)
class ImageDecoder:
    """Decodes images of one feature.

    Attributes:
      channels: The number of channels; None for as many as each file has.
      size: (height, width) in pixels to resize to, bilinearly without anti-aliasing as
        `tf.image.resize`, rounded to the nearest integer; None to leave the size.
      crop: Chooses the part to resize; None for the whole image.
    """

    channels: int | None
    dtype: str = "uint8"
    size: tuple[int, int] | None = None
    crop: Crop | None = None

    def __post_init__(self) -> None:
        for module in ("cv2", "simplejpeg"):
            if importlib.util.find_spec(module) is None:
                raise missing_dependency(module, needed_for="decoding images")

    def __call__(
        self, data: bytes | memoryview, draws: Draws | None = None, out: Array | None = None
    ) -> Array:
        """Returns a file's image: `out` if its shape and type fit; shape [height, width, channels].

        Raises:
          UndecodableError: The file is damaged, or not an image.
        """
        start = bytes(data[:4])
        if start.startswith(_JPEG):
            image = self._jpeg(data, draws)
        elif start == _GIF:
            raise UndecodableError("a GIF has several frames, which only TensorFlow decodes")
        else:
            image = self._other(data)
            if self.crop is not None and draws is not None:
                top, left, height, width = self.crop.box(image.shape[0], image.shape[1], draws)
                image = image[top : top + height, left : left + width]
        return self._resized(image, out)

    def _jpeg(self, data: bytes | memoryview, draws: Draws | None) -> Array:
        import simplejpeg

        height, width = self.size or (0, 0)
        box = None
        try:
            rows, columns, space, _ = simplejpeg.decode_jpeg_header(data)
            channels = self.channels or (1 if space == "Gray" else 3)
            if self.crop is not None and draws is not None:
                box = self.crop.box(rows, columns, draws)
                # Large enough that the crop still has the requested number of pixels.
                height = math.ceil(height * rows / box[2])
                width = math.ceil(width * columns / box[3])
            found: Array = simplejpeg.decode_jpeg(
                data,
                colorspace={1: "GRAY", 3: "RGB", 4: "RGBA"}[channels],
                fastdct=True,
                min_height=height,
                min_width=width,
                min_factor=_SCALED,
                # An image that will be resized is only needed until then.
                buffer=_scratch(rows * columns * channels) if self.size else None,
            )
        except (ValueError, KeyError) as error:
            raise UndecodableError(f"a damaged JPEG file: {error}") from error
        if self.dtype == "uint16":
            found = found.astype(np.uint16) << 8  # as TensorFlow does
        if box is None:
            return found
        # The image may have been decoded at a smaller scale; accurate to half a pixel of it.
        down, across = found.shape[0] / rows, found.shape[1] / columns
        top, left = round(box[0] * down), round(box[1] * across)
        bottom, right = round((box[0] + box[2]) * down), round((box[1] + box[3]) * across)
        return found[top:bottom, left:right]

    def _other(self, data: bytes | memoryview) -> Array:
        import cv2

        raw = np.frombuffer(data, np.uint8)
        try:
            image = cv2.imdecode(raw, cv2.IMREAD_UNCHANGED) if len(raw) else None
        except cv2.error as error:  # such as an image that claims to be too large
            raise UndecodableError(f"not an image: {error.err}") from error
        if image is None:
            raise UndecodableError(f"{len(raw):,} bytes that are not an image, or a damaged one")
        found: Array = image[:, :, None] if image.ndim == 2 else image
        wanted = 4 if self.dtype == "float32" else self.channels or found.shape[2]
        found = _with_channels(found, wanted)
        if self.dtype == "float32":
            wide: Array = np.ascontiguousarray(found).view(np.float32)
            return wide
        if found.dtype != self.dtype:
            # As TensorFlow does: keep the high byte, or repeat the single byte.
            is_wide = self.dtype == "uint16"
            found = found.astype(np.uint16) * 257 if is_wide else (found >> 8).astype(np.uint8)
        return found

    def _resized(self, image: Array, out: Array | None) -> Array:
        """Resizes an image; the result is not in scratch memory."""
        import cv2

        height, width = self.size or image.shape[:2]
        shape = (height, width, image.shape[2])
        if out is None or out.shape != shape or out.dtype != image.dtype:
            if self.size is None:
                return image
            out = np.empty(shape, image.dtype)
        if image.shape != shape:
            resized: Array = cv2.resize(
                image, (width, height), dst=out, interpolation=cv2.INTER_LINEAR
            )
            if resized is out:
                return resized
            image = resized.reshape(shape)
        out[...] = image
        return out


def _scratch(size: int) -> Array | None:
    """Returns this thread's buffer, valid until the next call; None if the image is too large."""
    if size > _SCRATCH:
        return None
    found: Array | None = getattr(_threads, "scratch", None)
    if found is None or len(found) < size:
        found = _threads.scratch = np.empty(size, np.uint8)
    return found


def _with_channels(image: Array, wanted: int) -> Array:
    """Converts an OpenCV image, whose channels are blue, green, red."""
    import cv2

    found = image.shape[2]
    codes = {
        (1, 1): None, (3, 3): cv2.COLOR_BGR2RGB, (4, 4): cv2.COLOR_BGRA2RGBA,
        (1, 3): cv2.COLOR_GRAY2RGB, (1, 4): cv2.COLOR_GRAY2RGBA, (3, 1): cv2.COLOR_BGR2GRAY,
        (3, 4): cv2.COLOR_BGR2RGBA, (4, 1): cv2.COLOR_BGRA2GRAY, (4, 3): cv2.COLOR_BGRA2RGB,
    }  # fmt: skip
    if (found, wanted) not in codes:
        raise UndecodableError(f"{found} channels; expected {wanted}")
    code = codes[found, wanted]
    if code is None:
        return image
    converted: Array = cv2.cvtColor(image, code)
    return converted if converted.ndim == 3 else converted[:, :, None]
