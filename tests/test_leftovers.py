"""A suite that is killed leaves no server behind."""

import subprocess
import sys
import textwrap

import psutil
import pytest

from tests import programs
from tests.conftest import ROOT

pytestmark = pytest.mark.faults

_SERVERS = {
    "gcs": """
        from tests import servers
        with servers.gcs("bucket"):
            wait()
        """,
    "dask": """
        import pathlib, tempfile
        from tests.building.engines import dask_processes
        with dask_processes.started(pathlib.Path(tempfile.mkdtemp())):
            wait()
        """,
    "service": """
        from tests.input_pipeline.service.conftest import Process
        process = Process("dispatcher", "--port=0").ready()
        wait()
        """,
    "zygote": """
        import pathlib
        from tests import zygote
        zygote.of(pathlib.Path(sys.executable))
        wait()
        """,
}
_BEGIN = """
import sys

def wait():
    print("started", flush=True)
    sys.stdin.read()

"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can be told to end them")
@pytest.mark.parametrize("name", _SERVERS)
def test_servers_end_with_the_tests(name):
    if name == "gcs":
        programs.require("go", "Go, which builds a GCS server")
    with subprocess.Popen(
        [sys.executable, "-c", _BEGIN + textwrap.dedent(_SERVERS[name])],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout.readline() == "started\n"
        left = psutil.Process(process.pid).children(recursive=True)
        assert left
        process.kill()
    _, left = psutil.wait_procs(left, timeout=60)
    for one in left:
        one.kill()
    assert not left
