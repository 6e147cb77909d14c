"""Runs a command that Linux ends with the process which has started it, however that one ends.

It is run by its path, before anything of this package is there: `python -I -S ending_together.py
PARENT COMMAND...`, with the PARENT's process id. The command takes this process over, so signals
and output are the command's own. On other systems it is merely run.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>


def command_for(command: list[str]) -> list[str]:
    """Returns a command that ends with this process, for a thread that lives as long as it should.

    The system looks at the thread that has started the command, not at the process: the command
    ends with whichever ends first.

    Args:
      command: A program and its arguments.
    """
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def run(parent: int, command: list[str]) -> None:
    """Becomes the command; returns if the parent is no more.

    Args:
      parent: The process id of the one that has started this.
      command: A program and its arguments.
    """
    if sys.platform == "linux":
        arguments = [ctypes.c_ulong(value) for value in (signal.SIGKILL, 0, 0, 0)]
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, *arguments)
        if os.getppid() != parent:
            return  # it has ended before that was said, and the system will not look back
    os.execvp(command[0], command)  # noqa: S606 - a shell would be one more process


if __name__ == "__main__":
    run(int(sys.argv[1]), sys.argv[2:])
