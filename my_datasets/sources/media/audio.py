"""Reads folders of audio files: WAV, FLAC, OGG and MP3, decoded by libsndfile."""

import functools
import importlib.util
import io
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from my_datasets.building.units import Misfit
from my_datasets.dependencies import missing_dependency
from my_datasets.errors import SourceError, explain
from my_datasets.sources.features import audio_feature
from my_datasets.sources.files.folders import LARGEST_FILE, caused, folder
from my_datasets.sources.files.listing import Where, files
from my_datasets.sources.source import Source

_ENDINGS = (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff")
_DTYPES = ("int16", "int32", "float32")
# What libsndfile reports for a WAV file that is shorter than its header says.
_CUT_OFF = re.compile(r"^\s*data\s*:\s*(\d+) \(should be (\d+)\)", re.MULTILINE)


def audio_folder(
    where: Where,
    *,
    labels: bool = True,
    sample_rate: int | None = None,
    channels: int | None = None,
    dtype: str = "int16",
    max_seconds: float = 3600,
) -> Source:
    """Returns the recordings in a folder: columns `audio`, `file_name`, and `label` if requested.

    Recordings are decoded: `audio` contains the samples, for `tfds.features.Audio`. A recording
    that cannot be decoded, or has another sample rate or number of channels, fails the build or is
    quarantined.

    Args:
      where: A directory, a pattern such as `folder/*/*.wav`, or several files; paths, or URLs in an
        object store.
      labels: Whether the name of a recording's directory is its class.
      sample_rate: Samples per second and channel of all recordings; None for that of the first.
      channels: The number of channels of all recordings; None for that of the first. With one
        channel, samples have shape (length,), otherwise (length, channels).
      dtype: The dtype of the samples: `int16` or `int32`, both using the full range of the type, or
        `float32`, from -1 to 1.
      max_seconds: The maximum length of a recording, in seconds.

    Raises:
      SourceError: There is no such file, the first one is not a recording, or a recording is in no
        directory that could be its class.
      MissingDependencyError: soundfile is not installed.
    """
    if importlib.util.find_spec("soundfile") is None:
        raise missing_dependency("soundfile", needed_for="reading recordings")
    if dtype not in _DTYPES:
        raise SourceError(
            explain(
                f"Samples cannot be {dtype!r}.",
                f"Expected one of {', '.join(_DTYPES)}",
                fix="choose another dtype",
            )
        )
    found = files(where, _ENDINGS)
    if sample_rate is None or channels is None:
        rate, width = _looked_at(found[0])
        sample_rate, channels = sample_rate or rate, channels or width
    kind = pa.from_numpy_dtype(np.dtype(dtype))
    samples = pa.list_(kind if channels == 1 else pa.list_(kind, channels))
    return folder(
        found,
        "audio",
        labels=labels,
        convert=_Decoder(sample_rate, channels, dtype, max_seconds),
        kind=samples,
        feature=functools.partial(audio_feature, sample_rate, channels, dtype),
    )


def _looked_at(file: Any) -> tuple[int, int]:
    import soundfile

    try:
        with file.open() as stream:
            info = soundfile.info(io.BytesIO(stream.read(LARGEST_FILE)))
    except soundfile.LibsndfileError as error:
        raise SourceError(
            explain(
                f"{file} is no recording: {error}",
                fix="give sample_rate and channels, if others are; "
                "on_error='quarantine' sets this one aside",
            )
        ) from error
    return info.samplerate, info.channels


@dataclass(frozen=True)
class _Decoder:
    sample_rate: int
    channels: int
    dtype: str
    max_seconds: float

    def __call__(self, data: bytes) -> Any:
        """Returns the samples, shape (length,) or (length, channels), or a `Misfit`."""
        import soundfile

        if not data:
            return Misfit("audio", "a recording", "an empty file")
        try:
            with soundfile.SoundFile(io.BytesIO(data)) as file:
                found = self._misfit(file)
                if found is not None:
                    return found
                samples = file.read(dtype=self.dtype)
                # The header of a compressed stream only estimates the number of samples.
                if len(samples) < file.frames and file.format in ("FLAC", "WAV", "AIFF"):
                    return self._cut_off(f"{len(samples):,}", f"{file.frames:,} samples")
        except (soundfile.LibsndfileError, RuntimeError) as error:
            return caused(
                error, "audio", "a recording", f"{len(data):,} bytes that start with {data[:8]!r}"
            )
        return samples

    def _misfit(self, file: Any) -> Misfit | None:
        if file.samplerate != self.sample_rate:
            expected = f"{self.sample_rate:,} samples per second"
            return Misfit("audio", expected, f"{file.samplerate:,}")
        if file.channels != self.channels:
            return Misfit("audio", f"{self.channels} channels", f"{file.channels}")
        if file.frames > self.max_seconds * file.samplerate:
            found = f"{file.frames / file.samplerate:,.0f} seconds by its header"
            return Misfit("audio", f"at most {self.max_seconds:,.0f} seconds", found)
        cut = _CUT_OFF.search(file.extra_info)
        if cut is not None and int(cut[1]) > int(cut[2]):
            return self._cut_off(f"{int(cut[2]):,}", f"{int(cut[1]):,} bytes of samples")
        return None

    def _cut_off(self, found: str, expected: str) -> Misfit:
        return Misfit("audio", f"{expected}, as its header says", found)
