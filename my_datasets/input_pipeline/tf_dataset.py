"""A plan as a `tf.data.Dataset`."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from my_datasets.core.machine import cores
from my_datasets.input_pipeline.augment import Augmentation
from my_datasets.input_pipeline.ending import calls
from my_datasets.input_pipeline.engine import Engine
from my_datasets.input_pipeline.plan import Plan
from my_datasets.input_pipeline.stages import Prefetch
from my_datasets.input_pipeline.state import State
from my_datasets.input_pipeline.tensors import (
    Draws,
    Form,
    change_of,
    opened_for_tensors,
    piece_arrays,
)
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
        self._clock = Clock()
        self._engine, self._dataset = self._built(state)
        super().__init__(self._dataset._variant_tensor)

    def _built(self, state: State | None) -> tuple[Engine, tf.data.Dataset]:
        """Returns what knows the batches, and the dataset that gives them."""
        engine, first = opened_for_tensors(self.plan, state)
        return engine, _local(engine, first, self.augment, self._clock)

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

    def at(self, state: State) -> "Pipeline":
        """Returns the same pipeline, which begins elsewhere.

        Raises:
          PlanError: The state belongs to another plan.
        """
        return Pipeline(self.plan, state=state, augment=self.augment)

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
        self._pipeline = self._pipeline.at(State.from_json(text))
        self._given, self._iterator = 0, None


def _local(
    engine: Engine, first: Any, augment: Augmentation | None, clock: Clock
) -> tf.data.Dataset:
    """Returns the dataset of an engine's batches, made here; an example of them is given."""
    batching = engine.batching
    draws = Draws.of(augment)
    form = Form(engine, first, draws)
    prefetch = engine.plan.the(Prefetch)

    def load(number: Any) -> list[Any]:
        with calls:
            return piece_arrays(engine, int(number), draws)

    def loaded(number: Any) -> Any:
        arrays = tf.numpy_function(load, [number], form.types, stateful=False)
        batch, *drawn = form.batch(arrays)
        return (batch, *drawn) if drawn else batch

    count = batching.total_pieces
    pieces = tf.data.Dataset.range(count if count is not None else tf.int64.max)
    in_parallel: dict[str, Any] = {}
    if prefetch.ahead:
        in_parallel = {"num_parallel_calls": prefetch.workers, "deterministic": True}
    dataset = pieces.map(loaded, **in_parallel)
    if not form.is_single:
        dataset = dataset.unbatch()
    change = change_of(engine, augment)
    if change is not None:
        dataset = dataset.map(change, **in_parallel)
    if prefetch.ahead:
        dataset = dataset.prefetch(prefetch.ahead)
    known = counted(dataset, batching.total_steps)
    return timed_by(clock, known).with_options(_options(prefetch))


def counted(batches: tf.data.Dataset, steps: int | None) -> tf.data.Dataset:
    """Returns batches of which it is known how many there are; with None, they come for ever."""
    cardinality = tf.data.INFINITE_CARDINALITY if steps is None else steps
    return batches.apply(tf.data.experimental.assert_cardinality(cardinality))


def timed_by(clock: Clock, batches: tf.data.Dataset) -> tf.data.Dataset:
    """Returns batches of which a clock is told how long each was waited for.

    Both inputs of `zip` are asked in turn by the thread that wants a batch, the first one when it
    begins to wait.

    Args:
      clock: The clock.
      batches: The batches.
    """
    asked = tf.data.Dataset.range(tf.int64.max).map(lambda _: tf.timestamp())

    def told(when: Any, batch: Any) -> Any:
        clock.add(when)
        return batch

    return tf.data.Dataset.zip((asked, batches)).map(told)


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
