"""A Dask cluster: one that is there, or one of processes of this machine."""

import logging
from collections.abc import Mapping
from typing import Any

import distributed

from my_datasets.building.engines.beam.runners.dask_runner import DaskRunner
from my_datasets.core.machine import cores
from my_datasets.errors import BuildInterruptedError, explain

# Seconds in which a scheduler has to answer.
_TIMEOUT = 10
# A module for workers of this machine. Ctrl-C goes to all processes of a terminal, and SIGTERM of a
# service manager to all of a service: the building process stops them.
_LEAVE_SIGNALS = """import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, lambda *_: None)
"""


class Cluster:
    """The connection to a cluster, for all pipelines of a build."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Connects, or starts a worker for each core of this machine.

        Args:
          options: `dask_client_address` or `dask_scheduler_file` of a cluster that is there;
            `dask_npartitions`.

        Raises:
          BuildInterruptedError: The scheduler does not answer, or has no worker.
        """
        address, file = options.get("dask_client_address"), options.get("dask_scheduler_file")
        chunks = options.get("dask_npartitions")
        self._chunks = None if chunks is None else int(chunks)
        self._local: distributed.LocalCluster | None = None
        if not address and not file:
            # It tells of each connection that ends, with a traceback, as of something usual.
            logging.getLogger("distributed").setLevel(logging.WARNING)
            self._local = distributed.LocalCluster(
                n_workers=cores(), threads_per_worker=1, host="127.0.0.1", dashboard_address=None,
                preload=[_LEAVE_SIGNALS],
            )  # fmt: skip
            address = self._local
        place = file or address
        try:
            self._client = distributed.Client(
                address, scheduler_file=file, timeout=_TIMEOUT, set_as_default=False
            )
            self._client.wait_for_workers(1, timeout=_TIMEOUT)
        except (OSError, ValueError) as error:  # a TimeoutError is an OSError
            raise BuildInterruptedError(
                explain(
                    f"The Dask scheduler at {place} does not answer, or has no worker.",
                    f"It was waited for {_TIMEOUT} seconds: {type(error).__name__}: {error}",
                    fix="start `dask scheduler` and `dask worker tcp://HOST:8786`, and pass "
                    "--beam-option dask_client_address=tcp://HOST:8786",
                )
            ) from error

    @property
    def client(self) -> distributed.Client:
        """The connection."""
        return self._client

    def runner(self) -> DaskRunner:
        """Returns what runs pipelines there."""
        return DaskRunner(self._client, self._chunks)

    def close(self) -> None:
        """Closes the connection, and stops the workers if they were started here."""
        self._client.close()
        if self._local is not None:
            self._local.close()
