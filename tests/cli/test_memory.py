"""Commands whose process gets no more memory: an error of ours, and no verdict about the data."""

import multiprocessing
import resource
import sys
from pathlib import Path

import pytest

from my_datasets.cli import main
from tests.publishing.made import NAME, make

COMMANDS = {
    "export": "export {version} --to parquet --output {new}",
    "verify": "verify {version}",
    "verify --deep": "verify {version} --deep --workers 1",
}


@pytest.fixture(scope="module")
def version(tmp_path_factory):
    """A version whose shards do not fit into the memory that a process is given below."""
    return make(tmp_path_factory.mktemp("made"), shards=1, rows=4, size=6_000_000)


@pytest.mark.parametrize("name", COMMANDS)
def test_no_memory_is_told_as_what_it_is(name, version, tmp_path):
    said, new = tmp_path / "said", tmp_path / "new"
    words = COMMANDS[name].format(version=version, new=new).split()

    def work():
        sys.stdout = sys.stderr = said.open("w", encoding="utf-8")
        # What it imports, and what libraries keep, is there before memory is short.
        warm = [word.replace(str(new), str(tmp_path / "warm")) for word in words]
        main.cli.main(args=warm, standalone_mode=False)
        sys.stdout.seek(0)
        sys.stdout.truncate()
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + (4 << 20),) * 2)
        sys.argv = ["my-datasets", *words]
        main.main()

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    shown = said.read_text()
    assert process.exitcode == 1, shown
    assert shown.startswith("Error: The system gives this process no more memory."), shown
    assert "To mend: give it more" in shown
    assert "Traceback" not in shown
    assert NAME not in shown  # nothing is said of the data
    assert not new.exists()
