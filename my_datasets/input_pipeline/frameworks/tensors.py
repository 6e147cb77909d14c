"""Pieces of a plan as tensors, and the calls from TensorFlow into Python that make them."""

import atexit
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from my_datasets.core.arrays import Array
from my_datasets.errors import FeatureError
from my_datasets.input_pipeline.decode import pytree
from my_datasets.input_pipeline.decode.pytree import Column, Ragged, Tree
from my_datasets.input_pipeline.engine import Engine
from my_datasets.input_pipeline.order.batching import Piece
from my_datasets.input_pipeline.order.permutation import uniform
from my_datasets.input_pipeline.order.state import State
from my_datasets.input_pipeline.plan.plan import Plan
from my_datasets.input_pipeline.read.prepared import OpenedVersions
from my_datasets.input_pipeline.transform.augment import Augmentation

# Seconds after which TensorFlow's own queues are full of refusals, once calls are refused.
_QUIET = 0.05
# Seconds after which `close` stops waiting for a running call.
_PATIENCE = 30.0


@dataclass(frozen=True)
class Draws:
    """The random numbers that augmentation needs for each example.

    Attributes:
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


class TensorPieces:
    """The pieces of a plan as tensors.

    Attributes:
      draws: The random numbers that are added to each example; None without augmentation.
      types: The types of the arrays of a piece.
      shapes: Their shapes, with None for unknown sizes.
      is_single: Whether a piece is one batch; otherwise its arrays have an additional first
        dimension.
    """

    def __init__(
        self,
        plan: Plan,
        state: State | None,
        augment: Augmentation | None,
        *,
        single: bool,
        versions: OpenedVersions | None,
    ) -> None:
        """Opens the data, and derives types and shapes from one example.

        With `single`, and always for plans with ragged columns, each batch is a piece of its own.

        Raises:
          FeatureError: Values have different shapes and cannot be batched, or augmented.
          PlanError: The state belongs to another plan, or the data changed.
        """
        versions = versions or OpenedVersions()
        engine = Engine(plan, state, single=single, versions=versions)
        self._first = engine.load(Piece(engine.batching.start.epoch, 0, 1, 1))
        columns = pytree.columns_of(self._first)
        if not single and any(isinstance(one, Ragged) for one in columns):
            # TensorFlow cannot split ragged columns into batches.
            engine = Engine(plan, state, single=True, versions=versions)
        self.engine = engine
        self.draws = Draws.of(augment)
        batch = engine.batching.batch
        own = batch.size if batch.drop_remainder else None
        size = None if self.draws is not None and self.draws.partners else own
        self.types = [kind for column in columns for kind in types_of(column)]
        shapes = [shape for column in columns for shape in shapes_of(column, size)]
        if self.draws is not None:
            self.types.append(tf.float32)
            shapes.append((size, self.draws.count))
            if self.draws.partners:
                self.types.append(tf.int64)
                shapes.append((own,))
        # Splitting pieces into batches copies them.
        self.is_single = engine.batching.at_once == 1
        self.shapes = shapes if self.is_single else [(None, *shape) for shape in shapes]
        self.augmented = _augmenter(engine, augment)

    def batch(self, arrays: Sequence[tf.Tensor]) -> tuple[Any, ...]:
        """Returns the tensors of a piece, nested like its columns, and what augmentation needs.

        That is the piece's random numbers and, if preceding examples were added, the indices of the
        piece's own rows.
        """
        for tensor, shape in zip(arrays, self.shapes, strict=True):
            tensor.set_shape(shape)
        rest = iter(arrays)
        batch = pytree.map_columns(lambda column: tensor_of(column, rest), self._first)
        return (batch, *rest)


def place_of(start: State, number: int) -> npt.NDArray[np.int64]:
    """Returns the place of the number-th piece of an iteration as an array; int64, shape [3]."""
    return np.array([start.epoch, start.position, number], np.int64)


def piece_arrays(engine: Engine, place: npt.NDArray[np.int64], draws: Draws | None) -> list[Array]:
    """Returns the arrays of the piece at a place, of shape [rows, ...] or [batches, rows, ...]."""
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
    arrays = [array for column in columns for array in arrays_of(column)]
    if is_single:
        return arrays
    return [one.reshape(piece.batches, piece.rows, *one.shape[1:]) for one in arrays]


def _augmenter(engine: Engine, augment: Augmentation | None) -> Callable[..., Any] | None:
    """Returns the function that augments the one image feature of a batch."""
    if augment is None:
        return None
    is_image = pytree.map_columns(lambda leaf: leaf.form == "image", engine.tree)
    images = [one for one in pytree.columns_of(engine.tree) if one.form == "image"]
    if augment.partners and is_image != (True, False):
        raise FeatureError(
            "MixUp and CutMix mix images and their labels: they need (image, label).",
            fix="give as_supervised=True, or leave them out",
        )
    if len(images) != 1:
        raise FeatureError(
            f"There are {len(images)} columns of images, one of which would be augmented.",
            fix="choose one with columns=[...], or leave augment out",
        )
    leaf = images[0]
    if len(leaf.shape) != 3 or leaf.sequence:
        raise FeatureError(
            f"{leaf.name!r} has several images in each example: augment changes one.",
            fix="leave augment out, and change them in pipeline(...).map(...)",
        )
    labels = pytree.columns_of(engine.tree)[1].classes if augment.partners else None
    augment.check(leaf.shape[-1], labels)

    def augmented(
        batch: Tree[tf.Tensor], draws: tf.Tensor, rows: tf.Tensor | None = None
    ) -> Tree[tf.Tensor]:
        changed: Tree[tf.Tensor]
        if is_image == (True, False):
            images, targets = batch
            changed = augment(images, targets, draws)
        else:
            changed = pytree.map_columns(
                lambda is_one, tensor: augment(tensor, None, draws)[0] if is_one else tensor,
                is_image, batch,
            )  # fmt: skip
        if rows is None:
            return changed
        return tf.nest.map_structure(lambda tensor: tf.gather(tensor, rows), changed)

    return augmented


def types_of(column: Column) -> list[tf.DType]:
    """Returns the types of a column's arrays; raises FeatureError if values differ in shape."""
    if isinstance(column, Ragged):
        return [*types_of(column.values), *(tf.int64 for _ in column.lengths)]
    if column.dtype != object:
        return [tf.as_dtype(column.dtype)]
    if len(column) and isinstance(column.reshape(-1)[0], np.ndarray):
        raise FeatureError(
            "Images or tensors of different sizes cannot be put into batches.",
            fix="give image_size=(height, width), or leave the column out with columns=[...]",
        )
    return [tf.string]


def shapes_of(column: Column, size: int | None) -> list[tuple[int | None, ...]]:
    """Returns the shapes of a column's arrays; `size` is the number of rows, None if it varies."""
    if isinstance(column, Ragged):
        _, *inner = column.lengths
        values = (None, *column.values.shape[1:])
        return [values, (size,), *((None,) for _ in inner)]
    return [(size, *column.shape[1:])]


def arrays_of(column: Column) -> list[Array]:
    """Returns a column as arrays that TensorFlow accepts."""
    if isinstance(column, Ragged):
        return [*arrays_of(column.values), *column.lengths]
    values = column.astype("S1") if column.dtype == object and not column.size else column
    return [np.ascontiguousarray(values)]


def tensor_of(column: Column, tensors: Iterator[tf.Tensor]) -> tf.Tensor | tf.RaggedTensor:
    """Assembles a column's tensor from the next of its arrays' tensors."""
    values = next(tensors)
    if not isinstance(column, Ragged):
        return values
    lengths = [next(tensors) for _ in column.lengths]
    return tf.RaggedTensor.from_nested_row_lengths(values, lengths, validate=False)


class RunningCalls:
    """Counts the running calls from TensorFlow into Python; each uses this as a context manager.

    They must finish before the interpreter shuts down: a thread of TensorFlow that calls Python
    during shutdown never returns, and TensorFlow waits for it forever, so the process would hang
    after its last line.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._last = 0.0
        self._is_closed = False

    def __enter__(self) -> None:
        """Begins a call.

        Raises:
          StopIteration: Calls are refused. This is the exception that TensorFlow does not log.
        """
        with self._lock:
            self._last = time.monotonic()
            if self._is_closed:
                raise StopIteration
            self._running += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._running -= 1

    @property
    def is_closed(self) -> bool:
        """Whether Python is shutting down; long-running calls must then give up."""
        return self._is_closed

    def close(self) -> None:
        """Refuses new calls, and waits for running ones, for at most 30 seconds."""
        with self._lock:
            self._is_closed = True
            self._last = time.monotonic()
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            with self._lock:
                if not self._running and time.monotonic() - self._last > _QUIET:
                    return
            time.sleep(_QUIET / 5)


calls = RunningCalls()
atexit.register(calls.close)
