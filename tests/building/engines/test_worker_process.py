"""The program that runners start for each worker, started by Beam's own pool and in-process runner.

`test_beam_clusters` has it started by Flink, and `test_beam_runners` by Prism.
"""

import json
import os
import subprocess
import sys
import sysconfig
import threading
from concurrent import futures
from pathlib import Path

import grpc
import psutil
import pytest
from apache_beam.portability.api import (
    beam_fn_api_pb2_grpc,
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
    beam_runner_api_pb2,
)

from my_datasets import errors
from my_datasets.building.engines.beam import workers as worker_process
from my_datasets.building.engines.beam.runners import Submission
from tests.conftest import ROOT

pytestmark = pytest.mark.integration

PROGRAM = Path(sysconfig.get_path("scripts"), worker_process.PROGRAM)
# Seconds: more than any machine needs.
_LONG = 120.0

# A runner whose workers are started by `program`; the element waits for a file called `go`.
_RUNNER = """\
import json, os, pathlib, sys, time
from concurrent import futures
import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_fn_api_pb2_grpc
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.worker import worker_pool_main
from apache_beam.transforms.environments import ExternalEnvironment

program, place = sys.argv[1:3]

def told(element):
    here = pathlib.Path(place)
    said = {"process": os.getpid(), "python": sys.executable, "element": element}
    partial = here / f"{element}.partial"
    partial.write_text(json.dumps(said))
    partial.rename(here / f"{element}.json")
    while not (here / "go").exists():
        time.sleep(0.02)

pool = worker_pool_main.BeamFnExternalWorkerPoolServicer(True, program)
server = grpc.server(futures.ThreadPoolExecutor(4))
beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
port = server.add_insecure_port("127.0.0.1:0")
server.start()
runner = FnApiRunner(default_environment=ExternalEnvironment(f"127.0.0.1:{port}"))
with beam.Pipeline(runner=runner, options=PipelineOptions([])) as pipeline:
    _ = pipeline | beam.Create([1]) | beam.Reshuffle() | beam.Map(told)
"""


@pytest.fixture
def runner(tmp_path):
    """A runner in a process of its own, and the worker that it has started."""
    process = subprocess.Popen(
        [sys.executable, "-c", _RUNNER, PROGRAM, tmp_path],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        said = json.loads(_appearing(tmp_path / "1.json", process).read_text())
        yield process, said, psutil.Process(said["process"])
    finally:
        process.kill()
        process.wait()


def _appearing(path, process):
    for _ in range(int(_LONG / 0.1)):
        if path.exists():
            return path
        if process.poll() is not None:
            break
        threading.Event().wait(0.1)
    raise AssertionError(f"the runner has ended with {process.poll()}, without {path}")


def test_it_does_the_work_in_the_python_that_it_belongs_to(runner, tmp_path):
    process, said, worker = runner
    assert said["process"] != process.pid
    assert Path(said["python"]) == Path(sys.executable)
    assert str(PROGRAM) in worker.cmdline()
    (tmp_path / "go").touch()
    assert process.wait(_LONG) == 0
    _, left = psutil.wait_procs([worker], timeout=_LONG)
    assert not left


def test_it_ends_with_its_runner_however_that_ends(runner):
    """Also in the midst of an element."""
    process, _, worker = runner
    process.kill()
    process.wait()
    _, left = psutil.wait_procs([worker], timeout=_LONG)
    assert not left


def test_without_a_runner_it_says_so(monkeypatch):
    monkeypatch.setattr(worker_process, "_ANSWER", 0.1)
    with pytest.raises(errors.BuildInterruptedError, match="No runner with a worker '7' answers"):
        worker_process.run_worker("7", "127.0.0.1:1")


def test_it_is_what_runners_start_if_nothing_else_is_said():
    place = {"runner": "portable", "job_endpoint": "127.0.0.1:1", "environment_type": "process"}
    for given, wanted in (
        ({}, {"command": str(PROGRAM)}),
        ({"env": {"A": "b"}}, {"command": str(PROGRAM), "env": {"A": "b"}}),
        ('{"command": "/opt/boot"}', {"command": "/opt/boot"}),
    ):
        found = Submission({**place, "environment_config": given}).options
        assert json.loads(found["environment_config"]) == wanted
    said = Submission({**place, "environment_options": ["process_command=/opt/boot"]}).options
    assert "environment_config" not in said


@pytest.mark.parametrize("given", ["/opt/boot", "[1]", "3"])
def test_a_configuration_that_is_none_is_reported(given):
    with pytest.raises(errors.InvalidOptionError, match="Expected a JSON object"):
        worker_process.configured({"environment_config": given})


def test_what_would_have_to_be_installed_is_refused():
    brings = {"requirements_file": "requirements.txt"}
    with pytest.raises(errors.InvalidOptionError, match="installs nothing, but requirements_file"):
        worker_process.configured(brings)
    own = {**brings, "environment_config": '{"command": "/opt/apache/beam/boot"}'}
    assert worker_process.configured(own) == own


class _Runner(
    beam_provision_api_pb2_grpc.ProvisionServiceServicer,
    beam_fn_api_pb2_grpc.BeamFnControlServicer,
    beam_fn_api_pb2_grpc.BeamFnLoggingServicer,
):
    """A runner, as far as a worker sees it: it lets go of each worker at once."""

    def __init__(self, info):
        self.info, self.began, self.logged = info, [], []

    def GetProvisionInfo(self, _, context):
        assert dict(context.invocation_metadata())["worker_id"] == "7"
        return beam_provision_api_pb2.GetProvisionInfoResponse(info=self.info)

    def Control(self, _, context):
        self.began.append(dict(context.invocation_metadata())["worker_id"])
        return iter(())

    def Logging(self, lists, _):
        for some in lists:
            self.logged += [f"{entry.message}\n{entry.trace}" for entry in some.log_entries]
        return iter(())


def _worker_of(runner, *, provided, passed):
    """Runs the program for a runner; a URL of "" stands for the runner's address."""
    server = grpc.server(futures.ThreadPoolExecutor(8))
    beam_provision_api_pb2_grpc.add_ProvisionServiceServicer_to_server(runner, server)
    beam_fn_api_pb2_grpc.add_BeamFnControlServicer_to_server(runner, server)
    beam_fn_api_pb2_grpc.add_BeamFnLoggingServicer_to_server(runner, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    runner.info.logging_endpoint.url = address
    if provided is not None:
        runner.info.control_endpoint.url = provided or address
    server.start()
    try:
        return subprocess.run(
            [PROGRAM, "--id=7", f"--provision_endpoint={address}",
             f"--control_endpoint={passed or address}"],
            env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=_LONG, check=False,
            capture_output=True, text=True,
        )  # fmt: skip
    finally:
        server.stop(0).wait()


def _staged(name):
    staged = beam_runner_api_pb2.ArtifactStagingToRolePayload(staged_name=name)
    return beam_runner_api_pb2.ArtifactInformation(role_payload=staged.SerializeToString())


def test_a_pipeline_with_something_to_install_ends_the_worker():
    names = ["submission_environment_dependencies.txt", "workflow.tar.gz"]
    runner = _Runner(beam_provision_api_pb2.ProvisionInfo(dependencies=map(_staged, names)))
    done = _worker_of(runner, provided="", passed="127.0.0.1:1")
    assert done.returncode == 1
    assert not runner.began
    said = done.stderr + "".join(runner.logged)
    assert "installs nothing, but the pipeline requires workflow.tar.gz." in said


@pytest.mark.parametrize(("provided", "passed"), [("", "127.0.0.1:1"), (None, "")])
def test_what_a_runner_says_itself_comes_before_what_it_passes(provided, passed):
    """The worker finds the control service, though one of the two addresses leads nowhere."""
    lists = [_staged("submission_environment_dependencies.txt")]
    runner = _Runner(beam_provision_api_pb2.ProvisionInfo(dependencies=lists))
    done = _worker_of(runner, provided=provided, passed=passed)
    assert runner.began == ["7"]
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "said", ["Process died with exit code 127", "java.io.IOException: error=2, No such file"]
)
def test_a_program_that_the_runner_cannot_start_is_named(said):
    options = {"environment_type": "PROCESS", "environment_config": '{"command": "/env/it"}'}
    found = worker_process.cannot_start(options, RuntimeError(f"state FAILED: {said}"))
    assert "cannot start workers with /env/it" in str(found)
    assert "run `/env/it --help` on each machine" in str(found)
    assert worker_process.cannot_start(options, RuntimeError("no")) is None
    assert worker_process.cannot_start({}, RuntimeError(said)) is None
