"""What a worker must have in common with the building process, and whether it has.

It gets the address where its runner says all the rest. Beam's own program for this, `boot`, is made
for containers: it makes an environment in `/opt/apache` for each worker, installs what a pipeline
brings, and starts the `python` of its PATH. This one is the worker, in the Python that it is
installed for, and installs nothing.

Beam has such a program, `worker_pool_main`: it starts the `python` of its PATH, whichever that is,
leaves its output unread until the worker stands still, and listens on all interfaces, where whoever
reaches the port can run code. This one starts the Python that it runs in itself, and listens where
it is told to.
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
from typing import Any

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
from my_datasets.building.engines.beam.workspace import Place
from my_datasets.core.logs import get_logger
from my_datasets.errors import BuildInterruptedError, InvalidOptionError, MyDatasetsError, explain

# What makes the bytes of a record, or is pickled on one side and unpickled on the other.
_DISTRIBUTIONS = ("apache-beam", "numpy", "pyarrow", "tensorflow", "tensorflow-datasets")


def versions() -> dict[str, str]:
    """Returns the versions, here, of what must be the same everywhere."""
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
class Surroundings:
    """What a worker must find.

    Attributes:
      place: Where the work is.
      modules: Modules that it must be able to import: those of the builder.
      versions: Of the building process.
    """

    place: Place
    modules: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=versions)

    def check(self) -> str:
        """Returns the name of this machine if all is there.

        Raises:
          BuildInterruptedError: Something is missing, or is another version.
        """
        here = versions()
        others = [
            f"{name} {here.get(name, 'none')} (the building process has {wanted})"
            for name, wanted in self.versions.items()
            if here.get(name) != wanted
        ]
        if others:
            raise self._error(
                f"A worker has {', '.join(others)}.",
                "give all workers the same environment as the building process, with "
                f"{sys.executable} being what they run",
            )
        self._check_place()
        for name in self.modules:
            try:
                import_module(name)
            except Exception as error:  # a module may raise anything, and OSError means no answer
                raise self._error(
                    f"A worker cannot import {name}: {type(error).__name__}: {error}",
                    "install the builder's package on all workers, or put its directory into "
                    "their PYTHONPATH",
                ) from error
        return platform.node()

    def _check_place(self) -> None:
        try:
            is_there = self.place.is_there()
        except (MyDatasetsError, OSError) as error:
            # For one, the machine has no credentials, may not look there, or lacks an extra.
            raise self._error(f"A worker cannot use {self.place}. {error}", "") from error
        if not is_there:
            raise self._error(
                f"A worker does not see {self.place}.",
                "use a --data-dir that all machines share: one absolute path, or a bucket",
            )

    def _error(self, what: str, fix: str) -> BuildInterruptedError:
        return BuildInterruptedError(explain(what, f"It runs on {platform.node()}.", fix=fix))


_LOGGER = get_logger(__name__)

# What it is called: `setup.py` makes it, beside the `python` of the environment.
PROGRAM = "my-datasets-beam-worker"
# Options with which a pipeline brings what workers shall install or load first.
_BRINGING = (
    "requirements_file", "setup_file", "extra_package", "extra_packages", "files_to_stage",
    "save_main_session",
)  # fmt: skip
# What Beam's runners in Java say then.
_NOT_STARTED = re.compile(r"Process died with exit code \d+|Cannot run program .*|error=\d+, .*")
# Seconds in which the runner has to say what it wants.
_ANSWER = 60.0


def configured(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a pipeline whose workers are processes of the runner.

    Without a command of the user's it is this program, of an environment that has the same path on
    all machines.

    Args:
      options: Options of the pipeline.

    Raises:
      InvalidOptionError: The configuration is none, or this program would have to install things.
    """
    if "environment_options" in options:  # Beam's other way to say it
        return dict(options)
    given = options.get("environment_config") or {}
    try:
        found = json.loads(given) if isinstance(given, str) else given
        config = {"command": str(Path(sysconfig.get_path("scripts"), PROGRAM)), **found}
    except (ValueError, TypeError) as error:
        raise InvalidOptionError(
            explain(
                f"environment_type is PROCESS, and environment_config is {given!r}.",
                "Expected a JSON object.",
                fix=f'pass --beam-option environment_config=\'{{"command": "/ENV/bin/{PROGRAM}"}}'
                "', or leave it out if all machines have the environment at the same path",
            )
        ) from error
    brought = [name for name in _BRINGING if options.get(name)]
    if Path(config["command"]).name == PROGRAM and brought:
        raise InvalidOptionError(
            explain(
                f"{PROGRAM} installs nothing, and {brought[0]} wants workers to.",
                fix=f"install it into the environment that workers run in, and leave {brought[0]} "
                "out; or give Beam's own boot program as the command",
            )
        )
    return {**options, "environment_config": json.dumps(config)}


def cannot_start(options: Mapping[str, Any], error: Exception) -> BuildInterruptedError | None:
    """Returns what to say of a pipeline that failed because no such worker came up, if it did.

    Args:
      options: Options of the pipeline.
      error: What the runner raised.
    """
    failed = _NOT_STARTED.search(str(error))
    config = options.get("environment_config")
    if failed is None or not config or str(options.get("environment_type")).upper() != "PROCESS":
        return None
    command = json.loads(config)["command"]
    return BuildInterruptedError(
        explain(
            f"The runner cannot start workers with {command}.",
            f"It said: {failed.group()}",
            fix=f"run `{command} --help` on each machine of the cluster; if the environment has "
            "another path there, pass --beam-option environment_config="
            f'\'{{"command": "/ENV/bin/{PROGRAM}"}}\'',
        )
    )


def run_worker(worker_id: str, provision: str, *, control: str = "", logs: str = "") -> None:
    """Works for a runner, and ends this process when the runner lets go of it, or dies.

    Args:
      worker_id: What the runner calls it. Beam wants it in `WORKER_ID` before it is imported, too.
      provision: The address where the runner says what it wants.
      control: The address where it gives orders, for runners that do not say it there.
      logs: ... and the one that takes logs.

    Raises:
      BuildInterruptedError: Nothing answers there.
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
        # The runner has let go, or has died: what threads still do is of no use to it.
        os._exit(code)


def _asked(worker_id: str, provision: str) -> Any:
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
                explain(
                    f"No runner has a worker {worker_id!r} at {provision}.",
                    f"The system said: {error.details()}",
                    fix="let a runner start this program, with --beam-option "
                    "environment_type=PROCESS; see docs/scaling.md",
                )
            ) from error


def _described(endpoint: Any, otherwise: str = "") -> str:
    said = endpoint if endpoint.url else endpoints_pb2.ApiServiceDescriptor(url=otherwise)
    return str(text_format.MessageToString(said))


def _refuse(info: Any) -> None:
    """Sees that the pipeline brings nothing that would have to be installed."""
    roles = beam_runner_api_pb2.ArtifactStagingToRolePayload
    names = {
        roles.FromString(one.role_payload).staged_name or one.role_urn for one in info.dependencies
    }
    brought = sorted(names - {SUBMISSION_ENV_DEPENDENCIES_FILE})
    if brought:
        raise InvalidOptionError(
            explain(
                f"{PROGRAM} installs nothing, and the pipeline brings {', '.join(brought)}.",
                fix="install it into the environment that workers run in",
            )
        )


# Not forked: TensorFlow and gRPC have threads.
_PROCESSES = multiprocessing.get_context("spawn")
# Seconds in which a worker ends by itself once its runner has let go of it.
_GRACE = 5.0


class WorkerPool(beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolServicer):  # type: ignore[misc]
    """Starts a process for each worker that a runner asks for."""

    def __init__(self) -> None:
        """Starts none."""
        self._workers: dict[str, BaseProcess] = {}

    def StartWorker(self, request: Any, _: Any) -> Any:  # noqa: N802 - so Beam calls it
        """Starts a worker."""
        worker = _PROCESSES.Process(
            target=_work, args=(request.control_endpoint.url, request.worker_id)
        )
        worker.start()
        self._workers[request.worker_id] = worker
        return beam_fn_api_pb2.StartWorkerResponse()

    def StopWorker(self, request: Any, _: Any) -> Any:  # noqa: N802
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
        # The runner has let go, or has died: what threads still do is of no use to it.
        os._exit(0)


def _end_with_the_pool() -> None:
    pool = multiprocessing.parent_process()
    if pool is not None:
        pool.join()
    os._exit(1)


def start_pool(host: str, port: int) -> tuple[str, grpc.Server, WorkerPool]:
    """Starts a pool; returns where it listens, the server and the pool.

    Args:
      host: The address of the interface.
      port: 0 for any that is free.

    Raises:
      InvalidOptionError: Nothing can listen there.
    """
    # As Beam's own: runners ask whether it is there more often than gRPC likes.
    options = [("grpc.http2.max_pings_without_data", 0), ("grpc.http2.max_ping_strikes", 0)]
    server = grpc.server(thread_pool_executor.shared_unbounded_instance(), options=options)
    try:
        bound = server.add_insecure_port(f"{host}:{port}")
    except RuntimeError as error:
        raise InvalidOptionError(
            explain(
                f"No pool of workers can listen on {host}:{port}.",
                f"The system said: {error}",
                fix="choose another --port, or an address of this machine as --host",
            )
        ) from error
    pool = WorkerPool()
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    server.start()
    return f"{host}:{bound}", server, pool
