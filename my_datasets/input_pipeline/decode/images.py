"""Decodes image files as TFDS does, without TensorFlow, and crops them.

libjpeg-turbo (simplejpeg) decodes JPEG, with the fast inverse transform that is TensorFlow's
default, so pixels are identical to TensorFlow's. OpenCV decodes everything else. Crops have the
target's aspect ratio, so resizing does not distort the image.
"""

import importlib.util
import math
import threading
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from my_datasets.core.arrays import Array as Image
from my_datasets.dependencies import missing_dependency
from my_datasets.input_pipeline.order.permutation import Places, uniform
from my_datasets.input_pipeline.plan.stages import CropKind
from my_datasets.printable import PrintableError

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
      seed: The seed of random crops.
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
      dtype: The type of the pixels.
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
        self, data: bytes | memoryview, draws: Draws | None = None, out: Image | None = None
    ) -> Image:
        """Returns an image of shape [height, width, channels].

        Args:
          data: The file.
          draws: Random numbers for the crop.
          out: Written and returned if it has the image's shape and type.

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

    def _jpeg(self, data: bytes | memoryview, draws: Draws | None) -> Image:
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
            found: Image = simplejpeg.decode_jpeg(
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

    def _other(self, data: bytes | memoryview) -> Image:
        import cv2

        raw = np.frombuffer(data, np.uint8)
        try:
            image = cv2.imdecode(raw, cv2.IMREAD_UNCHANGED) if len(raw) else None
        except cv2.error as error:  # such as an image that claims to be too large
            raise UndecodableError(f"not an image: {error.err}") from error
        if image is None:
            raise UndecodableError(f"{len(raw):,} bytes that are not an image, or a damaged one")
        found: Image = image[:, :, None] if image.ndim == 2 else image
        wanted = 4 if self.dtype == "float32" else self.channels or found.shape[2]
        found = _with_channels(found, wanted)
        if self.dtype == "float32":
            wide: Image = np.ascontiguousarray(found).view(np.float32)
            return wide
        if found.dtype != self.dtype:
            # As TensorFlow does: keep the high byte, or repeat the single byte.
            is_wide = self.dtype == "uint16"
            found = found.astype(np.uint16) * 257 if is_wide else (found >> 8).astype(np.uint8)
        return found

    def _resized(self, image: Image, out: Image | None) -> Image:
        """Resizes an image; the result is not in scratch memory."""
        import cv2

        height, width = self.size or image.shape[:2]
        shape = (height, width, image.shape[2])
        if out is None or out.shape != shape or out.dtype != image.dtype:
            if self.size is None:
                return image
            out = np.empty(shape, image.dtype)
        if image.shape != shape:
            resized: Image = cv2.resize(
                image, (width, height), dst=out, interpolation=cv2.INTER_LINEAR
            )
            if resized is out:
                return resized
            image = resized.reshape(shape)
        out[...] = image
        return out


def _scratch(size: int) -> Image | None:
    """Returns this thread's buffer, valid until the next call; None if the image is too large."""
    if size > _SCRATCH:
        return None
    found: Image | None = getattr(_threads, "scratch", None)
    if found is None or len(found) < size:
        found = _threads.scratch = np.empty(size, np.uint8)
    return found


def _with_channels(image: Image, wanted: int) -> Image:
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
    converted: Image = cv2.cvtColor(image, code)
    return converted if converted.ndim == 3 else converted[:, :, None]
