"""What a machine lacks is left out and said in one line; any other skip fails in CI."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.installs

_TESTS = """
import pytest
from tests import programs

def test_without_a_program():
    programs.require("no-such-program", "No Such Program")

def test_without_another():
    programs.require("no-such-program", "No Such Program")

@pytest.fixture
def server():
    programs.leave_out("Go, which builds a server")

def test_without_a_server(server): ...

def test_with_python():
    assert programs.require("python3", "Python")
"""
_SKIPPED = """
import pytest

def test_skipped_for_another_reason():
    pytest.skip("the server needs time")
"""


def test_what_a_machine_lacks_is_said_in_one_line(root, tmp_path):
    done = _run(root, tmp_path, _TESTS, ci=True, processes=1)  # as `make test` runs them
    assert done.returncode == 0, done.stdout
    line = "lacks what they need: 2 without No Such Program, 1 without Go, which builds a server."
    assert done.stdout.count(line) == 1
    assert "1 passed, 3 skipped" in done.stdout


@pytest.mark.parametrize("ci", [False, True])
def test_any_other_skip_fails_in_ci(root, tmp_path, ci):
    done = _run(root, tmp_path, _SKIPPED, ci=ci, processes=0)
    assert done.returncode == (1 if ci else 0)
    assert "Left out" not in done.stdout


def _run(root, tmp_path, source, *, ci, processes):
    path = tmp_path / "test_some.py"
    path.write_text(source)
    environment = {**os.environ, "CI": "true" if ci else ""}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", str(processes), "-p", "tests.conftest",
         "-p", "no:cacheprovider", "--rootdir", root, path],
        cwd=root, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
