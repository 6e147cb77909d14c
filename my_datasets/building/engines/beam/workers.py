"""Python workers for Beam's runners on this machine, and the check of every worker's environment.

`CheckedDoFn` fails on a worker whose environment differs from the building process's.

`run_worker` is the program that `environment_type=PROCESS` starts. The runner passes an address,
from which the worker asks for the rest. Beam's own program, `boot`, is for containers: it creates
an environment in `/opt/apache` for each worker, installs a pipeline's dependencies, and starts the
`python` of its PATH. Ours is the worker itself, in the Python that it is installed for, and
installs nothing.

`WorkerPool` serves runners with `environment_type=EXTERNAL`. Beam's own program,
`worker_pool_main`, starts whichever `python` is in its PATH, never reads its output, so that the
worker blocks, and listens on all interfaces, where anyone who reaches the port can run code. Ours
starts the Python that it runs in, and listens on the given interface only.
"""

import json
import logging
import multiprocessing
import os
import platform
import re
import sys
import sysconfig
import threading
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.process import BaseProcess
from pathlib import Path

import apache_beam as beam
import grpc
from apache_beam.portability.api import (
    beam_fn_api_pb2,
    beam_fn_api_pb2_grpc,
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
    beam_runner_api_pb2,
    endpoints_pb2,
)
from apache_beam.runners.portability.stager import SUBMISSION_ENV_DEPENDENCIES_FILE
from apache_beam.runners.worker import sdk_worker_main
from apache_beam.runners.worker.channel_factory import GRPCChannelFactory
from apache_beam.runners.worker.sdk_worker import SdkHarness
from apache_beam.runners.worker.worker_id_interceptor import WorkerIdInterceptor
from apache_beam.utils import thread_pool_executor
from google.protobuf import json_format, text_format

from my_datasets._version import __version__
from my_datasets.building.engines.beam.build_files import BuildFiles
from my_datasets.building.engines.beam.workspace import Workspace
from my_datasets.core.logs import get_logger
from my_datasets.errors import (
    BuildInterruptedError,
    InvalidOptionError,
    MyDatasetsError,
    problem_of,
)

# These determine the bytes of a record, or have objects that are pickled for workers.
_DISTRIBUTIONS = ("apache-beam", "numpy", "pyarrow", "tensorflow", "tensorflow-datasets")

_LOGGER = get_logger(__name__)
# Its name: `setup.py` declares it, and pip installs it beside the `python` of the environment.
PROGRAM = "my-datasets-beam-worker"
# Options of pipelines with dependencies that workers must install or load first.
_DEPENDENCY_OPTIONS = (
    "requirements_file", "setup_file", "extra_package", "extra_packages", "files_to_stage",
    "save_main_session",
)  # fmt: skip
# Error messages of Beam's Java runners.
_NOT_STARTED = re.compile(r"Process died with exit code \d+|Cannot run program .*|error=\d+, .*")
# Seconds that the runner has to answer.
_ANSWER = 60.0

# Not forked, because TensorFlow and gRPC have threads.
_PROCESSES = multiprocessing.get_context("spawn")
# Seconds that a worker has to end by itself once its runner stops it.
_GRACE = 5.0


def versions() -> dict[str, str]:
    """Returns the versions that must be the same in all processes."""
    found = {
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "my_datasets": __version__,
        "zlib": zlib.ZLIB_RUNTIME_VERSION,
    }
    for name in _DISTRIBUTIONS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found


@dataclass(frozen=True)
class WorkerEnvironment:
    """The environment that a worker needs."""

    place: Workspace
    modules: tuple[str, ...] = ()  # of the builder
    versions: dict[str, str] = field(default_factory=versions)  # of the building process

    def check(self) -> str:
        """Returns the name of this machine if it has everything.

        Raises:
          BuildInterruptedError: Something is missing, or has another version.
        """
        own = versions()
        others = [
            f"{name} {own.get(name, 'none')} (the building process has {wanted})"
            for name, wanted in self.versions.items()
            if own.get(name) != wanted
        ]
        if others:
            raise self._error(
                f"A worker has {', '.join(others)}.",
                "give all workers the same environment as the building process, and let them run "
                f"{sys.executable}",
            )
        self._check_place()
        for name in self.modules:
            try:
                import_module(name)
            except Exception as error:  # `Cluster.ask` would take an OSError for no answer
                raise self._error(
                    f"A worker cannot import {name}: {type(error).__name__}: {error}",
                    "install the builder's package on all workers, or add its directory to their "
                    "PYTHONPATH",
                ) from error
        return platform.node()

    def _check_place(self) -> None:
        try:
            exists = self.place.exists()
        except (MyDatasetsError, OSError) as error:
            # The machine may lack credentials, permissions or an extra.
            what = f"A worker cannot use {self.place}: {problem_of(error)}"
            fix = getattr(error, "fix", "") or "use a --data-dir that all machines can access"
            raise self._error(what, fix, *getattr(error, "facts", ())) from error
        if not exists:
            raise self._error(
                f"A worker does not see {self.place}.",
                "use a --data-dir that all machines share: one absolute path, or a bucket",
            )

    def _error(self, what: str, fix: str, *facts: str) -> BuildInterruptedError:
        return BuildInterruptedError(what, *facts, f"It runs on {platform.node()}.", fix=fix)


class CheckedDoFn(beam.DoFn):  # type: ignore[misc]
    """A `DoFn` that checks the environment of each worker first."""

    def __init__(self, work: BuildFiles, environment: WorkerEnvironment) -> None:
        self._work = work
        self._environment = environment

    def setup(self) -> None:
        """Checks that this worker's environment is that of the building process."""
        with self._work.reporting_failures():
            self._environment.check()


def configured(options: Mapping[str, object]) -> dict[str, object]:
    """Completes the options of a pipeline whose workers are processes of the runner.

    The default command is this program, of an environment with the same path on all machines.

    Raises:
      InvalidOptionError: The configuration is no JSON object, or this program would have to install
        something.
    """
    if "environment_options" in options:  # another option of Beam for the same
        return dict(options)
    given = options.get("environment_config") or {}
    try:
        found = given if isinstance(given, Mapping) else json.loads(str(given))
        config = {"command": str(Path(sysconfig.get_path("scripts"), PROGRAM)), **found}
    except (ValueError, TypeError) as error:
        raise InvalidOptionError(
            f"environment_type is PROCESS, and environment_config is {given!r}.",
            "Expected a JSON object.",
            fix=f'pass --beam-option environment_config=\'{{"command": "/ENV/bin/{PROGRAM}"}}'
            "', or leave it out if all machines have the environment at the same path",
        ) from error
    unsupported = [name for name in _DEPENDENCY_OPTIONS if options.get(name)]
    if Path(config["command"]).name == PROGRAM and unsupported:
        raise InvalidOptionError(
            f"{PROGRAM} installs nothing, but {unsupported[0]} requires it.",
            fix="install everything in the environment of the workers, and leave out "
            f"{unsupported[0]}; or pass Beam's own boot program as the command",
        )
    return {**options, "environment_config": json.dumps(config)}


def cannot_start(options: Mapping[str, object], error: Exception) -> BuildInterruptedError | None:
    """Returns the error for a runner that failed to start the workers' program, else None."""
    failed = _NOT_STARTED.search(str(error))
    config = options.get("environment_config")
    if failed is None or not config or str(options.get("environment_type")).upper() != "PROCESS":
        return None
    command = json.loads(str(config))["command"]
    return BuildInterruptedError(
        f"The runner cannot start workers with {command}.",
        f"It said: {failed.group()}",
        fix=f"run `{command} --help` on each machine of the cluster; if the environment has "
        "another path there, pass --beam-option environment_config="
        f'\'{{"command": "/ENV/bin/{PROGRAM}"}}\'',
    )


def run_worker(worker_id: str, provision: str, *, control: str = "", logs: str = "") -> None:
    """Runs a worker, and ends this process when the runner stops it, or dies.

    Args:
      worker_id: The runner's name for it. Beam must also find it in `WORKER_ID` when imported.
      provision: The address of the runner's provision service.
      control: The address of its control service, if the provision service does not tell it.
      logs: Likewise the address of its logging service.

    Raises:
      BuildInterruptedError: The provision service does not answer.
    """
    info = _asked(worker_id, provision)
    environment = {
        "WORKER_ID": worker_id,
        "PIPELINE_OPTIONS": json_format.MessageToJson(info.pipeline_options),
        "CONTROL_API_SERVICE_DESCRIPTOR": _described(info.control_endpoint, control),
        "LOGGING_API_SERVICE_DESCRIPTOR": _described(info.logging_endpoint, logs),
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
    }
    if info.status_endpoint.url:
        environment["STATUS_API_SERVICE_DESCRIPTOR"] = _described(info.status_endpoint)
    code = 1
    try:
        _, harness, _ = sdk_worker_main.create_harness(environment)
        _refuse(info)
        harness.run()
        code = 0
    except Exception:
        _LOGGER.exception("Worker %s has failed, or has lost its runner.", worker_id)
    finally:
        logging.shutdown()
        # The runner has stopped this worker, or has died, and needs no more of its threads.
        os._exit(code)


def _asked(worker_id: str, provision: str) -> beam_provision_api_pb2.ProvisionInfo:
    with GRPCChannelFactory.insecure_channel(
        provision, options=[("grpc.max_receive_message_length", -1)]
    ) as channel:
        stub = beam_provision_api_pb2_grpc.ProvisionServiceStub(
            grpc.intercept_channel(channel, WorkerIdInterceptor(worker_id))
        )
        request = beam_provision_api_pb2.GetProvisionInfoRequest()
        try:
            return stub.GetProvisionInfo(request, timeout=_ANSWER, wait_for_ready=True).info
        except grpc.RpcError as error:
            raise BuildInterruptedError(
                f"No runner with a worker {worker_id!r} answers at {provision}.",
                f"The error was: {error.details()}",
                fix="let a runner start this program, with --beam-option "
                "environment_type=PROCESS; see docs/scaling.md",
            ) from error


def _described(endpoint: endpoints_pb2.ApiServiceDescriptor, otherwise: str = "") -> str:
    said = endpoint if endpoint.url else endpoints_pb2.ApiServiceDescriptor(url=otherwise)
    return str(text_format.MessageToString(said))


def _refuse(info: beam_provision_api_pb2.ProvisionInfo) -> None:
    """Raises `InvalidOptionError` if the pipeline has dependencies to install."""
    roles = beam_runner_api_pb2.ArtifactStagingToRolePayload
    names = {
        roles.FromString(one.role_payload).staged_name or one.role_urn for one in info.dependencies
    }
    brought = sorted(names - {SUBMISSION_ENV_DEPENDENCIES_FILE})
    if brought:
        raise InvalidOptionError(
            f"{PROGRAM} installs nothing, but the pipeline requires {', '.join(brought)}.",
            fix="install it in the environment of the workers",
        )


class WorkerPool(beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolServicer):  # type: ignore[misc]
    """Starts a process for each worker that a runner requests."""

    def __init__(self) -> None:
        self._workers: dict[str, BaseProcess] = {}

    def StartWorker(  # noqa: N802 - Beam's name
        self, request: beam_fn_api_pb2.StartWorkerRequest, _: grpc.ServicerContext | None
    ) -> beam_fn_api_pb2.StartWorkerResponse:
        """Starts a worker."""
        worker = _PROCESSES.Process(
            target=_work, args=(request.control_endpoint.url, request.worker_id)
        )
        worker.start()
        self._workers[request.worker_id] = worker
        return beam_fn_api_pb2.StartWorkerResponse()

    def StopWorker(  # noqa: N802
        self, request: beam_fn_api_pb2.StopWorkerRequest, _: grpc.ServicerContext | None
    ) -> beam_fn_api_pb2.StopWorkerResponse:
        """Ends a worker."""
        worker = self._workers.pop(request.worker_id, None)
        if worker is not None:
            worker.join(_GRACE)
            worker.kill()
            worker.join()
        return beam_fn_api_pb2.StopWorkerResponse()

    def close(self) -> None:
        """Ends all workers."""
        for worker in self._workers.values():
            worker.kill()
            worker.join()
        self._workers = {}


def _work(control: str, worker_id: str) -> None:
    threading.Thread(target=_end_with_the_pool, daemon=True).start()
    try:
        SdkHarness(control, worker_id=worker_id, data_buffer_time_limit_ms=-1).run()
    except Exception as error:
        _LOGGER.warning("Worker %s has lost its runner: %s", worker_id, error)
    finally:
        # The runner has stopped this worker, or has died, and needs no more of its threads.
        os._exit(0)


def _end_with_the_pool() -> None:
    pool = multiprocessing.parent_process()
    if pool is not None:
        pool.join()
    os._exit(1)


def start_pool(host: str, port: int) -> tuple[str, grpc.Server, WorkerPool]:
    """Starts a pool; returns its address, the server and the pool.

    Args:
      host: The address of the interface.
      port: 0 for any free port.

    Raises:
      InvalidOptionError: The address is in use, or not of this machine.
    """
    # As in Beam's own program: runners ping more often than gRPC allows by default.
    options = [("grpc.http2.max_pings_without_data", 0), ("grpc.http2.max_ping_strikes", 0)]
    server = grpc.server(thread_pool_executor.shared_unbounded_instance(), options=options)
    try:
        bound = server.add_insecure_port(f"{host}:{port}")
    except RuntimeError as error:
        raise InvalidOptionError(
            f"The pool of workers cannot listen on {host}:{port}.",
            f"The error was: {error}",
            fix="choose another --port, or an address of this machine as --host",
        ) from error
    pool = WorkerPool()
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    server.start()
    return f"{host}:{bound}", server, pool
