"""Decodes records into columns of many examples at once, with the values that `tfds.load` yields.

TFDS's encoding of features is in `tensorflow_datasets/core/example_serializer.py`.
"""

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from my_datasets.core.arrays import Array
from my_datasets.errors import OutOfMemoryError
from my_datasets.input_pipeline.decode import images, pytree
from my_datasets.input_pipeline.decode.images import Crop, Draws, aligned
from my_datasets.input_pipeline.decode.missing import FilledLeaf, MaskLeaf, given_by_tfds
from my_datasets.input_pipeline.decode.pytree import Columns, Leaves, Ragged, available_memory
from my_datasets.input_pipeline.stopwatch import timed
from my_datasets.metadata.features import Leaf
from my_datasets.printable import PrintableError
from my_datasets.records.random_access import RecordBatch
from my_datasets.records.tf_example.columns import (
    MOST_TENSOR_BYTES,
    Column,
    UnreadableRecordError,
    tensor_bytes,
)
from my_datasets.records.tf_example.encoding import Kind
from my_datasets.records.tf_example.parsing import Parser

_Shape: TypeAlias = Sequence[int | None]


class FeatureMismatchError(PrintableError):
    """Values do not match the declaration of their feature.

    Attributes:
      rows: The rows at fault, or the first of them.
      feature: The feature's name; empty if the record as a whole is at fault.
    """

    def __init__(self, rows: Sequence[int], feature: str, expected: str, found: str) -> None:
        super().__init__(f"{feature}: expected {expected}, found {found}")
        self.rows, self.feature, self.expected, self.found = rows, feature, expected, found


class UndecodableImagesError(FeatureMismatchError):
    """Images cannot be decoded; `rows` lists all of them."""


@dataclass(frozen=True)
class Decoder:
    """Decodes records.

    Attributes:
      tree: The leaves to decode, nested like the values; others are ignored.
      image_size: (height, width) to resize images to; None to leave their size.
      crop: Chooses the part of images to resize; None for the whole image.
      floats: Whether images become floats from 0 to 1.
    """

    tree: Leaves
    image_size: tuple[int, int] | None = None
    crop: Crop | None = None
    floats: bool = False
    _columns: "Mapping[tuple[str, ...], _Values]" = field(init=False, repr=False, compare=False)
    _parser: Parser = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        columns = {leaf.path: self._column_of(leaf) for leaf in pytree.columns_of(self.tree)}
        kinds = {key: kind for column in columns.values() for key, kind in column.kinds.items()}
        object.__setattr__(self, "_columns", columns)
        object.__setattr__(self, "_parser", Parser(list(kinds), kinds))

    @property
    def has_images(self) -> bool:
        """Whether a leaf is an image, which `image_size` changes."""
        return any(isinstance(column, _Images) for column in self._columns.values())

    def __call__(self, batch: RecordBatch, draws: Draws | None = None) -> Columns:
        """Returns the values of records, nested like the tree.

        For each leaf, that is an array of shape [n, ...], of `object` for bytes and for images of
        different sizes; or a `Ragged`. The draws, of shape [n, 4], are for the crop of each record.

        Raises:
          FeatureMismatchError: A record does not match the features.
          OutOfMemoryError: Decompressed tensors take more than half of the remaining memory.
        """
        try:
            with timed("parse"):
                parsed = self._parser(batch.data, batch.starts, batch.stops)
        except UnreadableRecordError as error:
            raise FeatureMismatchError([error.row], "", "a tf.Example", error.reason) from error
        reading = _Reading(batch, parsed, draws)
        with timed("decode"):
            return pytree.map_columns(lambda leaf: self._columns[leaf.path](reading), self.tree)

    def _column_of(self, leaf: Leaf) -> "_Values":
        if isinstance(leaf, MaskLeaf):
            return _Mask(leaf)
        if leaf.has_shapes:
            return _Dynamic(leaf)
        if leaf.is_nested:
            return _Nested(leaf)
        if leaf.form == "image":
            channels = leaf.shape[-1] if leaf.shape else None
            decoder = images.ImageDecoder(channels, leaf.dtype, self.image_size, self.crop)
            return _Images(leaf, decoder, self.floats)
        return _Values(leaf)


@dataclass(frozen=True)
class _Reading:
    """Parsed records."""

    batch: RecordBatch
    columns: Mapping[str, Column]
    draws: Draws | None

    def texts(self, column: Column) -> list[bytes]:
        """Returns the values of a column of bytes."""
        if self.batch.is_short and column.starts is not None and column.stops is not None:
            data = self.batch.text
            places = zip(column.starts.tolist(), column.stops.tolist(), strict=True)
            return [data[a:b] for a, b in places]
        return [bytes(view) for view in self.views(column)]

    def views(self, column: Column) -> list[memoryview]:
        """Returns the values of a column of bytes, without a copy."""
        if column.starts is None or column.stops is None:
            return []
        view = self.batch.data.data
        places = zip(column.starts.tolist(), column.stops.tolist(), strict=True)
        return [view[a:b] for a, b in places]


@dataclass(frozen=True)
class _Values:
    """Decodes a leaf whose values are one list in the record."""

    leaf: Leaf

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """The kind of list under each key of the record; all but the first hold sizes."""
        return {**dict.fromkeys(self.leaf.keys, Kind.INT64), self.leaf.keys[0]: self._kind}

    @property
    def _kind(self) -> Kind:
        if self.leaf.form != "number" or self.leaf.encoding != "none":
            return Kind.BYTES
        return Kind.FLOAT if np.dtype(self.leaf.dtype).kind == "f" else Kind.INT64

    def __call__(self, reading: _Reading) -> Array | Ragged:
        column = reading.columns[self.leaf.keys[0]]
        shape = (*self.leaf.sequence, *(() if self.leaf.form == "image" else self.leaf.shape))
        if self.leaf.encoding != "none":
            shape = self.leaf.sequence
        known = [size for size in shape if size is not None]
        if len(known) == len(shape):
            return self._fixed(reading, column, known)
        return self._ragged(reading, column, shape, known)

    def _fixed(self, reading: _Reading, column: Column, shape: Sequence[int]) -> Array:
        each = math.prod(shape)
        n = len(column.counts)
        if (column.counts == each).all():
            values = self.converted(reading, column)
            return values.reshape(n, *shape, *values.shape[1:])
        given = column.counts > 0
        wrong = np.flatnonzero(given & (column.counts != each))
        if len(wrong) or not self.leaf.is_optional:
            row = int(wrong[0]) if len(wrong) else int(np.argmin(given))
            raise self._mismatch(row, f"{each} values", f"{int(column.counts[row])}")
        values = self.converted(reading, column)
        found: Array = np.full(
            (n, *shape, *values.shape[1:]), _default(self.leaf), np.dtype(self.leaf.dtype)
        )
        found[given] = values.reshape(-1, *shape, *values.shape[1:])
        return found

    def _ragged(
        self, reading: _Reading, column: Column, shape: _Shape, known: Sequence[int]
    ) -> Array | Ragged:
        each = math.prod(known)
        lengths, rest = (
            np.divmod(column.counts, each) if each else (column.counts * 0, column.counts)
        )
        if rest.any():
            row = int(np.argmax(rest != 0))
            raise self._mismatch(row, f"a multiple of {each} values", f"{int(column.counts[row])}")
        values = self.converted(reading, column)
        if shape[0] is None:
            return Ragged(values.reshape(-1, *known, *values.shape[1:]), (lengths,))
        ends = np.cumsum(column.counts).tolist()
        shapes = [tuple(int(n) if s is None else s for s in shape) for n in lengths]
        found = np.empty(len(lengths), object)
        for row, (a, b) in enumerate(zip([0, *ends], ends, strict=False)):
            found[row] = values[a:b].reshape(shapes[row] + values.shape[1:])
        return found

    def converted(self, reading: _Reading, column: Column) -> Array:
        """Returns the concatenated values of all examples."""
        leaf = self.leaf
        self._require(column, self._kind)
        if self._kind is Kind.BYTES:
            found = np.empty(int(column.counts.sum()), object)
            found[:] = reading.texts(column)
            if leaf.form == "bytes":
                return found
            unpacked = self._unpacked(column, found, [self._shape()] * len(found))
            if None in leaf.shape:
                return unpacked
            whole = (len(unpacked), *self._shape())
            return np.stack(list(unpacked)) if len(unpacked) else np.zeros(whole, leaf.dtype)
        dtype = np.dtype(leaf.dtype)
        values = column.values
        if values is None:
            return np.zeros(0, dtype)
        if dtype == np.uint64:
            return values.view(np.uint64)
        return values.astype(dtype, copy=False)

    def _require(self, column: Column, kind: Kind) -> None:
        if column.kind not in (None, kind):
            row = int(np.argmax(column.counts > 0))
            found = column.kind.name.lower() if column.kind else "nothing"
            raise self._mismatch(row, f"values of kind {kind.name.lower()}", found)

    def _shape(self) -> list[int]:
        return [-1 if size is None else size for size in self.leaf.shape]

    def _unpacked(
        self, column: Column, texts: Sequence[bytes] | Array, shapes: Sequence[Sequence[int]]
    ) -> Array:
        """Returns the tensors stored as bytes; shape [values]."""
        found = np.empty(len(texts), object)
        total = 0
        for i, (text, shape) in enumerate(zip(texts, shapes, strict=True)):
            try:
                raw = tensor_bytes(self.leaf, text, shape)
                found[i] = np.frombuffer(raw, self.leaf.dtype).reshape(shape)
            except (zlib.error, ValueError) as error:
                expected = f"{self.leaf.dtype} of shape {tuple(shape)} as {self.leaf.encoding}"
                raise self._mismatch(_row_of(column, i), expected, str(error)) from error
            total += found[i].nbytes
            if total > MOST_TENSOR_BYTES and total > available_memory() // 2:
                raise OutOfMemoryError(
                    f"Tensors of the feature {self.leaf.name!r} take more than half of the "
                    "remaining memory.",
                    f"Decompressed: {total:,} bytes of {i + 1:,} values",
                    fix="use a smaller batch_size, check that the data is what you expect, or "
                    "give the process more memory",
                )
        return found

    def _mismatch(self, row: int, expected: str, found: str) -> FeatureMismatchError:
        return FeatureMismatchError([row], self.leaf.name, expected, found)


@dataclass(frozen=True)
class _Images(_Values):
    """Decodes a leaf of images, as floats from 0 to 1 if `is_float`."""

    decoder: images.ImageDecoder
    is_float: bool

    def converted(self, reading: _Reading, column: Column) -> Array:
        self._require(column, Kind.BYTES)
        rows = np.repeat(np.arange(len(column.counts)), column.counts).tolist()
        files = list(zip(rows, reading.views(column), strict=True))
        damaged: dict[int, images.UndecodableError] = {}

        def decode(row: int, data: memoryview, out: Array | None = None) -> Array | None:
            draws = None if reading.draws is None else reading.draws[row]
            try:
                return self.decoder(data, draws, out)
            except images.UndecodableError as error:
                damaged.setdefault(row, error)
                return None

        shape = (*(self.decoder.size or self.leaf.shape[:2]), self.decoder.channels)
        known = [size for size in shape if size is not None]
        if len(known) == len(shape) == 3:
            found = self._of_one_shape(decode, files, tuple(known))
        else:
            found = np.empty(len(files), object)
            for i, (row, data) in enumerate(files):
                found[i] = decode(row, data)
        if damaged:
            first = next(iter(damaged.values()))
            raise UndecodableImagesError(
                [*damaged], self.leaf.name, "an image", str(first)
            ) from first
        return self._stacked(found) if found.dtype == object else found

    def _of_one_shape(
        self,
        decode: Callable[[int, memoryview, Array], Array | None],
        files: list[tuple[int, memoryview]],
        shape: tuple[int, ...],
    ) -> Array:
        n = len(files)
        found = aligned((n, *shape), np.float32 if self.is_float else self.leaf.dtype)
        whole = [(slice(0, n), found)]
        parts = images.pixel_runs(n, shape, self.leaf.dtype) if self.is_float else whole
        for part, pixels in parts:
            for (row, data), out in zip(files[part], pixels, strict=True):
                image = decode(row, data, out)
                if image is not None and image is not out:
                    raise self._mismatch(
                        row, f"an image of shape {shape}", f"{image.shape}, {image.dtype}"
                    )
            if self.is_float:
                images.scale(pixels, found[part])
        return found

    def _stacked(self, found: Array) -> Array:
        """Returns images as one array if they were resized to the same shape."""
        if self.decoder.size is not None and not len(found):
            found = np.zeros((0, *self.decoder.size, 3), self.leaf.dtype)
        elif self.decoder.size is not None and len({image.shape for image in found}) == 1:
            found = np.stack(list(found))
        return images.as_floats(found) if self.is_float else found


@dataclass(frozen=True)
class _Mask(_Values):
    """Says whether the values of another leaf are missing."""

    leaf: MaskLeaf

    @property
    def kinds(self) -> Mapping[str, Kind]:
        return _Values(self.leaf.of).kinds

    def __call__(self, reading: _Reading) -> Array:
        found: Array = reading.columns[self.leaf.of.keys[0]].counts == 0
        return found


@dataclass(frozen=True)
class _Nested(_Values):
    """Decodes nested sequences: the record holds their lengths beside the values."""

    def __call__(self, reading: _Reading) -> Ragged:
        values_key, *lengths_keys = self.leaf.keys
        column = reading.columns[values_key]
        values = self.converted(reading, column)
        inner = [size for size in self.leaf.shape if size is not None]
        if self.leaf.form == "number" and self.leaf.encoding == "none":
            values = values.reshape(-1, *inner)
        levels = [reading.columns[key] for key in lengths_keys]
        lengths = [levels[0].counts]
        for level in levels:
            lengths.append(self._lengths(level, lengths))
        if lengths[-1].sum() != len(values):
            raise self._mismatch(0, f"{int(lengths[-1].sum())} values", f"{len(values)}")
        return Ragged(values, tuple(lengths))

    def _lengths(self, level: Column, above: list[Array]) -> Array:
        """Returns the lengths of the lists of one level, given those of the levels above it."""
        self._require(level, Kind.INT64)
        given = level.values if level.values is not None else np.zeros(0, np.int64)
        found = given.astype(np.int64)
        if len(found) and found.min() < 0:
            raise self._mismatch(_row_of(level, int(found.argmin())), "a length", f"{found.min()}")
        if len(above) > 1 and above[-1].sum() != len(found):
            raise self._mismatch(0, f"{int(above[-1].sum())} lengths", f"{len(found)}")
        return found


@dataclass(frozen=True)
class _Dynamic(_Values):
    """Decodes tensors with several unknown dimensions: the record holds bytes and shapes."""

    def __call__(self, reading: _Reading) -> Array | Ragged:
        shapes = reading.columns[self.leaf.keys[1]]
        column = reading.columns[self.leaf.keys[0]]
        rank = len(self.leaf.shape)
        wrong = np.flatnonzero(shapes.counts != rank * column.counts)
        if len(wrong):
            row = int(wrong[0])
            stored = f"{int(shapes.counts[row])} numbers for {int(column.counts[row])} of them"
            raise self._mismatch(row, f"a shape of {rank} numbers", stored)
        self._require(column, Kind.BYTES)
        self._require(shapes, Kind.INT64)
        given = shapes.values if shapes.values is not None else np.zeros(0, np.int64)
        all_shapes = given.astype(np.int64).reshape(-1, rank).tolist()
        found = self._unpacked(column, reading.texts(column), all_shapes)
        return Ragged(found, (column.counts,)) if self.leaf.sequence else found


def _row_of(column: Column, value: int) -> int:
    """Returns the row to which the value-th of a column's values belongs."""
    return int(np.searchsorted(np.cumsum(column.counts), value, side="right"))


def _default(leaf: Leaf) -> object:
    if isinstance(leaf, FilledLeaf):
        return leaf.fill
    if leaf.form == "bytes":
        return b""
    return given_by_tfds(leaf.dtype)
