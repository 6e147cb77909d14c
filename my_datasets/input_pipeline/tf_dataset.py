"""A plan as a `tf.data.Dataset`."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from my_datasets.errors import FeatureError, explain
from my_datasets.input_pipeline import trees
from my_datasets.input_pipeline.engine import Engine, State
from my_datasets.input_pipeline.plan import Plan
from my_datasets.input_pipeline.ragged import Ragged
from my_datasets.input_pipeline.stages import Prefetch


@dataclass(frozen=True)
class Stats:
    """How long the consumer of a pipeline waited for data.

    Attributes:
      steps: The batches that were given.
      waited: Seconds that it waited for them.
      elapsed: Seconds from the first request on.
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
        map_: Callable[..., Any] | None = None,
    ) -> None:
        """Builds the dataset.

        Args:
          plan: The plan.
          state: Where to begin; None for the beginning.
          map_: Changes each batch; called with its components, as by `tf.data.Dataset.map`.

        Raises:
          FeatureError: Values of different shapes cannot be put into batches.
          PlanError: The state belongs to another plan, or the data changed.
        """
        self.plan = plan
        self._engine = Engine(plan, state)
        first = self._engine.load(self._engine.piece(0))
        if any(isinstance(column, Ragged) for column in trees.columns_of(first)):
            # TensorFlow cannot cut lists of different lengths into batches.
            self._engine = Engine(plan, state, rows=1)
        self._clock = _Clock()
        self._dataset = _timed(_built(self._engine, first, map_), self._clock)
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
    engine: Engine, first: Any, map_: Callable[..., Any] | None
) -> tf.data.Dataset:
    """Returns the dataset of an engine's batches, of which some are given."""
    columns = trees.columns_of(first)
    types = [kind for column in columns for kind in _types(column)]
    shapes = [shape for column in columns for shape in _shapes(column)]
    prefetch = engine.plan.the(Prefetch)

    def load(number: Any) -> list[Any]:
        piece = engine.piece(int(number))
        arrays: list[Any] = []
        for column in trees.columns_of(engine.load(piece)):
            arrays += _arrays(column, piece.batches, piece.rows)
        return arrays

    def loaded(number: Any) -> Any:
        found = tf.numpy_function(load, [number], types, stateful=False)
        for tensor, shape in zip(found, shapes, strict=True):
            tensor.set_shape(shape)
        return tuple(found)

    def restored(*tensors: Any) -> Any:
        rest = iter(tensors)
        return trees.map_columns(lambda column: _tensor(column, rest), first)

    count = engine.count_pieces()
    pieces = tf.data.Dataset.range(count if count is not None else tf.int64.max)
    dataset = pieces.map(loaded, num_parallel_calls=prefetch.workers, deterministic=True)
    dataset = dataset.unbatch().map(restored)
    if map_ is not None:
        dataset = dataset.map(map_, num_parallel_calls=prefetch.workers, deterministic=True)
    return dataset.prefetch(max(1, prefetch.ahead))


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


def _shapes(column: Any) -> list[Any]:
    """Returns the shapes of a piece's arrays: [batches, rows, ...]."""
    if isinstance(column, Ragged):
        return [(None, None, *column.values.shape[1:]), *((None, None) for _ in column.lengths)]
    return [(None, None, *column.shape[1:])]


def _arrays(column: Any, batches: int, rows: int) -> list[Any]:
    """Returns what goes to TensorFlow for a column of a piece."""
    if isinstance(column, Ragged):
        return [column.values[None], *(lengths[None] for lengths in column.lengths)]
    values = column
    if column.dtype == object and not len(column):
        values = column.astype("S1")
    return [np.ascontiguousarray(values.reshape(batches, rows, *values.shape[1:]))]


def _tensor(column: Any, tensors: Iterator[Any]) -> Any:
    """Returns the tensor of a column, from what came of it."""
    values = next(tensors)
    if not isinstance(column, Ragged):
        return values
    lengths = [next(tensors) for _ in column.lengths]
    return tf.RaggedTensor.from_nested_row_lengths(values, lengths, validate=False)


class _Clock:
    """Adds up how long a consumer waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps = 0
        self._waited = 0.0
        self._first: float | None = None

    def add(self, asked: Any) -> Any:
        now = time.time()
        with self._lock:
            self._steps += 1
            self._waited += max(0.0, now - float(asked))
            self._first = float(asked) if self._first is None else self._first
        return np.bool_(True)

    def stats(self) -> Stats:
        with self._lock:
            elapsed = 0.0 if self._first is None else time.time() - self._first
            return Stats(self._steps, self._waited, elapsed)


def _timed(dataset: tf.data.Dataset, clock: _Clock) -> tf.data.Dataset:
    """Returns the same dataset; the clock is told of each wait for a batch.

    Both inputs of `zip` are asked in turn by the thread that wants the batch: the first one when it
    begins to wait.
    """
    asked = tf.data.Dataset.range(tf.int64.max).map(lambda _: tf.timestamp())

    def told(when: Any, batch: Any) -> Any:
        with tf.control_dependencies([tf.numpy_function(clock.add, [when], tf.bool)]):
            return tf.nest.map_structure(tf.identity, batch, expand_composites=True)

    return tf.data.Dataset.zip((asked, dataset)).map(told)
