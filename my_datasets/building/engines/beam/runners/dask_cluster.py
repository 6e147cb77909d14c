"""A Dask cluster: one that is there, or one of processes of this machine."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import distributed

from my_datasets.building.engines.beam.runners.dask_runner import DaskRunner
from my_datasets.core.machine import cores
from my_datasets.errors import BuildInterruptedError, explain

# Seconds in which a scheduler has to answer.
_TIMEOUT = 10
# Seconds in which a worker that died has to be there again (starting one imports TensorFlow), and
# between two looks.
_PATIENCE, _PAUSE = 60.0, 0.5
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

    def ask(self, question: Callable[[], object], patience: float = _PATIENCE) -> None:
        """Has each worker call a function.

        A worker that dies meanwhile is asked again: its nanny starts it anew.

        Args:
          question: What it calls; can be pickled. An `OSError` of it counts as no answer.
          patience: Seconds in which all workers that are there have to answer.

        Raises:
          BuildInterruptedError: A worker did not answer.
          Exception: What the function raised in a worker.
        """
        end = time.monotonic() + patience
        while True:
            answers = self._client.run(question, on_error="return")
            failed = {at: one for at, one in answers.items() if isinstance(one, Exception)}
            for error in failed.values():
                if not isinstance(error, OSError):  # as a lost connection is
                    raise error
            if answers and not failed:
                return
            if time.monotonic() > end:
                lost = [f"{at}: {type(one).__name__}: {one}" for at, one in failed.items()]
                raise BuildInterruptedError(
                    explain(
                        "Workers of the Dask cluster do not answer."
                        if lost
                        else "The Dask cluster has no worker any more.",
                        *lost,
                        fix="read the workers' logs, restart them, and run the command again",
                    )
                )
            time.sleep(_PAUSE)

    def runner(self) -> DaskRunner:
        """Returns what runs pipelines there."""
        return DaskRunner(self._client, self._chunks)

    def close(self) -> None:
        """Closes the connection, and stops the workers if they were started here."""
        self._client.close()
        if self._local is not None:
            self._local.close()
