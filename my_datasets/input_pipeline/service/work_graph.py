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
    TensorForm,
    change_of,
    opened_for_tensors,
    piece_arrays,
    place_of,
)
from my_datasets.input_pipeline.order.state import State
from my_datasets.input_pipeline.plan.plan import Plan
from my_datasets.input_pipeline.plan.stages import Mix, Prefetch, Read, Stage
from my_datasets.input_pipeline.read.prepared import OpenedVersions
from my_datasets.input_pipeline.service.policies import Dealing
from my_datasets.input_pipeline.transform.augment import Augmentation
from my_datasets.records import attachments
from my_datasets.storage import addresses

# TensorFlow's function registry has no public API; test_crossing.py fails if it changes.

# The number is the version of the request format: workers of another version use another token.
TOKEN = "my_datasets.piece.2"  # noqa: S105
CALLS = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})

# The registry keeps weak references only.
_kept: list[Callable[..., object]] = []

# Plans whose data stays open: more than the trainers that share a worker.
_MOST_OPEN = 16

_service = tf.data.experimental.service
# Used instead of a worker's address: the trainer's own process.
HERE = "here"
# Precede a piece's tensors: its number, its maker, and the number of examples skipped there.
BESIDE = (tf.int64, tf.string, tf.int64)


def register_function(function: Callable[..., object]) -> None:
    """Registers the function that answers calls in this process, from arrays to arrays."""
    _kept[:] = [function]
    script_ops._py_funcs._funcs[TOKEN] = function


def call_function(arguments: Sequence[tf.Tensor], types: Sequence[tf.DType]) -> list[tf.Tensor]:
    """Adds a call to the graph and returns its tensors; the executing process has the function."""
    return list(tf.raw_ops.PyFuncStateless(input=arguments, token=TOKEN, Tout=types))


def is_unknown_there(message: str) -> bool:
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
        plan = Plan(_placed(self.plan.stages))
        given = {
            "plan": plan.to_json(),
            "attachments": plan.attachments,
            "start": self.start.to_json(),
            "single": self.single,
            "draws": None if self.draws is None else dataclasses.asdict(self.draws),
        }
        return json.dumps(given)

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


def _placed(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Returns the stages with absolute paths, independent of a process's working directory."""
    found: list[Stage] = []
    for stage in stages:
        if isinstance(stage, Read) and not addresses.is_remote(stage.path):
            found.append(dataclasses.replace(stage, path=os.path.abspath(stage.path)))
        elif isinstance(stage, Mix):
            found.append(dataclasses.replace(stage, parts=tuple(map(_placed, stage.parts))))
        else:
            found.append(stage)
    return tuple(found)


class PieceMaker:
    """Makes pieces of any plan requested; its name, the worker's address, is sent with them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._opened: OrderedDict[bytes, _Opened] = OrderedDict()

    def __call__(self, request: bytes, place: npt.NDArray[np.int64]) -> list[Array | np.int64]:
        """Returns the piece at a place: its maker, the number of examples skipped, its arrays.

        Raises:
          MyDatasetsError: Any error of `Engine`; TensorFlow carries its text to the trainer.
        """
        with self._lock:
            opened = self._opened.setdefault(bytes(request), _Opened())
            self._opened.move_to_end(bytes(request))
            if len(self._opened) > _MOST_OPEN:
                self._opened.popitem(last=False)
        engine, draws = opened.engine(bytes(request))
        arrays = piece_arrays(engine, place, draws)
        name = np.array(self.name.encode(), object)
        return [name, np.int64(engine.skipped), *arrays]


class _Opened:
    """The data of one plan, opened on first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: tuple[Engine, Draws | None] | None = None

    def engine(self, request: bytes) -> tuple[Engine, Draws | None]:
        with self._lock:
            if self._found is None:
                asked = ServiceRequest.from_json(request.decode())
                engine = Engine(asked.plan, asked.start, single=asked.single)
                self._found = engine, asked.draws
            return self._found


class WorkGraph:
    """The pieces of a plan, to be made by other processes.

    Attributes:
      engine: An engine like those of the workers; maps pieces to examples.
      spec: The form of a piece, as `tf.TypeSpec`s nested like a batch.
      is_single: Whether a piece is one batch; otherwise its tensors have an additional first
        dimension.
    """

    def __init__(
        self,
        plan: Plan,
        state: State | None,
        augment: Augmentation | None,
        versions: OpenedVersions | None = None,
    ) -> None:
        """Builds the graph.

        Args:
          plan: The plan.
          state: Where to begin; None for the beginning.
          augment: Augments the images, in the worker.
          versions: What the caller has opened already; None for nothing.

        Raises:
          FeatureError: Values have different shapes and cannot be batched.
          PlanError: The state belongs to another plan, or the data changed.
          ServiceError: The augmentation cannot be sent to other processes.
        """
        draws = Draws.of(augment)
        self.engine, first = opened_for_tensors(
            plan, state, single=augment is not None, versions=versions
        )
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
        self,
        start: State,
        numbers: Sequence[int],
        dealing: Dealing,
        service: str,
        **options: object,
    ) -> tf.data.Dataset:
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

    def made_here(self, start: State, numbers: Sequence[int]) -> Iterator[tuple[object, ...]]:
        """Yields pieces made by this process, in the same form as those of `dataset`."""
        maker, request = PieceMaker(HERE), self._request.encode()
        for number in numbers:
            types = (*BESIDE, *self._form.types)
            tensors = map(tf.constant, (number, *maker(request, place_of(start, number))), types)
            piece = self._changed(*tensors)
            yield tuple(one.numpy() for one in tf.nest.flatten(piece, expand_composites=True))

    def packed(self, flat: Sequence[tf.Tensor]) -> Tree[tf.Tensor]:
        """Packs the flat tensors of a piece into the structure of a batch."""
        return tf.nest.pack_sequence_as(self.spec, flat, expand_composites=True)

    def _piece(self, place: tf.Tensor) -> tuple[Any, ...]:
        types = [*BESIDE[1:], *self._form.types]
        worker, skipped, *arrays = call_function([tf.constant(self._request), place], types)
        worker.set_shape(())
        skipped.set_shape(())
        return self._changed(place[2], worker, skipped, *arrays)

    def _changed(
        self, number: tf.Tensor, worker: tf.Tensor, skipped: tf.Tensor, *arrays: tf.Tensor
    ) -> tuple[Any, ...]:
        batch, *draws = self._form.batch(arrays)
        return number, worker, skipped, self._change(batch, *draws) if self._change else batch

    def _flat(self, place: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return tuple(tf.nest.flatten(self._piece(place), expand_composites=True))


def _refuse_what_cannot_cross(graph: tf.Graph) -> None:
    """Refuses Python functions, and state of this process.

    Raises:
      ServiceError: The graph contains one of them.
    """
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for one in definition.library.function for n in one.node_def)]
    foreign = [
        node for node in nodes if node.op in CALLS and node.attr["token"].s.decode() != TOKEN
    ]
    if foreign:
        raise _refused(
            f"The augmentation calls Python (tf.py_function or tf.numpy_function, in "
            f"{foreign[0].name!r}), which exists in this process only."
        )
    if any(tensor.dtype == tf.resource for tensor in graph.inputs):
        raise _refused(
            "The augmentation uses a tf.Variable or a table, which exists in this process only."
        )


def _refused(reason: str) -> ServiceError:
    return ServiceError(
        reason,
        "Workers of the service execute only TensorFlow operations, and our reading and decoding",
        fix="use TensorFlow operations, or .map(...) on the pipeline, which runs in this "
        "process; or leave service out",
    )
