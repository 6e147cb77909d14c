"""A worker's own side: a forked process that works on tasks and tells of itself."""

import contextlib
import ctypes
import gc
import mmap
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, Protocol

_PR_SET_PDEATHSIG = 1  # linux/prctl.h: the signal a process gets when its parent dies
# malloc.h: when glibc gives memory back, and what it takes from the system piece by piece.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# In bytes. A batch's arrays fit; more would count beside the memory that the user allows.
_KEEP_FREE, _KEEP_PIECES = 32 << 20, 8 << 20


class Handler(Protocol):
    """What a worker does; made in the worker itself."""

    def handle(self, task: Any) -> Any:
        """Works on one task; what it returns is the task's result."""

    def finish(self) -> None:
        """Called once, when no task is left, or after a failure elsewhere."""


class WorkerTraceback(Exception):  # noqa: N818 - never raised, only shown as a cause
    """The traceback of an error in another process, as a text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Stopped(BaseException):
    """Raised in a worker that is to stop before its task is done."""


class Flag:
    """Tells all processes to stop.

    A byte in shared memory, not `multiprocessing.Event`: that one has a lock, which a worker that
    is killed may hold for ever.
    """

    def __init__(self) -> None:
        self._byte = mmap.mmap(-1, 1)

    def set(self) -> None:
        """Tells it."""
        self._byte[0] = 1

    def is_set(self) -> bool:
        """Returns whether it was told."""
        return bool(self._byte[0])


class Link:
    """A worker's end of the line to the building process."""

    def __init__(self, connection: Connection, stop: Flag) -> None:
        self._connection = connection
        self._stop = stop

    def tell(self, message: Any) -> None:
        """Sends a message; also a sign of life."""
        self._connection.send(("message", message))

    def check(self) -> None:
        """Raises `Stopped` if the work is to end now."""
        if self._stop.is_set():
            raise Stopped


def work(
    connection: Connection,
    inherited: list[Connection],
    tasks: Sequence[Any],
    make: Callable[[Link], Handler],
    stop: Flag,
) -> None:
    """The life of a worker: a target of `multiprocessing.Process`.

    Args:
      connection: To the building process, from which the numbers of tasks come; None ends it.
      inherited: What the fork brought along and belongs to others.
      tasks: What to do.
      make: Makes the handler.
      stop: Set when the work is to end.
    """
    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    # Ctrl-C goes to all processes of a terminal; the building process decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # So does SIGTERM of a service manager. Not ignored: programs that it starts would inherit that.
    signal.signal(signal.SIGTERM, lambda *_: None)
    for other in inherited:
        other.close()
    _own_bar_locks()
    _keep_memory()
    # The collector would write to each object that came with the fork, and so copy its page.
    gc.freeze()
    code = 1
    try:
        handler = make(Link(connection, stop))
        try:
            while (number := connection.recv()) is not None:
                connection.send(("done", (number, handler.handle(tasks[number]))))
        except Stopped:
            pass
        except Exception:
            # Units that were done before are worth keeping; the failure is told all the same.
            with contextlib.suppress(Exception):
                handler.finish()
            raise
        handler.finish()
        connection.send(("finished", None))
        code = 0
    except Stopped:
        code = 0
    except BaseException as error:
        with contextlib.suppress(OSError):
            connection.send(("failed", _portable(error)))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Not through the interpreter's exit handlers: they belong to the parent.
        os._exit(code)


def _own_bar_locks() -> None:
    """Gives tqdm's bars locks of this process.

    Theirs is a semaphore of all processes, because a generator may draw bars, too: a worker that
    is killed while it draws one would stop the bars of all others for ever.
    """
    tqdm = sys.modules.get("tqdm.std")
    waiting = [tqdm.tqdm] if tqdm is not None else []
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if "_lock" in vars(kind):
            kind._lock = threading.RLock()


def _keep_memory() -> None:
    """Keeps memory that was freed for the next batch, which needs as much again.

    glibc gives the memory of large arrays back at once, and the system clears and maps each page
    of it anew for the next: more work than encoding what then stands on it.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_TRIM_THRESHOLD, _KEEP_FREE)
        library.mallopt(_M_MMAP_THRESHOLD, _KEEP_PIECES)


def _portable(error: BaseException) -> tuple[bytes | None, str, str]:
    """Returns an error as it can be sent: pickled if possible, as a text, with its traceback."""
    lines = "".join(traceback.format_exception(error))
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)  # noqa: S301 - our own, a moment ago
    except Exception:
        pickled = None
    return pickled, f"{type(error).__name__}: {error}", lines
