"""Job servers end with the process that builds, however that one ends."""

import os
import signal
import subprocess
import sys
import textwrap

import psutil
import pytest

from my_datasets.building.engines.beam import tied_process
from tests.conftest import ROOT

pytestmark = pytest.mark.integration

# Seconds: more than any machine needs.
_LONG = 120.0

# Instead of `java`: answers where the job server should.
_SERVER = """\
#!{python}
import sys
from concurrent import futures
import grpc
server = grpc.server(futures.ThreadPoolExecutor(1))
server.add_insecure_port("127.0.0.1:" + sys.argv[sys.argv.index("--job-port") + 1])
server.start()
server.wait_for_termination()
"""


def _started(code, *arguments, **variables):
    """Starts Python with some code; its first line of output is there when this returns."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return process, process.stdout.readline().strip()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can be told to end it")
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_a_command_ends_with_the_process_that_has_started_it(sign):
    process, said = _started(
        """
        import subprocess, sys
        from my_datasets.building.engines.beam.runners import tied_process
        command = [sys.executable, "-c", "print(flush=True); import time; time.sleep(1000)"]
        child = subprocess.Popen(tied_process.command_for(command), stdout=subprocess.PIPE)
        child.stdout.readline()
        print(child.pid, flush=True)
        child.wait()
        """
    )
    child = psutil.Process(int(said))
    assert "time.sleep(1000)" in child.cmdline()[-1]
    process.send_signal(sign)
    _, left = psutil.wait_procs([child], timeout=_LONG)
    assert not left
    process.communicate()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can be told to end it")
def test_a_command_does_not_begin_after_that(tmp_path):
    """Of a parent that ended early there is no signal any more."""
    marker = tmp_path / "ran"
    command = tied_process.command_for(["touch", str(marker)])
    nobody = str(2**22)  # Linux has no process ids that large
    of_nobody = [nobody if part == str(os.getpid()) else part for part in command]
    for which, runs in ((of_nobody, False), (command, True)):
        subprocess.run(which, check=True)
        assert marker.exists() is runs


def test_signals_and_exit_codes_are_the_commands_own():
    # Python's own handler could come between the line and the pause, which then never ends.
    code = "signal.signal(signal.SIGINT, signal.SIG_DFL); print(flush=True); signal.pause()"
    with subprocess.Popen(
        tied_process.command_for([sys.executable, "-c", f"import signal; {code}"]),
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == -signal.SIGINT
    found = subprocess.run(tied_process.command_for([sys.executable, "-c", "exit(7)"]))
    assert found.returncode == 7


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can be told to end it")
@pytest.mark.parametrize("killed", [True, False])
def test_a_job_server_ends_with_the_build(tmp_path, killed):
    """With a small server in place of Java; `test_beam_clusters` has the real one."""
    java, jar = tmp_path / "java", tmp_path / "flink.jar"
    java.write_text(_SERVER.format(python=sys.executable))
    java.chmod(0o755)
    jar.touch()
    process, said = _started(
        """
        import signal, sys
        from my_datasets.building.engines.beam.runners import Submission
        java, jar = sys.argv[1:]
        options = {"flink_job_server_jar": jar, "job_server_java_launcher": java}
        submission = Submission({"runner": "flink", **options})
        for _ in range(2):  # pipelines of a build have one
            pipeline = submission.pipeline()
            pipeline.runner.default_job_server(pipeline.options).start()
        handler = signal.getsignal(signal.SIGINT)
        print("started", handler is signal.default_int_handler, flush=True)
        sys.stdin.read()
        submission.close()
        """,
        java, jar,
    )  # fmt: skip
    assert said == "started True"  # and Ctrl-C is for the build, which stops the server
    [server] = psutil.Process(process.pid).children(recursive=True)
    assert str(java) in server.cmdline()
    if killed:
        process.kill()
    process.communicate()
    assert (process.returncode == 0) is not killed
    _, left = psutil.wait_procs([server], timeout=_LONG)
    assert not left
