"""A version that this user may not read is skipped with a warning, and its neighbours work."""

import contextlib
import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import my_datasets
from my_datasets.cli.main import cli
from my_datasets.errors import MyDatasetsError, NotPreparedError
from my_datasets.metadata import layout
from tests.publishing import made

NUMBERS = list(range(made.ROWS))
SKIPPED = "Skipping {}, which cannot be read (permission denied"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    directory = tmp_path_factory.mktemp("neighbours")
    made.make(directory, "1.0.0", size=64)
    made.make(directory, "2.0.0", size=64, salt="other")
    return directory


@pytest.fixture(params=["the directory", "dataset_info.json", "features.json"])
def data_dir(request, built, tmp_path):
    """A data directory of which version 2.0.0 is a colleague's, and what of it is denied."""
    root = Path(shutil.copytree(built, tmp_path / "data"))
    version = root / made.NAME / "2.0.0"
    path = version if request.param == "the directory" else version / request.param
    before = path.stat().st_mode
    path.chmod(0)
    layout._warned.clear()
    yield root
    path.chmod(before)


@contextlib.contextmanager
def denied():
    """This thread is denied what the modes of files deny: the superuser may read everything.

    He gives up the two capabilities that let him, and takes them back in the end.
    """
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    before, without = (ctypes.c_uint32 * 6)(), (ctypes.c_uint32 * 6)()
    for data in (before, without):
        assert libc.capget(header, data) == 0
    without[0] &= ~(1 << 1 | 1 << 2)  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, in effect
    assert libc.capset(header, without) == 0
    try:
        yield
    finally:
        assert libc.capset(header, before) == 0


def run(*arguments):
    with denied():
        return CliRunner().invoke(cli, [str(one) for one in arguments])


def skipped(caplog, data_dir):
    """Whether it was said, once, which version is skipped and why."""
    said = SKIPPED.format(data_dir / made.NAME / "2.0.0")
    told = [one for one in caplog.messages if said in one]
    return len(told) == 1


def test_the_kernel_denies_it_here(data_dir):
    """Otherwise the tests below would hold nothing."""
    version = data_dir / made.NAME / "2.0.0"
    paths = [version / name for name in layout.METADATA_FILES]
    with denied(), pytest.raises(PermissionError):
        b"".join(path.read_bytes() for path in paths)


def test_list(data_dir, caplog):
    done = run("list", "--data-dir", data_dir, "--json")
    assert done.exit_code == 0, done.output
    rows = {row["name"]: row["prepared"] for row in json.loads(done.stdout)["datasets"]}
    assert rows[made.NAME] == ["1.0.0"]
    assert skipped(caplog, data_dir)


@pytest.mark.parametrize("reference", [made.NAME, f"{made.NAME}:*.*.*", f"{made.NAME}:1.*.*"])
def test_verify(data_dir, caplog, reference):
    done = run("verify", reference, "--data-dir", data_dir, "--json")
    assert done.exit_code == 0, done.output
    (report,) = json.loads(done.stdout)
    assert (report["name"], report["good"]) == (f"{made.NAME}:1.0.0", True)
    assert skipped(caplog, data_dir)


def test_verify_by_the_directory(data_dir):
    """A version is compared with the one before it, which is denied here."""
    root = data_dir / made.NAME
    (root / "2.0.0").rename(root / "0.9.0")
    try:
        done = run("verify", root / "1.0.0")
        assert done.exit_code == 0, done.output
    finally:
        (root / "0.9.0").rename(root / "2.0.0")
    done = run("verify", root / "2.0.0")
    assert done.exit_code == 1
    assert isinstance(done.exception, SystemExit | MyDatasetsError)


@pytest.mark.parametrize("reference", [made.NAME, f"{made.NAME}:*.*.*"])
def test_info(data_dir, caplog, reference):
    done = run("info", reference, "--data-dir", data_dir, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["version"] == "1.0.0"
    assert skipped(caplog, data_dir)


@pytest.mark.parametrize("version", ["", ":*.*.*"])
@pytest.mark.parametrize("call", ["source", "load"])
def test_the_highest_that_can_be_read_is_taken_and_the_other_is_named(
    data_dir, caplog, call, version
):
    with denied():
        if call == "source":
            rows = my_datasets.source(made.NAME + version, data_dir=data_dir)
        else:
            data = my_datasets.load(made.NAME + version, split="train", data_dir=data_dir)
            rows = data.as_numpy_iterator()
        assert sorted(int(one["number"]) for one in rows) == NUMBERS
    assert skipped(caplog, data_dir)


@pytest.mark.parametrize("call", ["source", "load"])
def test_who_asks_for_it_learns_why_there_is_none(data_dir, call):
    with denied(), pytest.raises(MyDatasetsError) as raised:
        getattr(my_datasets, call)(f"{made.NAME}:2.0.0", data_dir=data_dir)
    assert str(data_dir / made.NAME / "2.0.0") in str(raised.value)
    assert "ermission denied" in str(raised.value)


def test_who_asks_for_it_learns_what_else_there_is(data_dir):
    with denied(), pytest.raises(NotPreparedError, match=r"Prepared there: 1\.0\.0"):
        my_datasets.source(f"{made.NAME}:2.0.0", data_dir=data_dir)


def test_a_dataset_directory_that_is_denied_is_named(built, tmp_path):
    root = Path(shutil.copytree(built, tmp_path / "data"))
    before = (root / made.NAME).stat().st_mode
    (root / made.NAME).chmod(0)
    try:
        with denied(), pytest.raises(NotPreparedError, match="Not readable: permission"):
            my_datasets.source(made.NAME, data_dir=root)
        assert run("list", "--data-dir", root).exit_code == 0
    finally:
        (root / made.NAME).chmod(before)


def test_another_version_is_built_published_and_pulled_beside_it(data_dir, tmp_path):
    """In a process of its own: these write. It stays the owner, without what lets him read all."""
    command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    code = (
        "from pathlib import Path\nimport my_datasets, shutil\nfrom tests.publishing import made\n"
        f"root = Path('{data_dir}')\nmade.make(root, '1.1.0', size=64, salt='third')\n"
        f"my_datasets.publish('{made.NAME}:1.1.0', '{tmp_path}/store', data_dir=root)\n"
        f"shutil.rmtree(root / '{made.NAME}/1.1.0')\n"
        f"print(my_datasets.pull('{made.NAME}:1.1.0', '{tmp_path}/store', root).path)\n"
    )
    done = subprocess.run(
        [*(command if os.geteuid() == 0 else []), sys.executable, "-c", code],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(data_dir / made.NAME / "1.1.0")
