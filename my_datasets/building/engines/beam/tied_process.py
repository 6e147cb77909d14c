"""Runs a command that Linux kills when its parent process ends, even by SIGKILL.

It runs by path, without the rest of this package: `python -I -S tied_process.py PARENT COMMAND...`,
with the process id of the parent. The command replaces this process, so signals and output are the
command's own. On other systems it is simply run.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>


def command_for(command: list[str]) -> list[str]:
    """Returns a command that ends with this process, or earlier, with the thread that starts it."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def run(parent: int, command: list[str]) -> None:
    """Replaces this process with a command; returns if `parent` has already ended."""
    if sys.platform == "linux":
        arguments = [ctypes.c_ulong(value) for value in (signal.SIGKILL, 0, 0, 0)]
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, *arguments)
        if os.getppid() != parent:
            return  # it ended before prctl, which only applies to later deaths
    os.execvp(command[0], command)  # noqa: S606 - a shell would be one more process


if __name__ == "__main__":
    run(int(sys.argv[1]), sys.argv[2:])
