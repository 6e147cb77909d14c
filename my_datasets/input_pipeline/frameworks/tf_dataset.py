"""A plan as a `tf.data.Dataset`."""

import dataclasses
import functools
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from my_datasets.core.arrays import Array
from my_datasets.core.processes import cores
from my_datasets.errors import PlanError
from my_datasets.input_pipeline.decode.pytree import Tree
from my_datasets.input_pipeline.engine import Engine
from my_datasets.input_pipeline.frameworks.tensors import (
    TensorPieces,
    calls,
    piece_arrays,
    place_of,
)
from my_datasets.input_pipeline.order.batching import Batching
from my_datasets.input_pipeline.order.state import Iterations, State
from my_datasets.input_pipeline.plan.plan import Plan
from my_datasets.input_pipeline.plan.stages import Prefetch
from my_datasets.input_pipeline.read.prepared import OpenedVersions
from my_datasets.input_pipeline.transform.augment import Augmentation


@dataclass(frozen=True)
class StallStats:
    """How long the consumer of a pipeline waited for data.

    Attributes:
      steps: The number of batches delivered.
      waited: Seconds spent waiting for them.
      elapsed: Seconds from the first request to the last batch.
      skipped: The number of distinct examples skipped: see `undecodable` of `plan`.
    """

    steps: int
    waited: float
    elapsed: float
    skipped: int = 0

    @property
    def share(self) -> float:
        """The fraction of the time spent waiting, from 0 to 1."""
        return self.waited / self.elapsed if self.elapsed else 0.0


class StallClock:
    """Adds up how long a consumer waits; in TensorFlow, because a call of Python would wait, too.

    It does not use a `tf.Variable`, which in a strategy's scope has one copy per replica.
    """

    def __init__(self) -> None:
        with tf.device("CPU:0"):
            # Steps, seconds waited, when the first wait began, when the last batch arrived.
            self._totals = tf.raw_ops.VarHandleOp(
                dtype=tf.float64, shape=[4], shared_name=f"my_datasets-{uuid.uuid4()}"
            )
            tf.raw_ops.AssignVariableOp(
                resource=self._totals, value=tf.constant([0.0, 0, 0, 0], tf.float64)
            )

    def add(self, asked: tf.Tensor) -> tf.Operation:
        """Records a wait that began at `asked` and is over; returns the operation."""
        now = tf.timestamp()
        old = self._read()
        first = tf.where(old[0] > 0, old[2], asked)
        new = tf.stack([old[0] + 1, old[1] + tf.maximum(now - asked, 0), first, now])
        return tf.raw_ops.AssignVariableOp(resource=self._totals, value=new)

    def stats(self) -> StallStats:
        """Returns the totals so far, without `skipped`."""
        steps, waited, first, last = self._read().numpy().tolist()
        return StallStats(int(steps), waited, last - first)

    def _read(self) -> tf.Tensor:
        return tf.raw_ops.ReadVariableOp(resource=self._totals, dtype=tf.float64)


# More pieces than any iteration has.
_EVER = (1 << 63) - 1
# Returns a dataset whose iterators each call the argument to learn where to begin.
Iteration = Callable[[Callable[[], State]], tf.data.Dataset]


class Pipeline(tf.data.Dataset):
    """A `tf.data.Dataset` of batches in exact order; each iteration yields the next epochs.

    Attributes:
      plan: The plan.
      augment: Augments the images; None for no augmentation.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        state: State | None = None,
        augment: Augmentation | None = None,
        versions: OpenedVersions | None = None,
    ) -> None:
        """Builds the dataset, which begins at the state, or at the beginning.

        Raises:
          FeatureError: Values have different shapes and cannot be batched.
          PlanError: The state belongs to another plan, or the data changed.
        """
        self.plan = plan
        self.augment = augment
        self._clock = StallClock()
        self._engine, self._iteration = self._opened(state, versions)
        batching = self._engine.batching
        self._iterations = Iterations(batching.start, batching.epochs)
        self._dataset = self._iteration(self._iterations.begin)
        super().__init__(self._dataset._variant_tensor)

    def _opened(
        self, state: State | None, versions: OpenedVersions | None
    ) -> tuple[Engine, Iteration]:
        """Returns the engine, and a function that builds the dataset of an iteration."""
        mixes = self.augment is not None and self.augment.partners > 0
        pieces = TensorPieces(self.plan, state, self.augment, single=mixes, versions=versions)
        return pieces.engine, functools.partial(_local_batches, pieces, self._clock)

    def _inputs(self) -> list[tf.data.Dataset]:
        return [self._dataset]

    def __iter__(self) -> Any:
        """Returns an iterator over the next epochs."""
        iterator = super().__iter__()
        if tf.executing_eagerly():
            # tf.train.Checkpoint calls this when it saves the iterator.
            iterator._serialize_to_tensors = _not_saved
        return iterator

    @property
    def element_spec(self) -> Tree[tf.TypeSpec]:
        """The structure, types and shapes of a batch."""
        return self._dataset.element_spec

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches in a full epoch; pass it to `model.fit` if epochs=None."""
        return self._engine.batching.steps_per_epoch

    def cardinality(self) -> tf.Tensor:
        """Returns the number of batches in a full iteration; a resumed one has fewer.

        Keras asks once, for all epochs.
        """
        total = self._engine.batching.steps_per_iteration
        return tf.constant(tf.data.INFINITE_CARDINALITY if total is None else total, tf.int64)

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration begin at this epoch, from 0; for example to repeat one.

        Raises:
          InvalidOptionError: It is not a multiple of the plan's `epochs`.
        """
        self._iterations.set_epoch(epoch)

    def state_after(self, steps: int) -> State:
        """Returns the state after this many batches, to resume training from there.

        Batches are counted over all iterations since the pipeline was created; each must have run
        to its end.
        """
        return self.state_in(self._engine.batching.start, steps)

    def state_in(self, start: State | None, steps: int) -> State:
        """Returns the state after this many batches of the iteration that began at `start`.

        None as `start` stands for the next iteration.
        """
        return self._engine.batching.at(start or self._iterations.next).state_after(steps)

    def begin(self) -> tuple[State, Iterator[Any]]:
        """Begins an iteration; returns its start and an iterator over its batches."""
        start = self._iterations.begin()
        return start, iter(self._iteration(lambda: start))

    def iterator(self) -> "CheckpointableIterator":
        """Returns an iterator whose position `tf.train.Checkpoint` saves."""
        return CheckpointableIterator(self)

    def at(self, state: State) -> "Pipeline":
        """Returns a copy of this pipeline that begins at another state.

        Raises:
          PlanError: The state belongs to another plan.
        """
        return Pipeline(self.plan.resumed(state), state=state, augment=self.augment)

    def stats(self) -> StallStats:
        """Returns how long the consumer has waited so far, over all iterators of this pipeline."""
        return dataclasses.replace(self._clock.stats(), skipped=self._engine.skipped)


class CheckpointableIterator(tf.train.experimental.PythonState):
    """An iterator over a pipeline that can be saved: `tf.train.Checkpoint(data=iterator)`.

    Looping over it again after its end yields the pipeline's next iteration.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        """Begins where the pipeline's next iteration does, once a batch is requested."""
        self._pipeline = pipeline
        self._start: State | None = None
        self._batches: Iterator[Any] | None = None
        self._given = 0
        self._has_ended = False

    def __iter__(self) -> "CheckpointableIterator":
        if self._has_ended:
            self._start, self._given, self._has_ended = None, 0, False
        return self

    def __next__(self) -> Any:
        if self._has_ended:
            raise StopIteration
        if self._start is None or self._batches is None:
            self._start, self._batches = self._pipeline.begin()
        try:
            batch = next(self._batches)
        except StopIteration:
            self._has_ended = True
            raise
        self._given += 1
        return batch

    def state(self) -> State:
        """Returns the current state."""
        return self._pipeline.state_in(self._start, self._given)

    def serialize(self) -> str:
        """Returns the state as text."""
        return self.state().to_json()

    def deserialize(self, serialized: str | bytes) -> None:
        """Restores a serialized state, regardless of the batches yielded so far.

        Raises:
          PlanError: The state belongs to another plan.
        """
        text = serialized.decode() if isinstance(serialized, bytes) else str(serialized)
        self._pipeline = self._pipeline.at(State.from_json(text))
        self._start, self._given, self._has_ended = None, 0, False


def _not_saved() -> None:
    raise PlanError(
        "iter(pipeline) cannot be saved in a checkpoint.",
        "Found: tf.train.Checkpoint(data=iter(pipeline)), or the like",
        fix="use tf.train.Checkpoint(data=pipeline.iterator()), and that iterator in training",
    )


def _local_batches(
    pieces: TensorPieces, clock: StallClock, begin: Callable[[], State]
) -> tf.data.Dataset:
    """Returns a dataset of batches made in this process.

    Each iterator calls `begin`, for its first batch, to learn where to begin.
    """
    engine, batching = pieces.engine, pieces.engine.batching
    prefetch = engine.plan.the(Prefetch)

    def begun() -> Array:
        with calls:
            start = begin()
            count = batching.at(start).total_pieces
            return place_of(start, _EVER if count is None else count)

    def places(_: tf.Tensor) -> tf.data.Dataset:
        place = tf.ensure_shape(tf.numpy_function(begun, [], tf.int64), [3])
        numbers = tf.data.Dataset.range(place[2])
        return numbers.map(lambda number: tf.stack([place[0], place[1], number]))

    def load(place: Array) -> list[Array]:
        with calls:
            return piece_arrays(engine, place, pieces.draws)

    def loaded(place: tf.Tensor) -> Tree[tf.Tensor]:
        arrays = tf.numpy_function(load, [place], pieces.types, stateful=False)
        batch, *drawn = pieces.batch(arrays)
        return (batch, *drawn) if drawn else batch

    in_parallel: dict[str, object] = {}
    if prefetch.ahead:
        in_parallel = {"num_parallel_calls": prefetch.workers, "deterministic": True}
    dataset = tf.data.Dataset.range(1).flat_map(places).map(loaded, **in_parallel)
    if not pieces.is_single:
        dataset = dataset.unbatch()
    if pieces.augmented is not None:
        dataset = dataset.map(pieces.augmented, **in_parallel)
    if prefetch.ahead:
        dataset = dataset.prefetch(prefetch.ahead)
    # Keep `tf.data` to the parallelism and prefetching of the plan.
    options = tf.data.Options()
    if not prefetch.ahead:
        options.experimental_optimization.map_parallelization = False
        options.experimental_optimization.inject_prefetch = False
    if prefetch.workers > cores():
        # The shared thread pool has one thread per core.
        options.threading.private_threadpool_size = prefetch.workers + 1
    return timed_by(clock, counted(dataset, batching)).with_options(options)


def counted(batches: tf.data.Dataset, batching: Batching) -> tf.data.Dataset:
    """Sets the cardinality of batches, if every iteration has the same number of them."""
    total = batching.steps_per_iteration
    if total is not None and not batching.is_whole:
        return batches
    cardinality = tf.data.INFINITE_CARDINALITY if total is None else total
    return batches.apply(tf.data.experimental.assert_cardinality(cardinality))


def timed_by(clock: StallClock, batches: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the batches, and records on a clock how long the consumer waited for each.

    The consuming thread calls both inputs of `zip` in turn, the first one when it begins to wait.
    """
    asked = tf.data.Dataset.range(tf.int64.max).map(lambda _: tf.timestamp())

    def recorded(when: tf.Tensor, batch: Tree[tf.Tensor]) -> Tree[tf.Tensor]:
        clock.add(when)
        return batch

    return tf.data.Dataset.zip((asked, batches)).map(recorded)
