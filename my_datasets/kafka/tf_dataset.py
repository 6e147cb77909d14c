"""A topic's messages as a `tf.data.Dataset` of batches."""

import weakref
from collections.abc import Iterator

import tensorflow as tf

from my_datasets.core.arrays import Array
from my_datasets.input_pipeline.decode import pytree
from my_datasets.input_pipeline.decode.pytree import Column
from my_datasets.input_pipeline.frameworks.tensors import (
    arrays_of,
    calls,
    shapes_of,
    tensor_of,
    types_of,
)
from my_datasets.kafka.batches import MessageBatches, Recipe
from my_datasets.kafka.consumer_thread import Counts
from my_datasets.kafka.offsets import TopicPosition


class MessageDataset(tf.data.Dataset):
    """A `tf.data.Dataset` of batches of a topic, unbounded unless an end was requested.

    Each iteration has a consumer of its own, and ends the one before it. A batch counts as consumed
    when the next one is requested from this dataset, or on `commit`: a `prefetch` after this
    dataset requests batches early.
    """

    def __init__(self, recipe: Recipe, position: TopicPosition | None = None) -> None:
        """Builds the dataset; it connects to the cluster when the first batch is requested."""
        self._recipe, self._position = recipe, position
        self._running: weakref.ref[MessageBatches] | None = None
        self._dataset = self._built()
        super().__init__(self._dataset._variant_tensor)

    def _inputs(self) -> list[tf.data.Dataset]:
        return [self._dataset]

    @property
    def element_spec(self) -> tf.TypeSpec:
        """The structure, types and shapes of a batch."""
        return self._dataset.element_spec

    def batches(self, state: TopicPosition | None = None) -> MessageBatches:
        """Returns an iterator over the batches as NumPy arrays; ends the running iteration."""
        self.close()
        found = MessageBatches(self._recipe, state or self._position)
        self._running = weakref.ref(found)
        return found

    def iterator(self) -> "MessageIterator":
        """Returns an iterator whose position `tf.train.Checkpoint` saves."""
        return MessageIterator(self)

    def state(self) -> TopicPosition:
        """Returns the position after the last batch; raises `RuntimeError` before an iteration."""
        running = self._iteration()
        if running is None:
            raise RuntimeError("no iteration of this stream is running")
        return running.state()

    def commit(self) -> None:
        """Marks the last returned batch as consumed."""
        running = self._iteration()
        if running is not None:
            running.commit()

    def close(self) -> None:
        """Ends the running iteration, if there is one."""
        running = self._iteration()
        if running is not None:
            running.close()

    @property
    def counts(self) -> Counts:
        """What the latest iteration has read."""
        running = self._iteration()
        return Counts() if running is None else running.counts

    def _iteration(self) -> MessageBatches | None:
        return None if self._running is None else self._running()

    def _built(self) -> tf.data.Dataset:
        template = self._recipe.decoding.nothing
        reading = self._recipe.reading
        are_full = reading.max_wait is None and (reading.drop_remainder or reading.is_endless)
        size = reading.batch_size if are_full else None
        specs = tuple(
            spec
            for column in pytree.columns_of(template)
            for spec in map(tf.TensorSpec, shapes_of(column, size), types_of(column))
        )

        def arrays() -> Iterator[tuple[Array, ...]]:
            batches = self.batches()
            try:
                while True:
                    with calls:
                        columns = pytree.columns_of(next(batches))
                        found = tuple(one for column in columns for one in arrays_of(column))
                    yield found
            except StopIteration:
                return
            finally:
                batches.close()

        def nested(*tensors: tf.Tensor) -> object:
            rest = iter(tensors)
            return pytree.map_columns(lambda column: tensor_of(column, rest), template)

        dataset = tf.data.Dataset.from_generator(arrays, output_signature=specs).map(nested)
        options = tf.data.Options()
        # Prefetching would commit messages that the consumer has not seen.
        options.experimental_optimization.inject_prefetch = False
        options.experimental_optimization.map_parallelization = False
        return dataset.with_options(options)


class MessageIterator(tf.train.experimental.PythonState):
    """An iterator that can be saved with a model: `tf.train.Checkpoint(data=iterator)`.

    After a restore it continues with the message after the last one the model has seen: each
    message affects the model's state exactly once.
    """

    def __init__(self, stream: MessageDataset) -> None:
        self._stream = stream
        self._batches = stream.batches()

    def __iter__(self) -> "MessageIterator":
        return self

    def __next__(self) -> object:
        def tensor(column: Column) -> tf.Tensor | tf.RaggedTensor:
            return tensor_of(column, map(tf.constant, arrays_of(column)))

        return pytree.map_columns(tensor, next(self._batches))

    def state(self) -> TopicPosition:
        """Returns the current position."""
        return self._batches.state()

    def commit(self) -> None:
        """Marks the last returned batch as consumed."""
        self._batches.commit()

    def close(self) -> None:
        """Ends the iteration."""
        self._batches.close()

    def serialize(self) -> str:
        """Returns the state as text."""
        return self.state().to_json()

    def deserialize(self, serialized: str | bytes) -> None:
        """Restores a serialized position; raises `PlanError` if the text is not one."""
        text = serialized.decode() if isinstance(serialized, bytes) else str(serialized)
        self._batches = self._stream.batches(TopicPosition.from_json(text))
