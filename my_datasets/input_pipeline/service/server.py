"""Runs a dispatcher or a worker of a tf.data service, restarts it, and restricts its ports.

TensorFlow's servers always listen on all interfaces. Anyone who can reach one can have it execute
any graph, which may read and write files. So as soon as a server listens, its socket is bound to
the loopback interface; this needs Linux 5.7, or the capability CAP_NET_RAW.
"""

import ipaddress
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from my_datasets.core.logs import get_logger
from my_datasets.errors import InvalidOptionError, ServiceError

_PATTERN = re.compile(r"grpc://(?P<host>[A-Za-z0-9._-]+):(?P<port>\d{1,5})/?")


@dataclass(frozen=True)
class ServiceAddress:
    """A host name or IP address, and a port."""

    host: str
    port: int

    @classmethod
    def parse(cls, url: str) -> "ServiceAddress":
        """Parses a URL such as `grpc://localhost:5050`.

        Raises:
          InvalidOptionError: It is not the address of a tf.data service.
        """
        match = _PATTERN.fullmatch(url)
        if match is None or int(match["port"]) > 65535:
            raise InvalidOptionError(
                f"{url!r} is not the address of a tf.data service.",
                fix="give one such as grpc://localhost:5050, which my-datasets serve "
                "dispatcher prints",
            )
        return cls(match["host"], int(match["port"]))

    @property
    def url(self) -> str:
        """The URL, in the form TensorFlow expects."""
        return f"grpc://{self}"

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_here(self) -> bool:
        """Whether this is a loopback address or this machine's host name."""
        return is_loopback(self.host) or self.host == socket.gethostname()


def is_loopback(host: str) -> bool:
    """Returns whether a host is this machine's loopback interface, unreachable from others."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_DESCRIPTORS = Path("/proc/self/fd")

_T = TypeVar("_T")
# Seconds between checks whether to stop.
_LOOK = 0.5
# Milliseconds between a worker's heartbeats to the dispatcher. A heartbeat also fetches new work
# that the dispatcher could not announce.
_HEARTBEAT = 1000
# Milliseconds between a dispatcher's searches for jobs without readers, and until it drops one.
_COLLECTED, _FORGOTTEN = 10_000, 300_000
_CONNECT = 2.0

_log = get_logger(__name__)
# Give up if the process dies this often within this many seconds: restarting it does not help.
_MOST, _WITHIN = 5, 60.0
# Seconds for the process to stop by itself.
_GRACE = 20.0
_LOOK_SECONDS = 0.2


def restrict_to_loopback(port: int) -> None:
    """Makes a port that this process listens on unreachable from other machines.

    Raises:
      ServiceError: The system does not support or allow it, or this process does not listen there.
    """
    if not sys.platform.startswith("linux"):
        raise _refused(port, "this needs Linux")
    found = 0
    for descriptor in _DESCRIPTORS.iterdir():
        try:
            copy = socket.socket(fileno=os.dup(int(descriptor.name)))
        except OSError:
            continue  # not a socket, or closed concurrently
        with copy:
            if _listens(copy, port):
                try:
                    copy.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")
                except OSError as error:
                    raise _refused(port, str(error)) from error
                found += 1
    if not found:
        raise _refused(port, "this process does not listen there")


def free_port() -> int:
    """Returns a port that is currently unused."""
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return int(one.getsockname()[1])


def _listens(one: socket.socket, port: int) -> bool:
    try:
        is_listening = one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        name = one.getsockname()
    except OSError:
        return False
    return bool(is_listening) and isinstance(name, tuple) and name[1] == port


def _refused(port: int, reason: str) -> ServiceError:
    return ServiceError(
        f"Port {port} cannot be restricted to this machine: {reason}.",
        "TensorFlow's servers listen on all interfaces; anyone who reaches one can run code",
        fix="give --host with this machine's name in a network that you trust",
    )


@dataclass(frozen=True)
class RunningServer:
    """A running `dispatcher` or `worker`: its address for others, and its process ID."""

    role: str
    address: ServiceAddress
    pid: int


class StopSignal:
    """Signals a server to stop."""

    def __init__(self, parent: int | None = None) -> None:
        """Takes the process ID of a parent whose end also stops the server, or None."""
        self._parent = parent
        self._asked = threading.Event()

    def ask(self) -> None:
        """Requests the stop."""
        self._asked.set()

    def wait(self) -> None:
        """Blocks until the server is to stop."""
        while not self.comes():
            pass

    def comes(self) -> bool:
        """Returns whether the server is to stop; blocks for a moment if not."""
        is_alone = self._parent is not None and os.getppid() != self._parent
        return is_alone or self._asked.wait(_LOOK)


def serve_dispatcher(
    address: ServiceAddress,
    work_dir: str,
    workers: Sequence[str],
    ending: StopSignal,
    ready: Callable[[RunningServer], None],
) -> None:
    """Runs a dispatcher, which resumes from the journal that an earlier one left in `work_dir`.

    Args:
      address: The address under which others reach it; `localhost` for this machine only.
      work_dir: The directory of its journal.
      workers: The addresses of all workers, in order, for sharding='static'; otherwise empty.
      ending: Signals when to stop.
      ready: Called when the server is ready.

    Raises:
      ServiceError: It cannot listen at this address.
    """
    import tensorflow as tf

    service = tf.data.experimental.service
    config = service.DispatcherConfig(
        port=address.port, protocol="grpc", work_dir=work_dir, fault_tolerant_mode=True,
        worker_addresses=list(workers) or None, job_gc_check_interval_ms=_COLLECTED,
        job_gc_timeout_ms=_FORGOTTEN,
    )  # fmt: skip
    server = _started(lambda: service.DispatchServer(config), address)
    ready(RunningServer("dispatcher", address, os.getpid()))
    ending.wait()
    server.stop()


def serve_worker(
    address: ServiceAddress,
    dispatcher: ServiceAddress,
    patience: float,
    ending: StopSignal,
    ready: Callable[[RunningServer], None],
) -> None:
    """Runs a worker.

    Args:
      address: The address under which others reach it; `localhost` for this machine only.
      dispatcher: The dispatcher's address.
      patience: Seconds to wait for the dispatcher to start.
      ending: Signals when to stop.
      ready: Called when the server is ready.

    Raises:
      ServiceError: It cannot listen at this address, or there is no dispatcher.
    """
    import tensorflow as tf

    from my_datasets.input_pipeline.service import work_graph
    from my_datasets.input_pipeline.service.work_graph import PieceMaker

    if not _is_reachable(dispatcher, patience, ending):
        return
    service = tf.data.experimental.service
    work_graph.register_function(PieceMaker(str(address)))
    config = service.WorkerConfig(
        dispatcher_address=str(dispatcher), worker_address=str(address), port=address.port,
        protocol="grpc", heartbeat_interval_ms=_HEARTBEAT,
    )  # fmt: skip
    server = _started(lambda: service.WorkerServer(config), address)
    ready(RunningServer("worker", address, os.getpid()))
    ending.wait()
    # A WorkerServer has no other way to stop.
    del server


def _started(start: Callable[[], _T], address: ServiceAddress) -> _T:
    try:
        # Two TensorFlow servers would silently share a port, and get requests at random.
        socket.create_server(("", address.port)).close()
        server = start()
    except (OSError, RuntimeError) as error:
        raise ServiceError(
            f"The server cannot listen at {address}: {error}",
            fix="give another --port, or end the process that uses it",
        ) from error
    if is_loopback(address.host):
        restrict_to_loopback(address.port)
    return server


def _is_reachable(dispatcher: ServiceAddress, patience: float, ending: StopSignal) -> bool:
    """Waits for the dispatcher; returns False if asked to stop first."""
    end = time.monotonic() + patience
    while True:
        try:
            with socket.create_connection((dispatcher.host, dispatcher.port), _CONNECT):
                return True
        except OSError as error:
            if time.monotonic() > end:
                raise ServiceError(
                    f"No dispatcher answers at {dispatcher.url}: {error}",
                    fix="start one with my-datasets serve dispatcher, which prints its address",
                ) from error
        if ending.comes():
            return False


class Supervisor:
    """Keeps one process running."""

    def __init__(self, command: Sequence[str]) -> None:
        """Takes the command to run, which must exit by itself when this process is gone."""
        self._command = list(command)
        self._ended = threading.Event()

    def ask(self) -> None:
        """Stops the process, and does not restart it."""
        self._ended.set()

    def run(self) -> None:
        """Runs the process until it is asked to stop, or exits with code 0.

        Raises:
          ServiceError: It died too often.
        """
        deaths: deque[float] = deque(maxlen=_MOST)
        while not self._ended.is_set():
            process = subprocess.Popen(self._command)  # noqa: S603 - our own command
            try:
                code = self._wait(process)
            finally:
                _end(process)
            if code in (None, 0):
                return
            deaths.append(time.monotonic())
            if len(deaths) == _MOST and deaths[-1] - deaths[0] < _WITHIN:
                raise ServiceError(
                    f"The process died {_MOST} times within {_WITHIN:g} s.",
                    f"The last time: {_said(code)}",
                    fix="read its output above; run it without --supervise to debug it",
                )
            _log.warning("process %d died (%s); restarting it", process.pid, _said(code))

    def _wait(self, process: "subprocess.Popen[bytes]") -> int | None:
        """Returns the exit code of a process; None if it is to be stopped first."""
        while not self._ended.is_set():
            try:
                return process.wait(_LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                continue
        return None


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _said(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"
