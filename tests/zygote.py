"""Processes that need not import TensorFlow again, which takes a minute on a slow machine.

A zygote is an interpreter of some environment that has imported TensorFlow and what else takes
long, but neither TFDS nor this package. For each command it forks a child, which then has a new
directory, new environment variables, and runs a script, a module or a text, as the interpreter
itself would.
"""

import functools
import json
import os
import runpy
import subprocess
import sys
import tempfile
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Zygote:
    """One such interpreter, and the line to it."""

    def __init__(self, python: Path) -> None:
        self._home = tempfile.TemporaryDirectory()
        self._process = subprocess.Popen(
            [python, __file__],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=self._home.name,
            env={"HOME": self._home.name, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )  # fmt: skip

    def run(
        self, command: list[str], cwd: Path, variables: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Runs what follows the interpreter in a command line: a script, or `-c` or `-m`."""
        with tempfile.TemporaryDirectory() as directory:
            out, err = Path(directory, "out"), Path(directory, "err")
            task = {
                "command": command, "cwd": str(cwd), "variables": dict(variables),
                "out": str(out), "err": str(err),
            }  # fmt: skip
            stdin, stdout = self._process.stdin, self._process.stdout
            if stdin is None or stdout is None:
                raise RuntimeError("a zygote without pipes")
            stdin.write(json.dumps(task) + "\n")
            stdin.flush()
            code = json.loads(stdout.readline())
            return subprocess.CompletedProcess(command, code, out.read_text(), err.read_text())


@functools.cache
def of(python: Path) -> Zygote:
    """Returns the zygote of an environment, which ends with this process."""
    return Zygote(python)


def _serve() -> None:
    import gc

    del sys.path[0]  # the directory of this file
    gc.disable()
    # What the `tfds` command imports beside TFDS.
    import apache_beam  # noqa: F401
    import keras  # noqa: F401
    import mlcroissant  # noqa: F401
    import tensorflow  # noqa: F401

    gc.freeze()
    gc.enable()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _live(json.loads(line))
        _, status = os.waitpid(child, 0)
        sys.stdout.write(json.dumps(os.waitstatus_to_exitcode(status)) + "\n")
        sys.stdout.flush()


def _live(task: dict[str, Any]) -> None:
    code = 1
    try:
        for path, stream in ((task["out"], 1), (task["err"], 2)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(task["cwd"])
        os.environ.clear()
        os.environ.update(task["variables"])
        _run(task["command"])
        code = 0
    except SystemExit as error:
        if isinstance(error.code, str):
            sys.stderr.write(f"{error.code}\n")
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(command: list[str]) -> None:
    first, *rest = command
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    if first == "-m":
        sys.argv = rest
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path.insert(0, "")
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), vars(main))
    else:
        sys.argv = command
        sys.path.insert(0, str(Path(first).parent))
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    _serve()
