"""Encodes arrays of pixels as small pictures for pages."""

import io
import wave
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from my_datasets.catalog.plots import plots
from my_datasets.catalog.plots.drawing import number
from my_datasets.core.value_types import Array
from my_datasets.dependencies import missing_dependency

try:
    from PIL import Image
except ModuleNotFoundError as missing:
    raise missing_dependency("PIL", needed_for="pictures on pages") from missing

Pixels = Array

# The longest side of pictures, and below which each pixel is shown as a square.
_LONGEST_SIDE = 384
_SMALL = 96
_QUALITY = 80
# Images whose maximum is below this share of the type's range are brightened.
_DARK = 0.25


def largest(pixels: "Array | list[Array]") -> float:
    """Returns the maximum of an image or a list of images."""
    if isinstance(pixels, list) or pixels.dtype.kind == "O":
        return max((largest(one) for one in pixels), default=0.0)
    return float(np.max(pixels, initial=0))


def white(dtype: str, most: float) -> float:
    """Returns the value to show as white, given the dtype and maximum of all pixels."""
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return 1.0
    top = float(np.iinfo(kind).max) if kind.kind in "iu" else 1.0
    return max(most, 1.0) if most <= _DARK * top else top


def is_small(pixels: Pixels) -> bool:
    """Returns whether each pixel should be visible."""
    height, width = pixels.shape[:2]
    return bool(max(height, width) <= _SMALL)


def encoded_picture(pixels: Pixels, brightest: float) -> tuple[bytes, str]:
    """Encodes pixels of shape [height, width, channels]; returns a file and its extension.

    `brightest` is the value to show as white.
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
_SECONDS = 10
_CHANNELS = 2


def scaled(samples: Array, dtype: str) -> Course:
    """Scales samples of shape [length] or [length, channels] to -1..1; [length, channels].

    `dtype` is the declared one; TFDS stores 16-bit samples as int64.
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
    """Returns the beginning of a sound as a WAV file, and whether there is more."""
    played = course[: _SECONDS * rate]
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(played.shape[1])
        writer.setsampwidth(2)
        writer.setframerate(rate)
        writer.writeframes(np.rint(played * 32767).astype("<i2").tobytes())
    return file.getvalue(), len(course) > len(played)


def plot(course: Course, title: str, seconds: float) -> Markup:
    """Returns the waveform of a sound; `seconds` is its duration, or 0 if unknown."""
    edges = np.linspace(0, len(course), min(_PIECES, len(course)) + 1).astype(int)
    pieces = [course[a:b] for a, b in pairwise(edges.tolist())]
    peaks = [(float(one.min()), float(one.max())) for one in pieces]
    loudest = float(np.abs(course).max())
    length = f"{number(round(seconds, 2))} seconds" if seconds else f"{len(course):,} samples"
    return plots.waveform(peaks, title, f"{length}, peak {loudest:.0%} of full scale")
