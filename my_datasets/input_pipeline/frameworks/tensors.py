"""Columns of arrays as tensors: of which types and shapes they are, and how images are changed."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from my_datasets.errors import FeatureError, explain
from my_datasets.input_pipeline.decode import pytree
from my_datasets.input_pipeline.decode.ragged import Ragged
from my_datasets.input_pipeline.engine import Engine
from my_datasets.input_pipeline.order.batching import Piece
from my_datasets.input_pipeline.order.permutation import uniform
from my_datasets.input_pipeline.order.state import State
from my_datasets.input_pipeline.plan.plan import Plan
from my_datasets.input_pipeline.transform.augment import Augmentation


@dataclass(frozen=True)
class Draws:
    """The random numbers of examples, for their augmentation.

    Attributes:
      seed: Makes others.
      count: How many each example has.
      partners: How many examples come along that are before each one in the epoch.
    """

    seed: int
    count: int
    partners: int = 0

    @classmethod
    def of(cls, augment: Augmentation | None) -> "Draws | None":
        """Returns those of an augmentation; None if there is none."""
        # One at least: TensorFlow crashes where it cuts tensors of no bytes into batches.
        if augment is None:
            return None
        return cls(augment.seed, max(1, augment.draws), augment.partners)


class TensorForm:
    """Of what tensors batches are, and how they are made of arrays.

    Attributes:
      types: The types of the arrays of a piece.
      shapes: Their shapes, None where it is not known.
      is_single: Whether a piece is one batch; else its arrays have one dimension more, in front.
    """

    def __init__(self, engine: Engine, first: Any, draws: Draws | None) -> None:
        """Looks at one example.

        Args:
          engine: Makes the batches.
          first: The columns of an example of it.
          draws: The random numbers that come with each example.

        Raises:
          FeatureError: Values of different shapes cannot be put into batches.
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
        # Cutting pieces into batches is a copy of them.
        self.is_single = engine.batching.at_once == 1
        self.types = types
        self.shapes = shapes if self.is_single else [(None, *shape) for shape in shapes]
        self._first = first

    def batch(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the tensors of a piece, nested as its columns, and what an augmentation needs.

        That is its random numbers, and, if examples come along, which rows are the piece's own.
        """
        for tensor, shape in zip(arrays, self.shapes, strict=True):
            tensor.set_shape(shape)
        rest = iter(arrays)
        batch = pytree.map_columns(lambda column: _tensor(column, rest), self._first)
        return (batch, *rest)


def opened_for_tensors(
    plan: Plan, state: State | None, *, single: bool = False
) -> tuple[Engine, Any]:
    """Returns what makes the batches of a plan, and the columns of an example, for its form.

    Args:
      plan: The plan.
      state: Where to begin; None for the beginning.
      single: Whether each batch is to be made for itself; some are in any case.

    Raises:
      PlanError: The state belongs to another plan, or the data changed.
    """
    engine = Engine(plan, state, single=single)
    first = engine.load(Piece(engine.batching.start.epoch, 0, 1, 1))
    if not single and any(isinstance(one, Ragged) for one in pytree.columns_of(first)):
        # TensorFlow cannot cut lists of different lengths into batches.
        engine = Engine(plan, state, single=True)
    return engine, first


def place_of(start: State, number: int) -> npt.NDArray[np.int64]:
    """Returns which piece of which iteration is meant, as tensors carry it; int64, shape [3].

    Args:
      start: Where the iteration begins.
      number: Which piece of it, from 0; or how many pieces it has.
    """
    return np.array([start.epoch, start.position, number], np.int64)


def piece_arrays(
    engine: Engine, place: npt.NDArray[np.int64], draws: Draws | None
) -> list[npt.NDArray[Any]]:
    """Returns the arrays of a piece: of shape [rows, ...], or [batches, rows, ...].

    Args:
      engine: Makes it.
      place: Which piece; see `place_of`.
      draws: The random numbers that come with each example.
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
    """Returns what is done to the images of a batch; None for nothing.

    Raises:
      FeatureError: There are not just images of one feature to augment.
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
      size: The rows of all batches; None if there may be fewer in some.
    """
    if isinstance(column, Ragged):
        _, *inner = column.lengths
        values = (None, *column.values.shape[1:])
        return [values, (size,), *((None,) for _ in inner)]
    return [(size, *column.shape[1:])]


def _arrays(column: Any, piece: Piece, is_single: bool) -> list[Any]:
    """Returns a column for TensorFlow: of shape [rows, ...], or [batches, rows, ...].

    Args:
      column: The column; one of lists comes in single batches only.
      piece: The piece.
      is_single: Whether it is one batch.
    """
    if isinstance(column, Ragged):
        return [*_arrays(column.values, piece, is_single), *column.lengths]
    values = column.astype("S1") if column.dtype == object and not len(column) else column
    if not is_single:
        values = values.reshape(piece.batches, piece.rows, *values.shape[1:])
    return [np.ascontiguousarray(values)]


def _tensor(column: Any, tensors: Iterator[Any]) -> Any:
    """Returns the tensor of a column, from what came of it."""
    values = next(tensors)
    if not isinstance(column, Ragged):
        return values
    lengths = [next(tensors) for _ in column.lengths]
    return tf.RaggedTensor.from_nested_row_lengths(values, lengths, validate=False)
