"""Prepares a few examples for pages: pictures, sounds, texts and numbers."""

import io
import wave
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from my_datasets.catalog import plots
from my_datasets.catalog.first_records import Beginning, decoded
from my_datasets.catalog.plots import number, shortened
from my_datasets.core.arrays import Array
from my_datasets.dependencies import missing_dependency
from my_datasets.errors import MyDatasetsError, problem_of
from my_datasets.exporting.version_summary import Feature
from my_datasets.input_pipeline.decode.decoder import FeatureMismatchError
from my_datasets.metadata.features import Leaf, leaves_of
from my_datasets.metadata.version_metadata import VersionMetadata
from my_datasets.records.shard_reader import DamagedError, UnknownFormatError

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

Signal = npt.NDArray[np.float32]
_PIECES = 120
_SECONDS = 10
_CHANNELS = 2

# Why examples cannot be read.
UNREADABLE = (
    MyDatasetsError, FeatureMismatchError, DamagedError, UnknownFormatError, ImportError, OSError,
    MemoryError,
)  # fmt: skip
# The number of examples to show, by kind.
_PICTURES = 12
_SOUNDS = 6
_ROWS = 10
# Pictures per example, from a video or a list of images.
_FRAMES = 4
_BOXES = 50
# Characters of a text to show collapsed and expanded.
_SHORT = 160
_LONGEST = 4000
_NUMBERS = 8


def largest(pixels: "Array | list[Array]") -> float:
    """Returns the maximum of an image or a list of images."""
    if isinstance(pixels, list) or pixels.dtype.kind == "O":
        return max((largest(one) for one in pixels), default=0.0)
    return float(np.max(pixels, initial=0))


def white_level(dtype: str, most: float) -> float:
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


def scaled(samples: Array, dtype: str) -> Signal:
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


def encoded_sound(signal: Signal, rate: int) -> tuple[bytes, bool]:
    """Returns the beginning of a sound as a WAV file, and whether there is more."""
    played = signal[: _SECONDS * rate]
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(played.shape[1])
        writer.setsampwidth(2)
        writer.setframerate(rate)
        writer.writeframes(np.rint(played * 32767).astype("<i2").tobytes())
    return file.getvalue(), len(signal) > len(played)


def plot(signal: Signal, title: str, seconds: float) -> Markup:
    """Returns the waveform of a sound; `seconds` is its duration, or 0 if unknown."""
    edges = np.linspace(0, len(signal), min(_PIECES, len(signal)) + 1).astype(int)
    pieces = [signal[a:b] for a, b in pairwise(edges.tolist())]
    peaks = [(float(one.min()), float(one.max())) for one in pieces]
    loudest = float(np.abs(signal).max())
    length = f"{number(round(seconds, 2))} seconds" if seconds else f"{len(signal):,} samples"
    return plots.waveform(peaks, title, f"{length}, peak {loudest:.0%} of full scale")


@dataclass(frozen=True)
class Box:
    """A bounding box, relative to the picture's size."""

    x: float
    y: float
    width: float
    height: float
    label: str


@dataclass(frozen=True)
class Picture:
    """A picture of a feature; `width` and `height` are those of the stored image.

    `is_small` says whether to show each pixel as a square.
    """

    feature: str
    file: str
    width: int
    height: int
    is_small: bool
    boxes: tuple[Box, ...] = ()


@dataclass(frozen=True)
class Sound:
    """A sound of a feature, and its waveform.

    Attributes:
      file: The name of its file; empty if it cannot be played.
      seconds: Its duration; 0 if unknown.
      is_cut: Whether the file has only its beginning.
    """

    feature: str
    file: str
    seconds: float
    is_cut: bool
    plot: Markup


@dataclass(frozen=True)
class Value:
    """A value as text; `rest` has all of it if `text` is cut off."""

    text: str
    rest: str = ""
    is_number: bool = False


@dataclass(frozen=True)
class Sample:
    """An example, named like `train[3]`, with its values other than media by feature."""

    name: str
    pictures: tuple[Picture, ...] = ()
    sounds: tuple[Sound, ...] = ()
    values: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Samples:
    """The first examples of a split, with the contents of media files by name.

    Attributes:
      note: A remark, or why there are no examples.
      first: Where these and the following examples are stored.
    """

    split: str = ""
    samples: tuple[Sample, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    note: str = ""
    first: Beginning | None = None

    @property
    def has_media(self) -> bool:
        """Whether there are pictures or sounds."""
        return any(one.pictures or one.sounds for one in self.samples)


def samples(version_dir: Path, first: Beginning | None, declared: Sequence[Feature]) -> Samples:
    """Returns the first examples of a version with the features `declared`."""
    if first is None:
        return Samples(note="It has no examples.")
    try:
        leaves = leaves_of(VersionMetadata(version_dir).tree)
        is_of_images = any(leaf.form == "image" for leaf in leaves)
        is_of_sounds = any(_is_sound(leaf, declared) for leaf in leaves)
        count = _PICTURES if is_of_images else _SOUNDS if is_of_sounds else _ROWS
        rows = decoded(version_dir, first.records()[:count])
    except UnknownFormatError as error:
        return Samples(note=f"Its examples cannot be shown: {error} files are not read here.")
    except UNREADABLE as error:
        return Samples(note=f"Its examples cannot be shown: {problem_of(error)}")
    return replace(_SampleConverter(first.split, leaves, declared).samples(rows), first=first)


def _is_sound(leaf: Leaf, declared: Sequence[Feature]) -> bool:
    return leaf.form == "number" and any(
        one.name == leaf.name and one.kind == "audio" for one in declared
    )


class _SampleConverter:
    """Converts examples to samples."""

    def __init__(self, split: str, leaves: Sequence[Leaf], declared: Sequence[Feature]) -> None:
        self._split = split
        self._files: dict[str, bytes] = {}
        self._notes: list[str] = []
        kinds = {one.name: one.kind for one in declared}
        self._pictures = [leaf for leaf in leaves if leaf.form == "image"]
        self._sounds = [leaf for leaf in leaves if _is_sound(leaf, declared)]
        self._boxes = [leaf for leaf in leaves if kinds.get(leaf.name) == "bounding box"]
        media = {*self._pictures, *self._sounds}
        # Boxes are drawn only if there is exactly one picture.
        self._draws_boxes = len(self._pictures) == 1 and not self._pictures[0].sequence
        media |= set(self._boxes) if self._draws_boxes else set()
        self._others = [leaf for leaf in leaves if leaf not in media]

    def samples(self, rows: Sequence[Any]) -> Samples:
        """Returns the samples of examples."""
        brightest = {leaf: self._brightest(leaf, rows) for leaf in self._pictures}
        found = tuple(
            Sample(
                f"{self._split}[{at}]",
                tuple(self._pictures_of(at, row, brightest)),
                tuple(self._sounds_of(at, row)),
                {leaf.name: _value(leaf, _of(row, leaf)) for leaf in self._others},
            )
            for at, row in enumerate(rows)
        )
        return Samples(self._split, found, self._files, " ".join(self._notes))

    def _brightest(self, leaf: Leaf, rows: Sequence[Any]) -> float:
        """Returns the value to show as white."""
        found = max((largest(_of(row, leaf)) for row in rows), default=0.0)
        white = white_level(leaf.dtype, found)
        if white != white_level(leaf.dtype, np.inf):
            self._notes.append(
                f"The values of {leaf.name or 'the image'} are at most {number(found)}, so it is "
                "shown brightened."
            )
        return white

    def _pictures_of(self, at: int, row: Any, brightest: Mapping[Leaf, float]) -> Iterator[Picture]:
        for number_of_leaf, leaf in enumerate(self._pictures):
            given = _of(row, leaf)
            frames = list(given)[:_FRAMES] if leaf.sequence else [given]
            boxes = tuple(self._boxes_of(row))[:_BOXES] if self._draws_boxes else ()
            for frame, pixels in enumerate(frames):
                if pixels.ndim != 3 or not pixels.size:
                    continue
                data, suffix = encoded_picture(pixels, brightest[leaf])
                name = f"{at}-{number_of_leaf}-{frame}.{suffix}"
                self._files[name] = data
                height, width = pixels.shape[:2]
                yield Picture(leaf.name, name, width, height, is_small(pixels), boxes)

    def _boxes_of(self, row: Any) -> Iterator[Box]:
        """Yields the boxes of an example; TFDS stores (top, left, bottom, right) from 0 to 1."""
        for leaf in self._boxes:
            places = np.asarray(_of(row, leaf), np.float64).reshape(-1, 4)
            labels = self._labels(leaf, row, len(places))
            for (top, left, bottom, right), label in zip(places.tolist(), labels, strict=True):
                if 0 <= top <= bottom <= 1 and 0 <= left <= right <= 1:
                    yield Box(left, top, right - left, bottom - top, label)

    def _labels(self, box: Leaf, row: Any, count: int) -> list[str]:
        """Returns the names of boxes, from a label feature beside them."""
        for leaf in self._others:
            if leaf.labels is not None and leaf.path[:-1] == box.path[:-1]:
                given = np.asarray(_of(row, leaf)).reshape(-1)
                if len(given) == count:
                    return [_label(leaf, int(one)) for one in given]
        return [""] * count

    def _sounds_of(self, at: int, row: Any) -> Iterator[Sound]:
        for number_of_leaf, leaf in enumerate(self._sounds):
            signal = scaled(np.asarray(_of(row, leaf)), leaf.dtype)
            if not len(signal):
                continue
            name, seconds, is_cut = "", 0.0, False
            if leaf.sample_rate:
                seconds = len(signal) / leaf.sample_rate
                name = f"{at}-sound-{number_of_leaf}.wav"
                self._files[name], is_cut = encoded_sound(signal, leaf.sample_rate)
            title = f"Waveform of {leaf.name or 'the sound'} in {self._split}[{at}]"
            yield Sound(leaf.name, name, seconds, is_cut, plot(signal, title, seconds))


def _of(row: Any, leaf: Leaf) -> Any:
    """Returns the value of a leaf in an example."""
    for name in leaf.path:
        row = row[name]
    return row


def _label(leaf: Leaf, value: int) -> str:
    names = leaf.labels or ()
    return names[value] if 0 <= value < len(names) else str(value)


def _value(leaf: Leaf, given: Any) -> Value:
    is_array = isinstance(given, np.ndarray) and given.ndim
    if is_array or isinstance(given, list):  # lists in lists
        flat = given.reshape(-1) if is_array else given
        inner = ", ".join(_value(leaf, one).text for one in flat[:_NUMBERS])
        has_shape = is_array and given.ndim > 1
        shape = f", shape {'x'.join(map(str, given.shape))}" if has_shape else ""
        return Value(f"[{inner}{', …' if len(flat) > _NUMBERS else ''}]{shape}")
    if isinstance(given, (bytes, np.bytes_)):
        return _text(bytes(given))
    if leaf.labels is not None:
        return Value(_label(leaf, int(given)))
    if np.dtype(leaf.dtype).kind == "b":
        return Value("true" if given else "false")
    text = number(float(given)) if np.dtype(leaf.dtype).kind == "f" else f"{int(given)}"
    return Value(text, is_number=True)


def _text(given: bytes) -> Value:
    text = given[: 4 * _LONGEST].decode("utf-8", "backslashreplace")
    if len(text) <= _SHORT:
        return Value(text)
    return Value(shortened(text, _SHORT), shortened(text, _LONGEST))
