"""A pool of Beam's Python workers, which runners on this machine ask for with `EXTERNAL`.

Beam has such a program, `worker_pool_main`: it starts the `python` of its PATH, whichever that is,
leaves its output unread until the worker stands still, and listens on all interfaces, where whoever
reaches the port can run code. This one starts the Python that it runs in itself, and listens where
it is told to.
"""

import multiprocessing
import os
import threading
from multiprocessing.process import BaseProcess
from typing import Any

import grpc
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc
from apache_beam.runners.worker.sdk_worker import SdkHarness
from apache_beam.utils import thread_pool_executor

from my_datasets.core.logs import get_logger
from my_datasets.errors import InvalidOptionError, explain

_LOGGER = get_logger(__name__)

# Not forked: TensorFlow and gRPC have threads.
_PROCESSES = multiprocessing.get_context("spawn")
# Seconds in which a worker ends by itself once its runner has let go of it.
_GRACE = 5.0


class WorkerPool(beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolServicer):  # type: ignore[misc]
    """Starts a process for each worker that a runner asks for."""

    def __init__(self) -> None:
        """Starts none."""
        self._workers: dict[str, BaseProcess] = {}

    def StartWorker(self, request: Any, _: Any) -> Any:  # noqa: N802 - so Beam calls it
        """Starts a worker."""
        worker = _PROCESSES.Process(
            target=_work, args=(request.control_endpoint.url, request.worker_id)
        )
        worker.start()
        self._workers[request.worker_id] = worker
        return beam_fn_api_pb2.StartWorkerResponse()

    def StopWorker(self, request: Any, _: Any) -> Any:  # noqa: N802
        """Ends a worker."""
        worker = self._workers.pop(request.worker_id, None)
        if worker is not None:
            worker.join(_GRACE)
            worker.kill()
            worker.join()
        return beam_fn_api_pb2.StopWorkerResponse()

    def close(self) -> None:
        """Ends all workers."""
        for worker in self._workers.values():
            worker.kill()
            worker.join()
        self._workers = {}


def _work(control: str, worker_id: str) -> None:
    threading.Thread(target=_end_with_the_pool, daemon=True).start()
    try:
        SdkHarness(control, worker_id=worker_id, data_buffer_time_limit_ms=-1).run()
    except Exception as error:
        _LOGGER.warning("Worker %s has lost its runner: %s", worker_id, error)
    finally:
        # The runner has let go, or has died: what threads still do is of no use to it.
        os._exit(0)


def _end_with_the_pool() -> None:
    pool = multiprocessing.parent_process()
    if pool is not None:
        pool.join()
    os._exit(1)


def start(host: str, port: int) -> tuple[str, grpc.Server, WorkerPool]:
    """Starts a pool; returns where it listens, the server and the pool.

    Args:
      host: The address of the interface.
      port: 0 for any that is free.

    Raises:
      InvalidOptionError: Nothing can listen there.
    """
    # As Beam's own: runners ask whether it is there more often than gRPC likes.
    options = [("grpc.http2.max_pings_without_data", 0), ("grpc.http2.max_ping_strikes", 0)]
    server = grpc.server(thread_pool_executor.shared_unbounded_instance(), options=options)
    try:
        bound = server.add_insecure_port(f"{host}:{port}")
    except RuntimeError as error:
        raise InvalidOptionError(
            explain(
                f"No pool of workers can listen on {host}:{port}.",
                f"The system said: {error}",
                fix="choose another --port, or an address of this machine as --host",
            )
        ) from error
    pool = WorkerPool()
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    server.start()
    return f"{host}:{bound}", server, pool
