"""Each change that a process makes to the file system, and its death before any of them.

A child process is forked under a seccomp filter, so that the kernel asks this process before each
system call of the child, or of the processes and threads that it starts, that changes a file or a
directory (seccomp_unotify(2), Linux 5.5). What comes is exact: calls of libraries and of ctypes are
among them, and so are writes. Nothing is simulated: the child is killed by a real SIGKILL, before
the kernel carries out the call.
"""

import ctypes
import errno
import fcntl
import os
import platform
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import programs

# linux/seccomp.h, linux/filter.h, linux/prctl.h
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_LOAD, _IF_EQUAL, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_NO_NEW_PRIVILEGES, _SET_MODE_FILTER, _NEW_LISTENER = 38, 1, 8
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1
_AT_FDCWD = -100
_CHANGES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

# Of each call the place of its arguments that say what it is about: a path with the directory it
# is relative to (None is the working directory), or a descriptor; numbers on x86-64 and aarch64.
_PATH, _AT, _FD = "path", "at", "descriptor"
_CALLS: dict[str, tuple[tuple[int | None, int | None], tuple[tuple[str, int], ...]]] = {
    "open": ((2, None), ((_PATH, 0),)),
    "openat": ((257, 56), ((_AT, 0),)),
    "creat": ((85, None), ((_PATH, 0),)),
    "write": ((1, 64), ((_FD, 0),)),
    "pwrite64": ((18, 68), ((_FD, 0),)),
    "writev": ((20, 66), ((_FD, 0),)),
    "pwritev": ((296, 70), ((_FD, 0),)),
    "truncate": ((76, 45), ((_PATH, 0),)),
    "ftruncate": ((77, 46), ((_FD, 0),)),
    "fallocate": ((285, 47), ((_FD, 0),)),
    "copy_file_range": ((326, 285), ((_FD, 2),)),
    "sendfile": ((40, 71), ((_FD, 0),)),
    "rename": ((82, None), ((_PATH, 0), (_PATH, 1))),
    "renameat": ((264, 38), ((_AT, 0), (_AT, 2))),
    "renameat2": ((316, 276), ((_AT, 0), (_AT, 2))),
    "link": ((86, None), ((_PATH, 0), (_PATH, 1))),
    "linkat": ((265, 37), ((_AT, 0), (_AT, 2))),
    "symlink": ((88, None), ((_PATH, 1),)),
    "symlinkat": ((266, 36), ((_AT, 1),)),
    "unlink": ((87, None), ((_PATH, 0),)),
    "unlinkat": ((263, 35), ((_AT, 0),)),
    "rmdir": ((84, None), ((_PATH, 0),)),
    "mkdir": ((83, None), ((_PATH, 0),)),
    "mkdirat": ((258, 34), ((_AT, 0),)),
    "chmod": ((90, None), ((_PATH, 0),)),
    "fchmod": ((91, 52), ((_FD, 0),)),
    "fchmodat": ((268, 53), ((_AT, 0),)),
    "utimensat": ((280, 88), ((_AT, 0),)),
    "fsync": ((74, 82), ((_FD, 0),)),
    "fdatasync": ((75, 83), ((_FD, 0),)),
    "sync_file_range": ((277, 84), ((_FD, 0),)),
}
_MACHINES = {"x86_64": 0, "aarch64": 1}
# What a child says in place of its listener, where a sandbox forbids to have one.
_FORBIDDEN = b"-"


@dataclass(frozen=True)
class Event:
    """A call that is about to change the file system.

    Attributes:
      call: The name of the system call.
      paths: What it is about, relative to the directory that is watched.
    """

    call: str
    paths: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.call} {' '.join(self.paths)}"


@dataclass(frozen=True)
class Sent:
    """A signal to a child.

    Attributes:
      signal: The signal.
      to_all: Whether all processes of its group get it, as from a terminal.
    """

    signal: signal.Signals
    to_all: bool


@dataclass
class Outcome:
    """How a child ended.

    Attributes:
      code: Its exit code; below 0 the signal that ended it.
      group: The process group that it and what it started are in.
      events: The calls under the directory that is watched, in their order.
    """

    code: int
    group: int
    events: list[Event] = field(default_factory=list)


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort), ("true", ctypes.c_ubyte), ("false", ctypes.c_ubyte),
        ("value", ctypes.c_uint),
    )  # fmt: skip


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.POINTER(_Instruction)))


def run(
    work: Callable[[], Any],
    directory: Path,
    before: Callable[[int, Event], bool | Sent] | None = None,
    *,
    with_reads: bool = False,
) -> Outcome:
    """Runs `work` in a forked child, and looks at each change to files below a directory.

    Args:
      work: What the child does; it exits with 0 if this returns, else with 1.
      directory: The directory.
      before: Called before each such call with its number, counted from 0; the child waits. If it
        returns False, the child and all processes of its group are killed by SIGKILL, and the call
        never happens. If it returns a signal, that one is sent before the call goes on.
      with_reads: Whether files that are opened for reading are told of as well.
    """
    ours, theirs = socket.socketpair()
    child = os.fork()
    if not child:
        ours.close()
        _live(work, theirs, with_reads)
    theirs.close()
    outcome = Outcome(0, child)
    try:
        said, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
        if said == _FORBIDDEN:
            programs.leave_out("seccomp's notifications")
        if descriptors:
            _serve(child, descriptors[0], os.path.realpath(directory), outcome, before)
    finally:
        ours.close()
        _, status = os.waitpid(child, 0)
    outcome.code = os.waitstatus_to_exitcode(status)
    return outcome


def _live(work: Callable[[], Any], line: socket.socket, with_reads: bool) -> None:
    code = 1
    try:
        os.setsid()
        try:
            listener = _install(with_reads)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EACCES, errno.ENOSYS):
                raise
            line.send(_FORBIDDEN)
            return
        socket.send_fds(line, [b"."], [listener])
        os.close(listener)
        line.close()
        work()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _install(with_reads: bool) -> int:
    """Has the kernel ask before each call; returns the descriptor to be asked on."""
    which = _MACHINES[platform.machine()]
    program = [_Instruction(_LOAD, 0, 0, 0)]
    for name, (numbers, _) in _CALLS.items():
        number = numbers[which]
        if number is None:
            continue
        if name in ("open", "openat"):
            flags = 16 + 8 * (1 if name == "open" else 2)
            program += [
                _Instruction(_IF_EQUAL, 0, 4, number),
                _Instruction(_LOAD, 0, 0, flags),
                _Instruction(_IF_ANY_BIT, 0, 0 if with_reads else 1, _CHANGES),
                _Instruction(_RETURN, 0, 0, _NOTIFY),
                _Instruction(_RETURN, 0, 0, _ALLOW),
            ]
        else:
            program += [
                _Instruction(_IF_EQUAL, 0, 1, number),
                _Instruction(_RETURN, 0, 0, _NOTIFY),
            ]
    program.append(_Instruction(_RETURN, 0, 0, _ALLOW))
    array = (_Instruction * len(program))(*program)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    seccomp = {"x86_64": 317, "aarch64": 277}[platform.machine()]
    whole = _Program(len(program), array)
    listener = libc.syscall(seccomp, _SET_MODE_FILTER, _NEW_LISTENER, ctypes.byref(whole))
    if listener < 0:
        raise OSError(ctypes.get_errno(), "no listener for system calls")
    return int(listener)


def _serve(
    child: int,
    listener: int,
    directory: str,
    outcome: Outcome,
    before: Callable[[int, Event], bool | Sent] | None,
) -> None:
    """Answers until the child has ended."""
    which = _MACHINES[platform.machine()]
    names = {numbers[which]: name for name, (numbers, _) in _CALLS.items()}
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    end = os.pidfd_open(child)
    poll.register(end, select.POLLIN)
    try:
        while True:
            said = dict(poll.poll())
            if not said.get(listener, 0) & select.POLLIN:
                return
            asked = bytearray(80)
            try:
                fcntl.ioctl(listener, _RECEIVE, asked, True)
            except OSError:
                continue  # it was killed in the meantime
            number, thread, _, call, _, _, *arguments = struct.unpack("QIIiIQ6Q", asked)
            event = _event(names[call], thread, arguments, directory)
            if event is not None:
                outcome.events.append(event)
                go_on = before is None or before(len(outcome.events) - 1, event)
                if isinstance(go_on, Sent):
                    (os.killpg if go_on.to_all else os.kill)(child, go_on.signal)
                elif not go_on:
                    os.killpg(child, signal.SIGKILL)
                    return
            answer = bytearray(struct.pack("QqiI", number, 0, 0, _CONTINUE))
            try:
                fcntl.ioctl(listener, _SEND, answer, True)
            except OSError:
                continue
    finally:
        os.close(listener)
        os.close(end)


def _event(call: str, thread: int, arguments: list[int], directory: str) -> Event | None:
    paths = []
    for kind, place in _CALLS[call][1]:
        try:
            if kind == _FD:
                path = _meant(f"/proc/{thread}/fd/{ctypes.c_int(arguments[place]).value}")
            else:
                path = _path(thread, arguments[place:], is_at=kind == _AT)
        except OSError:
            continue
        paths.append(path.removesuffix(" (deleted)"))
    below = [os.path.relpath(path, directory) for path in paths if _is_below(path, directory)]
    return Event(call, tuple(below)) if below else None


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory + os.sep)


def _path(thread: int, arguments: list[int], *, is_at: bool) -> str:
    base = f"/proc/{thread}/cwd"
    if is_at:
        descriptor = ctypes.c_int(arguments[0]).value
        if descriptor != _AT_FDCWD:
            base = f"/proc/{thread}/fd/{descriptor}"
        arguments = arguments[1:]
    memory = os.open(f"/proc/{thread}/mem", os.O_RDONLY)
    try:
        text = b""
        while b"\0" not in text:
            begin = arguments[0] + len(text)
            text += os.pread(memory, 4096 - begin % 4096, begin)
    finally:
        os.close(memory)
    named = os.fsdecode(text.partition(b"\0")[0])
    # The parent is resolved; of a link the link itself is meant.
    whole = Path(_meant(base), named)
    return os.fspath(whole.parent.resolve() / whole.name)


def _meant(link: str) -> str:
    return os.fspath(Path(link).readlink())
