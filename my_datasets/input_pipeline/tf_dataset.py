"""A plan as a `tf.data.Dataset`."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from my_datasets.core.machine import cores
from my_datasets.errors import FeatureError, explain
from my_datasets.input_pipeline import trees
from my_datasets.input_pipeline.augment import Augmentation
from my_datasets.input_pipeline.batching import Piece
from my_datasets.input_pipeline.ending import calls
from my_datasets.input_pipeline.engine import Engine
from my_datasets.input_pipeline.plan import Plan
from my_datasets.input_pipeline.ragged import Ragged
from my_datasets.input_pipeline.stages import Prefetch
from my_datasets.input_pipeline.state import State
from my_datasets.input_pipeline.waiting import Clock, Stats


class Pipeline(tf.data.Dataset):
    """A `tf.data.Dataset` of batches, in exact order.

    Attributes:
      plan: What it does.
      augment: What changes the images; None if nothing does.
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
        self.augment = augment
        self._engine = Engine(plan, state)
        # For its form.
        first = self._engine.load(Piece(self._engine.batching.start.epoch, 0, 1, 1))
        if any(isinstance(column, Ragged) for column in trees.columns_of(first)):
            # TensorFlow cannot cut lists of different lengths into batches.
            self._engine = Engine(plan, state, single=True)
        self._clock = Clock()
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
        return self._engine.batching.steps_per_epoch

    def state_after(self, steps: int) -> State:
        """Returns where an iteration is after so many batches, to go on there another time."""
        return self._engine.batching.state_after(steps)

    def iterator(self) -> "CheckpointableIterator":
        """Returns an iterator that knows where it is, for `tf.train.Checkpoint`."""
        return CheckpointableIterator(self)

    def stats(self) -> Stats:
        """Returns how long the consumer has waited so far, by all iterators of this pipeline."""
        return dataclasses.replace(self._clock.stats(), skipped=self._engine.skipped)


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
        old = self._pipeline
        self._pipeline = Pipeline(old.plan, state=State.from_json(text), augment=old.augment)
        self._given, self._iterator = 0, None


def _built(
    engine: Engine, first: Any, augment: Augmentation | None, clock: Clock
) -> tf.data.Dataset:
    """Returns the dataset of an engine's batches, of which some are given.

    The clock is told of each wait for one: both inputs of `zip` are asked in turn by the thread
    that wants a batch, the first one when it begins to wait.
    """
    batching = engine.batching
    size = batching.batch.size if batching.batch.drop_remainder else None
    columns = trees.columns_of(first)
    types = [kind for column in columns for kind in _types(column)]
    shapes = [shape for column in columns for shape in _shapes(column, size)]
    # Cutting pieces into batches is a copy of them.
    is_single = batching.at_once == 1
    if augment is not None:
        types.append(tf.float32)
        shapes.append((size, augment.draws))
    prefetch = engine.plan.the(Prefetch)

    def load(number: Any) -> list[Any]:
        with calls:
            return arrays_of(int(number))

    def arrays_of(number: int) -> list[Any]:
        piece = batching.piece(number)
        arrays = [
            array
            for column in trees.columns_of(engine.load(piece))
            for array in _arrays(column, piece, is_single)
        ]
        if augment is not None:
            draws = augment.numbers(piece.epoch, batching.numbers(piece))
            arrays += _arrays(draws, piece, is_single)
        return arrays

    def loaded(number: Any) -> Any:
        found = tf.numpy_function(load, [number], types, stateful=False)
        for tensor, shape in zip(found, shapes, strict=True):
            tensor.set_shape(shape if is_single else (None, *shape))
        rest = iter(found)
        batch = trees.map_columns(lambda column: _tensor(column, rest), first)
        return (batch, *rest)

    count = batching.total_pieces
    pieces = tf.data.Dataset.range(count if count is not None else tf.int64.max)
    in_parallel: dict[str, Any] = {}
    if prefetch.ahead:
        in_parallel = {"num_parallel_calls": prefetch.workers, "deterministic": True}
    dataset = pieces.map(loaded, **in_parallel)
    if not is_single:
        dataset = dataset.unbatch()
    change = _change(engine, augment)
    if change is not None:
        dataset = dataset.map(change, **in_parallel)
    if prefetch.ahead:
        dataset = dataset.prefetch(prefetch.ahead)
    asked = tf.data.Dataset.range(tf.int64.max).map(lambda _: tf.timestamp())

    def told(when: Any, batch: Any) -> Any:
        clock.add(when)
        return batch if change is not None else batch[0]

    total = batching.total_steps
    known = tf.data.experimental.assert_cardinality(
        tf.data.INFINITE_CARDINALITY if total is None else total
    )
    whole = tf.data.Dataset.zip((asked, dataset)).map(told).apply(known)
    return whole.with_options(_options(prefetch))


def _options(prefetch: Prefetch) -> tf.data.Options:
    """Returns what makes `tf.data` do no more and no less than a plan says."""
    options = tf.data.Options()
    if not prefetch.ahead:
        options.experimental_optimization.map_parallelization = False
        options.experimental_optimization.inject_prefetch = False
    if prefetch.workers > cores():
        # Its own pool has a thread for each core.
        options.threading.private_threadpool_size = prefetch.workers + 1
    return options


def _change(engine: Engine, augment: Augmentation | None) -> Callable[..., Any] | None:
    """Returns what is done to the images of a batch; None for nothing.

    Raises:
      FeatureError: There are not just images of one feature to augment.
    """
    if augment is None:
        return None
    is_image = trees.map_columns(lambda leaf: leaf.form == "image", engine.tree)
    count = trees.columns_of(is_image).count(True)
    if count != 1:
        raise FeatureError(
            explain(
                f"There are {count} columns of images, one of which would be augmented.",
                mend="choose one with columns=[...], or leave augment out",
            )
        )

    def augmented(batch: Any, draws: Any) -> Any:
        if is_image == (True, False):
            images, targets = batch
            return augment(images, targets, draws)
        return trees.map_columns(
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
