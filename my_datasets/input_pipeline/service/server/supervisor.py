"""Restarts a process when it dies."""

import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Sequence

from my_datasets.core.logs import get_logger
from my_datasets.errors import ServiceError, explain

_log = get_logger(__name__)

# Give up if the process dies this often within this many seconds: restarting it does not help.
_MOST, _WITHIN = 5, 60.0
# Seconds for the process to stop by itself.
_GRACE = 20.0
_LOOK = 0.2


class Supervisor:
    """Keeps one process running."""

    def __init__(self, command: Sequence[str]) -> None:
        """Initializes the supervisor.

        Args:
          command: The command to run; it must exit by itself when this process is gone.
        """
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
                    explain(
                        f"The process died {_MOST} times within {_WITHIN:g} s.",
                        f"The last time: {_said(code)}",
                        fix="see what it said above; run it without --supervise to try",
                    )
                )
            _log.warning("process %d died (%s); it is started again", process.pid, _said(code))

    def _wait(self, process: "subprocess.Popen[bytes]") -> int | None:
        """Returns the exit code of a process; None if it is to be stopped first."""
        while not self._ended.is_set():
            try:
                return process.wait(_LOOK)
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
