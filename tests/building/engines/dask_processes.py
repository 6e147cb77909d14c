"""A Dask cluster of three processes on this machine, as one starts them by hand."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from my_datasets.building.engines.beam.tied_process import command_for
from tests.conftest import ROOT
from tests.waiting import until

WORKERS = 2


@dataclass(frozen=True)
class DaskProcesses:
    """The cluster.

    Attributes:
      address: The scheduler's.
      nannies: The processes that start a worker, and start it again.
    """

    address: str
    nannies: list[subprocess.Popen]

    @property
    def options(self) -> dict[str, str]:
        """Options of Beam's pipelines that lead there."""
        return {"runner": "dask", "dask_client_address": self.address}

    def kill_a_worker(self, number: int) -> None:
        """Kills a worker, not its nanny."""
        for child in psutil.Process(self.nannies[number].pid).children():
            # A worker's command says that it was spawned; another child tracks resources.
            if "spawn_main" in " ".join(child.cmdline()):
                child.send_signal(signal.SIGKILL)


@contextlib.contextmanager
def started(place: Path) -> Iterator[DaskProcesses]:
    """Starts it, and ends it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    options = ["--host", "127.0.0.1", "--no-dashboard"]
    worker = ["worker", address, "--nthreads", "1", *options]
    commands = [["scheduler", "--port", str(port), *options], *[worker] * WORKERS]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    with contextlib.ExitStack() as stack:
        processes = []
        for number, command in enumerate(commands):
            log = stack.enter_context((place / f"{number}.log").open("w"))
            process = subprocess.Popen(
                command_for([sys.executable, "-m", "dask", *command]),
                env=environment, cwd=place, stdout=log, stderr=log,
            )  # fmt: skip
            stack.callback(_stop, process)
            processes.append(process)
        yield DaskProcesses(address, processes[1:])


def _stop(process: subprocess.Popen) -> None:
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(20)
    if process.poll() is None:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.kill()
        process.wait()


def wait_for_files(place: Path, pattern: str, count: int) -> None:
    """Waits until so many files are there."""
    missing = f"no {count} files {pattern} in {place}"
    until(lambda: len(list(place.glob(pattern))) >= count, missing)
