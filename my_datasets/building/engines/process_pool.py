"""A few forked processes that work on tasks, and whose death or silence is noticed.

Forking keeps the builder, its closures and the imported TensorFlow, at no cost in time or memory.
The children never run TensorFlow's own operations unless the builder's generator does.
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
from typing import Any, Protocol

from my_datasets.errors import BuildInterruptedError, explain

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


# How long workers may take to put down what they hold after a failure, in seconds.
_GRACE = 10.0


def available() -> bool:
    """Returns whether this system can fork."""
    return "fork" in multiprocessing.get_all_start_methods()


def run(
    tasks: Sequence[Any],
    workers: int,
    make: Callable[[Link], Handler],
    on_message: Callable[[Any], None],
    *,
    describe: Callable[[Any], str],
    timeout: float | None = None,
) -> Iterator[tuple[Any, Any]]:
    """Yields (task, result) as tasks are done, in any order.

    Args:
      tasks: What to do; they are not sent, the workers are forked with them.
      workers: How many processes.
      make: Makes the handler of a worker, in the worker.
      on_message: Called here with what workers tell.
      describe: Names a task in an error.
      timeout: Seconds without any sign of life after which a worker counts as hanging.

    Raises:
      BuildInterruptedError: A worker died, or hung.
      Exception: Whatever a handler raised, with the worker's traceback as its cause.
    """
    context = multiprocessing.get_context("fork")
    stop = Flag()
    crew: dict[Connection, _Worker] = {}
    # What is buffered would be written by each child, too.
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        for _ in range(min(workers, len(tasks))):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=work, args=(theirs, [*crew, ours], tasks, make, stop), daemon=False
            )
            process.start()
            theirs.close()
            crew[ours] = _Worker(process)
        yield from _lead(tasks, crew, on_message, describe, timeout)
    except BaseException:
        stop.set()
        _dismiss(crew, on_message)
        raise
    finally:
        for connection, worker in crew.items():
            connection.close()
            worker.process.join(timeout=_GRACE)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()


class _Worker:
    def __init__(self, process: Any) -> None:
        self.process = process
        self.task: int | None = None
        self.alive_at = time.monotonic()


def _lead(
    tasks: Sequence[Any],
    crew: dict[Connection, _Worker],
    on_message: Callable[[Any], None],
    describe: Callable[[Any], str],
    timeout: float | None,
) -> Iterator[tuple[Any, Any]]:
    left = list(range(len(tasks)))[::-1]
    active = dict(crew)
    for connection, worker in active.items():
        _assign(connection, worker, left)
    while active:
        for connection in _ready(active, 0.5):
            worker = active[connection]
            worker.alive_at = time.monotonic()
            try:
                kind, content = connection.recv()
            except (EOFError, OSError):
                worker.process.join(timeout=_GRACE)
                raise _died(worker, tasks, describe) from None
            if kind == "message":
                on_message(content)
            elif kind == "failed":
                del active[connection]
                raise _revived(*content)
            elif kind == "finished":
                del active[connection]
            else:
                task, result = content
                _assign(connection, worker, left)
                yield tasks[task], result
        _check_hanging(active, tasks, describe, timeout)


def _ready(active: dict[Connection, _Worker], timeout: float) -> list[Connection]:
    """Returns the connections that have something to say, after at most `timeout` seconds.

    Also those whose worker has ended: a process that it has started may keep the line open.
    """
    ends = {worker.process.sentinel: connection for connection, worker in active.items()}
    ready = wait([*active, *ends], timeout)
    said = [connection for connection in active if connection in ready]
    silent = [connection for end, connection in ends.items() if end in ready]
    for connection in silent:
        if connection not in said and not connection.poll():
            connection.close()
            said.append(connection)
    return said


def _assign(connection: Connection, worker: _Worker, left: list[int]) -> None:
    worker.task = left.pop() if left else None
    worker.alive_at = time.monotonic()
    with contextlib.suppress(OSError):  # its death is noticed when it is listened to
        connection.send(worker.task)


def _check_hanging(
    active: dict[Connection, _Worker],
    tasks: Sequence[Any],
    describe: Callable[[Any], str],
    timeout: float | None,
) -> None:
    for worker in active.values():
        silent = time.monotonic() - worker.alive_at
        if timeout is not None and silent > timeout:
            worker.process.kill()
            what = describe(tasks[worker.task]) if worker.task is not None else "its last run"
            raise BuildInterruptedError(
                explain(
                    f"A worker did not answer for {silent:.0f} seconds, and was stopped.",
                    f"It was at {what}",
                    "What was finished is kept.",
                    fix="look for what blocks there, or allow more with unit_timeout; the same "
                    "command goes on where this one ended",
                )
            )


def _died(
    worker: _Worker, tasks: Sequence[Any], describe: Callable[[Any], str]
) -> BuildInterruptedError:
    code = worker.process.exitcode
    how = f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
    what = describe(tasks[worker.task]) if worker.task is not None else "its last run"
    killed = code is not None and code == -signal.SIGKILL
    return BuildInterruptedError(
        explain(
            f"A worker process ended {how}.",
            f"It was at {what}",
            "The system may have killed it for want of memory." if killed else "",
            "What was finished is kept.",
            fix="run the same again to go on; lower --max-memory or --workers if memory is short",
        )
    )


def _dismiss(crew: dict[Connection, _Worker], on_message: Callable[[Any], None]) -> None:
    """Lets the workers put down what they hold, for a while, and listens to what they tell."""
    deadline = time.monotonic() + _GRACE
    # Also those that have ended: what they told last may still be in the pipe.
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


def _revived(pickled: bytes | None, text: str, lines: str) -> BaseException:
    error: BaseException = (
        pickle.loads(pickled) if pickled else RuntimeError(text)  # noqa: S301 - from our own child
    )
    error.__cause__ = WorkerTraceback(lines)
    return error
