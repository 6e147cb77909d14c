"""Hashes of images and texts, noted while reading shards; similar items have similar hashes.

The perceptual hash of an image is that of `imagehash.phash`: which of the 64 lowest frequencies of
a discrete cosine transform of the image, grey and shrunk to 32 x 32 pixels, are stronger than their
median.

A text is the set of its five-character runs, in lower case, with everything but letters and digits
replaced by single spaces. Its MinHash signature is computed by `datasketch`; the share of equal
members of two signatures estimates the Jaccard similarity of the sets. The method: A. Broder, "On
the resemblance and containment of documents", Compression and Complexity of Sequences (1997).
"""

import contextlib
import functools
import importlib.util
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from my_datasets.core.arrays import Array
from my_datasets.dependencies import missing_dependency
from my_datasets.metadata.features import Leaf
from my_datasets.verification.shard_reading import OnExamples
from my_datasets.verification.split_rules import Rows, flat, is_flat

# An image: the example it is of, its hash, and whether the hash tells anything.
HASH_ROW = np.dtype([("example", "<i8"), ("hash", "<u8"), ("is_compared", "?")])
BITS = 64
# The hash uses this many pixels per side; for smaller images it is not meaningful.
SMALLEST = 32
# The minimum standard deviation of gray levels, of 256, of an image that is not blank.
_FLAT = 2.0

_BITS_OF = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(
    axis=1, dtype=np.uint8
)
Signatures = npt.NDArray[np.uint32]
# Numbers in a signature; similarities have an error of about 0.04.
SIZE = 128
# A text: its example, its signature, and a hash of the signature.
SIGNATURE_ROW = np.dtype([("example", "<i8"), ("hash", "<u8"), ("signature", "<u4", (SIZE,))])
# Texts with fewer characters are similar by chance, or are names.
SHORTEST = 32
_RUN = 5
# Runs to hash at once.
_AT_ONCE = 1 << 16
_NO_WORD = re.compile(r"[\W_]+")
_MIX = np.uint64(0x9E3779B97F4A7C15)


def has_images(leaf: Leaf) -> bool:
    """Returns whether a feature holds images that can be hashed."""
    return leaf.form == "image" and leaf.dtype in ("uint8", "uint16") and is_flat(leaf)


@dataclass(frozen=True)
class ImageHashes:
    """Notes the hash of each image of a feature, as `ROW`s."""

    name: str
    leaf: Leaf

    def __post_init__(self) -> None:
        for module in ("imagehash", "PIL"):
            if importlib.util.find_spec(module) is None:
                raise missing_dependency(module, needed_for="comparing images")

    def noting(self, target: Path) -> AbstractContextManager[OnExamples]:
        """See `shard_reading.ExampleObserver`."""
        return _noting(self.leaf, self._rows, target)

    @staticmethod
    def _rows(images: Any, examples: Rows) -> Array:
        rows = np.zeros(len(examples), HASH_ROW)
        rows["example"] = examples
        for number, image in enumerate(images):
            found = perceptual_hash(image)
            if found is not None:
                rows["hash"][number], rows["is_compared"][number] = found, True
        return rows


@contextlib.contextmanager
def _noting(
    leaf: Leaf, rows_of: Callable[[Any, Rows], Array], target: Path
) -> Iterator[OnExamples]:
    """Writes rows, given the items of a feature and the numbers of their examples in the shard."""
    begin = 0
    with target.open("wb") as file:

        def take(values: Any) -> None:
            nonlocal begin
            column = functools.reduce(lambda node, name: node[name], leaf.path, values)
            items, examples = flat(leaf, column)
            file.write(rows_of(items, examples + begin).data)
            begin += len(column)

        yield take


def perceptual_hash(image: Array) -> int | None:
    """Returns the hash of a uint8 or uint16 image; None if it is too small or blank.

    `image` has the shape [height, width, channels].
    """
    import imagehash
    from PIL import Image, ImageStat

    if min(image.shape[:2]) < SMALLEST:
        return None
    pixels = (image >> 8).astype(np.uint8) if image.dtype == np.uint16 else image
    # Two channels are gray and alpha, four have alpha.
    pixels = pixels[:, :, 0] if pixels.shape[2] < 3 else pixels[:, :, :3]
    grey = Image.fromarray(np.ascontiguousarray(pixels)).convert("L")
    if ImageStat.Stat(grey).stddev[0] < _FLAT:
        return None
    bits = imagehash.phash(grey).hash
    return int.from_bytes(np.packbits(bits.reshape(-1)).tobytes(), "big")


def distances(one: npt.NDArray[np.uint64], other: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Returns the Hamming distances of hashes; shape [n]."""
    differing = np.ascontiguousarray(one ^ other).view(np.uint8).reshape(-1, 8)
    found: npt.NDArray[np.int64] = _BITS_OF[differing].sum(axis=1, dtype=np.int64)
    return found


def has_texts(leaf: Leaf) -> bool:
    """Returns whether a feature holds texts."""
    return leaf.form == "bytes" and leaf.encoding == "none" and not leaf.shape and is_flat(leaf)


@dataclass(frozen=True)
class TextSignatures:
    """Notes the signature of each sufficiently long text of a feature, as `ROW`s."""

    name: str
    leaf: Leaf

    def __post_init__(self) -> None:
        if importlib.util.find_spec("datasketch") is None:
            raise missing_dependency("datasketch", needed_for="comparing texts")

    def noting(self, target: Path) -> AbstractContextManager[OnExamples]:
        """See `shard_reading.ExampleObserver`."""
        sign = SignatureMaker()

        def rows_of(texts: Any, examples: Rows) -> Array:
            found = [(n, s) for n, s in enumerate(map(sign, texts)) if s is not None]
            rows = np.zeros(len(found), SIGNATURE_ROW)
            if found:
                rows["example"] = examples[[number for number, _ in found]]
                rows["signature"] = [signature for _, signature in found]
                rows["hash"] = folded(rows["signature"])
            return rows

        return _noting(self.leaf, rows_of, target)


class SignatureMaker:
    """Makes signatures."""

    def __init__(self) -> None:
        from datasketch import MinHash

        # `runs` has hashed them already.
        self._sketch = MinHash(num_perm=SIZE, hashfunc=int)

    def __call__(self, text: bytes) -> Signatures | None:
        """Returns a text's signature, uint32 [128]; None if it is too short or not UTF-8."""
        found = runs(text)
        if found is None:
            return None
        self._sketch.clear()
        for begin in range(0, len(found), _AT_ONCE):
            self._sketch.update_batch(found[begin : begin + _AT_ONCE].tolist())
        signature: Signatures = self._sketch.hashvalues.astype(np.uint32)
        return signature


def runs(text: bytes) -> npt.NDArray[np.uint32] | None:
    """Returns the hashes of a text's distinct runs; None if it is too short or not UTF-8."""
    try:
        plain = _NO_WORD.sub(" ", text.decode("utf-8").casefold()).strip()
    except UnicodeDecodeError:
        return None
    if len(plain) < SHORTEST:
        return None
    characters = np.frombuffer(plain.encode("utf-32-le"), np.uint32).astype(np.uint64)
    found = np.zeros(len(characters) - _RUN + 1, np.uint64)
    for place in range(_RUN):
        found = _mixed(found, characters[place : place + len(found)])
    return np.unique((found >> np.uint64(32)).astype(np.uint32))


def folded(numbers: Array) -> npt.NDArray[np.uint64]:
    """Returns a hash of each row of numbers; shape [n]."""
    found = np.zeros(len(numbers), np.uint64)
    for column in numbers.T:
        found = _mixed(found, column.astype(np.uint64))
    return found


def similarities(one: Signatures, other: Signatures) -> npt.NDArray[np.float64]:
    """Returns estimated similarities of texts from their signatures, from 0 to 1; shape [n]."""
    found: npt.NDArray[np.float64] = (one == other).mean(axis=1)
    return found


def _mixed(
    hashes: npt.NDArray[np.uint64], numbers: npt.NDArray[np.uint64]
) -> npt.NDArray[np.uint64]:
    # Unsigned overflow is intended.
    mixed = (hashes ^ numbers) * _MIX
    found: npt.NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(29))
    return found
