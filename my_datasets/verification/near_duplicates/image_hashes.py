"""Perceptual hashes of images, noted while shards are read: those of copies are nearly the same.

The hash is that of `imagehash.phash`: which of the 64 lowest frequencies of a discrete cosine
transform of the image, grey and shrunk to 32 x 32 pixels, are stronger than their median.
"""

import contextlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from my_datasets.dependencies import missing_dependency
from my_datasets.metadata.features import Leaf
from my_datasets.verification.observer import Take
from my_datasets.verification.splits.flat_values import flat, is_flat

# An image: the example it is of, its hash, and whether the hash tells anything.
ROW = np.dtype([("example", "<i8"), ("hash", "<u8"), ("is_compared", "?")])
BITS = 64
# The hash is taken of so many pixels a side: of smaller images it tells too little.
SMALLEST = 32
# The least standard deviation of grey levels, of 256, of an image that shows something.
_FLAT = 2.0


def has_images(leaf: Leaf) -> bool:
    """Returns whether a feature holds images that can be hashed."""
    return leaf.form == "image" and leaf.dtype in ("uint8", "uint16") and is_flat(leaf)


@dataclass(frozen=True)
class ImageHashes:
    """Notes the hash of each image of a feature, as `ROW`s.

    Attributes:
      name: For files.
      leaf: The feature.
    """

    name: str
    leaf: Leaf

    def __post_init__(self) -> None:
        for module in ("imagehash", "PIL"):
            if importlib.util.find_spec(module) is None:
                raise missing_dependency(module, needed_for="comparing images")

    @contextlib.contextmanager
    def noting(self, target: Path) -> Iterator[Take]:
        """See `watching.Watch`."""
        begin = 0
        with target.open("wb") as file:

            def take(values: Any) -> None:
                nonlocal begin
                column = values_of(values, self.leaf)
                images, examples = flat(self.leaf, column)
                rows = np.zeros(len(examples), ROW)
                rows["example"] = examples + begin
                for number, image in enumerate(images):
                    found = perceptual_hash(image)
                    if found is not None:
                        rows["hash"][number], rows["is_compared"][number] = found, True
                file.write(rows.data)
                begin += len(column)

            yield take


def values_of(values: Any, leaf: Leaf) -> Any:
    """Returns the column of a leaf in the values of some examples."""
    for name in leaf.path:
        values = values[name]
    return values


def perceptual_hash(image: npt.NDArray[Any]) -> int | None:
    """Returns the hash of an image; None if it is too small or shows nothing.

    Args:
      image: uint8 or uint16, of shape [height, width, channels].
    """
    import imagehash
    from PIL import Image, ImageStat

    if min(image.shape[:2]) < SMALLEST:
        return None
    pixels = (image >> 8).astype(np.uint8) if image.dtype == np.uint16 else image
    # Of two channels the first is grey; of four the last is not seen.
    pixels = pixels[:, :, 0] if pixels.shape[2] < 3 else pixels[:, :, :3]
    grey = Image.fromarray(np.ascontiguousarray(pixels)).convert("L")
    if ImageStat.Stat(grey).stddev[0] < _FLAT:
        return None
    bits = imagehash.phash(grey).hash
    return int.from_bytes(np.packbits(bits.reshape(-1)).tobytes(), "big")


def distances(one: npt.NDArray[np.uint64], other: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Returns in how many bits hashes differ; shape [n]."""
    differing = np.ascontiguousarray(one ^ other).view(np.uint8).reshape(-1, 8)
    found: npt.NDArray[np.int64] = _BITS_OF[differing].sum(axis=1, dtype=np.int64)
    return found


_BITS_OF = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(
    axis=1, dtype=np.uint8
)
