"""Statistics of images: format and size from their headers, channel means from a sample."""

import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from my_datasets.statistics.distribution import Distribution
from my_datasets.statistics.numbers import summary_of

# Approximate number of images whose channels are sampled: those of examples with small hashes.
_SAMPLE = 100
_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8\xff"
# ITU T.81, table B.1: markers that begin a frame, which contains the size of the image.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# JPEG files with more pixels are decoded at a quarter of their height and width.
_LARGE = 128 * 128


def _whole() -> Distribution:
    return Distribution(whole=True)


@dataclass
class ImageStatistics:
    """Statistics of image files.

    Attributes:
      sizes: The file sizes in bytes.
      heights: The heights in pixels.
      widths: The widths in pixels.
      formats: The number of images per format; `other` if it is not PNG or JPEG, or damaged.
      expected: The expected number of examples, which determines the sampling rate.
      looked_at: The number of sampled images by their number of channels.
      sums: By number of channels, the sums over the sampled images of each channel's mean and mean
        square, scaled so that the maximum of the type is 1.
    """

    expected: int

    sizes: Distribution = field(default_factory=_whole)
    heights: Distribution = field(default_factory=_whole)
    widths: Distribution = field(default_factory=_whole)
    formats: Counter[str] = field(default_factory=Counter)
    looked_at: Counter[int] = field(default_factory=Counter)
    sums: dict[int, npt.NDArray[np.float64]] = field(default_factory=dict)

    def add(self, files: Sequence[memoryview], hashes: npt.NDArray[np.uint64]) -> None:
        """Adds images.

        Args:
          files: The image files.
          hashes: A number per image that decides whether it is sampled; shape [n].
        """
        sizes = []
        for file in files:
            form, *size = image_facts(file)
            self.formats[form] += 1
            sizes += [size] if size else []
        self.sizes.add(np.array([len(file) for file in files]))
        both = np.array(sizes, np.int64).reshape(-1, 2)
        self.heights.add(both[:, 0])
        self.widths.add(both[:, 1])
        share = min(1.0, _SAMPLE / max(self.expected, 1))
        # The sample depends only on the images and their number, not on their order.
        chosen = np.flatnonzero(hashes < share * 2.0**64)
        for place in chosen.tolist():
            self._look(files[place])

    def _look(self, file: memoryview) -> None:
        found = _colours(file)
        if found is not None:
            channels = found.shape[1]
            self.looked_at[channels] += 1
            self.sums[channels] = self.sums.get(channels, np.zeros_like(found)) + found

    def merge(self, other: "ImageStatistics") -> None:
        """Adds the statistics of other images."""
        self.sizes.merge(other.sizes)
        self.heights.merge(other.heights)
        self.widths.merge(other.widths)
        self.formats.update(other.formats)
        self.looked_at.update(other.looked_at)
        for channels, sums in other.sums.items():
            self.sums[channels] = self.sums.get(channels, np.zeros_like(sums)) + sums

    def summary(self) -> dict[str, object]:
        """Returns the images' entry in the manifest."""
        found: dict[str, object] = {
            "values": self.sizes.count,
            "formats": dict(sorted(self.formats.items())),
            "bytes": summary_of(self.sizes),
            "heights": summary_of(self.heights),
            "widths": summary_of(self.widths),
        }
        if self.looked_at:
            # Gray images among colored ones have no red channel.
            usual = min(self.looked_at, key=lambda number: (-self.looked_at[number], number))
            means, squares = self.sums[usual] / self.looked_at[usual]
            deviations = np.sqrt(np.maximum(squares - means**2, 0))
            found["channels"] = {
                "images": self.looked_at[usual],
                "means": [round(float(one), 6) for one in means],
                "stds": [round(float(one), 6) for one in deviations],
            }
        return found


def image_facts(file: memoryview) -> tuple[str] | tuple[str, int, int]:
    """Returns an image's format, height and width, or only `other` if they cannot be read."""
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
            # A marker may be preceded by fill bytes of 255.
            at += 1 if marker == 0xFF else 2 + size
    return ("other",)


def _colours(file: memoryview) -> npt.NDArray[np.float64] | None:
    """Returns the mean and the mean square of each channel, from 0 to 1; shape [2, channels].

    Returns None if the image cannot be decoded.
    """
    import cv2

    _, *size = image_facts(file)
    is_large = bytes(file[:3]) == _JPEG and len(size) == 2 and size[0] * size[1] > _LARGE
    flags = cv2.IMREAD_REDUCED_COLOR_4 if is_large else cv2.IMREAD_UNCHANGED
    try:
        image = cv2.imdecode(np.frombuffer(file, np.uint8), flags) if len(file) else None
    except cv2.error:
        return None
    if image is None or image.dtype.kind != "u":
        return None
    means, deviations = (one[:, 0] / np.iinfo(image.dtype).max for one in cv2.meanStdDev(image))
    found = np.stack([means, deviations**2 + means**2])
    # OpenCV's channels are blue, green, red.
    return found[:, [2, 1, 0, 3][: found.shape[1]]] if found.shape[1] >= 3 else found
