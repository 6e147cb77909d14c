"""Handles Ctrl-C and SIGTERM: cleans up, and reports what is kept."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn, TypeAlias

# Exit status of a process ended by a signal, as in shells: 128 plus the signal's number.
INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM


_Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None


class Terminated(SystemExit):
    """SIGTERM arrived. Ends the process with status 143 after cleanup."""

    def __init__(self) -> None:
        super().__init__(TERMINATED)


@contextmanager
def raising(*, also_ctrl_c: bool = False) -> Iterator[None]:
    """Raises `Terminated` in the main thread on SIGTERM; a second one ends the process at once.

    With `also_ctrl_c`, so does a second Ctrl-C; the first raises `KeyboardInterrupt` as usual. Does
    nothing in other threads, or if the program handles SIGTERM itself. Forked children keep the
    default: they end.
    """
    handled = {signal.SIGTERM: signal.SIG_DFL}
    if also_ctrl_c:
        handled[signal.SIGINT] = signal.default_int_handler  # type: ignore[assignment]
    is_main = threading.current_thread() is threading.main_thread()
    before: dict[signal.Signals, _Handler] = {}
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
    """The depth of blocks not to interrupt in the main thread, and the pending signal."""

    depth = 0
    number: int | None = None


_postponed = _Postponed()


@contextmanager
def postponed() -> Iterator[None]:
    """Holds back what `raising` raises until the block is done.

    For short work, such as writing and renaming a small file: an exception in the middle of its
    `finally` would leave half of it behind. Longer work calls `raise_postponed` now and then. A
    second signal still ends the process at once. Does nothing in other threads, where no signal
    raises.
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
    """Raises what `postponed` holds back, at a safe point of the block."""
    if threading.current_thread() is threading.main_thread() and _postponed.number is not None:
        number, _postponed.number = _postponed.number, None
        _raise(number)


def _raise(number: int) -> NoReturn:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise Terminated


@contextmanager
def with_note(kept: str | Callable[[], str]) -> Iterator[None]:
    """Adds a note about what is kept to a `KeyboardInterrupt` or `Terminated` that passes.

    `kept` is a sentence that says what of the work is kept; or a function that returns it, called
    after cleanup.
    """
    try:
        yield
    except (KeyboardInterrupt, Terminated) as error:
        if not notes(error):
            error.add_note(kept if isinstance(kept, str) else kept())
        raise


def interruption_of(error: BaseException | None) -> BaseException | None:
    """Returns the `KeyboardInterrupt` or `Terminated` that caused an error, if any."""
    while error is not None and not isinstance(error, (KeyboardInterrupt, Terminated)):
        error = error.__cause__ or error.__context__
    return error


def notes(error: BaseException) -> list[str]:
    """Returns the notes of an error."""
    return list(getattr(error, "__notes__", ()))
