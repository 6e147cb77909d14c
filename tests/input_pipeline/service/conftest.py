"""A tf.data service of real processes: a dispatcher and two workers, each supervised."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
import tensorflow_datasets as tfds

import my_datasets
from my_datasets.building.engines.beam.tied_process import command_for
from my_datasets.building.options import BuildOptions
from my_datasets.input_pipeline.service.server import free_port

ROWS = 3000
# Of a process that imports TensorFlow on a machine that is busy.
START = 300.0
# Kills that one supervisor sees: it gives up after five within a minute, which a fast machine does.
MOST_KILLS = 3


def _begin_here(command, **options):
    return subprocess.Popen(command_for(command), **options)


class Process:
    """`my-datasets serve ...`, and the lines of JSON in which it says that it is ready."""

    def __init__(self, *arguments, begin=None):
        self.arguments = arguments
        self._begin = begin or _begin_here
        self.told = {}
        self._start()

    def _start(self):
        self._kills = 0
        self._lines = queue.Queue()
        command = [sys.executable, "-m", "my_datasets", "serve", *self.arguments, "--json"]
        self._process = self._begin(command, stdout=subprocess.PIPE, text=True)
        reading = (self._process.stdout, self._lines)
        threading.Thread(target=self._read, args=reading, daemon=True).start()

    @staticmethod
    def _read(stdout, lines):
        for line in stdout:
            lines.put(json.loads(line))

    def ready(self):
        """Waits until it is ready, or ready again."""
        self.told = self._lines.get(timeout=START)
        if self._kills == MOST_KILLS:
            self.end_for_good()
            self._start()
            self.told = self._lines.get(timeout=START)
        return self

    def kill(self):
        """Kills the server, not its supervisor."""
        self._kills += 1
        os.kill(self.told["pid"], signal.SIGKILL)

    def end(self, timeout=60):
        self._process.terminate()
        return self._process.wait(timeout)

    def end_for_good(self):
        """Kills the supervisor and the server."""
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.told["pid"], signal.SIGKILL)


class Cluster:
    """A dispatcher and two workers."""

    def __init__(self, work_dir):
        ports = [free_port() for _ in range(3)]
        self.url = f"grpc://localhost:{ports[0]}"
        names = [f"--worker=localhost:{port}" for port in ports[1:]]
        self.dispatcher = Process(
            "dispatcher", f"--port={ports[0]}", f"--work-dir={work_dir}", *names, "--supervise"
        )
        self.workers = [
            Process("worker", f"--port={port}", f"--dispatcher=localhost:{ports[0]}",
                    f"--wait={START}", "--supervise")
            for port in ports[1:]
        ]  # fmt: skip
        for process in self.all:
            process.ready()

    @property
    def all(self):
        return [self.dispatcher, *self.workers]

    @contextlib.contextmanager
    def without(self, index):
        """Has a worker killed that nobody starts again; afterwards it is there as before."""
        gone = self.workers[index]
        gone.end_for_good()
        yield
        self.workers[index] = Process(*gone.arguments).ready()

    def end(self):
        for process in self.all:
            process.end_for_good()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    found = Cluster(tmp_path_factory.mktemp("dispatcher"))
    yield found
    found.end()


@pytest.fixture(scope="session")
def rows_dir(tmp_path_factory):
    """A data directory with `served_rows`, whose lists make each batch a piece."""
    root = tmp_path_factory.mktemp("served")

    class ServedRows(my_datasets.Builder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {
                "id": np.int64, "list": tfds.features.Sequence(np.int32), "text": np.str_,
                "image": tfds.features.Image(shape=(6, 5, 3)),
                "label": tfds.features.ClassLabel(num_classes=4),
            }  # fmt: skip
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features)
            )

        def _split_generators(self, dl_manager):
            return {"train": ((i, row(i)) for i in range(ROWS))}

    ServedRows(data_dir=root).download_and_prepare(
        download_config=tfds.download.DownloadConfig(num_shards=3),
        build_options=BuildOptions(workers=1),
    )
    return root


def row(i):
    image = np.full((6, 5, 3), i % 256, np.uint8)
    return {"id": i, "list": [i] * (i % 5), "text": f"text {i}", "image": image, "label": i % 4}
