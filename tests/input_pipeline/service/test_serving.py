"""The processes of a service: where they listen, how they end, and who starts them again."""

import socket
import subprocess
import sys
import threading

import pytest
from click.testing import CliRunner

import my_datasets
from my_datasets.cli.main import cli
from my_datasets.errors import InvalidOptionError, ServiceError
from my_datasets.input_pipeline.service.server import (
    StopSignal,
    free_port,
    restrict_to_loopback,
    supervise,
)
from tests import programs
from tests.input_pipeline.service.conftest import Process
from tests.waiting import LONGEST_SECONDS, until

pytestmark = pytest.mark.integration

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="sockets are bound to devices on Linux")


@LINUX
def test_a_port_is_restricted_after_it_was_opened():
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        restrict_to_loopback(port)
        assert server.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16) == b"lo\0"
        with socket.create_connection(("127.0.0.1", port), 10):
            pass
    with pytest.raises(ServiceError, match="does not listen there"):
        restrict_to_loopback(free_port())


def test_servers_listen_on_loopback_only(cluster):
    ss = programs.require("ss", "iproute2")
    listed = subprocess.run([ss, "-tlnp"], check=True, capture_output=True, text=True).stdout
    ours = [line for line in listed.splitlines()
            if any(f"pid={one.told['pid']}," in line for one in cluster.all)]  # fmt: skip
    assert len(ours) == 3
    assert all("%lo:" in line for line in ours)


def test_a_server_that_died_is_there_again_at_its_place(cluster):
    worker = cluster.workers[1]
    before = dict(worker.told)
    worker.kill()
    worker.ready()
    assert worker.told["pid"] != before["pid"]
    assert worker.told["url"] == before["url"]


def test_they_end_on_request(tmp_path):
    dispatcher = Process("dispatcher", "--port=0").ready()
    worker = Process("worker", f"--dispatcher={dispatcher.told['address']}", "--supervise").ready()
    assert worker.end() == 0
    assert dispatcher.end() == 0
    for told in (dispatcher.told, worker.told):
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("localhost", int(told["address"].split(":")[1])), 10)


def test_a_server_ends_with_its_supervisor(tmp_path):
    dispatcher = Process("dispatcher", "--port=0", "--supervise").ready()
    port = int(dispatcher.told["address"].split(":")[1])
    dispatcher._process.kill()

    def is_gone():
        try:
            socket.create_connection(("localhost", port), 10).close()
        except OSError:
            return True
        return False

    until(is_gone)


def test_what_serve_refuses(tmp_path):
    for arguments, error, said in (
        (["worker", "--work-dir", "x"], InvalidOptionError, "are for a dispatcher"),
        (["worker", "--dispatcher", "nowhere"], InvalidOptionError, "not the address"),
        (["worker", "--dispatcher", f"localhost:{free_port()}", "--wait", "0"], ServiceError,
         "No dispatcher answers"),
    ):  # fmt: skip
        result = CliRunner().invoke(cli, ["serve", *arguments])
        assert isinstance(result.exception, error)
        assert said in str(result.exception)


def test_a_port_in_use_is_an_error(cluster):
    """TensorFlow's own server would share it."""
    port = cluster.url.rpartition(":")[2]
    result = CliRunner().invoke(cli, ["serve", "dispatcher", f"--port={port}"])
    assert isinstance(result.exception, ServiceError)
    assert "another --port" in str(result.exception)


_DIES = """
import pathlib, sys, time
count = pathlib.Path(sys.argv[1])
n = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(n))
sys.exit(0 if n == int(sys.argv[2]) else 3)
"""


def test_a_supervisor_starts_again_until_all_is_well(tmp_path):
    count = tmp_path / "count"
    supervise([sys.executable, "-c", _DIES, str(count), "3"], StopSignal())
    assert count.read_text() == "3"


def test_a_supervisor_gives_up(tmp_path):
    count = tmp_path / "count"
    with pytest.raises(ServiceError, match="exit code 3"):
        supervise([sys.executable, "-c", _DIES, str(count), "100"], StopSignal())
    assert count.read_text() == "5"


def test_a_supervisor_ends_its_process(tmp_path):
    begun = tmp_path / "begun"
    code = f"import pathlib, time; pathlib.Path({str(begun)!r}).touch(); time.sleep(600)"
    stop = StopSignal()
    thread = threading.Thread(target=supervise, args=([sys.executable, "-c", code], stop))
    thread.start()
    until(begun.exists)
    stop.request()
    thread.join(LONGEST_SECONDS)  # half of what the process would sleep
    assert not thread.is_alive()


def test_a_worker_of_another_release_is_reported(rows_dir):
    import tensorflow as tf

    service = tf.data.experimental.service
    dispatcher = service.DispatchServer(service.DispatcherConfig(protocol="grpc"))
    worker = service.WorkerServer(
        service.WorkerConfig(dispatcher_address=dispatcher.target.split("://")[1])
    )
    train = my_datasets.pipeline(
        "served_rows", service=dispatcher.target, columns=["id"], data_dir=rows_dir
    )
    with pytest.raises(tf.errors.OpError, match="does not know this kind of work"):
        next(iter(train))
    del worker
    dispatcher.stop()
