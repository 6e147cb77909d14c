"""Runs Beam's pipelines on a Dask cluster: an existing one, or processes of this machine.

Beam 2.77 has a `DaskRunner`, but it computes only the last collection, drops what `finish_bundle`
yields, does not distribute in `Reshuffle`, and has no metrics: TFDS's writer fails on it, and
simpler pipelines silently lose results. This one translates a pipeline that Beam's own optimizer
has fused into stages, as portable runners get it, into Dask tasks.
"""

import logging
import operator
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import dask
import distributed
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2
from apache_beam.runners import common, runner
from apache_beam.runners.portability.fn_api_runner import translations
from apache_beam.runners.worker import bundle_processor
from dask.delayed import Delayed

from my_datasets.building.engines.beam import dask_stages
from my_datasets.building.engines.beam.dask_stages import Grouping, SideInput, Stage
from my_datasets.core.processes import cores
from my_datasets.errors import BuildInterruptedError

_PRIMITIVES = common_urns.primitives
# Translated here: Beam's expansion draws a random key for each element, and other keys when a lost
# chunk is recomputed, so that elements would be lost or duplicated.
_RESHUFFLE = common_urns.composites.RESHUFFLE
# Chunks of a collection per worker thread: several, so that the last ones to finish are short.
_CHUNKS_PER_THREAD = 4
_LEAST_CHUNKS = 8

# Seconds that a scheduler has to answer.
_TIMEOUT = 10
# Seconds for a dead worker to restart, which imports TensorFlow, and between two attempts.
_PATIENCE, _PAUSE = 60.0, 0.5
# A module for workers of this machine. Ctrl-C goes to all processes of a terminal, and a service
# manager's SIGTERM to all of a service, but the building process stops the workers.
_LEAVE_SIGNALS = """import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, lambda *_: None)
"""


class DaskRunner(runner.PipelineRunner):  # type: ignore[misc]
    """Runs pipelines of bounded collections, without timers or state, on a Dask cluster."""

    def __init__(self, client: distributed.Client, chunks: int | None = None) -> None:
        """Takes a client, and the number of chunks of a grouped collection.

        By default there are four for each worker thread.
        """
        self._client = client
        self._chunks = chunks

    def run_portable_pipeline(
        self,
        pipeline: beam_runner_api_pb2.Pipeline,
        options: PipelineOptions,  # noqa: ARG002
    ) -> "DaskResult":
        """Starts a pipeline, and returns at once; no option applies to this runner."""
        self.check_requirements(pipeline, [common_urns.requirements.REQUIRES_SPLITTABLE_DOFN.urn])
        optimized = translations.optimize_pipeline(
            pipeline,
            phases=translations.standard_optimize_phases(),
            known_runner_urns=frozenset(
                [
                    _PRIMITIVES.IMPULSE.urn,
                    _PRIMITIVES.FLATTEN.urn,
                    _PRIMITIVES.GROUP_BY_KEY.urn,
                    _RESHUFFLE.urn,
                ]
            ),
            partial=False,
        )
        threads = sum(self._client.nthreads().values())
        chunks = self._chunks or max(_LEAST_CHUNKS, _CHUNKS_PER_THREAD * threads)
        tasks = _Translation(optimized, chunks).tasks()
        return DaskResult(self._client, self._client.compute(tasks))


class DaskResult(runner.PipelineResult):  # type: ignore[misc]
    """A running pipeline."""

    def __init__(self, client: distributed.Client, futures: list[distributed.Future]) -> None:
        super().__init__(runner.PipelineState.RUNNING)
        self._client = client
        self._futures = futures

    def wait_until_finish(self, duration: float | None = None) -> str:
        """Returns the state once all tasks are done; `duration` is in milliseconds."""
        timeout = None if duration is None else duration / 1000
        try:
            waiting = distributed.as_completed(
                self._futures, loop=self._client.loop, timeout=timeout, with_results=True
            )
            for _ in waiting:
                pass  # raises the error of a failed task
        except BaseException:
            self._state = runner.PipelineState.FAILED
            self._client.cancel(self._futures)
            raise
        self._futures = []
        self._state = runner.PipelineState.DONE
        return str(self._state)

    def cancel(self) -> str:
        """Cancels the tasks."""
        self._client.cancel(self._futures)
        self._state = runner.PipelineState.CANCELLED
        return str(self._state)

    def metrics(self) -> "NoMetrics":
        """Returns empty metrics."""
        return NoMetrics()


class NoMetrics:
    """The metrics of a runner that has none."""

    def query(self, _filter: object = None) -> dict[str, list[object]]:
        """Returns no metric of any kind."""
        return {"counters": [], "distributions": [], "gauges": [], "string_sets": []}


class _Translation:
    """Tasks of a pipeline; a collection is a list of tasks, each of which makes a chunk of it."""

    def __init__(self, pipeline: beam_runner_api_pb2.Pipeline, chunks: int) -> None:
        self._pipeline = pipeline
        self._chunks = chunks
        self._collections: dict[str, list[Delayed]] = {}
        self._last: list[Delayed] = []
        self._coders: dict[str, str] = {}
        for collection in pipeline.components.pcollections:
            self._windowed_coder(collection)

    def tasks(self) -> list[Delayed]:
        """Returns the final tasks, whose results are empty."""
        for transform in self._in_order(self._pipeline.root_transform_ids):
            self._add(transform)
        return [dask.delayed(_nothing)(task) for task in self._last]

    def _in_order(self, names: Iterable[str]) -> Iterator[beam_runner_api_pb2.PTransform]:
        for name in names:
            transform = self._pipeline.components.transforms[name]
            if transform.subtransforms and transform.spec.urn != _RESHUFFLE.urn:
                yield from self._in_order(transform.subtransforms)
            elif set(transform.outputs.values()) - set(transform.inputs.values()) or (
                not transform.outputs
            ):
                yield transform

    def _add(self, transform: beam_runner_api_pb2.PTransform) -> None:
        urn = transform.spec.urn
        outputs = list(transform.outputs.values())
        if urn == _PRIMITIVES.IMPULSE.urn:
            self._collections[outputs[0]] = [dask.delayed(common.ENCODED_IMPULSE_VALUE)]
        elif urn == _PRIMITIVES.FLATTEN.urn:
            parts = [self._collections[name] for name in transform.inputs.values()]
            self._collections[outputs[0]] = [chunk for part in parts for chunk in part]
        elif urn in (_PRIMITIVES.GROUP_BY_KEY.urn, _RESHUFFLE.urn):
            (given,) = transform.inputs.values()
            is_grouping = urn == _PRIMITIVES.GROUP_BY_KEY.urn
            split = dask_stages.split if is_grouping else dask_stages.deal
            group = dask_stages.group if is_grouping else dask_stages.join
            self._collections[outputs[0]] = self._moved(given, outputs[0], split, group)
            self._last += self._collections[outputs[0]]
        elif urn == common_urns.executable_stage:
            self._add_stage(
                beam_runner_api_pb2.ExecutableStagePayload.FromString(transform.spec.payload),
                transform.unique_name,
            )
        else:
            raise NotImplementedError(f"This runner has no {urn} ({transform.unique_name}).")

    def _moved(
        self,
        given: str,
        grouped: str,
        split: Callable[[Grouping, bytes, int, int], list[bytes]],
        group: Callable[[Grouping, Sequence[bytes]], bytes],
    ) -> list[Delayed]:
        components = self._pipeline.components
        strategy = components.pcollections[given].windowing_strategy_id
        needed = beam_runner_api_pb2.Components(
            coders=components.coders, windowing_strategies=components.windowing_strategies,
            environments=components.environments,
        )  # fmt: skip
        grouping = dask.delayed(
            Grouping(
                needed.SerializeToString(), self._coders[given], self._coders[grouped], strategy
            )
        )
        parts = [
            dask.delayed(split)(grouping, chunk, self._chunks, number)
            for number, chunk in enumerate(self._collections[given])
        ]
        pick = dask.delayed(operator.getitem)
        return [
            dask.delayed(group)(grouping, [pick(part, number) for part in parts])
            for number in range(self._chunks)
        ]

    def _add_stage(self, payload: beam_runner_api_pb2.ExecutableStagePayload, name: str) -> None:
        transforms = {each: payload.components.transforms[each] for each in payload.transforms}
        source = "my_datasets source"
        transforms[source] = self._port(
            bundle_processor.DATA_INPUT_URN, payload.input, outputs={"out": payload.input}
        )
        sinks = []
        for number, output in enumerate(payload.outputs):
            sink = f"my_datasets sink {number}"
            transforms[sink] = self._port(
                bundle_processor.DATA_OUTPUT_URN, output, inputs={"in": output}
            )
            sinks.append((sink, output))
        sides, collections = [], []
        for side in payload.side_inputs:
            transform = transforms[side.transform_id]
            collection = transform.inputs[side.local_name]
            pardo = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
            access = pardo.side_inputs[side.local_name].access_pattern.SerializeToString()
            coder = self._coders[collection]
            sides.append(SideInput(side.transform_id, side.local_name, access, coder))
            collections.append(self._collections[collection])
        descriptor = beam_fn_api_pb2.ProcessBundleDescriptor(
            id=name, transforms=transforms, pcollections=payload.components.pcollections,
            coders=self._pipeline.components.coders,
            windowing_strategies=payload.components.windowing_strategies,
            environments=payload.components.environments,
        )  # fmt: skip
        stage = dask.delayed(
            Stage(descriptor.SerializeToString(), source, tuple(sinks), tuple(sides))
        )
        done = [
            dask.delayed(dask_stages.run)(stage, chunk, collections)
            for chunk in self._collections[payload.input]
        ]
        pick = dask.delayed(operator.getitem)
        for _, output in sinks:
            self._collections[output] = [pick(each, output) for each in done]
        self._last += done

    def _port(
        self, urn: str, collection: str, **wiring: Mapping[str, str]
    ) -> beam_runner_api_pb2.PTransform:
        port = beam_fn_api_pb2.RemoteGrpcPort(coder_id=self._coders[collection])
        spec = beam_runner_api_pb2.FunctionSpec(urn=urn, payload=port.SerializeToString())
        return beam_runner_api_pb2.PTransform(spec=spec, **wiring)

    def _windowed_coder(self, collection: str) -> None:
        components = self._pipeline.components
        proto = components.pcollections[collection]
        window = components.windowing_strategies[proto.windowing_strategy_id].window_coder_id
        name = f"my_datasets {proto.coder_id} in {window}"
        components.coders[name].CopyFrom(
            beam_runner_api_pb2.Coder(
                spec=beam_runner_api_pb2.FunctionSpec(urn=common_urns.coders.WINDOWED_VALUE.urn),
                component_coder_ids=[proto.coder_id, window],
            )
        )
        self._coders[collection] = name


def _nothing(_: object) -> None:
    """Drops a result, so that Dask computes it but does not keep it."""


class Cluster:
    """The connection to a cluster, for all pipelines of a build."""

    def __init__(self, options: Mapping[str, object]) -> None:
        """Connects, or starts a worker for each core of this machine.

        Args:
          options: `dask_client_address` or `dask_scheduler_file` of an existing cluster;
            `dask_npartitions`.

        Raises:
          BuildInterruptedError: The scheduler does not answer, or has no worker.
        """
        address, file = options.get("dask_client_address"), options.get("dask_scheduler_file")
        chunks = options.get("dask_npartitions")
        self._chunks = None if chunks is None else int(str(chunks))
        self._local: distributed.LocalCluster | None = None
        if not address and not file:
            # It logs each connection that ends, with a traceback, as information.
            logging.getLogger("distributed").setLevel(logging.WARNING)
            self._local = distributed.LocalCluster(
                n_workers=cores(), threads_per_worker=1, host="127.0.0.1", dashboard_address=None,
                preload=[_LEAVE_SIGNALS],
            )  # fmt: skip
            address = self._local
        place = file or address
        try:
            self._client = distributed.Client(
                address, scheduler_file=file, timeout=_TIMEOUT, set_as_default=False
            )
            self._client.wait_for_workers(1, timeout=_TIMEOUT)
        except (OSError, ValueError) as error:  # a TimeoutError is an OSError
            raise BuildInterruptedError(
                f"The Dask scheduler at {place} does not answer, or has no worker.",
                f"After {_TIMEOUT} seconds: {type(error).__name__}: {error}",
                fix="start `dask scheduler` and `dask worker tcp://HOST:8786`, and pass "
                "--beam-option dask_client_address=tcp://HOST:8786",
            ) from error

    @property
    def workers(self) -> int:
        """The current number of workers."""
        return len(self._client.nthreads())

    def ask(self, question: Callable[[], object], patience: float = _PATIENCE) -> None:
        """Calls a function on each worker.

        If a worker dies meanwhile, its nanny restarts it, and the call is repeated.

        Args:
          question: The function; must be picklable. An `OSError` that it raises counts as no
            answer.
          patience: Seconds that all workers have to answer.

        Raises:
          BuildInterruptedError: A worker did not answer.
          Exception: What the function raised in a worker.
        """
        end = time.monotonic() + patience
        while True:
            answers = self._client.run(question, on_error="return")
            failed = {at: one for at, one in answers.items() if isinstance(one, Exception)}
            for error in failed.values():
                if not isinstance(error, OSError):  # such as a lost connection
                    raise error
            if answers and not failed:
                return
            if time.monotonic() > end:
                lost = [f"{at}: {type(one).__name__}: {one}" for at, one in failed.items()]
                raise BuildInterruptedError(
                    "Workers of the Dask cluster do not answer."
                    if lost
                    else "The Dask cluster has no workers left.",
                    *lost,
                    fix="read the workers' logs, restart them, and run the command again",
                )
            time.sleep(_PAUSE)

    def runner(self) -> DaskRunner:
        """Returns a runner for this cluster."""
        return DaskRunner(self._client, self._chunks)

    def close(self) -> None:
        """Closes the connection, and stops the workers that this object started."""
        self._client.close()
        if self._local is not None:
            self._local.close()
