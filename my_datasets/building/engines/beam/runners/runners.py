"""The runners: what each is called, what it needs, and the pipelines that run on it."""

import difflib
import importlib.util
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, TypeOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from my_datasets.building.engines.beam import workers
from my_datasets.building.engines.beam.runners import job_servers
from my_datasets.errors import InvalidOptionError, explain

if TYPE_CHECKING:
    from my_datasets.building.engines.beam.runners.dask_runner import Cluster

_LOSING_MODES = ("multi_threading", "multi_processing")
# Workers are threads of the building process; a job server answers within seconds, or never.
_LOOPBACK = {"environment_type": "LOOPBACK", "job_server_timeout": "30"}
# Options of the Dask runner, which is this package's own.
_OF_DASK = ("dask_client_address", "dask_scheduler_file", "dask_npartitions")


@dataclass(frozen=True)
class Preset:
    """A runner, and how it is used if nothing else is said.

    Attributes:
      name: What it is called.
      aliases: What else it is called.
      defaults: Options that it gets unless they are given.
      in_memory: Whether it holds what it groups in memory, so that it gets a part at a time.
      has_workers: Whether other processes do the work.
      knows_all_options: Whether an option that is not known here is a mistake; else it may be one
        of a job server.
    """

    name: str
    aliases: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    in_memory: bool = False
    has_workers: bool = True
    knows_all_options: bool = True


IN_PROCESS = Preset(
    "in-process", ("", "fnapirunner", "directrunner", "switchingdirectrunner"), in_memory=True,
    has_workers=False,
)  # fmt: skip
DASK = Preset("dask", ("daskrunner",), in_memory=True)
PRISM = Preset("prism", ("prismrunner",), _LOOPBACK, in_memory=True)
FLINK = Preset(
    "flink", ("flinkrunner",),
    # A bundle makes a run: not one for each thousand examples.
    {**_LOOPBACK, "max_bundle_size": "1000000", "max_bundle_time_mills": "600000"},
    knows_all_options=False,
)  # fmt: skip
SPARK = Preset("spark", ("sparkrunner",), _LOOPBACK, knows_all_options=False)
PORTABLE = Preset("portable", ("portablerunner",), knows_all_options=False)
DATAFLOW = Preset("dataflow", ("dataflowrunner",), knows_all_options=False)
PRESETS = (IN_PROCESS, DASK, PRISM, FLINK, SPARK, PORTABLE, DATAFLOW)

# A job server of these is a process of the build.
_WITH_SERVER: dict[str, type[job_servers.LazyJobServer]] = {
    PRISM.name: job_servers.PrismRunner,
    FLINK.name: job_servers.FlinkRunner,
    SPARK.name: job_servers.SparkRunner,
}
# As Beam calls those that it makes itself.
_BEAMS_NAMES = {
    "portable": "PortableRunner",
    "dataflow": "DataflowRunner",
}


class Submission:
    """Where pipelines run.

    Attributes:
      preset: The runner's.
      options: All options that it gets, without `runner`.
    """

    def __init__(
        self,
        options: Mapping[str, Any] | None = None,
        *,
        beam_options: PipelineOptions | None = None,
        beam_runner: Any = None,
    ) -> None:
        """Looks at the options; starts nothing.

        Args:
          options: Options of the pipeline, by their names without `--`; `runner` among them.
          beam_options: The same as Beam's object, as TFDS takes them.
          beam_runner: A runner, or its name, as TFDS takes it.

        Raises:
          InvalidOptionError: An option is missing, unknown, or would lose examples.
        """
        given: dict[str, Any] = {}
        if beam_options is not None:
            given |= beam_options.get_all_options(drop_default=True, retain_unknown_options=True)
        given |= options or {}
        asked = given.pop("runner", None) or beam_runner or ""
        self._runner = None if isinstance(asked, str) else asked
        name = asked if isinstance(asked, str) else type(asked).__name__
        self.preset = _preset(name)
        if self.preset in (IN_PROCESS, DASK):
            self._runner = None  # not theirs: see `_in_process` and `dask_runner`
        _refuse_losses(given)
        self.options = {**self.preset.defaults, **given}
        if "environment_config" in given or "environment_options" in given:
            self.options.setdefault("environment_type", "DOCKER")
        if str(self.options.get("environment_type", "")).upper() == "PROCESS":
            self.options = workers.configured(self.options)
        _check(self.preset, self.options)
        self._cluster: Cluster | None = None
        self._with_server: job_servers.LazyJobServer | None = None

    def cluster(self) -> "Cluster":
        """Returns the connection to Dask, which all pipelines share."""
        from my_datasets.building.engines.beam.runners import dask_runner

        if self._cluster is None:
            self._cluster = dask_runner.Cluster(self.options)
        return self._cluster

    def close(self) -> None:
        """Lets go of what pipelines have shared. A pipeline after that starts it anew."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None
        if self._with_server is not None:
            self._with_server.stop()

    def pipeline(self) -> beam.Pipeline:
        """Returns an empty pipeline."""
        ours = {name: value for name, value in self.options.items() if name not in _OF_DASK}
        options = PipelineOptions.from_dictionary(ours)
        # As TFDS does: what builders yield has types that Beam takes for other ones.
        options.view_as(TypeOptions).pipeline_type_check = False
        return beam.Pipeline(runner=self._make_runner(), options=options)

    def at_once(self, memory: int) -> int | None:
        """Returns how many bytes one pipeline may group; None for any number.

        Args:
          memory: What a worker may use, in bytes.
        """
        # The runner holds them as they come and as they are grouped, and the worker sorts some.
        if not self.preset.in_memory:
            return None
        workers = 1 if self._cluster is None else len(self._cluster.client.nthreads())
        return memory // 8 * max(1, workers)

    def _make_runner(self) -> Any:
        if self._runner is not None:
            return self._runner
        if self.preset == IN_PROCESS:
            # Not DirectRunner, which looks for another runner to download before it does the same.
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
        explain(
            f"There is no preset for the runner {name!r}.",
            f"Expected one of: {', '.join(preset.name for preset in PRESETS)}",
            fix="choose one of them with --beam-option runner=NAME; any other runner that has a "
            "job server takes runner=portable and job_endpoint=HOST:PORT",
        )
    )


def _refuse_losses(options: Mapping[str, Any]) -> None:
    mode = options.get("direct_running_mode")
    workers = str(options.get("direct_num_workers", 1))
    if mode in _LOSING_MODES or workers != "1":
        said = f"direct_running_mode={mode}" if mode in _LOSING_MODES else (
            f"direct_num_workers={workers}"
        )  # fmt: skip
        raise InvalidOptionError(
            explain(
                f"{said} is refused: Beam's in-process runner loses examples with it.",
                "With Beam 2.77 and 2 workers, multi_threading lost some of 20,000 examples in 7 "
                "of 7 runs, and multi_processing some of 100,000 in 3 of 3, without an error.",
                fix="leave it out; --engine local uses all cores, and so does runner=dask",
            )
        )


def _check(preset: Preset, options: Mapping[str, Any]) -> None:
    if preset.knows_all_options:
        known = {*PipelineOptions([]).get_all_options(), *(_OF_DASK if preset == DASK else ())}
        for name in options:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                raise InvalidOptionError(
                    explain(
                        f"The runner {preset.name} has no option {name!r}.",
                        f"Did you mean {near[0]!r}?" if near else "",
                        fix="see docs/scaling.md for its options",
                    )
                )
    if check := _CHECKS.get(preset.name):
        check(options)


def _check_dask(_: Mapping[str, Any]) -> None:
    if importlib.util.find_spec("distributed") is None:
        from my_datasets.dependencies import missing_dependency

        raise missing_dependency("distributed", needed_for="the runner dask")


def _check_prism(options: Mapping[str, Any]) -> None:
    if options.get("job_endpoint"):
        return
    place = options.get("prism_location")
    if not place or not os.access(place, os.X_OK):
        raise InvalidOptionError(
            explain(
                f"prism_location is {place!r}, which is no program that can be run."
                if place
                else "The runner prism needs prism_location: its program is not downloaded here.",
                fix="`make prism` builds it with Go; then pass "
                "--beam-option prism_location=.beam/prism",
            )
        )


def _check_jar(option: str, target: str) -> Callable[[Mapping[str, Any]], None]:
    def check(options: Mapping[str, Any]) -> None:
        if options.get("job_endpoint"):
            return
        jar = options.get(option)
        if not jar or not Path(jar).is_file():
            raise InvalidOptionError(
                explain(
                    f"{option} is {jar!r}, which is no file."
                    if jar
                    else f"The runner needs {option}, or the job_endpoint of a job server that "
                    "runs: nothing is downloaded here.",
                    fix=f"`make {target}` fetches one; then pass --beam-option {option}="
                    f".beam/{target}-job-server.jar",
                )
            )
        java = options.get("job_server_java_launcher", "java")
        if shutil.which(java) is None:
            raise InvalidOptionError(
                explain(
                    f"There is no {java!r}, which runs the job server.",
                    fix="install Java 17, or pass --beam-option job_server_java_launcher=PATH",
                )
            )

    return check


def _check_portable(options: Mapping[str, Any]) -> None:
    if not options.get("job_endpoint"):
        raise InvalidOptionError(
            explain(
                "The runner portable needs the address of a job server.",
                fix="pass --beam-option job_endpoint=HOST:PORT",
            )
        )


# What ships the builder's package to workers of Dataflow; one of them is needed.
_SHIPPING = ("setup_file", "extra_packages", "extra_package", "sdk_container_image")


def _check_dataflow(options: Mapping[str, Any]) -> None:
    if importlib.util.find_spec("apitools") is None:
        raise InvalidOptionError(
            explain(
                "The runner dataflow needs the part of Beam for Google Cloud.",
                fix="pip install 'apache-beam[gcp]'",
            )
        )
    missing = [name for name in ("project", "region") if not options.get(name)]
    if missing:
        raise InvalidOptionError(
            explain(
                f"The runner dataflow needs {' and '.join(missing)}.",
                fix=f"pass --beam-option {missing[0]}=...",
            )
        )
    place = str(options.get("temp_location", ""))
    if not place.startswith("gs://"):
        raise InvalidOptionError(
            explain(
                f"temp_location is {place!r}.",
                "Expected: a bucket that Dataflow may write to",
                fix="pass --beam-option temp_location=gs://BUCKET/PATH",
            )
        )
    if not any(options.get(name) for name in _SHIPPING):
        raise InvalidOptionError(
            explain(
                "Nothing brings this package and the builder's to the workers of Dataflow.",
                f"Expected one of: {', '.join(_SHIPPING)}",
                fix="pass --beam-option sdk_container_image=IMAGE with both installed in it, or "
                "--beam-option setup_file=./setup.py",
            )
        )


_CHECKS: dict[str, Callable[[Mapping[str, Any]], None]] = {
    "dask": _check_dask,
    "prism": _check_prism,
    "flink": _check_jar("flink_job_server_jar", "flink"),
    "spark": _check_jar("spark_job_server_jar", "spark"),
    "portable": _check_portable,
    "dataflow": _check_dataflow,
}
