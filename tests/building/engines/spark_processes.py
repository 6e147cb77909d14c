"""A Spark cluster: a master and two workers, each a process of this machine."""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from my_datasets.building.engines.beam.tied_process import command_for

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_WORKERS = 2
_PACKAGES = (
    "java.io", "java.lang", "java.lang.invoke", "java.net", "java.nio", "java.util",
    "java.util.concurrent", "java.util.concurrent.atomic", "sun.nio.ch", "sun.nio.cs",
    "sun.security.action", "sun.util.calendar",
)  # fmt: skip
_BEGIN = 120.0


@dataclass(frozen=True)
class SparkProcesses:
    """The cluster.

    Attributes:
      address: Where it takes applications.
      workers: The processes that start executors, and start them again.
    """

    address: str
    workers: list[subprocess.Popen]

    def kill_an_executor(self) -> None:
        """Kills one that runs."""
        children = [child for one in self.workers for child in psutil.Process(one.pid).children()]
        children[0].kill()


@contextlib.contextmanager
def started(jars: Path, place: Path) -> Iterator[SparkProcesses]:
    """Starts it, and ends it.

    Args:
      jars: The directory of Spark's and Beam's jars.
      place: A directory for its files.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    (place / "jars").symlink_to(jars)
    # Where workers look for what executors are started with.
    environment = {
        **os.environ, "SPARK_HOME": str(place), "SPARK_SCALA_VERSION": "2.12",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }  # fmt: skip
    opens = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _PACKAGES]
    java = ["java", "-Xmx384m", *opens, "-cp", f"{jars}/*"]
    with contextlib.ExitStack() as stack:

        def start(name: str, *command: str) -> subprocess.Popen:
            log = stack.enter_context((place / f"{name}.log").open("w"))
            process = subprocess.Popen(
                command_for([*java, *command, "--host", "127.0.0.1", "--webui-port", "0"]),
                env=environment, cwd=place, stdout=log, stderr=log,
            )  # fmt: skip
            stack.callback(_stop, process)
            return process

        start("master", _MASTER, "--port", str(port))
        address = f"spark://127.0.0.1:{port}"
        _wait(port, place)
        options = ["--cores", "1", "--memory", "1g"]
        workers = [
            start(f"worker-{number}", _WORKER, address, *options, "-d", str(place / str(number)))
            for number in range(_WORKERS)
        ]
        yield SparkProcesses(address, workers)


def _wait(port: int, place: Path) -> None:
    until = time.monotonic() + _BEGIN
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.2)
    raise TimeoutError(f"The master has not come; see the logs in {place}")


def _stop(process: subprocess.Popen) -> None:
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
