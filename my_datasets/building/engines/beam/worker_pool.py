"""A pool of Beam's Python workers, which runners on this machine ask for with `EXTERNAL`.

Beam has such a program, `worker_pool_main`: it starts the `python` of its PATH, whichever that is,
and listens on all interfaces, where whoever reaches the port can run code. This one runs workers in
its own process, and listens where it is told to.
"""

import grpc
from apache_beam.portability.api import beam_fn_api_pb2_grpc
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer
from apache_beam.utils import thread_pool_executor

from my_datasets.errors import InvalidOptionError, explain


def start(host: str, port: int) -> tuple[str, grpc.Server]:
    """Starts a pool; returns where it listens, and the server.

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
                mend="choose another --port, or an address of this machine as --host",
            )
        ) from error
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(
        BeamFnExternalWorkerPoolServicer(data_buffer_time_limit_ms=-1), server
    )
    server.start()
    return f"{host}:{bound}", server
