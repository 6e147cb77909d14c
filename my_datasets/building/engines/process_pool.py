"""A pool of forked processes that detects workers that die or hang.

The first half of the module runs in the worker, the second in the parent. Forking passes on the
builder, its closures and the imported TensorFlow at no cost in time or memory. The children run no
TensorFlow operations unless the builder's generator does.
"""

import contextlib
import ctypes
import gc
import mmap
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Protocol, TypeVar

from my_datasets.errors import BuildInterruptedError

_PR_SET_PDEATHSIG = 1  # linux/prctl.h: the signal a process gets when its parent dies
# malloc.h: when glibc returns memory, and from which size on it allocates with mmap.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# In bytes. A batch's arrays fit; more would exceed the memory that the user allows.
_KEEP_FREE, _KEEP_PIECES = 32 << 20, 8 << 20

_Task = TypeVar("_Task")
_Task_contra = TypeVar("_Task_contra", contravariant=True)
_Result_co = TypeVar("_Result_co", covariant=True)

_Result = TypeVar("_Result")
_Message = TypeVar("_Message")
# Seconds that workers have to write what they buffered after a failure.
_GRACE = 10.0


class Handler(Protocol[_Task_contra, _Result_co]):
    """Processes tasks; made in the worker itself."""

    def handle(self, task: _Task_contra) -> _Result_co:
        """Processes one task and returns its result."""

    def finish(self) -> None:
        """Called once, when no task is left, or after a failure elsewhere."""


class WorkerTraceback(Exception):  # noqa: N818 - never raised, only shown as a cause
    """The traceback of an error in another process, as a string."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Stopped(BaseException):
    """Raised in a worker that must stop before its task is done."""


class Flag:
    """Tells all processes to stop.

    A byte in shared memory. `multiprocessing.Event` has a lock, which a killed worker may hold for
    ever.
    """

    def __init__(self) -> None:
        self._byte = mmap.mmap(-1, 1)

    def set(self) -> None:
        """Sets the flag for all processes."""
        self._byte[0] = 1

    def is_set(self) -> bool:
        """Returns whether any process has set the flag."""
        return bool(self._byte[0])


class Link:
    """A worker's connection to the building process."""

    def __init__(self, connection: Connection, stop: Flag) -> None:
        self._connection = connection
        self._stop = stop

    def send(self, message: object) -> None:
        """Sends a message, which is also a sign of life."""
        self._connection.send(("message", message))

    def check(self) -> None:
        """Raises `Stopped` if this worker must stop."""
        if self._stop.is_set():
            raise Stopped


def _work(
    connection: Connection,
    inherited: list[Connection],
    tasks: Sequence[_Task],
    make: Callable[[Link], Handler[_Task, object]],
    stop: Flag,
) -> None:
    """Runs a worker, whose parent sends the index of each task, and None at the end.

    `inherited` are the connections of other workers that the fork has copied.
    """
    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    # Ctrl-C goes to all processes of a terminal, and only the building process handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Likewise a service manager's SIGTERM; SIG_IGN would be inherited by programs it starts.
    signal.signal(signal.SIGTERM, lambda *_: None)
    for other in inherited:
        other.close()
    _own_bar_locks()
    _keep_memory()
    # Otherwise the garbage collector would write to inherited objects, and so copy their pages.
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
            # Keeps the units that finished before the failure.
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
        # Skips the interpreter's exit handlers, which belong to the parent.
        os._exit(code)


def _own_bar_locks() -> None:
    """Gives tqdm's bars a lock of this process.

    Their own is a semaphore that all processes share: a worker killed while its generator draws a
    bar would block the bars of all others for ever.
    """
    tqdm = sys.modules.get("tqdm.std")
    waiting = [tqdm.tqdm] if tqdm is not None else []
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if "_lock" in vars(kind):
            kind._lock = threading.RLock()


def _keep_memory() -> None:
    """Keeps freed memory for the next batch, which needs as much again.

    By default glibc returns the memory of large arrays at once, and the system clears and maps each
    page for the next batch: more work than encoding the batch.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_TRIM_THRESHOLD, _KEEP_FREE)
        library.mallopt(_M_MMAP_THRESHOLD, _KEEP_PIECES)


def _portable(error: BaseException) -> tuple[bytes | None, str, str]:
    """Returns an error as its pickle (None if it has none), its message and its traceback."""
    lines = "".join(traceback.format_exception(error))
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)  # noqa: S301 - our own, a moment ago
    except Exception:
        pickled = None
    return pickled, f"{type(error).__name__}: {error}", lines


def available() -> bool:
    """Returns whether this system can fork."""
    return "fork" in multiprocessing.get_all_start_methods()


def run(
    tasks: Sequence[_Task],
    workers: int,
    make: Callable[[Link], Handler[_Task, _Result]],
    on_message: Callable[[_Message], None],
    *,
    describe: Callable[[_Task], str],
    timeout: float | None = None,
) -> Iterator[tuple[_Task, _Result]]:
    """Yields (task, result) as tasks finish, in any order.

    Workers inherit the tasks by the fork, and each makes its own handler with `make`. This process
    calls `on_message` with each message of a worker. `describe` names a task in an error. A worker
    without any sign of life for `timeout` seconds counts as hanging.

    Raises:
      BuildInterruptedError: A worker died or hung.
      Exception: Whatever a handler raised, with the worker's traceback as its cause.
    """
    context = multiprocessing.get_context("fork")
    stop = Flag()
    crew: dict[Connection, _Worker] = {}
    # Otherwise each child would also write what is buffered.
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        for _ in range(min(workers, len(tasks))):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_work, args=(theirs, [*crew, ours], tasks, make, stop), daemon=False
            )
            process.start()
            theirs.close()
            crew[ours] = _Worker(process)
        yield from _run_tasks(tasks, crew, on_message, describe, timeout)
    except BaseException:
        stop.set()
        _drain(crew, on_message)
        raise
    finally:
        for connection, worker in crew.items():
            connection.close()
            worker.process.join(timeout=_GRACE)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()


class _Worker:
    def __init__(self, process: BaseProcess) -> None:
        self.process = process
        self.task: int | None = None
        self.alive_at = time.monotonic()

    def assign(self, connection: Connection, task: int | None) -> None:
        self.task = task
        self.alive_at = time.monotonic()
        with contextlib.suppress(OSError):  # a dead worker is detected when it is read from
            connection.send(task)

    def where(self, tasks: Sequence[_Task], describe: Callable[[_Task], str]) -> str:
        return f"It was at {'its last run' if self.task is None else describe(tasks[self.task])}"


def _run_tasks(
    tasks: Sequence[_Task],
    crew: dict[Connection, _Worker],
    on_message: Callable[[_Message], None],
    describe: Callable[[_Task], str],
    timeout: float | None,
) -> Iterator[tuple[_Task, _Result]]:
    left = iter(range(len(tasks)))
    active = dict(crew)
    for connection, worker in active.items():
        worker.assign(connection, next(left, None))
    while active:
        for connection in _ready(active, 0.5):
            worker = active[connection]
            worker.alive_at = time.monotonic()
            try:
                kind, content = connection.recv()
            except (EOFError, OSError):
                worker.process.join(timeout=_GRACE)
                raise _died(worker.process.exitcode, worker.where(tasks, describe)) from None
            if kind == "message":
                on_message(content)
            elif kind == "failed":
                del active[connection]
                raise _received_error(*content)
            elif kind == "finished":
                del active[connection]
            else:
                task, result = content
                worker.assign(connection, next(left, None))
                yield tasks[task], result
        for worker in active.values():
            silent = time.monotonic() - worker.alive_at
            if timeout is not None and silent > timeout:
                worker.process.kill()
                raise BuildInterruptedError(
                    f"A worker did not answer for {silent:.0f} seconds, and was stopped.",
                    worker.where(tasks, describe),
                    "What was finished is kept.",
                    fix="find out what blocks there, or raise unit_timeout; the same command "
                    "resumes the build",
                )


def _ready(active: dict[Connection, _Worker], timeout: float) -> list[Connection]:
    """Returns the connections with a message or with a dead worker, within `timeout` seconds.

    A process that a dead worker has started may keep its connection open.
    """
    ends = {worker.process.sentinel: connection for connection, worker in active.items()}
    ready = wait([*active, *ends], timeout)
    found = [connection for connection in active if connection in ready]
    dead = [connection for end, connection in ends.items() if end in ready]
    for connection in dead:
        if connection not in found and not connection.poll():
            connection.close()
            found.append(connection)
    return found


def _died(code: int | None, where: str) -> BuildInterruptedError:
    how = f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
    return BuildInterruptedError(
        f"A worker process ended {how}.",
        where,
        "The system may have killed it because memory ran out." if code == -signal.SIGKILL else "",
        "What was finished is kept.",
        fix="run the same again to resume; lower --max-memory or --workers if memory is short",
    )


def _drain(crew: dict[Connection, _Worker], on_message: Callable[[_Message], None]) -> None:
    """Waits a while for workers to write what they buffered, and handles their messages."""
    deadline = time.monotonic() + _GRACE
    # Includes workers that have ended: their last messages may still be in the pipe.
    active = {connection: worker for connection, worker in crew.items() if not connection.closed}
    for connection in active:
        with contextlib.suppress(OSError):
            connection.send(None)
    while active and time.monotonic() < deadline:
        for connection in _ready(active, 0.2):
            try:
                kind, content = connection.recv()
            except (EOFError, OSError):
                del active[connection]
                continue
            if kind == "message":
                on_message(content)
            elif kind in ("finished", "failed"):
                del active[connection]
    for worker in active.values():
        worker.process.kill()


def _received_error(pickled: bytes | None, text: str, lines: str) -> BaseException:
    error: BaseException = (
        pickle.loads(pickled) if pickled else RuntimeError(text)  # noqa: S301 - from our own child
    )
    error.__cause__ = WorkerTraceback(lines)
    return error
