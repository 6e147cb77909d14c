"""A dispatcher or a worker of a tf.data service, in this process until it is told to end."""

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

# Seconds between looks at whether to end.
_LOOK = 0.5
# A worker tells the dispatcher so often that it is there, in milliseconds: as often it learns of
# new work that it could not be told of.
_HEARTBEAT = 1000
# How often a dispatcher looks for jobs that nobody reads, and after how long it gives one up.
_COLLECTED, _FORGOTTEN = 10_000, 300_000
_CONNECT = 2.0


@dataclass(frozen=True)
class Served:
    """A server that runs.

    Attributes:
      role: `dispatcher` or `worker`.
      address: Where others reach it.
      pid: Its process.
    """

    role: str
    address: ServiceAddress
    pid: int


class Ending:
    """Tells a server when to end."""

    def __init__(self, parent: int | None = None) -> None:
        """Takes the process with which it is to end, too; None for nobody."""
        self._parent = parent
        self._asked = threading.Event()

    def ask(self) -> None:
        """Ends it."""
        self._asked.set()

    def wait(self) -> None:
        """Waits until it is to end."""
        while not self.comes():
            pass

    def comes(self) -> bool:
        """Returns whether it is to end, after a moment if not."""
        is_alone = self._parent is not None and os.getppid() != self._parent
        return is_alone or self._asked.wait(_LOOK)


def serve_dispatcher(
    address: ServiceAddress,
    work_dir: str,
    workers: Sequence[str],
    ending: Ending,
    ready: Callable[[Served], None],
) -> None:
    """Serves a dispatcher, which goes on where one before it was, by what lies in its directory.

    Args:
      address: Where others reach it; `localhost` for this machine only.
      work_dir: Where it notes what it does.
      workers: The addresses of all workers, in order, for sharding='static'; else none.
      ending: Tells when to end.
      ready: Is told when it can be used.

    Raises:
      ServiceError: It cannot listen there.
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
    """Serves a worker.

    Args:
      address: Where others reach it; `localhost` for this machine only.
      dispatcher: Who gives it work.
      patience: For how many seconds the dispatcher may not be there yet.
      ending: Tells when to end.
      ready: Is told when it can be used.

    Raises:
      ServiceError: It cannot listen there, or there is no dispatcher.
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
    # It has no other way to be stopped.
    del server


def _started(start: Callable[[], Any], address: ServiceAddress) -> Any:
    """Returns a server that listens where it is to.

    Raises:
      ServiceError: It cannot.
    """
    try:
        # Two of TensorFlow's servers share a port without a word, and requests at random.
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
    """Waits for a dispatcher; returns whether it is there, and not all is to end.

    Raises:
      ServiceError: It does not come.
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
