"""Commands whose process gets no more memory: an error of ours, and no verdict about the data."""

import os
import sys
from pathlib import Path

import pytest

from tests import zygote
from tests.publishing.made import NAME, make

pytestmark = pytest.mark.faults

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = {
    "export": "export {version} --to parquet --output {new}",
    "verify": "verify {version}",
    "verify --deep": "verify {version} --deep --workers 1",
}


@pytest.fixture(scope="module")
def version(tmp_path_factory):
    """A version whose shards do not fit into the memory that a process is given below."""
    return make(tmp_path_factory.mktemp("made"), shards=1, rows=4, size=6_000_000)


# What it imports, and what libraries keep, is there before memory is short.
_SCRIPT = """
import resource, sys
from pathlib import Path
from my_datasets.cli import main
main.cli.main(args={warm!r}, standalone_mode=False)
size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (4 << 20),) * 2)
print("{mark}", flush=True)
sys.argv = ["my-datasets", *{words!r}]
main.main()
"""
_MARK = "now there is no more"


@pytest.mark.parametrize("name", COMMANDS)
def test_no_memory_is_reported_as_what_it_is(name, version, tmp_path):
    """In a clean process: one that has freed much has room in that."""
    new, warm = (
        COMMANDS[name].format(version=version, new=tmp_path / one).split()
        for one in ("new", "warm")
    )
    script = _SCRIPT.format(warm=warm, words=new, mark=_MARK)
    done = zygote.of(Path(sys.executable)).run(["-c", script], ROOT, os.environ)
    printed = done.stdout.partition(f"{_MARK}\n")[2]
    shown = done.stderr.rpartition("Error: ")
    assert done.returncode == 1, done
    assert shown[2].startswith("The system gives this process no more memory."), done
    assert "Fix: raise the limit" in shown[2]
    assert "Traceback" not in done.stderr
    assert NAME not in printed + shown[2]  # nothing is said of the data
    assert not (tmp_path / "new").exists()
