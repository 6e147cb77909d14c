"""What all tests share: a quiet TensorFlow, no skips in CI, the repository's root."""

import itertools
import os
import re
import tempfile
from pathlib import Path

import filelock
import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

from my_datasets.cli.main import search_garbage_rarely
from my_datasets.storage.backends import open_store
from tests import programs, servers

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
# Compiled modules must be kept: without them each process compiles TensorFlow's Python anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
search_garbage_rarely()
# No test may touch the user's own data.
os.environ["TFDS_DATA_DIR"] = "/nonexistent/tensorflow_datasets"
if run := os.environ.get("PYTEST_XDIST_TESTRUNUID"):
    # In a new environment the first import compiles for minutes. One worker does that, and the
    # next one finds it done.
    with filelock.FileLock(Path(tempfile.gettempdir()) / f"compiling-{run}.lock"):
        import tensorflow  # noqa: F401 - TFDS alone would put it off
        import tensorflow_datasets.testing  # noqa: F401

# The machines are too noisy for deadlines, and CI is to fail for a change, not for luck.
hypothesis.settings.register_profile(
    "project", deadline=None, max_examples=50, derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)  # fmt: skip
hypothesis.settings.load_profile("project")

ROOT = Path(__file__).resolve().parent.parent
_FOLDERS = itertools.count()


@pytest.fixture(scope="session", autouse=True)
def user_folders(tmp_path_factory):
    """State, cache and settings of these tests: none touches the user's own."""
    os.environ["MY_DATASETS_HOME"] = str(tmp_path_factory.mktemp("my_datasets_home"))


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="module")
def s3_bucket():
    with servers.s3("releases") as (url, _):
        yield url


@pytest.fixture(scope="module")
def gcs_bucket():
    with servers.gcs("releases") as (url, _):
        yield url


SERVERS = [pytest.param(name, marks=pytest.mark.integration) for name in ("s3", "gcs")]


@pytest.fixture(params=["local", *SERVERS])
def address(request, tmp_path):
    """The address of an empty store, for each kind that can be written."""
    if request.param == "local":
        return str(tmp_path / "store")
    bucket = request.getfixturevalue(f"{request.param}_bucket")
    return f"{bucket}/folder{next(_FOLDERS)}"


@pytest.fixture
def store(address):
    return open_store(address)


class TogetherScheduling(LoadScopeScheduling):
    """Gives a file to one worker, which makes its fixtures once.

    Tests that use the same zygote, or the same server of new processes, are in one worker as well:
    starting one takes a minute on a slow machine. (xdist's own marks for groups have no effect
    under pytest 9.2.)
    """

    together = (
        (r"tests/test_ways_in\.py.*\b(wheel|checkout)\b.*\]$", r"\1"),
        (r"tests/(test_ways_in|test_docs|test_public_api|builders/test_registry)\.py", "editable"),
        (r"tests/(datasets|testing)/", "cases"),
        (r"tests/building/engines/test_beam_(runners|faults)\.py", "dask"),
    )

    def _split_scope(self, nodeid: str) -> str:
        for pattern, name in self.together:
            if found := re.match(pattern, nodeid):
                return found.expand(name)
        return nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return TogetherScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """In CI a skipped test has failed, unless the machine lacks a program that it needs."""
    report = yield
    counts = os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail")
    if counts and programs.needed(_reason_of(report)) is None:
        report.outcome = "failed"
        report.longrepr = f"Skipped, which CI does not allow: {report.longrepr}"
    return report


def pytest_terminal_summary(terminalreporter):
    """Says in one line what a machine without some programs leaves out."""
    skipped = terminalreporter.stats.get("skipped", ())
    if (line := programs.summary(map(_reason_of, skipped))) is not None:
        terminalreporter.write_sep("-", line)


def _reason_of(report) -> str:
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)


@pytest.fixture
def tmpfs(tmp_path, request):
    """A small file system of its own: `tmpfs(size, *options)` returns its directory."""
    import subprocess

    mounted = []

    def mount(size: str, *options: str) -> Path:
        directory = tmp_path / f"tmpfs{len(mounted)}"
        directory.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", ",".join([f"size={size}", *options]), "tmpfs"]
        done = subprocess.run([*command, str(directory)], capture_output=True, text=True)
        if done.returncode:
            programs.leave_out("the right to mount a file system")
        mounted.append(directory)
        return directory

    yield mount
    for directory in mounted:
        subprocess.run(["umount", str(directory)], check=True)
