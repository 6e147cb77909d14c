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

from tests.machines import Machine

_ENTRY = "org.apache.flink.runtime"
_JOB_MANAGER = f"{_ENTRY}.entrypoint.StandaloneSessionClusterEntrypoint"
_TASK_MANAGER = f"{_ENTRY}.taskexecutor.TaskManagerRunner"
_TASK_MANAGERS = 2
_PACKAGES = ("java.io", "java.lang", "java.net", "java.nio", "java.util", "java.util.concurrent")
_BEGIN = 120.0
# Flink's own scripts work out the sizes from one; these are enough for blocks of 4 MB.
_CONFIGURATION = """
jobmanager.rpc.address: {host}
jobmanager.rpc.port: {rpc}
jobmanager.bind-host: {bind}
jobmanager.memory.process.size: 800m
rest.address: {host}
rest.bind-address: {host}
rest.port: {rest}
taskmanager.host: {own}
taskmanager.bind-host: {own}
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
      start: Starts a process of it: its main class, its name, and the machine, if not this one.
      machines: Those that TaskManagers are on; none if on this one.
      task_managers: The processes of TaskManagers.
    """

    address: str
    start: Callable[[str, str, Machine | None], subprocess.Popen]
    machines: tuple[Machine, ...] = ()
    task_managers: list[subprocess.Popen] = field(default_factory=list)

    def add_task_manager(self) -> None:
        """Starts one more."""
        number = len(self.task_managers)
        machine = self.machines[number % len(self.machines)] if self.machines else None
        name = f"task-manager-{number}"
        self.task_managers.append(self.start(_TASK_MANAGER, name, machine))

    def replace_a_task_manager(self) -> None:
        """Kills one, and starts another one as a supervisor would."""
        self.task_managers[0].kill()
        self.add_task_manager()


@contextlib.contextmanager
def started(
    jars: Path, place: Path, *, restarts: bool, machines: tuple[Machine, ...] = ()
) -> Iterator[FlinkProcesses]:
    """Starts it, and ends it.

    Args:
      jars: The directory of Flink's and Beam's jars.
      place: A directory for its files.
      restarts: Whether it starts a job again that has failed.
      machines: That of the JobManager, and those of TaskManagers; none for this one.
    """
    master, *others = machines or (None,)
    host = master.address if master else "127.0.0.1"
    # It asks its own server for files by the name localhost.
    bind = "0.0.0.0" if master else host
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        rpc, rest = one.getsockname()[1], other.getsockname()[1]
    strategy = "fixed-delay" if restarts else "none"
    opens = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _PACKAGES]
    java = ["java", "-Xmx512m", *opens, "-cp", f"{jars}/*"]
    with contextlib.ExitStack() as stack:

        def start(main: str, name: str, machine: Machine | None = None) -> subprocess.Popen:
            log = stack.enter_context((place / f"{name}.log").open("w"))
            directory = place / name
            directory.mkdir()
            own = machine.address if machine else host
            text = _CONFIGURATION.format(
                host=host, bind=bind, own=own, rpc=rpc, rest=rest, strategy=strategy,
                place=directory,
            )  # fmt: skip
            (directory / "flink-conf.yaml").write_text(text)
            begin = machine.start if machine else subprocess.Popen
            command = [*java, main, "--configDir", str(directory)]
            process = begin(command, cwd=directory, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        start(_JOB_MANAGER, "job-manager", master)
        cluster = FlinkProcesses(f"{host}:{rest}", start, tuple(others))
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
