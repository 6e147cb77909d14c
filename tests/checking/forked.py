"""Processes that need not import TFDS again: for checks of many builders."""

import multiprocessing
import os
import subprocess
import sys

import tensorflow_datasets  # noqa: F401 - for the forks

from my_datasets.checking import behavior_check


class Forked:
    """A fork of this process; sets have the order that they have here."""

    def __init__(self, given, report, seed):
        def work():
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            sys.argv[1:] = [str(given), str(report)]
            behavior_check.main()

        self._process = multiprocessing.get_context("fork").Process(target=work)
        self._process.start()

    def wait(self, timeout=None):
        self._process.join(timeout)
        if self._process.is_alive():
            raise subprocess.TimeoutExpired("a fork", timeout)

    def kill(self):
        self._process.kill()

    @property
    def returncode(self):
        return self._process.exitcode
