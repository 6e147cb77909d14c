"""Arrays of pixels as pictures that a browser shows, small enough for a page."""

import io
from typing import Any

import numpy as np
import numpy.typing as npt

from my_datasets.dependencies import missing_dependency

try:
    from PIL import Image
except ModuleNotFoundError as missing:
    raise missing_dependency("PIL", needed_for="pictures in pages") from missing

Pixels = npt.NDArray[Any]

# Pictures are made so small; those that are smaller than this are shown pixel by pixel.
_LONGEST_SIDE = 384
_SMALL = 96
_QUALITY = 80
# Where no value is larger than this share of the type's largest, all would be nearly black.
_DARK = 0.25


def largest(pixels: Any) -> float:
    """Returns the largest value of an image, or of a list of them."""
    if isinstance(pixels, list) or pixels.dtype.kind == "O":
        return max((largest(one) for one in pixels), default=0.0)
    return float(np.max(pixels, initial=0))


def white(dtype: str, most: float) -> float:
    """Returns the value that is shown as white.

    Args:
      dtype: The type of the pixels.
      most: The largest value that there is.
    """
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return 1.0
    top = float(np.iinfo(kind).max) if kind.kind in "iu" else 1.0
    return max(most, 1.0) if most <= _DARK * top else top


def is_small(pixels: Pixels) -> bool:
    """Returns whether there are so few pixels that each is to be seen."""
    height, width = pixels.shape[:2]
    return bool(max(height, width) <= _SMALL)


def encoded(pixels: Pixels, brightest: float) -> tuple[bytes, str]:
    """Returns a picture as a file, and how its name ends.

    Args:
      pixels: Of shape [height, width, channels].
      brightest: The value that is shown as white.
    """
    scaled = np.nan_to_num(pixels.astype(np.float32)) * (255 / brightest)
    shown = np.clip(np.rint(scaled), 0, 255).astype(np.uint8)
    channels = shown.shape[2]
    picture = Image.fromarray(shown[..., 0] if channels in (1, 2) else shown[..., :4])
    picture.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE))
    file = io.BytesIO()
    if is_small(pixels):
        picture.save(file, "PNG", optimize=True)
        return file.getvalue(), "png"
    picture.save(file, "WEBP", quality=_QUALITY)
    return file.getvalue(), "webp"
