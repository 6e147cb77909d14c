"""A few forked processes that work on tasks, and whose death or silence is noticed.

Forking keeps the builder, its closures and the imported TensorFlow, at no cost in time or memory.
The children never run TensorFlow's own operations unless the builder's generator does.
"""

import contextlib
import multiprocessing
import pickle
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from my_datasets.building.engines.worker import Flag, Handler, Link, WorkerTraceback, work
from my_datasets.errors import BuildInterruptedError, explain

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
