"""Ctrl-C and SIGTERM: work is put down in order, and whoever began it learns what is kept."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

# What a shell reports of a process that a signal has ended: 128 and the signal's number.
INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM


class Terminated(SystemExit):
    """SIGTERM came. Ends the process with 143 when nothing is left to be put down."""

    def __init__(self) -> None:
        super().__init__(TERMINATED)


@contextmanager
def raising(*, also_ctrl_c: bool = False) -> Iterator[None]:
    """Raises `Terminated` in the main thread when SIGTERM comes; a second one ends at once.

    Does nothing in other threads, or where the program handles SIGTERM itself. A forked child keeps
    the default: it ends.

    Args:
      also_ctrl_c: Whether a second Ctrl-C ends the process at once, too; the first raises
        `KeyboardInterrupt` as ever.
    """
    handled = {signal.SIGTERM: signal.SIG_DFL}
    if also_ctrl_c:
        handled[signal.SIGINT] = signal.default_int_handler  # type: ignore[assignment]
    is_main = threading.current_thread() is threading.main_thread()
    before: dict[signal.Signals, Any] = {}
    process = os.getpid()

    def handle(number: int, _: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_DFL)
        if os.getpid() != process:
            os.kill(os.getpid(), number)
        if _postponed.depth:
            _postponed.number = number
        else:
            _raise(number)

    try:
        for number, usual in handled.items():
            if is_main and signal.getsignal(number) == usual:
                before[number] = signal.signal(number, handle)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Postponed:
    """What the main thread does now that is not to be interrupted, and the signal that waits."""

    depth = 0
    number: int | None = None


_postponed = _Postponed()


@contextmanager
def postponed() -> Iterator[None]:
    """Holds back what `raising` raises until the block is done.

    For short work, such as a small file that is written and then gets its name: an exception in the
    middle of its `finally` would leave half of it behind. What takes longer calls
    `raise_postponed` now and then. A second signal still ends the process at once. Does nothing in
    other threads, where no signal raises.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _postponed.depth += 1
    try:
        yield
    finally:
        _postponed.depth -= 1
        if not _postponed.depth:
            raise_postponed()


def raise_postponed() -> None:
    """Raises what `postponed` holds back, at a point of the block where it does no harm."""
    if threading.current_thread() is threading.main_thread() and _postponed.number is not None:
        number, _postponed.number = _postponed.number, None
        _raise(number)


def _raise(number: int) -> NoReturn:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise Terminated


@contextmanager
def with_note(kept: str | Callable[[], str]) -> Iterator[None]:
    """Adds what is kept to a `KeyboardInterrupt` or `Terminated` that passes, as its note.

    Args:
      kept: What of the work is kept, in a sentence; or what says so when all was put down.
    """
    try:
        yield
    except (KeyboardInterrupt, Terminated) as error:
        if not notes(error):
            error.add_note(kept if isinstance(kept, str) else kept())
        raise


def interruption_of(error: BaseException | None) -> BaseException | None:
    """Returns the `KeyboardInterrupt` or `Terminated` that an error was made of; None if none."""
    while error is not None and not isinstance(error, (KeyboardInterrupt, Terminated)):
        error = error.__cause__ or error.__context__
    return error


def notes(error: BaseException) -> list[str]:
    """Returns what was noted of an error on its way."""
    return list(getattr(error, "__notes__", ()))
