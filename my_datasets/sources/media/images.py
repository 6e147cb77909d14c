"""Folders of images."""

import importlib.util
import io
import warnings
from dataclasses import dataclass
from typing import Any

from my_datasets.building.units import Misfit
from my_datasets.dependencies import missing_dependency
from my_datasets.sources.features import image_feature
from my_datasets.sources.files.folders import caused, folder
from my_datasets.sources.files.listing import Where, files
from my_datasets.sources.source import Source

# What TFDS reads as images, by Pillow's names. A GIF is a film to it, of one dimension more.
_FORMATS = {"JPEG", "MPO", "PNG", "BMP"}
# Of images that are made smaller: what is lost cannot be seen.
_QUALITY = 95
_ENDINGS = (".jpg", ".jpeg", ".png", ".gif", ".bmp")


def image_folder(
    where: Where,
    *,
    labels: bool = True,
    decode: bool = False,
    max_pixels: int = 150_000_000,
    shortest_side: int | None = None,
) -> Source:
    """Returns the images of a folder: the columns `image`, `file_name`, and `label` if wanted.

    What is no image that TFDS reads as one (JPEG, PNG, BMP) is an error, or set aside. The
    files' bytes are stored as they are, unless the images are made smaller.

    Args:
      where: A directory, a pattern such as `folder/*/*.jpg`, or several files; paths, or URLs in an
        object store.
      labels: Whether the name of the directory in which an image lies is its class.
      decode: Whether to decode each image wholly, to find those that are damaged after their
        header; as slow as decoding is.
      max_pixels: The most pixels that an image may have by its header.
      shortest_side: Make larger images smaller, so that their shortest side has so many pixels,
        and store them as JPEG files of quality 95: once for all, not in each epoch. None to leave
        them as they are.

    Raises:
      SourceError: There is no such file, or an image lies in no directory that could be its class.
      MissingDependencyError: Pillow is not installed.
    """
    if importlib.util.find_spec("PIL") is None:
        raise missing_dependency("PIL", needed_for="reading images")
    found = files(where, _ENDINGS)
    check = _ImageCheck(decode, max_pixels, shortest_side)
    return folder(found, "image", labels=labels, convert=check, feature=image_feature)


@dataclass(frozen=True)
class _ImageCheck:
    """Sees that bytes are an image that TFDS reads.

    Attributes:
      decode: Whether to decode it wholly.
      max_pixels: The most pixels it may have.
      shortest_side: How many pixels its shortest side may have before it is made smaller.
    """

    decode: bool
    max_pixels: int
    shortest_side: int | None = None

    def __call__(self, data: bytes) -> bytes | Misfit:
        """Returns an image as it is to be stored, or what is wrong with it."""
        import PIL.Image

        if not data:
            return Misfit("image", "an image", "an empty file")
        try:
            with warnings.catch_warnings():
                # Its own limit is only a warning; ours is below.
                warnings.simplefilter("ignore", PIL.Image.DecompressionBombWarning)
                image = PIL.Image.open(io.BytesIO(data))
            width, height = image.size
            if image.format not in _FORMATS:
                return Misfit("image", "a JPEG, PNG or BMP file", f"a {image.format} file")
            if width * height > self.max_pixels:
                found = f"{width:,} x {height:,} pixels"
                return Misfit("image", f"at most {self.max_pixels:,} pixels", found)
            if self.shortest_side is not None and min(width, height) > self.shortest_side:
                return _smaller(image, self.shortest_side)
            if self.decode or self.shortest_side is not None:
                image.load()
        except PIL.Image.DecompressionBombError as error:
            return caused(error, "image", f"at most {self.max_pixels:,} pixels", "many more")
        except (OSError, SyntaxError, ValueError) as error:
            found = f"{len(data):,} bytes that start with {data[:8]!r}"
            return caused(error, "image", "an image", found)
        return data


def _smaller(image: Any, side: int) -> bytes:
    import PIL.Image

    scale = side / min(image.size)
    size = tuple(max(side, round(length * scale)) for length in image.size)
    out = io.BytesIO()
    # Not turned by what its EXIF data say: TensorFlow does not turn images, either.
    small = image.convert("RGB").resize(size, PIL.Image.Resampling.LANCZOS)
    small.save(out, "JPEG", quality=_QUALITY)
    return out.getvalue()
