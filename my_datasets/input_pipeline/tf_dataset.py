"""A plan as a `tf.data.Dataset`."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from my_datasets.errors import FeatureError, explain
from my_datasets.input_pipeline import trees
from my_datasets.input_pipeline.augment import Augmentation
from my_datasets.input_pipeline.engine import Engine, Piece
from my_datasets.input_pipeline.plan import Plan
from my_datasets.input_pipeline.ragged import Ragged
from my_datasets.input_pipeline.stages import Batch, Decode, Prefetch
from my_datasets.input_pipeline.state import State


@dataclass(frozen=True)
class Stats:
    """How long the consumer of a pipeline waited for data.

    Attributes:
      steps: The batches that were given.
      waited: Seconds that it waited for them.
      elapsed: Seconds from the first request to the last batch.
    """

    steps: int
    waited: float
    elapsed: float

    @property
    def share(self) -> float:
        """The part of the time that was waiting, from 0 to 1."""
        return self.waited / self.elapsed if self.elapsed else 0.0


class Pipeline(tf.data.Dataset):
    """A `tf.data.Dataset` of batches, in exact order.

    Attributes:
      plan: What it does.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        state: State | None = None,
        augment: Augmentation | None = None,
    ) -> None:
        """Builds the dataset.

        Args:
          plan: The plan.
          state: Where to begin; None for the beginning.
          augment: Changes the images.

        Raises:
          FeatureError: Values of different shapes cannot be put into batches.
          PlanError: The state belongs to another plan, or the data changed.
        """
        self.plan = plan
        self._engine = Engine(plan, state)
        # For its form.
        first = self._engine.load(Piece(self._engine.start.epoch, 0, 1, 1))
        if any(isinstance(column, Ragged) for column in trees.columns_of(first)):
            # TensorFlow cannot cut lists of different lengths into batches.
            self._engine = Engine(plan, state, rows=1)
        self._clock = _Clock()
        self._dataset = _built(self._engine, first, augment, self._clock)
        super().__init__(self._dataset._variant_tensor)

    def _inputs(self) -> list[tf.data.Dataset]:
        return [self._dataset]

    @property
    def element_spec(self) -> Any:
        """The form of a batch."""
        return self._dataset.element_spec

    @property
    def steps_per_epoch(self) -> int:
        """How many batches a whole epoch has: what `model.fit` is to be told if epochs=None."""
        return self._engine.steps_per_epoch

    def state_after(self, steps: int) -> State:
        """Returns where an iteration is after so many batches, to go on there another time."""
        return self._engine.state_after(steps)

    def iterator(self) -> "CheckpointableIterator":
        """Returns an iterator that knows where it is, for `tf.train.Checkpoint`."""
        return CheckpointableIterator(self)

    def stats(self) -> Stats:
        """Returns how long the consumer has waited so far, by all iterators of this pipeline."""
        return self._clock.stats()


class CheckpointableIterator(tf.train.experimental.PythonState):
    """Goes through a pipeline, and can be saved: `tf.train.Checkpoint(data=iterator)`."""

    def __init__(self, pipeline: Pipeline) -> None:
        """Begins where the pipeline does."""
        self._pipeline = pipeline
        self._given = 0
        self._iterator: Iterator[Any] | None = None

    def __iter__(self) -> "CheckpointableIterator":
        return self

    def __next__(self) -> Any:
        if self._iterator is None:
            self._iterator = iter(self._pipeline)
        batch = next(self._iterator)
        self._given += 1
        return batch

    def state(self) -> State:
        """Returns where it is."""
        return self._pipeline.state_after(self._given)

    def serialize(self) -> str:
        """Returns the state as text."""
        return self.state().to_json()

    def deserialize(self, serialized: Any) -> None:
        """Goes to the state of a text, whatever was given before.

        Raises:
          PlanError: The state belongs to another plan.
        """
        text = serialized.decode() if isinstance(serialized, bytes) else str(serialized)
        self._pipeline = Pipeline(self._pipeline.plan, state=State.from_json(text))
        self._given, self._iterator = 0, None


def _built(
    engine: Engine, first: Any, augment: Augmentation | None, clock: "_Clock"
) -> tf.data.Dataset:
    """Returns the dataset of an engine's batches, of which some are given.

    The clock is told of each wait for one: both inputs of `zip` are asked in turn by the thread
    that wants a batch, the first one when it begins to wait.
    """
    columns = trees.columns_of(first)
    types = [kind for column in columns for kind in _types(column)]
    batch = engine.plan.the(Batch)
    size = batch.size if batch.drop_remainder else None
    shapes = [shape for column in columns for shape in _shapes(column, size)]
    # Cutting pieces into batches is a copy of them.
    is_single = engine.makes_single_batches
    augmented = None if augment is None else _Augmented(augment, first)
    if augment is not None:
        types.append(tf.float32)
        shapes.append((size, augment.draws))
    prefetch = engine.plan.the(Prefetch)

    def load(number: Any) -> list[Any]:
        piece = engine.piece(int(number))
        arrays: list[Any] = []
        for column in trees.columns_of(engine.load(piece)):
            arrays += _arrays(column, piece, is_single)
        if augment is not None:
            draws = augment.numbers(piece.epoch, engine.numbers(piece))
            arrays.append(draws if is_single else draws.reshape(piece.batches, piece.rows, -1))
        return arrays

    def loaded(number: Any) -> Any:
        found = tf.numpy_function(load, [number], types, stateful=False)
        for tensor, shape in zip(found, shapes, strict=True):
            tensor.set_shape(shape if is_single else (None, *shape))
        return tuple(found)

    def restored(*tensors: Any) -> Any:
        rest = iter(tensors)
        return trees.map_columns(lambda column: _tensor(column, rest), first)

    count = engine.count_pieces()
    pieces = tf.data.Dataset.range(count if count is not None else tf.int64.max)
    dataset = pieces.map(loaded, num_parallel_calls=prefetch.workers, deterministic=True)
    if not is_single:
        dataset = dataset.unbatch()
    is_changed = augmented is not None or engine.plan.the(Decode).image_dtype is not None

    def changed(*tensors: Any) -> Any:
        if augmented is not None:
            return augmented(restored(*tensors[:-1]), tensors[-1])
        batch = restored(*tensors)
        kinds = [trees.is_of_images(column) for column in columns]
        scaled = [
            tf.image.convert_image_dtype(tensor, tf.float32) if is_images else tensor
            for tensor, is_images in zip(trees.columns_of(batch), kinds, strict=True)
        ]
        return trees.rebuilt(first, scaled)

    if is_changed:
        dataset = dataset.map(changed, num_parallel_calls=prefetch.workers, deterministic=True)
    dataset = dataset.prefetch(max(1, prefetch.ahead))
    asked = tf.data.Dataset.range(tf.int64.max).map(lambda _: tf.timestamp())

    def told(when: Any, batch: Any) -> Any:
        with tf.control_dependencies([clock.add(when)]):
            found = tf.nest.map_structure(tf.identity, batch, expand_composites=True)
        return found if is_changed else restored(*found)

    total = engine.total_steps
    known = tf.data.experimental.assert_cardinality(
        tf.data.INFINITE_CARDINALITY if total is None else total
    )
    return tf.data.Dataset.zip((asked, dataset)).map(told).apply(known)


@dataclass(frozen=True)
class _Augmented:
    """Changes the only images of batches, and what comes beside them.

    Attributes:
      augment: The changes.
      first: A batch's columns.
    """

    augment: Augmentation
    first: Any

    def __post_init__(self) -> None:
        found = [column for column in trees.columns_of(self.first) if trees.is_of_images(column)]
        if len(found) != 1:
            raise FeatureError(
                explain(
                    f"There are {len(found)} columns of images, one of which would be augmented.",
                    mend="choose one with columns=[...], or leave augment out",
                )
            )

    def __call__(self, batch: Any, draws: Any) -> Any:
        rest = iter(trees.columns_of(self.first))
        is_images = trees.map_columns(lambda _: trees.is_of_images(next(rest)), self.first)
        if isinstance(batch, tuple) and len(batch) == 2 and is_images == (True, False):
            return self.augment(batch[0], batch[1], draws)
        tensors = trees.columns_of(batch)
        kinds = trees.columns_of(is_images)
        changed = [
            self.augment(tensor, None, draws)[0] if is_one else tensor
            for tensor, is_one in zip(tensors, kinds, strict=True)
        ]
        return trees.rebuilt(self.first, changed)


def _types(column: Any) -> list[Any]:
    if isinstance(column, Ragged):
        return [*_types(column.values), *(tf.int64 for _ in column.lengths)]
    if column.dtype != object:
        return [tf.as_dtype(column.dtype)]
    if len(column) and isinstance(column.reshape(-1)[0], np.ndarray):
        raise FeatureError(
            explain(
                "Images or tensors of different sizes cannot be put into batches.",
                mend="give image_size=(height, width), or leave the column out with columns=[...]",
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


class _Clock:
    """Adds up how long a consumer waits: in TensorFlow, as Python would have to wait itself.

    Not in a `tf.Variable`, which would be one for each replica within a strategy's scope.
    """

    def __init__(self) -> None:
        """Begins with nothing."""
        with tf.device("CPU:0"):
            # The steps, the seconds waited, when the first one began and when the last one came.
            self._totals = tf.raw_ops.VarHandleOp(
                dtype=tf.float64, shape=[4], shared_name=f"my_datasets-{uuid.uuid4()}"
            )
            tf.raw_ops.AssignVariableOp(
                resource=self._totals, value=tf.constant([0.0, 0, 0, 0], tf.float64)
            )

    def add(self, asked: Any) -> Any:
        """Notes a wait that is over; returns the operation."""
        now = tf.timestamp()
        old = self._read()
        first = tf.where(old[0] > 0, old[2], asked)
        new = tf.stack([old[0] + 1, old[1] + tf.maximum(now - asked, 0), first, now])
        return tf.raw_ops.AssignVariableOp(resource=self._totals, value=new)

    def stats(self) -> Stats:
        """Returns the sums."""
        steps, waited, first, last = self._read().numpy().tolist()
        return Stats(int(steps), waited, last - first)

    def _read(self) -> Any:
        return tf.raw_ops.ReadVariableOp(resource=self._totals, dtype=tf.float64)
