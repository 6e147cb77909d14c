"""The work sent to the service: a graph that makes pieces of a plan, and the function it calls.

The service sends graphs to its workers. A Python call in a graph is an operation with the
function's token, which is looked up in the process that executes it. TensorFlow generates tokens
for the process that builds the graph; our workers register one function under a fixed token. Other
Python functions have no such token, and cannot be sent to workers. A request, the plan and a
position, is text in the graph.
"""

import dataclasses
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow.python.ops import script_ops

from my_datasets.core.arrays import Array
from my_datasets.errors import ServiceError
from my_datasets.input_pipeline.decode.pytree import Tree
from my_datasets.input_pipeline.engine import Engine
from my_datasets.input_pipeline.frameworks.tensors import (
    Draws,
    TensorPieces,
    piece_arrays,
    place_of,
)
from my_datasets.input_pipeline.order.state import State
from my_datasets.input_pipeline.plan.plan import Plan
from my_datasets.input_pipeline.plan.stages import Mix, Prefetch, Read, Stage
from my_datasets.input_pipeline.read.prepared import OpenedVersions
from my_datasets.input_pipeline.service.delivery_audit import Policy
from my_datasets.input_pipeline.transform.augment import Augmentation
from my_datasets.records import attachments
from my_datasets.storage import addresses

_service = tf.data.experimental.service
# The number is the version of the request format: workers of another version use another token.
TOKEN = "my_datasets.piece.2"  # noqa: S105
_CALLS = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})
# TensorFlow's function registry, which has no public API, keeps weak references only.
_registered: list[Callable[..., object]] = []
# Plans whose data stays open: more than the trainers that share a worker.
_MOST_OPEN = 16
# Used instead of a worker's address: the trainer's own process.
LOCAL = "here"
# Precede a piece's tensors: its number, its worker, and the number of examples skipped there.
_HEADER = (tf.int64, tf.string, tf.int64)


def register_function(function: Callable[..., object]) -> None:
    """Registers the function that answers calls in this process, from arrays to arrays."""
    _registered[:] = [function]
    script_ops._py_funcs._funcs[TOKEN] = function


def call_function(arguments: Sequence[tf.Tensor], types: Sequence[tf.DType]) -> list[tf.Tensor]:
    """Adds a call to the graph and returns its tensors; the executing process has the function."""
    return list(tf.raw_ops.PyFuncStateless(input=arguments, token=TOKEN, Tout=types))


def is_unregistered(message: str) -> bool:
    """Returns whether an error means that a worker is not ours, or is of another version."""
    return "Could not find callback" in message


@dataclass(frozen=True)
class ServiceRequest:
    """What to make pieces of.

    Attributes:
      plan: The plan; its paths must mean the same on all machines.
      start: A position in the plan's order, in any iteration.
      single: Whether each batch is a piece of its own.
      draws: The random numbers added to each example.
    """

    plan: Plan
    start: State
    single: bool
    draws: Draws | None

    def to_json(self) -> str:
        """Serializes the request."""
        plan = Plan(_with_absolute_paths(self.plan.stages))
        return json.dumps({
            "plan": plan.to_json(),
            "attachments": plan.attachments,
            "start": self.start.to_json(),
            "single": self.single,
            "draws": None if self.draws is None else dataclasses.asdict(self.draws),
        })  # fmt: skip

    @classmethod
    def from_json(cls, text: str) -> "ServiceRequest":
        """Parses what `to_json` wrote.

        Raises:
          PlanError: The plan was written by another version of this package.
        """
        given = json.loads(text)
        draws = None if given["draws"] is None else Draws(**given["draws"])
        attachments.receive(given.get("attachments", {}))
        plan, start = Plan.from_json(given["plan"]), State.from_json(given["start"])
        return cls(plan, start, given["single"], draws)


def _with_absolute_paths(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    found: list[Stage] = []
    for stage in stages:
        if isinstance(stage, Read) and not addresses.is_remote(stage.path):
            found.append(dataclasses.replace(stage, path=os.path.abspath(stage.path)))
        elif isinstance(stage, Mix):
            found.append(
                dataclasses.replace(stage, parts=tuple(map(_with_absolute_paths, stage.parts)))
            )
        else:
            found.append(stage)
    return tuple(found)


class PieceMaker:
    """Makes pieces of any plan requested; its name, the worker's address, is sent with them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._plans: OrderedDict[bytes, _OpenedPlan] = OrderedDict()

    def __call__(self, request: bytes, place: npt.NDArray[np.int64]) -> list[Array | np.int64]:
        """Returns the piece at a place: its maker, the number of examples skipped, its arrays.

        Raises:
          MyDatasetsError: Any error of `Engine`; TensorFlow carries its text to the trainer.
        """
        key = bytes(request)
        with self._lock:
            plan = self._plans.setdefault(key, _OpenedPlan(key))
            self._plans.move_to_end(key)
            if len(self._plans) > _MOST_OPEN:
                self._plans.popitem(last=False)
        engine, draws = plan.engine()
        arrays = piece_arrays(engine, place, draws)
        return [np.array(self.name.encode(), object), np.int64(engine.skipped), *arrays]


class _OpenedPlan:
    """The data of one plan, opened on first use."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._lock = threading.Lock()
        self._engine: tuple[Engine, Draws | None] | None = None

    def engine(self) -> tuple[Engine, Draws | None]:
        with self._lock:
            if self._engine is None:
                request = ServiceRequest.from_json(self._request.decode())
                engine = Engine(request.plan, request.start, single=request.single)
                self._engine = engine, request.draws
            return self._engine


class WorkGraph(TensorPieces):
    """The pieces of a plan, to be made by other processes.

    Attributes:
      flat_specs: The types and shapes of a piece's flat tensors.
    """

    def __init__(
        self,
        plan: Plan,
        state: State | None,
        augment: Augmentation | None,
        versions: OpenedVersions | None = None,
    ) -> None:
        """Builds the graph.

        Raises:
          ServiceError: The augmentation cannot be sent to other processes.
        """
        super().__init__(plan, state, augment, single=augment is not None, versions=versions)
        start = self.engine.batching.start
        self._request = ServiceRequest(plan, start, self.is_single, self.draws).to_json()
        self._threads = plan.the(Prefetch).workers
        piece = tf.function(self._piece).get_concrete_function(tf.TensorSpec((3,), tf.int64))
        _check_portable(piece.graph)
        batch = piece.structured_outputs[len(_HEADER)]
        self._spec = tf.nest.map_structure(tf.type_spec_from_value, batch)
        self.flat_specs = tuple(tf.nest.flatten(self._spec, expand_composites=True))

    def dataset(
        self,
        start: State,
        numbers: Sequence[int],
        policy: Policy,
        service: str,
        **options: object,
    ) -> tf.data.Dataset:
        """Returns pieces made by a service, as flat tensors after their number, worker and skipped.

        This waits only for the dispatcher, but forever if that does not answer. `start` is where
        the iteration begins to which the pieces belong; `service` is the dispatcher's URL;
        `options` are further ones of TensorFlow's `distribute`.
        """
        if isinstance(numbers, range):
            pieces = tf.data.Dataset.range(numbers.start, numbers.stop)
        else:
            pieces = tf.data.Dataset.from_tensor_slices(tf.constant(numbers, tf.int64))
        if policy.distribution == "HINT":
            hint = tf.data.experimental.SHARD_HINT
            pieces = pieces.shard(hint, hint)
        place = place_of(start, 0)
        pieces = pieces.map(lambda number: tf.stack([place[0], place[1], number]))
        made = pieces.map(self._flat, num_parallel_calls=self._threads, deterministic=True)
        mode = _service.ShardingPolicy[policy.distribution]
        return made.apply(_service.distribute(mode, service, **options))

    def local_pieces(self, start: State, numbers: Sequence[int]) -> Iterator[tuple[object, ...]]:
        """Yields pieces made by this process, in the same form as those of `dataset`."""
        maker, request = PieceMaker(LOCAL), self._request.encode()
        for number in numbers:
            types = (*_HEADER, *self.types)
            tensors = map(tf.constant, (number, *maker(request, place_of(start, number))), types)
            piece = self._finished(*tensors)
            yield tuple(one.numpy() for one in tf.nest.flatten(piece, expand_composites=True))

    def packed(self, flat: Sequence[tf.Tensor]) -> Tree[tf.Tensor]:
        """Packs the flat tensors of a piece into the structure of a batch."""
        return tf.nest.pack_sequence_as(self._spec, flat, expand_composites=True)

    def _piece(self, place: tf.Tensor) -> tuple[Any, ...]:
        types = [*_HEADER[1:], *self.types]
        worker, skipped, *arrays = call_function([tf.constant(self._request), place], types)
        worker.set_shape(())
        skipped.set_shape(())
        return self._finished(place[2], worker, skipped, *arrays)

    def _finished(
        self, number: tf.Tensor, worker: tf.Tensor, skipped: tf.Tensor, *arrays: tf.Tensor
    ) -> tuple[Any, ...]:
        batch, *draws = self.batch(arrays)
        return number, worker, skipped, self.augmented(batch, *draws) if self.augmented else batch

    def _flat(self, place: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return tuple(tf.nest.flatten(self._piece(place), expand_composites=True))


def _check_portable(graph: tf.Graph) -> None:
    """Raises ServiceError if a graph calls Python functions, or uses state of this process."""
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for one in definition.library.function for n in one.node_def)]
    foreign = [
        node.name for node in nodes if node.op in _CALLS and node.attr["token"].s.decode() != TOKEN
    ]
    reason = ""
    if foreign:
        reason = f"calls Python (tf.py_function or tf.numpy_function, in {foreign[0]!r})"
    elif any(tensor.dtype == tf.resource for tensor in graph.inputs):
        reason = "uses a tf.Variable or a table"
    if reason:
        raise ServiceError(
            f"The augmentation {reason}, which exists in this process only.",
            "Workers of the service execute only TensorFlow operations, and our reading and "
            "decoding",
            fix="use TensorFlow operations, or .map(...) on the pipeline, which runs in this "
            "process; or leave service out",
        )
