"""Publishers and pullers in processes of their own, to be killed; and a reader who looks on."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time

from my_datasets.publishing.catalog_client import CatalogClient
from my_datasets.publishing.model import record, store_layout
from my_datasets.publishing.model.record import Record
from my_datasets.publishing.model.store_layout import ReleaseState
from my_datasets.storage.backends import open_store
from my_datasets.storage.retry import RetryingStore
from tests.publishing import made

_WORK = """
import sys
from my_datasets.storage.backends import open_store
from my_datasets.publishing.publisher import publish
from my_datasets.publishing.puller import pull
store = open_store(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
done = publish(sys.argv[3], store, version_gate=False) if sys.argv[1] == "publish" else \
    pull("released:1.0.0", store, sys.argv[3])
print("done", flush=True)
"""


class Apart:
    """A process that publishes a version, or pulls one; ready to begin, with all imports made."""

    def __init__(self, what, store, path):
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WORK, what, store, str(path)], env=dict(os.environ), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        assert self._process.stdout.readline() == "ready\n", self._process.communicate()[1]

    def begin(self):
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self):
        """Waits for its end; returns what it said of what went wrong."""
        out, error = self._process.communicate()
        return "" if out == "done\n" else error

    def kill(self):
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


class Looking(threading.Thread):
    """A reader who looks all the time whether there is a release, and if so, that it is whole."""

    def __init__(self, address, built):
        super().__init__(daemon=True)
        self._store = open_store(address)
        self._wanted = Record.of(built)
        self._sizes = {one.name: one.bytes for one in self._wanted.files}
        self._sizes[record.FILE_NAME] = len(self._wanted.data)
        self._ended = threading.Event()
        self.looks = 0
        self.seen = 0
        self.wrong = []

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self.join()
        assert not self.wrong, self.wrong[0]
        assert self.looks

    def run(self):
        while not self._ended.wait(0.005):
            try:
                self._look()
            except Exception as error:
                self.wrong.append(repr(error))
            self.looks += 1

    def _look(self):
        index = CatalogClient(RetryingStore(self._store)).index(made.NAME)
        found = index.releases.get("1.0.0")
        folder = store_layout.release_of(made.NAME, "1.0.0")
        there = {one.path.rpartition("/")[2]: one.bytes for one in self._store.list(folder)}
        # What plain TFDS goes by; and what our index says.
        if "features.json" in there or (
            found is not None and found.state is ReleaseState.PUBLISHED
        ):
            self.seen += 1
            if there != self._sizes:
                self.wrong.append(f"{found and found.state}: {sorted(there)}")


class LookingHere(threading.Thread):
    """A reader who looks all the time that a version here, if there is one, is whole."""

    def __init__(self, version_dir, built):
        super().__init__(daemon=True)
        self._dir = version_dir
        self._sums = {name: _sum(data) for name, data in made.contents(built).items()}
        self._ended = threading.Event()
        self.wrong = []

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self.join()
        assert not self.wrong, self.wrong[0]

    def run(self):
        while not self._ended.wait(0.005):
            if self._dir.exists():
                there = {name: _sum(data) for name, data in made.contents(self._dir).items()}
                there.pop(record.FILE_NAME, None)
                if there != self._sums:
                    self.wrong.append(sorted(there))


def seconds_of(work):
    """Returns how long a process takes, once it began."""
    begin = time.monotonic()
    work.begin()
    error = work.end()
    assert not error, error
    return time.monotonic() - begin


def _sum(data):
    return hashlib.sha256(data).hexdigest()
