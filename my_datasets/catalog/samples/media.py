"""Arrays of pixels as pictures that a browser shows, small enough for a page."""

import io
import wave
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from my_datasets.catalog.plots import plots
from my_datasets.catalog.plots.drawing import number
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


def encoded_picture(pixels: Pixels, brightest: float) -> tuple[bytes, str]:
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


Course = npt.NDArray[np.float32]

_PIECES = 120
# So much of a sound is put into its file.
_SECONDS = 10
_CHANNELS = 2


def scaled(samples: npt.NDArray[Any], dtype: str) -> Course:
    """Returns samples from -1 to 1, shape [length, channels].

    Args:
      samples: Of shape [length], or [length, channels].
      dtype: Their type as declared. TFDS stores those of 16 bits as int64.
    """
    given = samples.reshape(len(samples), -1)[:, :_CHANNELS].astype(np.float32)
    given = np.nan_to_num(given)
    loudest = float(np.abs(given).max(initial=0))
    if np.dtype(dtype).kind == "f":
        full = max(loudest, 1.0)
    else:
        full = next((float(2**bits) for bits in (15, 23) if loudest <= 2**bits), loudest)
    return given / np.float32(full)


def encoded_sound(course: Course, rate: int) -> tuple[bytes, bool]:
    """Returns the beginning of a sound as a WAV file, and whether there is more.

    Args:
      course: From -1 to 1, shape [length, channels].
      rate: Samples per second.
    """
    played = course[: _SECONDS * rate]
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(played.shape[1])
        writer.setsampwidth(2)
        writer.setframerate(rate)
        writer.writeframes(np.rint(played * 32767).astype("<i2").tobytes())
    return file.getvalue(), len(course) > len(played)


def plot(course: Course, title: str, seconds: float) -> Markup:
    """Returns the course of a sound.

    Args:
      course: From -1 to 1, shape [length, channels].
      title: What it is.
      seconds: How long it is; 0 if that is not known.
    """
    edges = np.linspace(0, len(course), min(_PIECES, len(course)) + 1).astype(int)
    pieces = [course[a:b] for a, b in pairwise(edges.tolist())]
    peaks = [(float(one.min()), float(one.max())) for one in pieces]
    loudest = float(np.abs(course).max())
    length = f"{number(round(seconds, 2))} seconds" if seconds else f"{len(course):,} samples"
    return plots.waveform(peaks, title, f"{length}, at most {loudest:.0%} of the loudest there is")
