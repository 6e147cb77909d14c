"""Reads folders of images."""

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

# The formats that TFDS reads as images, by Pillow's names. A GIF is a video to TFDS, with one more
# dimension.
_FORMATS = {"JPEG", "MPO", "PNG", "BMP"}
# JPEG quality of downscaled images: the loss is not visible.
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
    found = files(where, _ENDINGS)
    check = _ImageCheck(decode, max_pixels, shortest_side)
    return folder(found, "image", labels=labels, convert=check, feature=image_feature)


@dataclass(frozen=True)
class _ImageCheck:
    """Checks that bytes are an image that TFDS can read.

    Attributes:
      decode: Whether to decode it completely.
      max_pixels: The maximum number of pixels.
      shortest_side: Images whose shortest side has more pixels are downscaled.
    """

    decode: bool
    max_pixels: int
    shortest_side: int | None = None

    def __call__(self, data: bytes) -> bytes | Misfit:
        """Returns the image as it is stored, or what is wrong with it."""
        import PIL.Image

        if not data:
            return Misfit("image", "an image", "an empty file")
        try:
            with warnings.catch_warnings():
                # Pillow's own limit is only a warning; ours is below.
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
    # EXIF orientation is not applied, because TensorFlow does not apply it either.
    small = image.convert("RGB").resize(size, PIL.Image.Resampling.LANCZOS)
    small.save(out, "JPEG", quality=_QUALITY)
    return out.getvalue()
