"""Samples of sounds as files that a browser plays, and their course as plots."""

import io
import wave
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from my_datasets.catalog.plots import plots
from my_datasets.catalog.plots.number_format import number

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


def encoded(course: Course, rate: int) -> tuple[bytes, bool]:
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
