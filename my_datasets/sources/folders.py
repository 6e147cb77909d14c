"""Folders of files, each of which is an example: images, or any binaries."""

import importlib.util
import io
import posixpath
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from my_datasets.building.units import Misfit
from my_datasets.dependencies import missing_dependency
from my_datasets.errors import SourceError, explain
from my_datasets.sources.files import File
from my_datasets.sources.listing import Where, files
from my_datasets.sources.source import Source

# A unit has this many files, and about so many bytes of them are held at once.
_FILES, _BYTES = 256, 16 << 20
# A larger file than this is taken for a mistake.
LARGEST_FILE = 1 << 30
# What TensorFlow decodes, by Pillow's names.
_FORMATS = {"JPEG", "MPO", "PNG", "GIF", "BMP"}
_IMAGES = (".jpg", ".jpeg", ".png", ".gif", ".bmp")


def binary_files(where: Where, *, endings: Sequence[str] = (), column: str = "data") -> Source:
    """Returns the contents of files; their paths below the common directory are the keys.

    Args:
      where: A directory, a pattern such as `folder/*.bin`, or several files; paths, or URLs in an
        object store.
      endings: Which files of a directory are meant, by the endings of their names; all if empty.
      column: What the column of the contents is to be called. There is another one, `file_name`.

    Raises:
      SourceError: There is no such file.
    """
    schema = pa.schema([(column, pa.large_binary()), ("file_name", pa.large_string())])
    return Source(_FileReader(schema), _groups(files(where, endings)), schema)


def image_folder(
    where: Where, *, labels: bool = True, decode: bool = False, max_pixels: int = 150_000_000
) -> Source:
    """Returns the images of a folder: the columns `image`, `file_name`, and `label` if wanted.

    What is no image that TensorFlow decodes (JPEG, PNG, GIF, BMP) is an error, or set aside. The
    files' bytes are stored as they are.

    Args:
      where: A directory, a pattern such as `folder/*/*.jpg`, or several files; paths, or URLs in an
        object store.
      labels: Whether the name of the directory in which an image lies is its class.
      decode: Whether to decode each image wholly, to find those that are damaged after their
        header; as slow as decoding is.
      max_pixels: The most pixels that an image may have by its header.

    Raises:
      SourceError: There is no such file, or an image lies in no directory that could be its class.
      MissingDependencyError: Pillow is not installed.
    """
    if importlib.util.find_spec("PIL") is None:
        raise missing_dependency("PIL", needed_for="reading images")
    found = files(where, _IMAGES)
    fields = [("image", pa.large_binary()), ("file_name", pa.large_string())]
    if labels:
        classes = [posixpath.basename(posixpath.dirname(file.location)) for file in found]
        if len(found) > 1 and not all(posixpath.dirname(file.name) for file in found):
            loose = next(file for file in found if not posixpath.dirname(file.name))
            raise SourceError(
                explain(
                    f"{loose} lies in no directory that could be its class.",
                    f"Expected directories such as {classes[0]} with the images of a class each",
                    mend="give the directory above those of the classes, or labels=False",
                )
            )
        fields.append(("label", pa.large_string()))
    schema = pa.schema(fields)
    check = ImageCheck(decode, max_pixels)
    return Source(_FileReader(schema, check), _groups(found), schema)


@dataclass(frozen=True)
class ImageCheck:
    """Sees that bytes are an image that TensorFlow decodes.

    Attributes:
      decode: Whether to decode it wholly.
      max_pixels: The most pixels it may have.
    """

    decode: bool
    max_pixels: int

    def __call__(self, data: bytes) -> Misfit | None:
        """Returns what is wrong with an image; None if nothing is."""
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
                return Misfit("image", "a JPEG, PNG, GIF or BMP file", f"a {image.format} file")
            if width * height > self.max_pixels:
                found = f"{width:,} x {height:,} pixels"
                return Misfit("image", f"at most {self.max_pixels:,} pixels", found)
            if self.decode:
                image.load()
        except PIL.Image.DecompressionBombError as error:
            return _caused(error, f"at most {self.max_pixels:,} pixels", "many more")
        except (OSError, SyntaxError, ValueError) as error:
            return _caused(error, "an image", f"{len(data):,} bytes that start with {data[:8]!r}")
        return None


@dataclass(frozen=True)
class _FileReader:
    schema: pa.Schema
    check: ImageCheck | None = None

    def __call__(self, group: Sequence[File]) -> Iterator[tuple[Any, Any]]:
        rows: list[tuple[File, bytes]] = []
        size = 0
        for file in group:
            key = file.name or posixpath.basename(file.location)
            if file.size > LARGEST_FILE:
                found = f"{file.size:,} bytes"
                column = self.schema.names[0]
                yield key, Misfit(column, f"at most {LARGEST_FILE:,} bytes", found)
                continue
            try:
                with file.open() as stream:
                    data = stream.read()
            except SourceError as error:
                yield key, _caused(error, "a whole file", "a damaged one", self.schema.names[0])
                continue
            misfit = self.check(data) if self.check is not None else None
            if misfit is not None:
                yield key, misfit
                continue
            rows.append((file, data))
            size += len(data)
            if size >= _BYTES:
                yield self._batch(rows)
                rows, size = [], 0
        if rows:
            yield self._batch(rows)

    def _batch(self, rows: list[tuple[File, bytes]]) -> tuple[pa.Array, pa.RecordBatch]:
        names = [file.name or posixpath.basename(file.location) for file, _ in rows]
        columns = [[data for _, data in rows], names]
        if "label" in self.schema.names:
            columns.append(
                [posixpath.basename(posixpath.dirname(file.location)) for file, _ in rows]
            )
        keys = pa.array(names)
        arrays = [pa.array(c, kind) for c, kind in zip(columns, self.schema.types, strict=True)]
        return keys, pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _caused(error: Exception, expected: str, found: str, column: str = "image") -> Misfit:
    misfit = Misfit(column, expected, found)
    misfit.__cause__ = error
    return misfit


def _groups(found: list[File]) -> list[list[File]]:
    return [found[i : i + _FILES] for i in range(0, len(found), _FILES)]
