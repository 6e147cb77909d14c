"""The runners: their names and options, and pipelines for them.

Beam's own runner for Flink starts one for each pipeline, and all of them stay until Python ends;
those for Spark and Prism keep one until then. If Python is killed, they stay for ever.
"""

import atexit
import importlib.util
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, SparkRunnerOptions, TypeOptions
from apache_beam.runners.portability import flink_runner, job_server, prism_runner, spark_runner
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.runner import PipelineRunner

from my_datasets.building.engines.beam import tied_process, workers
from my_datasets.errors import InvalidOptionError, nearest

if TYPE_CHECKING:
    from my_datasets.building.engines.beam.dask_runner import Cluster


class _Process(job_server.JobServer):  # type: ignore[misc]
    """A job server that is started once, and stopped by the build.

    Beam's `StopOnExitJobServer` replaces the handler of Ctrl-C with one that waits for a lock that
    the interrupted code may hold, and that stops the server even where Ctrl-C is ignored.
    """

    def __init__(self, server: job_server.SubprocessJobServer) -> None:
        self._lock = threading.Lock()
        self._server = server
        self._endpoint: str | None = None

    def start(self) -> str:
        with self._lock:
            if self._endpoint is None:
                self._endpoint = self._server.start()
                atexit.register(self.stop)
            return self._endpoint

    def stop(self) -> None:
        with self._lock:
            if self._endpoint is not None:
                self._endpoint = None
                atexit.unregister(self.stop)
                self._server.stop()


class LazyJobServer:
    """Starts a job server for the first pipeline, and keeps it for the next ones."""

    _server: _Process | None = None

    def default_job_server(self, options: PipelineOptions) -> job_server.JobServer:
        """Returns the job server; Beam calls this where there is no option `job_endpoint`."""
        if self._server is not None:
            return self._server
        server = self._made(options)
        if isinstance(server, _Process):  # other ones start no process
            self._server = server
        return server

    def stop(self) -> None:
        """Stops the process. A later pipeline starts another one."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def _made(self, options: PipelineOptions) -> job_server.JobServer:
        raise NotImplementedError


class FlinkRunner(LazyJobServer, flink_runner.FlinkRunner):  # type: ignore[misc]
    """Runs pipelines on Flink."""

    def _made(self, options: PipelineOptions) -> job_server.JobServer:
        # This also completes the master's address in the options.
        server = flink_runner.FlinkRunner.default_job_server(self, options)
        if not isinstance(server, job_server.StopOnExitJobServer):
            return server
        return _Process(_OfFlink(options))


class SparkRunner(LazyJobServer, spark_runner.SparkRunner):  # type: ignore[misc]
    """Runs pipelines on Spark."""

    def _made(self, options: PipelineOptions) -> job_server.JobServer:
        if options.view_as(SparkRunnerOptions).spark_submit_uber_jar:
            return spark_runner.SparkRunner.default_job_server(self, options)
        # Beam caches its own by options, so that a later build would get a stopped one.
        return _Process(_OfSpark(options))


class PrismRunner(LazyJobServer, prism_runner.PrismRunner):  # type: ignore[misc]
    """Runs pipelines on Prism, which is its own job server."""

    def _made(self, options: PipelineOptions) -> job_server.JobServer:
        return _Process(_OfPrism(options))


class _EndingWithTheBuild(job_server.SubprocessJobServer):  # type: ignore[misc]
    """A job server that ends with the building process, even by SIGKILL."""

    def subprocess_cmd_and_endpoint(self) -> tuple[list[str], str]:
        # The calling thread is the one that builds, and it stops the server before it ends.
        command, endpoint = super().subprocess_cmd_and_endpoint()
        return tied_process.command_for([str(part) for part in command]), endpoint


class _OfFlink(_EndingWithTheBuild, flink_runner.FlinkJarJobServer):  # type: ignore[misc]
    pass


class _OfSpark(_EndingWithTheBuild, spark_runner.SparkJarJobServer):  # type: ignore[misc]
    pass


class _OfPrism(_EndingWithTheBuild, prism_runner.PrismJobServer):  # type: ignore[misc]
    pass


_LOSING_MODES = ("multi_threading", "multi_processing")
# Workers are threads of the building process; a job server answers within seconds, or never.
_LOOPBACK = {"environment_type": "LOOPBACK", "job_server_timeout": "30"}
# Options of the Dask runner, which is this package's own.
_OF_DASK = ("dask_client_address", "dask_scheduler_file", "dask_npartitions")


@dataclass(frozen=True)
class Preset:
    """A runner and its defaults."""

    name: str
    aliases: tuple[str, ...] = ()
    defaults: Mapping[str, object] = field(default_factory=dict)
    # Whether it groups in memory, so that a pipeline gets only a part of the data.
    in_memory: bool = False
    has_workers: bool = True  # whether other processes do the work
    # Whether unknown options are mistakes; a job server may have its own.
    knows_all_options: bool = True


IN_PROCESS = Preset(
    "in-process", ("", "fnapirunner", "directrunner", "switchingdirectrunner"), in_memory=True,
    has_workers=False,
)  # fmt: skip
DASK = Preset("dask", ("daskrunner",), in_memory=True)
PRISM = Preset("prism", ("prismrunner",), _LOOPBACK, in_memory=True)
FLINK = Preset(
    "flink", ("flinkrunner",),
    # Each bundle makes a run, so bundles must have more than the default thousand examples.
    {**_LOOPBACK, "max_bundle_size": "1000000", "max_bundle_time_mills": "600000"},
    knows_all_options=False,
)  # fmt: skip
SPARK = Preset("spark", ("sparkrunner",), _LOOPBACK, knows_all_options=False)
PORTABLE = Preset("portable", ("portablerunner",), knows_all_options=False)
DATAFLOW = Preset("dataflow", ("dataflowrunner",), knows_all_options=False)
PRESETS = (IN_PROCESS, DASK, PRISM, FLINK, SPARK, PORTABLE, DATAFLOW)

# The build starts the job servers of these.
_WITH_SERVER: dict[str, type[LazyJobServer]] = {
    PRISM.name: PrismRunner,
    FLINK.name: FlinkRunner,
    SPARK.name: SparkRunner,
}
# Beam's names of runners that it makes itself.
_BEAMS_NAMES = {"portable": "PortableRunner", "dataflow": "DataflowRunner"}


class Submission:
    """A runner with its options, without `runner`."""

    def __init__(
        self,
        options: Mapping[str, object] | None = None,
        *,
        beam_options: PipelineOptions | None = None,
        beam_runner: PipelineRunner | str | None = None,
    ) -> None:
        """Checks the options; starts nothing.

        `options` are those of the pipeline, by their names without `--`, `runner` among them. The
        others are the same as TFDS takes them; a runner can also be a name.

        Raises:
          InvalidOptionError: An option is missing, unknown, or would lose examples.
        """
        given: dict[str, object] = {}
        if beam_options is not None:
            given |= beam_options.get_all_options(drop_default=True, retain_unknown_options=True)
        given |= options or {}
        asked = given.pop("runner", None) or beam_runner or ""
        self._runner: PipelineRunner | None = None if isinstance(asked, str) else asked
        name = asked if isinstance(asked, str) else type(asked).__name__
        self.preset = _preset(name)
        if self.preset in (IN_PROCESS, DASK):
            self._runner = None  # replaced: see `_make_runner` and `dask_runner`
        _refuse_losses(given)
        self.options = {**self.preset.defaults, **given}
        if "environment_config" in given or "environment_options" in given:
            self.options.setdefault("environment_type", "DOCKER")
        if str(self.options.get("environment_type", "")).upper() == "PROCESS":
            self.options = workers.configured(self.options)
        _check(self.preset, self.options)
        self._cluster: Cluster | None = None
        self._with_server: LazyJobServer | None = None

    def cluster(self) -> "Cluster":
        """Returns the connection to Dask, shared by all pipelines."""
        from my_datasets.building.engines.beam import dask_runner

        if self._cluster is None:
            self._cluster = dask_runner.Cluster(self.options)
        return self._cluster

    def close(self) -> None:
        """Closes what the pipelines share; a later pipeline opens it again."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None
        if self._with_server is not None:
            self._with_server.stop()

    def pipeline(self) -> beam.Pipeline:
        """Returns an empty pipeline."""
        ours = {name: value for name, value in self.options.items() if name not in _OF_DASK}
        options = PipelineOptions.from_dictionary(ours)
        # Like TFDS: Beam infers wrong types for what builders yield.
        options.view_as(TypeOptions).pipeline_type_check = False
        return beam.Pipeline(runner=self._make_runner(), options=options)

    def at_once(self, memory: int) -> int | None:
        """Returns how many bytes one pipeline may group, by a worker's memory; None for any."""
        # The runner keeps the ungrouped and the grouped bytes, and the worker sorts some.
        if not self.preset.in_memory:
            return None
        return memory // 8 * max(1, 0 if self._cluster is None else self._cluster.workers)

    def _make_runner(self) -> PipelineRunner | str:
        if self._runner is not None:
            return self._runner
        if self.preset == IN_PROCESS:
            # DirectRunner would first try to download another runner, and then do the same.
            return FnApiRunner()
        if self.preset == DASK:
            return self.cluster().runner()
        if self.preset.name in _WITH_SERVER:
            if self._with_server is None:
                self._with_server = _WITH_SERVER[self.preset.name]()
            return self._with_server
        return _BEAMS_NAMES[self.preset.name]


def _preset(name: str) -> Preset:
    wanted = name.rpartition(".")[2].lower().replace("_", "-")
    for preset in PRESETS:
        if wanted == preset.name or wanted in preset.aliases:
            return preset
    raise InvalidOptionError(
        f"There is no preset for the runner {name!r}.",
        f"Expected one of: {', '.join(preset.name for preset in PRESETS)}",
        fix="choose one of them with --beam-option runner=NAME; for any other runner with a "
        "job server pass runner=portable and job_endpoint=HOST:PORT",
    )


def _refuse_losses(options: Mapping[str, object]) -> None:
    mode = options.get("direct_running_mode")
    workers = str(options.get("direct_num_workers", 1))
    if mode in _LOSING_MODES or workers != "1":
        said = f"direct_running_mode={mode}" if mode in _LOSING_MODES else (
            f"direct_num_workers={workers}"
        )  # fmt: skip
        raise InvalidOptionError(
            f"{said} is refused: Beam's in-process runner loses examples with it.",
            "With Beam 2.77 and 2 workers, multi_threading lost some of 20,000 examples in 7 "
            "of 7 runs, and multi_processing some of 100,000 in 3 of 3, without an error.",
            fix="leave it out; --engine local and runner=dask use all cores",
        )


def _check(preset: Preset, options: Mapping[str, object]) -> None:
    if preset.knows_all_options:
        known = {*PipelineOptions([]).get_all_options(), *(_OF_DASK if preset == DASK else ())}
        for name in options:
            if name not in known:
                raise InvalidOptionError(
                    f"The runner {preset.name} has no option {name!r}.",
                    nearest(name, known),
                    fix="see docs/scaling.md for its options",
                )
    if check := _CHECKS.get(preset.name):
        check(options)


def _check_dask(_: Mapping[str, object]) -> None:
    if importlib.util.find_spec("distributed") is None:
        from my_datasets.dependencies import missing_dependency

        raise missing_dependency("distributed", needed_for="the runner dask")


def _check_prism(options: Mapping[str, object]) -> None:
    if options.get("job_endpoint"):
        return
    place = options.get("prism_location")
    if not place or not os.access(str(place), os.X_OK):
        raise InvalidOptionError(
            f"prism_location is {place!r}, which is no executable program."
            if place
            else "The runner prism needs prism_location: its program is not downloaded here.",
            fix="`make prism` builds it with Go; then pass "
            "--beam-option prism_location=.beam/prism",
        )


def _check_jar(option: str, target: str) -> Callable[[Mapping[str, object]], None]:
    def check(options: Mapping[str, object]) -> None:
        if options.get("job_endpoint"):
            return
        jar = options.get(option)
        if not jar or not Path(str(jar)).is_file():
            raise InvalidOptionError(
                f"{option} is {jar!r}, which is no file."
                if jar
                else f"The runner needs {option}, or the job_endpoint of a running job server: "
                "nothing is downloaded here.",
                fix=f"`make {target}` fetches one; then pass --beam-option {option}="
                f".beam/{target}-job-server.jar",
            )
        java = str(options.get("job_server_java_launcher", "java"))
        if shutil.which(java) is None:
            raise InvalidOptionError(
                f"The job server needs {java!r}, which is not installed.",
                fix="install Java 17, or pass --beam-option job_server_java_launcher=PATH",
            )

    return check


def _check_portable(options: Mapping[str, object]) -> None:
    if not options.get("job_endpoint"):
        raise InvalidOptionError(
            "The runner portable needs the address of a job server.",
            fix="pass --beam-option job_endpoint=HOST:PORT",
        )


# Options that send the builder's package to Dataflow's workers; one of them is required.
_SHIPPING = ("setup_file", "extra_packages", "extra_package", "sdk_container_image")


def _check_dataflow(options: Mapping[str, object]) -> None:
    if importlib.util.find_spec("apitools") is None:
        raise InvalidOptionError(
            "The runner dataflow needs the part of Beam for Google Cloud.",
            fix="pip install 'apache-beam[gcp]'",
        )
    missing = [name for name in ("project", "region") if not options.get(name)]
    if missing:
        raise InvalidOptionError(
            f"The runner dataflow needs {' and '.join(missing)}.",
            fix=f"pass --beam-option {missing[0]}=...",
        )
    place = str(options.get("temp_location", ""))
    if not place.startswith("gs://"):
        raise InvalidOptionError(
            f"temp_location is {place!r}.",
            "Expected: a bucket that Dataflow may write to",
            fix="pass --beam-option temp_location=gs://BUCKET/PATH",
        )
    if not any(options.get(name) for name in _SHIPPING):
        raise InvalidOptionError(
            "No option sends this package and the builder's to the workers of Dataflow.",
            f"Expected one of: {', '.join(_SHIPPING)}",
            fix="pass --beam-option sdk_container_image=IMAGE with both installed in it, or "
            "--beam-option setup_file=./setup.py",
        )


_CHECKS: dict[str, Callable[[Mapping[str, object]], None]] = {
    "dask": _check_dask,
    "prism": _check_prism,
    "flink": _check_jar("flink_job_server_jar", "flink"),
    "spark": _check_jar("spark_job_server_jar", "spark"),
    "portable": _check_portable,
    "dataflow": _check_dataflow,
}
