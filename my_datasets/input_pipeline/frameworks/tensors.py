"""Converts columns of arrays to tensors: their types and shapes, and image augmentation."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from my_datasets.errors import FeatureError, explain
from my_datasets.input_pipeline.decode import pytree
from my_datasets.input_pipeline.decode.pytree import Ragged
from my_datasets.input_pipeline.engine import Engine
from my_datasets.input_pipeline.order.batching import Piece
from my_datasets.input_pipeline.order.permutation import uniform
from my_datasets.input_pipeline.order.state import State
from my_datasets.input_pipeline.plan.plan import Plan
from my_datasets.input_pipeline.read.prepared import OpenedVersions
from my_datasets.input_pipeline.transform.augment import Augmentation


@dataclass(frozen=True)
class Draws:
    """The random numbers that augmentation needs for each example.

    Attributes:
      seed: The seed.
      count: The number of random numbers of each example.
      partners: The number of preceding examples in the epoch that are added to each batch.
    """

    seed: int
    count: int
    partners: int = 0

    @classmethod
    def of(cls, augment: Augmentation | None) -> "Draws | None":
        """Returns those of an augmentation; None without augmentation."""
        # At least one: TensorFlow crashes when it splits zero-byte tensors into batches.
        if augment is None:
            return None
        return cls(augment.seed, max(1, augment.draws), augment.partners)


class TensorForm:
    """The tensors of a batch, and how to make them from arrays.

    Attributes:
      types: The types of the arrays of a piece.
      shapes: Their shapes, with None for unknown sizes.
      is_single: Whether a piece is one batch; otherwise its arrays have an additional first
        dimension.
    """

    def __init__(self, engine: Engine, first: Any, draws: Draws | None) -> None:
        """Derives the form from one example.

        Args:
          engine: Makes the batches.
          first: The columns of one of its examples.
          draws: The random numbers added to each example.

        Raises:
          FeatureError: Values have different shapes and cannot be batched.
        """
        batch = engine.batching.batch
        own = batch.size if batch.drop_remainder else None
        size = own if draws is None or not draws.partners else None
        columns = pytree.columns_of(first)
        types = [kind for column in columns for kind in _types(column)]
        shapes = [shape for column in columns for shape in _shapes(column, size)]
        if draws is not None:
            types.append(tf.float32)
            shapes.append((size, draws.count))
            if draws.partners:
                types.append(tf.int64)
                shapes.append((own,))
        # Splitting pieces into batches copies them.
        self.is_single = engine.batching.at_once == 1
        self.types = types
        self.shapes = shapes if self.is_single else [(None, *shape) for shape in shapes]
        self._first = first

    def batch(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the tensors of a piece, nested like its columns, and what augmentation needs.

        That is the piece's random numbers and, if preceding examples were added, the indices of the
        piece's own rows.
        """
        for tensor, shape in zip(arrays, self.shapes, strict=True):
            tensor.set_shape(shape)
        rest = iter(arrays)
        batch = pytree.map_columns(lambda column: _tensor(column, rest), self._first)
        return (batch, *rest)


def opened_for_tensors(
    plan: Plan,
    state: State | None,
    *,
    single: bool = False,
    versions: OpenedVersions | None = None,
) -> tuple[Engine, Any]:
    """Opens the engine of a plan, and loads the columns of one example for its form.

    Args:
      plan: The plan.
      state: Where to begin; None for the beginning.
      single: Whether each batch must be a piece of its own; plans with ragged columns always do
        this.
      versions: What the caller has opened already; None for nothing.

    Raises:
      PlanError: The state belongs to another plan, or the data changed.
    """
    versions = versions or OpenedVersions()
    engine = Engine(plan, state, single=single, versions=versions)
    first = engine.load(Piece(engine.batching.start.epoch, 0, 1, 1))
    if not single and any(isinstance(one, Ragged) for one in pytree.columns_of(first)):
        # TensorFlow cannot split ragged columns into batches.
        engine = Engine(plan, state, single=True, versions=versions)
    return engine, first


def place_of(start: State, number: int) -> npt.NDArray[np.int64]:
    """Returns a piece's position in an iteration, as tensors carry it; int64, shape [3].

    Args:
      start: Where the iteration begins.
      number: The piece's number in the iteration, from 0; or the number of pieces.
    """
    return np.array([start.epoch, start.position, number], np.int64)


def piece_arrays(
    engine: Engine, place: npt.NDArray[np.int64], draws: Draws | None
) -> list[npt.NDArray[Any]]:
    """Returns the arrays of a piece, of shape [rows, ...] or [batches, rows, ...].

    Args:
      engine: Makes the piece.
      place: Which piece; see `place_of`.
      draws: The random numbers added to each example.
    """
    epoch, position, number = place.tolist()
    start = dataclasses.replace(engine.batching.start, epoch=epoch, position=position)
    batching = engine.batching.at(start)
    piece, is_single = batching.piece(number), batching.at_once == 1
    if draws is None:
        columns = pytree.columns_of(engine.load(piece))
    else:
        numbers, rows = (
            batching.with_partners(piece, draws.partners) if draws.partners
            else (batching.numbers(piece), None)
        )  # fmt: skip
        columns = pytree.columns_of(engine.columns(numbers, piece.epoch))
        columns.append(uniform(draws.seed, piece.epoch, numbers, draws.count))
        if rows is not None:
            columns.append(rows)
    return [array for column in columns for array in _arrays(column, piece, is_single)]


def change_of(engine: Engine, augment: Augmentation | None) -> Callable[..., Any] | None:
    """Returns the function that augments a batch; None without augmentation.

    Raises:
      FeatureError: The batch does not have exactly one image feature to augment.
    """
    if augment is None:
        return None
    is_image = pytree.map_columns(lambda leaf: leaf.form == "image", engine.tree)
    count = pytree.columns_of(is_image).count(True)
    if augment.partners and is_image != (True, False):
        raise FeatureError(
            explain(
                "MixUp and CutMix mix images and their labels: they need (image, label).",
                fix="give as_supervised=True, or leave them out",
            )
        )
    if count != 1:
        raise FeatureError(
            explain(
                f"There are {count} columns of images, one of which would be augmented.",
                fix="choose one with columns=[...], or leave augment out",
            )
        )

    (leaf,) = (one for one in pytree.columns_of(engine.tree) if one.form == "image")
    if len(leaf.shape) != 3 or leaf.sequence:
        raise FeatureError(
            explain(
                f"{leaf.name!r} has several images in each example: augment changes one.",
                fix="leave augment out, and change them in pipeline(...).map(...)",
            )
        )
    labels = engine.tree[1].classes if augment.partners else None
    augment.check(leaf.shape[-1], labels)

    def augmented(batch: Any, draws: Any, rows: Any = None) -> Any:
        changed = changed_rows(batch, draws)
        if rows is None:
            return changed
        return tf.nest.map_structure(lambda tensor: tf.gather(tensor, rows), changed)

    def changed_rows(batch: Any, draws: Any) -> Any:
        if is_image == (True, False):
            images, targets = batch
            return augment(images, targets, draws)
        return pytree.map_columns(
            lambda is_one, tensor: augment(tensor, None, draws)[0] if is_one else tensor,
            is_image, batch,
        )  # fmt: skip

    return augmented


def _types(column: Any) -> list[Any]:
    if isinstance(column, Ragged):
        return [*_types(column.values), *(tf.int64 for _ in column.lengths)]
    if column.dtype != object:
        return [tf.as_dtype(column.dtype)]
    if len(column) and isinstance(column.reshape(-1)[0], np.ndarray):
        raise FeatureError(
            explain(
                "Images or tensors of different sizes cannot be put into batches.",
                fix="give image_size=(height, width), or leave the column out with columns=[...]",
            )
        )
    return [tf.string]


def _shapes(column: Any, size: int | None) -> list[Any]:
    """Returns the shapes of a batch's arrays: [rows, ...].

    Args:
      column: The column.
      size: The number of rows of every batch; None if it may vary.
    """
    if isinstance(column, Ragged):
        _, *inner = column.lengths
        values = (None, *column.values.shape[1:])
        return [values, (size,), *((None,) for _ in inner)]
    return [(size, *column.shape[1:])]


def _arrays(column: Any, piece: Piece, is_single: bool) -> list[Any]:
    """Returns a column as arrays for TensorFlow, of shape [rows, ...] or [batches, rows, ...].

    Args:
      column: The column; ragged columns come in single batches only.
      piece: The piece.
      is_single: Whether the piece is one batch.
    """
    if isinstance(column, Ragged):
        return [*_arrays(column.values, piece, is_single), *column.lengths]
    values = column.astype("S1") if column.dtype == object and not len(column) else column
    if not is_single:
        values = values.reshape(piece.batches, piece.rows, *values.shape[1:])
    return [np.ascontiguousarray(values)]


def _tensor(column: Any, tensors: Iterator[Any]) -> Any:
    """Returns a column's tensor, assembled from the next of its arrays' tensors."""
    values = next(tensors)
    if not isinstance(column, Ragged):
        return values
    lengths = [next(tensors) for _ in column.lengths]
    return tf.RaggedTensor.from_nested_row_lengths(values, lengths, validate=False)
