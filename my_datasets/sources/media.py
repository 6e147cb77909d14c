"""Reads folders of images, of audio files (WAV, FLAC, OGG and MP3), and of videos.

libsndfile decodes audio, and FFmpeg's libraries decode videos.
"""

import functools
import importlib.util
import io
import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import tensorflow_datasets as tfds

from my_datasets.building.units import InvalidValue
from my_datasets.core.arrays import Array
from my_datasets.dependencies import missing_dependency
from my_datasets.errors import SourceError
from my_datasets.sources.file import SourceFile
from my_datasets.sources.folders import LARGEST_FILE, Where, caused, files, folder
from my_datasets.sources.source import Source

if TYPE_CHECKING:
    import PIL.Image
    import soundfile

# The formats that TFDS reads as images, by Pillow's names. A GIF is a video to TFDS, with one more
# dimension.
_FORMATS = {"JPEG", "MPO", "PNG", "BMP"}
# JPEG quality of downscaled images: the loss is not visible.
_QUALITY = 95
_IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".gif", ".bmp")

_AUDIO_ENDINGS = (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff")
_DTYPES = ("int16", "int32", "float32")
# What libsndfile reports for a WAV file that is shorter than its header says.
_CUT_OFF = re.compile(r"^\s*data\s*:\s*(\d+) \(should be (\d+)\)", re.MULTILINE)

_VIDEO_ENDINGS = (".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".mpg", ".mpeg")


def _undecodable(column: str, expected: str, data: bytes, error: Exception) -> InvalidValue:
    return caused(error, column, expected, f"{len(data):,} bytes that start with {data[:8]!r}")


def image_folder(
    where: Where,
    *,
    labels: bool = True,
    decode: bool = False,
    max_pixels: int = 150_000_000,
    shortest_side: int | None = None,
) -> Source:
    """Returns the images in a folder: columns `image`, `file_name`, and `label` if requested.

    Files that TFDS does not read as images (JPEG, PNG, BMP) fail the build or are quarantined. The
    files' bytes are stored unchanged, unless the images are downscaled.

    Args:
      where: A directory, a pattern such as `folder/*/*.jpg`, or several files; paths, or URLs in an
        object store.
      labels: Whether the name of an image's directory is its class.
      decode: Whether to decode each image completely, to find those that are corrupt after their
        header; as slow as decoding.
      max_pixels: The maximum number of pixels of an image, by its header.
      shortest_side: Downscale larger images so that their shortest side has this many pixels, and
        store them as JPEG files of quality 95: once, rather than in each epoch. None to leave
        images unchanged.

    Raises:
      SourceError: There is no such file, or an image is in no directory that could be its class.
      MissingDependencyError: Pillow is not installed.
    """
    if importlib.util.find_spec("PIL") is None:
        raise missing_dependency("PIL", needed_for="reading images")
    found = files(where, _IMAGE_ENDINGS)
    check = _ImageCheck(decode, max_pixels, shortest_side)
    return folder(found, "image", labels=labels, convert=check, feature=tfds.features.Image)


@dataclass(frozen=True)
class _ImageCheck:
    """Checks that bytes are an image that TFDS can read."""

    decode: bool
    max_pixels: int
    shortest_side: int | None = None

    def __call__(self, data: bytes) -> bytes | InvalidValue:
        import PIL.Image

        if not data:
            return InvalidValue("image", "an image", "an empty file")
        try:
            with warnings.catch_warnings():
                # Pillow's own limit is only a warning; ours is below.
                warnings.simplefilter("ignore", PIL.Image.DecompressionBombWarning)
                image = PIL.Image.open(io.BytesIO(data))
            width, height = image.size
            if image.format not in _FORMATS:
                return InvalidValue("image", "a JPEG, PNG or BMP file", f"a {image.format} file")
            if width * height > self.max_pixels:
                found = f"{width:,} x {height:,} pixels"
                return InvalidValue("image", f"at most {self.max_pixels:,} pixels", found)
            if self.shortest_side is not None and min(width, height) > self.shortest_side:
                return _smaller(image, self.shortest_side)
            if self.decode or self.shortest_side is not None:
                image.load()
        except PIL.Image.DecompressionBombError as error:
            return caused(error, "image", f"at most {self.max_pixels:,} pixels", "more pixels")
        except (OSError, SyntaxError, ValueError) as error:
            return _undecodable("image", "an image", data, error)
        return data


def _smaller(image: "PIL.Image.Image", side: int) -> bytes:
    import PIL.Image

    scale = side / min(image.size)
    width, height = (max(side, round(length * scale)) for length in image.size)
    out = io.BytesIO()
    # EXIF orientation is not applied, because TensorFlow does not apply it either.
    small = image.convert("RGB").resize((width, height), PIL.Image.Resampling.LANCZOS)
    small.save(out, "JPEG", quality=_QUALITY)
    return out.getvalue()


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
            f"The dtype of samples cannot be {dtype!r}.",
            f"Expected one of {', '.join(_DTYPES)}",
            fix="choose another dtype",
        )
    found = files(where, _AUDIO_ENDINGS)
    if sample_rate is None or channels is None:
        rate, width = _header_of(found[0])
        sample_rate, channels = sample_rate or rate, channels or width
    kind = pa.from_numpy_dtype(np.dtype(dtype))
    samples = pa.list_(kind if channels == 1 else pa.list_(kind, channels))
    shape = (None,) if channels == 1 else (None, channels)
    return folder(
        found,
        "audio",
        labels=labels,
        convert=_AudioDecoder(sample_rate, channels, dtype, max_seconds),
        kind=samples,
        feature=functools.partial(
            tfds.features.Audio, shape=shape, dtype=np.dtype(dtype), sample_rate=sample_rate
        ),
    )


def _header_of(file: SourceFile) -> tuple[int, int]:
    import soundfile

    try:
        with file.open() as stream:
            info = soundfile.info(io.BytesIO(stream.read(LARGEST_FILE)))
    except soundfile.LibsndfileError as error:
        raise SourceError(
            f"{file} is not a recording: {error}",
            fix="if the other files are recordings, pass sample_rate and channels; "
            "on_error='quarantine' sets this file aside",
        ) from error
    return info.samplerate, info.channels


@dataclass(frozen=True)
class _AudioDecoder:
    sample_rate: int
    channels: int
    dtype: str
    max_seconds: float

    def __call__(self, data: bytes) -> Array | InvalidValue:
        """Returns the samples, shape (length,) or (length, channels), or an `InvalidValue`."""
        import soundfile

        if not data:
            return InvalidValue("audio", "a recording", "an empty file")
        try:
            with soundfile.SoundFile(io.BytesIO(data)) as file:
                if (wrong := self._wrong_header(file)) is not None:
                    return wrong
                samples: Array = file.read(dtype=self.dtype)
                # The header of a compressed stream only estimates the number of samples.
                if len(samples) < file.frames and file.format in ("FLAC", "WAV", "AIFF"):
                    return self._cut_off(f"{len(samples):,}", f"{file.frames:,} samples")
        except (soundfile.LibsndfileError, RuntimeError) as error:
            return _undecodable("audio", "a recording", data, error)
        return samples

    def _wrong_header(self, file: "soundfile.SoundFile") -> InvalidValue | None:
        if file.samplerate != self.sample_rate:
            expected = f"{self.sample_rate:,} samples per second"
            return InvalidValue("audio", expected, f"{file.samplerate:,}")
        if file.channels != self.channels:
            return InvalidValue("audio", f"{self.channels} channels", f"{file.channels}")
        if file.frames > self.max_seconds * file.samplerate:
            found = f"{file.frames / file.samplerate:,.0f} seconds by its header"
            return InvalidValue("audio", f"at most {self.max_seconds:,.0f} seconds", found)
        cut = _CUT_OFF.search(file.extra_info)
        if cut is not None and int(cut[1]) > int(cut[2]):
            return self._cut_off(f"{int(cut[2]):,}", f"{int(cut[1]):,} bytes of samples")
        return None

    def _cut_off(self, found: str, expected: str) -> InvalidValue:
        return InvalidValue("audio", f"{expected}, as its header says", found)


def video_folder(
    where: Where,
    *,
    labels: bool = True,
    every: int = 1,
    max_frames: int = 10_000,
    shortest_side: int | None = None,
    max_pixels: int = 50_000_000,
) -> Source:
    """Returns the videos in a folder: columns `video`, `file_name`, and `label` if requested.

    Videos are decoded; TFDS stores their frames individually, here as JPEG files of quality 95. A
    video that cannot be decoded fails the build or is quarantined.

    Args:
      where: A directory, a pattern such as `folder/*/*.mp4`, or several files; paths, or URLs in an
        object store.
      labels: Whether the name of a video's directory is its class.
      every: Keep every n-th frame, starting with the first.
      max_frames: The maximum number of frames kept of a video; more are an error.
      shortest_side: Downscale larger frames so that their shortest side has this many pixels; None
        to leave them unchanged.
      max_pixels: The maximum number of pixels of a frame.

    Raises:
      SourceError: There is no such file, a video is in no directory that could be its class, or a
        number is less than 1.
      MissingDependencyError: PyAV or Pillow is not installed.
    """
    for name, value in (("every", every), ("max_frames", max_frames), ("max_pixels", max_pixels)):
        if value < 1:
            raise SourceError(f"video_folder: {name} is {value}.", fix=f"pass {name}=1 or more")
    for module in ("av", "PIL"):
        if importlib.util.find_spec(module) is None:
            raise missing_dependency(module, needed_for="reading videos")
    return folder(
        files(where, _VIDEO_ENDINGS),
        "video",
        labels=labels,
        convert=_VideoDecoder(every, max_frames, shortest_side, max_pixels),
        kind=pa.list_(pa.large_binary()),
        feature=functools.partial(
            tfds.features.Video, shape=(None, None, None, 3), encoding_format="jpeg"
        ),
    )


@dataclass(frozen=True)
class _VideoDecoder:
    every: int
    max_frames: int
    shortest_side: int | None
    max_pixels: int

    def __call__(self, data: bytes) -> list[bytes] | InvalidValue:
        import av

        if not data:
            return InvalidValue("video", "a video", "an empty file")
        frames: list[bytes] = []
        try:
            with av.open(io.BytesIO(data)) as video:
                if not video.streams.video:
                    return InvalidValue("video", "a video", "a file without a video stream")
                stream = video.streams.video[0]
                if stream.width * stream.height > self.max_pixels:
                    found = f"{stream.width:,} x {stream.height:,} pixels"
                    expected = f"frames of at most {self.max_pixels:,} pixels"
                    return InvalidValue("video", expected, found)
                for number, frame in enumerate(video.decode(stream)):
                    if number % self.every:
                        continue
                    if len(frames) == self.max_frames:
                        return InvalidValue("video", f"at most {self.max_frames:,} frames", "more")
                    frames.append(self._file(frame.to_image()))
        except (av.error.FFmpegError, OSError, ValueError) as error:
            return _undecodable("video", "a video", data, error)
        return frames or InvalidValue("video", "a video", "a file without frames")

    def _file(self, image: "PIL.Image.Image") -> bytes:
        import PIL.Image

        side = min(image.size)
        if self.shortest_side is not None and side > self.shortest_side:
            width, height = (max(1, round(n * self.shortest_side / side)) for n in image.size)
            image = image.resize((width, height), PIL.Image.Resampling.LANCZOS)
        out = io.BytesIO()
        image.convert("RGB").save(out, "JPEG", quality=_QUALITY)
        return out.getvalue()
