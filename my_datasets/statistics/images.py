"""Statistics of images: their files by their first bytes, their colours by a sample."""

import importlib.util
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from my_datasets.statistics.distribution import Distribution
from my_datasets.statistics.numbers import summary_of

# So many images are decoded for the statistics of their colours: those of the smallest hashes.
_SAMPLE = 200
_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8\xff"
# ITU T.81, table B.1: markers that begin a frame, which tells the size of the image.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# JPEG files of more pixels are decoded at a quarter of their sides.
_LARGE = 512 * 512


def _whole() -> Distribution:
    return Distribution(whole=True)


@dataclass
class Images:
    """Statistics of image files.

    Attributes:
      sizes: Of the files, in bytes.
      heights: In pixels.
      widths: In pixels.
      formats: How many are of each format; `other` if it is not PNG or JPEG, or damaged.
      sample: (hash, mean and mean square of each channel, from 0 to the most of its type) of the
        images with the smallest hashes.
    """

    sizes: Distribution = field(default_factory=_whole)
    heights: Distribution = field(default_factory=_whole)
    widths: Distribution = field(default_factory=_whole)
    formats: Counter[str] = field(default_factory=Counter)
    sample: list[tuple[int, tuple[float, ...], tuple[float, ...]]] = field(default_factory=list)

    def add(self, files: Sequence[memoryview], hashes: Sequence[int]) -> None:
        """Adds images.

        Args:
          files: Their files.
          hashes: A number of each that chooses the sample, 64 random bits that are always the same.
        """
        sizes = []
        for file in files:
            form, *size = looked_at(file)
            self.formats[form] += 1
            sizes += [size] if size else []
        self.sizes.add(np.array([len(file) for file in files]))
        both = np.array(sizes, np.int64).reshape(-1, 2)
        self.heights.add(both[:, 0])
        self.widths.add(both[:, 1])
        if importlib.util.find_spec("cv2") is not None:
            for place in np.argsort(np.array(hashes, np.uint64), kind="stable")[:_SAMPLE].tolist():
                if len(self.sample) == _SAMPLE and hashes[place] >= self.sample[-1][0]:
                    break
                found = _colours(files[place])
                if found is not None:
                    self._keep([(hashes[place], *found)])

    def _keep(self, more: Sequence[tuple[int, tuple[float, ...], tuple[float, ...]]]) -> None:
        self.sample = sorted([*self.sample, *more])[:_SAMPLE]

    def merge(self, other: "Images") -> None:
        """Adds others."""
        self.sizes.merge(other.sizes)
        self.heights.merge(other.heights)
        self.widths.merge(other.widths)
        self.formats.update(other.formats)
        self._keep(other.sample)

    def summary(self) -> dict[str, Any]:
        """Returns what the manifest tells of them."""
        found: dict[str, Any] = {
            "values": self.sizes.count,
            "formats": dict(sorted(self.formats.items())),
            "bytes": summary_of(self.sizes),
            "heights": summary_of(self.heights),
            "widths": summary_of(self.widths),
        }
        channels = Counter(len(means) for _, means, _ in self.sample)
        if channels:
            # Grey images among coloured ones have no red to speak of.
            usual = min(channels, key=lambda number: (-channels[number], number))
            some = [one for one in self.sample if len(one[1]) == usual]
            means = np.mean([means for _, means, _ in some], axis=0)
            squares = np.mean([squares for _, _, squares in some], axis=0)
            deviations = np.sqrt(np.maximum(squares - means**2, 0))
            found["channels"] = {
                "images": len(some),
                "means": [round(float(one), 6) for one in means],
                "stds": [round(float(one), 6) for one in deviations],
            }
        return found


def looked_at(file: memoryview) -> tuple[str] | tuple[str, int, int]:
    """Returns an image's format, height and width; `other` alone if they are not to be seen."""
    start = bytes(file[:24])
    if start.startswith(_PNG) and len(start) == 24:
        width, height = struct.unpack(">II", start[16:24])
        return "png", height, width
    if start.startswith(_JPEG):
        at = 2
        while at + 9 <= len(file) and file[at] == 0xFF:
            marker, size = file[at + 1], file[at + 2] << 8 | file[at + 3]
            if marker in _FRAMES:
                height, width = struct.unpack(">HH", file[at + 5 : at + 9])
                return "jpeg", height, width
            # A marker may be filled up with bytes of 255.
            at += 1 if marker == 0xFF else 2 + size
    return ("other",)


def _colours(file: memoryview) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Returns the mean and the mean square of each channel; None of what cannot be decoded."""
    import cv2

    _, *size = looked_at(file)
    is_large = bytes(file[:3]) == _JPEG and len(size) == 2 and size[0] * size[1] > _LARGE
    flags = cv2.IMREAD_REDUCED_COLOR_4 if is_large else cv2.IMREAD_UNCHANGED
    try:
        image = cv2.imdecode(np.frombuffer(file, np.uint8), flags) if len(file) else None
    except cv2.error:
        return None
    if image is None:
        return None
    pixels = image.reshape(image.shape[0] * image.shape[1], -1)
    if pixels.shape[1] >= 3:
        pixels = pixels[:, [2, 1, 0, 3][: pixels.shape[1]]]  # of blue, green, red
    scaled = pixels / np.float64(np.iinfo(pixels.dtype).max)
    return (
        tuple(round(float(one), 9) for one in scaled.mean(0)),
        tuple(round(float(one), 9) for one in np.square(scaled).mean(0)),
    )
