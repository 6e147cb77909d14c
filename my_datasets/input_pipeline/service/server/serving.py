"""Runs a dispatcher or a worker of a tf.data service in this process, until it is asked to stop."""

import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from my_datasets.errors import ServiceError, explain
from my_datasets.input_pipeline.service.address import ServiceAddress, is_loopback
from my_datasets.input_pipeline.service.server.loopback import restrict_to_loopback

# Seconds between checks whether to stop.
_LOOK = 0.5
# Milliseconds between a worker's heartbeats to the dispatcher. A heartbeat also fetches new work
# that the dispatcher could not announce.
_HEARTBEAT = 1000
# Milliseconds between a dispatcher's searches for jobs without readers, and until it drops one.
_COLLECTED, _FORGOTTEN = 10_000, 300_000
_CONNECT = 2.0


@dataclass(frozen=True)
class Served:
    """A running server.

    Attributes:
      role: `dispatcher` or `worker`.
      address: The address under which others reach it.
      pid: The process ID.
    """

    role: str
    address: ServiceAddress
    pid: int


class Ending:
    """Signals a server to stop."""

    def __init__(self, parent: int | None = None) -> None:
        """Initializes the signal.

        Args:
          parent: The process ID of the parent, whose end also stops the server; None to ignore it.
        """
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
    ending: Ending,
    ready: Callable[[Served], None],
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
    ready(Served("dispatcher", address, os.getpid()))
    ending.wait()
    server.stop()


def serve_worker(
    address: ServiceAddress,
    dispatcher: ServiceAddress,
    patience: float,
    ending: Ending,
    ready: Callable[[Served], None],
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

    from my_datasets.input_pipeline.service import pyfunc_registry
    from my_datasets.input_pipeline.service.worker import Maker

    if not _is_there(dispatcher, patience, ending):
        return
    service = tf.data.experimental.service
    pyfunc_registry.register(Maker(str(address)))
    config = service.WorkerConfig(
        dispatcher_address=str(dispatcher), worker_address=str(address), port=address.port,
        protocol="grpc", heartbeat_interval_ms=_HEARTBEAT,
    )  # fmt: skip
    server = _started(lambda: service.WorkerServer(config), address)
    ready(Served("worker", address, os.getpid()))
    ending.wait()
    # A WorkerServer has no other way to stop.
    del server


def _started(start: Callable[[], Any], address: ServiceAddress) -> Any:
    """Starts a server and returns it.

    Raises:
      ServiceError: It cannot listen at this address.
    """
    try:
        # Two TensorFlow servers would silently share a port, and get requests at random.
        socket.create_server(("", address.port)).close()
        server = start()
    except (OSError, RuntimeError) as error:
        raise ServiceError(
            explain(
                f"Nothing can be served at {address}: {error}",
                fix="give another --port, or end who has it",
            )
        ) from error
    if is_loopback(address.host):
        restrict_to_loopback(address.port)
    return server


def _is_there(dispatcher: ServiceAddress, patience: float, ending: Ending) -> bool:
    """Waits for the dispatcher; returns False if asked to stop first.

    Raises:
      ServiceError: The dispatcher does not answer in time.
    """
    end = time.monotonic() + patience
    while True:
        try:
            with socket.create_connection((dispatcher.host, dispatcher.port), _CONNECT):
                return True
        except OSError as error:
            if time.monotonic() > end:
                raise ServiceError(
                    explain(
                        f"No dispatcher answers at {dispatcher.url}: {error}",
                        fix="my-datasets serve dispatcher starts one, and prints where",
                    )
                ) from error
        if ending.comes():
            return False
