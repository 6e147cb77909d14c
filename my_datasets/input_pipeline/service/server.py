"""Runs a dispatcher or a worker of a tf.data service, restarts it, and restricts its ports.

TensorFlow's servers always listen on all interfaces. Anyone who can reach one can have it execute
any graph, which may read and write files. So as soon as a server listens, its socket is bound to
the loopback interface; this needs Linux 5.7, or the capability CAP_NET_RAW.
"""

import contextlib
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
from typing import Any

from my_datasets.core.logs import get_logger
from my_datasets.errors import InvalidOptionError, ServiceError

_log = get_logger(__name__)
_PATTERN = re.compile(r"grpc://(?P<host>[A-Za-z0-9._-]+):(?P<port>\d{1,5})/?")
_DESCRIPTORS = Path("/proc/self/fd")
# Seconds: for a connection; between checks whether to stop; for a process to stop by itself.
_CONNECT, _POLL, _GRACE = 2.0, 0.2, 20.0
# Milliseconds between a worker's heartbeats to the dispatcher. A heartbeat also fetches new work
# that the dispatcher could not announce.
_HEARTBEAT = 1000
# Milliseconds between a dispatcher's searches for jobs without readers, and until it drops one.
_COLLECTED, _FORGOTTEN = 10_000, 300_000
# Give up if a process dies this often within this many seconds: restarting it does not help.
_MOST, _WITHIN = 5, 60.0


@dataclass(frozen=True)
class ServiceAddress:
    """A host name or IP address, and a port."""

    host: str
    port: int

    @classmethod
    def parse(cls, url: str) -> "ServiceAddress":
        """Parses a URL such as `grpc://localhost:5050`; InvalidOptionError if it is none."""
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
    def is_loopback(self) -> bool:
        """Whether this is this machine's loopback interface, unreachable from others."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def answers(self) -> bool:
        """Returns whether a server listens at this address."""
        with contextlib.suppress(OSError):
            self.connect()
            return True
        return False

    def connect(self) -> None:
        """Connects, and closes the connection; raises OSError if no process listens there."""
        socket.create_connection((self.host, self.port), _CONNECT).close()


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
            if not _listens(copy, port):
                continue
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


class StopSignal:
    """Signals a server to stop; so does the end of its parent process, if it is given."""

    def __init__(self, parent: int | None = None) -> None:
        self._parent = parent
        self._requested = threading.Event()

    def request(self) -> None:
        """Requests the stop."""
        self._requested.set()

    def wait(self, seconds: float = _POLL) -> bool:
        """Returns whether the server is to stop; waits for that for so many seconds."""
        is_orphan = self._parent is not None and os.getppid() != self._parent
        return is_orphan or self._requested.wait(seconds)


def serve_dispatcher(
    address: ServiceAddress,
    work_dir: str,
    workers: Sequence[str],
    stop: StopSignal,
    ready: Callable[[], None],
) -> None:
    """Runs a dispatcher, which resumes from the journal that an earlier one left in `work_dir`.

    Others reach it under `address`; `localhost` is for this machine only. `workers` are the
    addresses of all workers, in order, for sharding='static'; otherwise empty.

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
    _serve(lambda: service.DispatchServer(config), address, stop, ready)


def serve_worker(
    address: ServiceAddress,
    dispatcher: ServiceAddress,
    patience: float,
    stop: StopSignal,
    ready: Callable[[], None],
) -> None:
    """Runs a worker, after waiting `patience` seconds at most for the dispatcher to start.

    Raises:
      ServiceError: It cannot listen at this address, or there is no dispatcher.
    """
    import tensorflow as tf

    from my_datasets.input_pipeline.service import work_graph

    end = time.monotonic() + patience
    while True:
        try:
            dispatcher.connect()
            break
        except OSError as error:
            if time.monotonic() > end:
                raise ServiceError(
                    f"No dispatcher answers at {dispatcher.url}: {error}",
                    fix="start one with my-datasets serve dispatcher, which prints its address",
                ) from error
        if stop.wait():
            return
    service = tf.data.experimental.service
    work_graph.register_function(work_graph.PieceMaker(str(address)))
    config = service.WorkerConfig(
        dispatcher_address=str(dispatcher), worker_address=str(address), port=address.port,
        protocol="grpc", heartbeat_interval_ms=_HEARTBEAT,
    )  # fmt: skip
    _serve(lambda: service.WorkerServer(config), address, stop, ready)


def _serve(
    start: Callable[[], Any], address: ServiceAddress, stop: StopSignal, ready: Callable[[], None]
) -> None:
    try:
        # Two TensorFlow servers would silently share a port, and get requests at random.
        socket.create_server(("", address.port)).close()
        server = start()
    except (OSError, RuntimeError) as error:
        raise ServiceError(
            f"The server cannot listen at {address}: {error}",
            fix="give another --port, or end the process that uses it",
        ) from error
    if address.is_loopback:
        restrict_to_loopback(address.port)
    ready()
    while not stop.wait():
        pass
    # A WorkerServer has no other way to stop than to be deleted.
    getattr(server, "stop", lambda: None)()


def supervise(command: Sequence[str], stop: StopSignal) -> None:
    """Keeps a process running until it is to stop, or exits with code 0.

    The process must exit by itself when this one is gone. If it dies too often, that is a
    ServiceError.
    """
    deaths: deque[float] = deque(maxlen=_MOST)
    while not stop.wait(0):
        process = subprocess.Popen(list(command))  # noqa: S603 - our own command
        try:
            while process.poll() is None and not stop.wait(0):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL)
            code = process.returncode
        finally:
            _terminate(process)
        if not code:
            return
        how = f"exit code {code}" if code > 0 else f"killed by {signal.Signals(-code).name}"
        deaths.append(time.monotonic())
        if len(deaths) == _MOST and deaths[-1] - deaths[0] < _WITHIN:
            raise ServiceError(
                f"The process died {_MOST} times within {_WITHIN:g} s.",
                f"The last time: {how}",
                fix="read its output above; run it without --supervise to debug it",
            )
        _log.warning("process %d died (%s); restarting it", process.pid, how)


def _terminate(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
