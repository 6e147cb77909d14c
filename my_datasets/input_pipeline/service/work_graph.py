"""The work sent to the service: a graph that makes pieces of a plan."""

from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from my_datasets.errors import ServiceError, explain
from my_datasets.input_pipeline.frameworks.tensors import (
    Draws,
    TensorForm,
    change_of,
    opened_for_tensors,
    place_of,
)
from my_datasets.input_pipeline.order.state import State
from my_datasets.input_pipeline.plan.plan import Plan
from my_datasets.input_pipeline.plan.stages import Prefetch
from my_datasets.input_pipeline.service import pyfunc_registry
from my_datasets.input_pipeline.service.policies import Dealing
from my_datasets.input_pipeline.service.request import ServiceRequest
from my_datasets.input_pipeline.service.worker import Maker
from my_datasets.input_pipeline.transform.augment import Augmentation

_service = tf.data.experimental.service
# Used instead of a worker's address: the trainer's own process.
HERE = "here"
# Precede a piece's tensors: its number, its maker, and the number of examples skipped there.
BESIDE = (tf.int64, tf.string, tf.int64)


class WorkGraph:
    """The pieces of a plan, to be made by other processes.

    Attributes:
      engine: An engine like those of the workers; maps pieces to examples.
      spec: The form of a piece, as `tf.TypeSpec`s nested like a batch.
      is_single: Whether a piece is one batch; otherwise its tensors have an additional first
        dimension.
    """

    def __init__(self, plan: Plan, state: State | None, augment: Augmentation | None) -> None:
        """Builds the graph.

        Args:
          plan: The plan.
          state: Where to begin; None for the beginning.
          augment: Augments the images, in the worker.

        Raises:
          FeatureError: Values have different shapes and cannot be batched.
          PlanError: The state belongs to another plan, or the data changed.
          ServiceError: The augmentation cannot be sent to other processes.
        """
        draws = Draws.of(augment)
        self.engine, first = opened_for_tensors(plan, state, single=augment is not None)
        batching = self.engine.batching
        self._form = TensorForm(self.engine, first, draws)
        self.is_single = self._form.is_single
        request = ServiceRequest(plan, batching.start, self.is_single, draws)
        self._request = request.to_json()
        self._change = change_of(self.engine, augment)
        self._threads = plan.the(Prefetch).workers
        piece = tf.function(self._piece).get_concrete_function(tf.TensorSpec((3,), tf.int64))
        _refuse_what_cannot_cross(piece.graph)
        batch = piece.structured_outputs[len(BESIDE)]
        self.spec = tf.nest.map_structure(tf.type_spec_from_value, batch)
        self.flat_specs = (
            *(tf.TensorSpec((), kind) for kind in BESIDE),
            *tf.nest.flatten(self.spec, expand_composites=True),
        )

    def dataset(
        self, start: State, numbers: Any, dealing: Dealing, service: str, **options: Any
    ) -> Any:
        """Returns pieces made by a service, as flat tensors preceded by those of `BESIDE`.

        This waits only for the dispatcher, but forever if that does not answer.

        Args:
          start: Where the iteration begins to which the pieces belong.
          numbers: Which pieces: a range, or a list of numbers.
          dealing: How workers get pieces.
          service: The dispatcher's URL.
          options: Further options of TensorFlow's `distribute`.
        """
        if isinstance(numbers, range):
            pieces = tf.data.Dataset.range(numbers.start, numbers.stop)
        else:
            pieces = tf.data.Dataset.from_tensor_slices(tf.constant(numbers, tf.int64))
        if dealing == "fixed":
            hint = tf.data.experimental.SHARD_HINT
            pieces = pieces.shard(hint, hint)
        place = place_of(start, 0)
        pieces = pieces.map(lambda number: tf.stack([place[0], place[1], number]))
        made = pieces.map(self._flat, num_parallel_calls=self._threads, deterministic=True)
        mode = {
            "taken": _service.ShardingPolicy.DYNAMIC,
            "fixed": _service.ShardingPolicy.HINT,
            "all": _service.ShardingPolicy.OFF,
        }[dealing]
        return made.apply(_service.distribute(mode, service, **options))

    def made_here(self, start: State, numbers: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        """Yields pieces made by this process, in the same form as those of `dataset`."""
        maker, request = Maker(HERE), self._request.encode()
        for number in numbers:
            types = (*BESIDE, *self._form.types)
            tensors = map(tf.constant, (number, *maker(request, place_of(start, number))), types)
            piece = self._changed(*tensors)
            yield tuple(one.numpy() for one in tf.nest.flatten(piece, expand_composites=True))

    def packed(self, flat: Any) -> Any:
        """Packs the flat tensors of a piece into the structure of a batch."""
        return tf.nest.pack_sequence_as(self.spec, flat, expand_composites=True)

    def _piece(self, place: Any) -> tuple[Any, ...]:
        types = [*BESIDE[1:], *self._form.types]
        who, skipped, *arrays = pyfunc_registry.call([tf.constant(self._request), place], types)
        who.set_shape(())
        skipped.set_shape(())
        return self._changed(place[2], who, skipped, *arrays)

    def _changed(self, number: Any, who: Any, skipped: Any, *arrays: Any) -> tuple[Any, ...]:
        batch, *draws = self._form.batch(arrays)
        return number, who, skipped, self._change(batch, *draws) if self._change else batch

    def _flat(self, place: Any) -> tuple[Any, ...]:
        return tuple(tf.nest.flatten(self._piece(place), expand_composites=True))


def _refuse_what_cannot_cross(graph: Any) -> None:
    """Refuses Python functions, and state of this process.

    Raises:
      ServiceError: The graph contains one of them.
    """
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for one in definition.library.function for n in one.node_def)]
    foreign = [
        node
        for node in nodes
        if node.op in pyfunc_registry.CALLS
        and node.attr["token"].s.decode() != pyfunc_registry.TOKEN
    ]
    if foreign:
        raise _refused(
            f"The augmentation calls Python (tf.py_function or tf.numpy_function, in "
            f"{foreign[0].name!r}), which exists in this process only."
        )
    if any(tensor.dtype == tf.resource for tensor in graph.inputs):
        raise _refused("The augmentation uses a tf.Variable or a table, which is in this process.")


def _refused(reason: str) -> ServiceError:
    return ServiceError(
        explain(
            reason,
            "A worker of the service executes TensorFlow's operations, and our own reading and "
            "decoding",
            fix="write it in TensorFlow's operations, or use .map(...) on the pipeline, which is "
            "done here; or leave service out",
        )
    )
