"""Signals, while what must not be left half done is done."""

import contextlib
import hashlib
import os
import signal
import sys
import threading
import time
from pathlib import Path

import filelock
import pytest

from my_datasets.core import interruption
from my_datasets.publishing.transfer import Transfer
from my_datasets.storage.backends.local import LocalStore
from my_datasets.storage.store import HALF_WRITTEN

pytestmark = pytest.mark.faults

_WRITE = frozenset({"local.py", "interruption.py", "contextlib.py"})
_THREADS = frozenset(
    {"transfer.py", "interruption.py", "contextlib.py", "threading.py", "thread.py"}
)


def _signalled(work, number, files):
    """Runs `work` with SIGTERM before a line of these files; returns whether it has so many."""
    lines = 0

    def trace(frame, event, _):
        nonlocal lines
        if event == "line" and Path(frame.f_code.co_filename).name in files:
            lines += 1
            if lines == number:
                os.kill(os.getpid(), signal.SIGTERM)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines >= number


def _writes(root, how):
    store, data = LocalStore(root), b"small"
    if how == "create":
        return lambda: store.create("one/file", data, hashlib.sha256(data).hexdigest())
    return lambda: store.replace("one/file", data, None)


@pytest.mark.parametrize("how", ["create", "replace"])
def test_sigterm_anywhere_in_a_small_write_leaves_nothing_half_written(tmp_path, how):
    number, ended = 1, 0
    while True:
        root = tmp_path / str(number)
        try:
            with interruption.raising():
                if not _signalled(_writes(root, how), number, _WRITE):
                    break
        except interruption.Terminated:
            ended += 1
        else:
            pytest.fail(f"SIGTERM before line {number} was forgotten")
        half = root / HALF_WRITTEN
        assert not half.exists() or not list(half.iterdir()), f"SIGTERM before line {number}"
        if (root / "one/file").exists():
            assert (root / "one/file").read_bytes() == b"small"
        number += 1
    assert ended > 20


class _Moves:
    """Files that take a moment."""

    def __init__(self):
        self.begun, self.ended = [], []
        self._transfer = Transfer("uploading", 2, lambda _: None)

    def __call__(self):
        self._transfer.each(self._move, range(2), 2)

    def _move(self, one):
        self.begun.append(one)
        time.sleep(0.005)
        self.ended.append(one)


def test_sigterm_anywhere_in_a_transfer_leaves_nothing_on_its_way():
    number, ended = 1, 0
    while True:
        moves = _Moves()
        try:
            with interruption.raising():
                if not _signalled(moves, number, _THREADS):
                    break
        except interruption.Terminated:
            ended += 1
        else:
            pytest.fail(f"SIGTERM before line {number} was forgotten")
        left = list(moves.ended)
        time.sleep(0.01)
        assert moves.ended == left, f"SIGTERM before line {number}"
        assert sorted(moves.begun) == sorted(left), f"SIGTERM before line {number}"
        number += 1
    assert ended > 100


@contextlib.contextmanager
def _in_another_thread(context):
    """Another thread is in a context meanwhile."""
    entered, done = threading.Event(), threading.Event()

    def work():
        with context:
            entered.set()
            done.wait(60)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    entered.wait()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _terminate():
    os.kill(os.getpid(), signal.SIGTERM)


def _replace_and_terminate(store):
    threading.Timer(0.2, _terminate).start()
    store.replace("one/file", b"small", None)


def test_waiting_for_who_writes_can_be_interrupted(tmp_path):
    (tmp_path / "one").mkdir()
    lock = filelock.FileLock(tmp_path / "one/file.lock")
    with (
        _in_another_thread(lock),
        interruption.raising(),
        pytest.raises(interruption.Terminated),
    ):
        _replace_and_terminate(LocalStore(tmp_path))
    assert not (tmp_path / "one/file").exists()


def _nested(seen):
    with interruption.postponed():
        with interruption.postponed():
            _terminate()
        seen.append("outer")
    seen.append("after")


def test_postponed_in_one_another():
    seen = []
    with interruption.raising(), pytest.raises(interruption.Terminated):
        _nested(seen)
    assert seen == ["outer"]


def _failing():
    with interruption.postponed():
        _terminate()
        raise OSError("full")


def test_an_error_of_what_was_done_is_not_lost():
    with interruption.raising(), pytest.raises(interruption.Terminated) as caught:
        _failing()
    assert isinstance(caught.value.__context__, OSError)


def test_other_threads_postpone_nothing():
    with (
        _in_another_thread(interruption.postponed()),
        interruption.raising(),
        pytest.raises(interruption.Terminated),
    ):
        _terminate()
