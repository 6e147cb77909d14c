"""Checks within seconds whether a build on Beam can begin, before hours of work."""

import json
import os
import re
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import apache_beam as beam

from my_datasets.building.engines.beam import workers
from my_datasets.building.engines.beam.build_files import BuildFiles
from my_datasets.building.engines.beam.runners import (
    DASK,
    DATAFLOW,
    FLINK,
    PORTABLE,
    SPARK,
    Submission,
)
from my_datasets.building.engines.beam.workers import WorkerEnvironment
from my_datasets.errors import BuildInterruptedError, InvalidOptionError

# Seconds that an address has to answer.
_CONNECT = 5.0
# Seconds that the first worker has to begin; imports come after that.
_BEGIN = 60.0
# ... and more for a job server that first sends its jars to a cluster: 150 MB and more, which took
# 30 s on a busy machine.
_STAGING = 120.0
# Elements that the runner distributes at random to reach the workers.
_ASKED = 32
# The folder of the workers' answers.
_ANSWERS = "answers"
_THIS_MACHINE = ("", "localhost", "127.0.0.1", "::1")
# Masters that a job server starts itself, of Flink and of Spark.
_STARTED_BY_JOB_SERVER = re.compile(r"\[(local|auto)\]|local(-cluster)?(\[.*\])?")
# Options that are addresses, and the servers there.
_ADDRESSES = {
    "job_endpoint": "a job server",
    "flink_master": "a Flink JobManager",
    "spark_master_url": "a Spark master",
}


def check(submission: Submission, work: BuildFiles, environment: WorkerEnvironment) -> None:
    """Checks that the runner answers, and that its workers have what they need.

    Raises:
      BuildInterruptedError: The runner or a worker does not answer, or lacks something.
      InvalidOptionError: Two options contradict each other.
    """
    if not submission.preset.has_workers:
        return
    _check_addresses(submission.options)
    _check_environment(submission)
    if submission.preset == DASK:
        submission.cluster().ask(environment.check)
    elif submission.preset != DATAFLOW:  # whose pipelines take minutes to begin
        _ask_workers(submission, work, environment)


def _check_addresses(options: Mapping[str, object]) -> None:
    for option, what in _ADDRESSES.items():
        place = str(options.get(option, ""))
        if _STARTED_BY_JOB_SERVER.fullmatch(place) or ":" not in place:
            continue
        parts = urlsplit(place if "//" in place else f"//{place}")
        try:
            with socket.create_connection((parts.hostname or "", parts.port or 80), _CONNECT):
                pass
        except (OSError, ValueError) as error:
            raise BuildInterruptedError(
                f"{option} is {place}, where {what} should answer.",
                f"The error was: {error}",
                fix="start it, or correct the address; see docs/scaling.md",
            ) from error


def _check_environment(submission: Submission) -> None:
    options = submission.options
    kind = str(options.get("environment_type", "")).upper()
    master = {FLINK.name: "flink_master", SPARK.name: "spark_master_url"}.get(
        submission.preset.name, ""
    )
    place = str(options.get(master, ""))
    is_here = is_on_this_machine(place)
    if kind == "LOOPBACK" and not is_here:
        raise InvalidOptionError(
            f"environment_type is LOOPBACK, and {master} is {place}.",
            "With LOOPBACK the cluster's workers connect to this process, at an address that "
            "only this machine reaches.",
            fix="pass --beam-option environment_type=PROCESS (or EXTERNAL, or DOCKER); see "
            "docs/scaling.md",
        )
    if kind == "PROCESS":
        command = _command(options)
        if is_here and shutil.which(command) is None:
            raise InvalidOptionError(
                f"environment_type is PROCESS, but its command {command!r} is no executable "
                "program.",
                fix="pass --beam-option environment_config="
                f'\'{{"command": "/ENV/bin/{workers.PROGRAM}"}}\', of an environment '
                "with this package and the builder's",
            )


def is_on_this_machine(master: str) -> bool:
    """Returns whether a cluster is on this machine."""
    if _STARTED_BY_JOB_SERVER.fullmatch(master):
        return True
    host = urlsplit(master if "//" in master else f"//{master}").hostname
    return (host or "") in _THIS_MACHINE


def _command(options: Mapping[str, object]) -> str:
    for option in _listed(options.get("environment_options")):
        name, _, value = option.partition("=")
        if name == "process_command":
            return value
    try:
        found = json.loads(str(options.get("environment_config", "{}")))
    except ValueError:
        return ""
    return str(found.get("command", "")) if isinstance(found, dict) else ""


def _listed(value: object) -> list[str]:
    return list(map(str, value)) if isinstance(value, (list, tuple)) else [str(value or "")]


@dataclass(frozen=True)
class EnvironmentProbe:
    """A worker's answer."""

    work: BuildFiles
    environment: WorkerEnvironment

    def __call__(self, _: int) -> None:
        """Reports that the worker has begun, and then what it lacks."""
        with self.work.reporting_failures():
            if self.work.place.exists():
                self.work.write_json(f"{_ANSWERS}/{secrets.token_hex(8)}.json", os.getpid())
            self.environment.check()


def _ask_workers(submission: Submission, work: BuildFiles, environment: WorkerEnvironment) -> None:
    work.remove_failures()
    work.place.remove(_ANSWERS)
    pipeline = submission.pipeline()
    _ = (
        pipeline
        | "Numbers" >> beam.Create(list(range(_ASKED)), reshuffle=False)
        | "Spread" >> beam.Reshuffle()
        | "Ask" >> beam.Map(EnvironmentProbe(work, environment))
    )
    failed: list[Exception] = []
    try:
        running = pipeline.run()  # sets signal handlers, so it must run in the main thread
    except Exception as error:
        raise work.failure("checking the workers", error) from error

    def wait() -> None:
        try:
            running.wait_until_finish()
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=wait, name="asking workers", daemon=True)
    thread.start()
    allowed = _BEGIN + (_STAGING if submission.preset in (FLINK, SPARK, PORTABLE) else 0.0)
    until = time.monotonic() + allowed
    while thread.is_alive() and (time.monotonic() < until or work.place.sizes(_ANSWERS)):
        thread.join(0.2)
    if thread.is_alive():
        threading.Thread(target=running.cancel, daemon=True).start()  # this may hang as well
        raise BuildInterruptedError(
            f"No worker has begun within {allowed:.0f} seconds.",
            f"The runner: {submission.preset.name}; environment_type: "
            f"{submission.options.get('environment_type', 'its default')}",
            fix="read the logs of the runner: most often it cannot start its workers, or they "
            "run another Python; see docs/scaling.md",
        )
    if failed:
        begun = bool(work.place.sizes(_ANSWERS))
        never = None if begun else workers.cannot_start(submission.options, failed[0])
        raise never or work.failure("checking the workers", failed[0]) from failed[0]
    work.place.remove(_ANSWERS)
