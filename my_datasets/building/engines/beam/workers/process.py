"""A worker as a process of its runner: the program that `environment_type=PROCESS` starts.

It gets the address where its runner says all the rest. Beam's own program for this, `boot`, is made
for containers: it makes an environment in `/opt/apache` for each worker, installs what a pipeline
brings, and starts the `python` of its PATH. This one is the worker, in the Python that it is
installed for, and installs nothing.
"""

import json
import logging
import os
import re
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
from apache_beam.portability.api import (
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
    beam_runner_api_pb2,
    endpoints_pb2,
)
from apache_beam.runners.portability.stager import SUBMISSION_ENV_DEPENDENCIES_FILE
from apache_beam.runners.worker import sdk_worker_main
from apache_beam.runners.worker.channel_factory import GRPCChannelFactory
from apache_beam.runners.worker.worker_id_interceptor import WorkerIdInterceptor
from google.protobuf import json_format, text_format

from my_datasets.core.logs import get_logger
from my_datasets.errors import BuildInterruptedError, InvalidOptionError, explain

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


def run(worker_id: str, provision: str, *, control: str = "", logs: str = "") -> None:
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
