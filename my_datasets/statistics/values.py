"""Statistics of numbers and of class labels, and summaries for the manifest."""

import hashlib
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from my_datasets.core.arrays import Array
from my_datasets.records.tf_example.columns import Bytes, Places
from my_datasets.statistics import sketches
from my_datasets.statistics.sketches import Distinct, Distribution, Hashes, Top, mixed

_SHARES = [share / 100 for share in range(101)]
_BINS = 20
# Significant digits that do not depend on the order of summation.
_DIGITS = 9


@dataclass
class NumberStatistics:
    """Statistics of numbers.

    Attributes:
      dtype: NumPy's name of their type.
      distribution: The distribution of the finite ones.
      outside: The number of values that the type cannot represent and readers would get as another
        number.
      top: The most frequent values.
      is_sampled: Whether only a sample went into the histogram.
    """

    dtype: str
    distribution: Distribution = field(init=False)
    nan: int = 0
    infinite: int = 0
    outside: int = 0
    distinct: Distinct = field(default_factory=Distinct)
    top: Top = field(default_factory=Top)
    is_sampled: bool = False

    def __post_init__(self) -> None:
        self.distribution = Distribution(whole=np.dtype(self.dtype).kind in "biu")

    def add(self, values: Array, every: int = 1) -> None:
        """Adds an array of any shape, of the type itself or of the wider one in which it is stored.

        Only every n-th value goes into the histogram, which is enough for large tensors.
        """
        values = values.reshape(-1)
        if not values.size:
            return
        if values.dtype.kind == "f":
            is_finite = np.isfinite(values)
            if not is_finite.all():
                nan = int(np.isnan(values).sum())
                self.nan += nan
                self.infinite += int((~is_finite).sum()) - nan
                values = values[is_finite]
        elif np.dtype(self.dtype).itemsize < values.dtype.itemsize:
            is_inside = _is_within(self.dtype, values)
            if not is_inside.all():
                self.outside += int((~is_inside).sum())
                values = values[is_inside]
        if every > 1:
            self.is_sampled = True
            self.distribution.add(values, values[::every])
            return
        self.distribution.add(values)
        hashes = sketches.of_numbers(values)
        self.distinct.add(hashes)
        self.top.add(hashes, lambda place: values[place].item())

    def merge(self, other: "NumberStatistics") -> None:
        """Adds the statistics of the values that follow these."""
        self.distribution.merge(other.distribution)
        self.nan += other.nan
        self.infinite += other.infinite
        self.outside += other.outside
        self.is_sampled |= other.is_sampled
        self.distinct.merge(other.distinct)
        self.top.merge(other.top)

    def summary(self) -> dict[str, object]:
        """Returns the numbers' entry in the manifest."""
        odd = {"nan": self.nan, "infinite": self.infinite, "outside": self.outside}
        return {
            "values": self.distribution.count + self.nan + self.infinite + self.outside,
            **{name: count for name, count in odd.items() if count},
            **summary_of(self.distribution),
            **({"is_sampled": True} if self.is_sampled else _frequent(self.distinct, self.top)),
        }


@dataclass
class LabelStatistics:
    """The frequency of each class.

    Attributes:
      names: The names of the classes, as far as they are known.
      counts: The number of occurrences by class number; shape [classes].
      unknown: The number of labels that are -1, which stands for no class.
      outside: The number of labels that are not a class at all.
    """

    names: tuple[str, ...] | None
    counts: npt.NDArray[np.int64]
    unknown: int = 0
    outside: int = 0

    def add(self, values: Array, every: int = 1) -> None:  # noqa: ARG002
        """Adds labels of any dtype; `every` is ignored, because all of them are counted."""
        values = values.reshape(-1)
        is_class = (values >= 0) & (values < len(self.counts))
        if values.dtype.kind == "f":
            is_class &= values == np.floor(values)
        if not is_class.all():
            unknown = int((values == -1).sum())
            self.unknown += unknown
            self.outside += int((~is_class).sum()) - unknown
            values = values[is_class]
        self.counts += np.bincount(values.astype(np.int64), minlength=len(self.counts))

    def without_examples(self) -> list[str]:
        """Returns the classes that have no examples."""
        return [name for name, count in self._classes().items() if not count]

    def merge(self, other: "LabelStatistics") -> None:
        """Adds the statistics of other labels."""
        self.counts += other.counts
        self.unknown += other.unknown
        self.outside += other.outside

    def summary(self) -> dict[str, object]:
        """Returns the labels' entry in the manifest."""
        odd = {"unknown": self.unknown, "outside": self.outside}
        return {
            "values": int(self.counts.sum()) + self.unknown + self.outside,
            **{name: count for name, count in odd.items() if count},
            "classes": self._classes(),
        }

    def _classes(self) -> dict[str, int]:
        names = self.names or tuple(map(str, range(len(self.counts))))
        return dict(zip(names, self.counts.tolist(), strict=False))


def summary_of(distribution: Distribution) -> dict[str, object]:
    """Returns a distribution's entry in the manifest; empty if it has no numbers."""
    if not distribution.count:
        return {}
    whole = distribution.whole
    # Precision is relative to the largest number, not to a mean that is nearly zero.
    scale = max(abs(distribution.least), abs(distribution.most))
    quantiles = distribution.quantiles(_SHARES)
    edges, counts = distribution.histogram(_BINS)
    return {
        "min": _number(distribution.least, whole),
        "max": _number(distribution.most, whole),
        "mean": _rounded(float(distribution.mean), scale),
        "std": _rounded(distribution.deviation, scale),
        "percentiles": [_number(one, whole) for one in quantiles],
        "histogram": {"edges": edges, "counts": counts},
    }


def _frequent(distinct: Distinct, top: Top) -> dict[str, object]:
    """Returns the manifest's entry on distinct and frequent values."""
    return {
        "distinct": {"number": distinct.number, "is_exact": distinct.is_exact},
        "top": {
            "is_exact": top.is_exact,
            "values": [{"value": value, "count": count} for value, count in top.most()],
        },
    }


def _number(value: float, whole: bool) -> float | int:
    return int(value) if whole else value


def _rounded(value: float, scale: float) -> float:
    if not scale or not np.isfinite(value):
        return 0.0 if not scale else value
    digits = _DIGITS - 1 - int(np.floor(np.log10(scale)))
    # Beyond 300, the power of ten overflows.
    return round(value, digits) if abs(digits) < 300 else value


def _is_within(dtype: str, values: Array) -> npt.NDArray[np.bool_]:
    kind = np.dtype(dtype)
    low, high = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
    found: npt.NDArray[np.bool_] = (values >= low) & (values <= high)
    return found


# Longer texts, in bytes, are hashed one by one, which is just as fast for them.
_SHORT = 256
# Longer texts are not listed among the frequent ones.
_QUOTED = 64
_WORD = 8
_NOT_ASCII = np.uint64(0x8080808080808080)


@dataclass
class TextStatistics:
    """Statistics of texts, or of other bytes.

    Attributes:
      lengths: The lengths in characters, or in bytes for values that are not UTF-8.
      not_text: The number of values that are not UTF-8.
      top: The most frequent values of at most 64 bytes.
    """

    lengths: Distribution = field(default_factory=lambda: Distribution(whole=True))
    empty: int = 0
    not_text: int = 0
    distinct: Distinct = field(default_factory=Distinct)
    top: Top = field(default_factory=lambda: Top(is_of_texts=True))

    def add(self, data: Bytes, starts: Places, stops: Places) -> None:
        """Adds texts: starts and stops, of shape [n], in a buffer that `PADDING` bytes end."""
        if not len(starts):
            return
        hashes, is_ascii = hashed(data, starts, stops)
        lengths = stops - starts
        for place in np.flatnonzero(~is_ascii).tolist():
            try:
                text = bytes(data[starts[place] : stops[place]]).decode()
                lengths[place] = len(text)
            except UnicodeDecodeError:
                self.not_text += 1
        self.lengths.add(lengths)
        self.empty += int((starts == stops).sum())
        self.distinct.add(hashes)
        short = np.flatnonzero(stops - starts <= _QUOTED)

        def value(place: int) -> str:
            one = short[place]
            return bytes(data[starts[one] : stops[one]]).decode(errors="backslashreplace")

        self.top.add(hashes[short], value)

    def merge(self, other: "TextStatistics") -> None:
        """Adds the statistics of the texts that follow these."""
        self.lengths.merge(other.lengths)
        self.empty += other.empty
        self.not_text += other.not_text
        self.distinct.merge(other.distinct)
        self.top.merge(other.top)

    def summary(self) -> dict[str, object]:
        """Returns the texts' entry in the manifest."""
        odd = {"empty": self.empty, "not_text": self.not_text}
        return {
            "values": self.lengths.count,
            **{name: count for name, count in odd.items() if count},
            "lengths": summary_of(self.lengths),
            **_frequent(self.distinct, self.top),
        }


def hashed(data: Bytes, starts: Places, stops: Places) -> tuple[Hashes, npt.NDArray[np.bool_]]:
    """Returns a hash of each text, and whether it is all ASCII; each of shape [n].

    In the buffer, `PADDING` bytes follow the texts.
    """
    lengths = stops - starts
    words = np.ndarray((len(data) - _WORD + 1,), "<u8", data, strides=(1,))
    hashes = mixed(lengths.astype(np.uint64))
    seen = np.zeros(len(starts), np.uint64)
    left = np.flatnonzero((lengths > 0) & (lengths <= _SHORT))
    at = 0
    while len(left):
        found = words[starts[left] + at]
        over = np.maximum(0, _WORD - (lengths[left] - at)).astype(np.uint64) * np.uint64(8)
        found = found & (np.uint64(0xFFFFFFFFFFFFFFFF) >> over)
        seen[left] |= found
        hashes[left] = mixed(hashes[left] ^ found)
        at += _WORD
        left = left[lengths[left] > at]
    is_ascii = (seen & _NOT_ASCII) == 0
    for place in np.flatnonzero(lengths > _SHORT).tolist():
        text = bytes(data[starts[place] : stops[place]])
        is_ascii[place] = text.isascii()
        hashes[place] = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
    return hashes, is_ascii


# Approximate number of images whose channels are sampled: those of examples with small hashes.
_SAMPLE = 100
_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8\xff"
# ITU T.81, table B.1: markers that begin a frame, which contains the size of the image.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# JPEG files with more pixels are decoded at a quarter of their height and width.
_LARGE = 128 * 128


def _of_integers() -> Distribution:
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
      sampled: The number of sampled images by their number of channels.
      sums: By number of channels, the sums over the sampled images of each channel's mean and mean
        square, scaled so that the maximum of the type is 1.
    """

    expected: int

    sizes: Distribution = field(default_factory=_of_integers)
    heights: Distribution = field(default_factory=_of_integers)
    widths: Distribution = field(default_factory=_of_integers)
    formats: Counter[str] = field(default_factory=Counter)
    sampled: Counter[int] = field(default_factory=Counter)
    sums: dict[int, npt.NDArray[np.float64]] = field(default_factory=dict)

    def add(self, files: Sequence[memoryview], hashes: npt.NDArray[np.uint64]) -> None:
        """Adds image files; a number per image, shape [n], decides whether it is sampled."""
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
            found = _channel_moments(files[place])
            if found is not None:
                channels = found.shape[1]
                self.sampled[channels] += 1
                self.sums[channels] = self.sums.get(channels, np.zeros_like(found)) + found

    def merge(self, other: "ImageStatistics") -> None:
        """Adds the statistics of other images."""
        self.sizes.merge(other.sizes)
        self.heights.merge(other.heights)
        self.widths.merge(other.widths)
        self.formats.update(other.formats)
        self.sampled.update(other.sampled)
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
        if self.sampled:
            # Gray images among colored ones have no red channel.
            usual = min(self.sampled, key=lambda number: (-self.sampled[number], number))
            means, squares = self.sums[usual] / self.sampled[usual]
            deviations = np.sqrt(np.maximum(squares - means**2, 0))
            found["channels"] = {
                "images": self.sampled[usual],
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


def _channel_moments(file: memoryview) -> npt.NDArray[np.float64] | None:
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
