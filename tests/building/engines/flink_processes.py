"""A Flink cluster of three processes on this machine: a JobManager and two TaskManagers."""

import contextlib
import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

_ENTRY = "org.apache.flink.runtime"
_JOB_MANAGER = f"{_ENTRY}.entrypoint.StandaloneSessionClusterEntrypoint"
_TASK_MANAGER = f"{_ENTRY}.taskexecutor.TaskManagerRunner"
_TASK_MANAGERS = 2
_PACKAGES = ("java.io", "java.lang", "java.net", "java.nio", "java.util", "java.util.concurrent")
_BEGIN = 120.0
# Flink's own scripts work out the sizes from one; these are enough for blocks of 4 MB.
_CONFIGURATION = """
jobmanager.rpc.address: 127.0.0.1
jobmanager.rpc.port: {rpc}
jobmanager.bind-host: 127.0.0.1
jobmanager.memory.process.size: 800m
rest.address: 127.0.0.1
rest.bind-address: 127.0.0.1
rest.port: {rest}
taskmanager.host: 127.0.0.1
taskmanager.bind-host: 127.0.0.1
taskmanager.numberOfTaskSlots: 2
taskmanager.cpu.cores: 1.0
taskmanager.memory.framework.heap.size: 128m
taskmanager.memory.framework.off-heap.size: 128m
taskmanager.memory.task.heap.size: 256m
taskmanager.memory.task.off-heap.size: 64m
taskmanager.memory.network.min: 64m
taskmanager.memory.network.max: 64m
taskmanager.memory.managed.size: 256m
taskmanager.memory.jvm-metaspace.size: 256m
taskmanager.memory.jvm-overhead.min: 192m
taskmanager.memory.jvm-overhead.max: 192m
heartbeat.interval: 1000
heartbeat.timeout: 50000
restart-strategy: {strategy}
restart-strategy.fixed-delay.attempts: 10
restart-strategy.fixed-delay.delay: 1 s
io.tmp.dirs: {place}
"""


@dataclass(frozen=True)
class FlinkProcesses:
    """The cluster.

    Attributes:
      address: Where it takes jobs.
      start: Starts a process of it: its main class and the file for its log.
      task_managers: The processes of TaskManagers.
    """

    address: str
    start: Callable[[str, str], subprocess.Popen]
    task_managers: list[subprocess.Popen] = field(default_factory=list)

    def add_task_manager(self) -> None:
        """Starts one more."""
        number = len(self.task_managers)
        self.task_managers.append(self.start(_TASK_MANAGER, f"task-manager-{number}"))

    def replace_a_task_manager(self) -> None:
        """Kills one, and starts another one as a supervisor would."""
        self.task_managers[0].kill()
        self.add_task_manager()


@contextlib.contextmanager
def started(jars: Path, place: Path, *, restarts: bool) -> Iterator[FlinkProcesses]:
    """Starts it, and ends it.

    Args:
      jars: The directory of Flink's and Beam's jars.
      place: A directory for its files.
      restarts: Whether it starts a job again that has failed.
    """
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        rpc, rest = one.getsockname()[1], other.getsockname()[1]
    text = _CONFIGURATION.format(
        rpc=rpc, rest=rest, strategy="fixed-delay" if restarts else "none", place=place
    )
    (place / "flink-conf.yaml").write_text(text)
    opens = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _PACKAGES]
    java = ["java", "-Xmx512m", *opens, "-cp", f"{jars}/*"]
    with contextlib.ExitStack() as stack:

        def start(main: str, name: str) -> subprocess.Popen:
            log = stack.enter_context((place / f"{name}.log").open("w"))
            command = [*java, main, "--configDir", str(place)]
            process = subprocess.Popen(command, cwd=place, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        start(_JOB_MANAGER, "job-manager")
        cluster = FlinkProcesses(f"127.0.0.1:{rest}", start)
        for _ in range(_TASK_MANAGERS):
            cluster.add_task_manager()
        _wait(cluster, place)
        yield cluster


def _wait(cluster: FlinkProcesses, place: Path) -> None:
    until = time.monotonic() + _BEGIN
    while time.monotonic() < until:
        with contextlib.suppress(OSError, ValueError):
            if _asked(cluster.address, "overview")["taskmanagers"] == _TASK_MANAGERS:
                return
        time.sleep(0.2)
    raise TimeoutError(f"The cluster has not come; see the logs in {place}")


def _asked(address: str, path: str) -> dict:
    with urllib.request.urlopen(f"http://{address}/{path}", timeout=10) as answer:
        return json.load(answer)
