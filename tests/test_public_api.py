"""What users may rely on: the names, and that importing them costs nothing."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import my_datasets
from tests import zygote

HEAVY = {"tensorflow", "tensorflow_datasets", "apache_beam", "keras", "numpy", "pandas", "etils"}


def test_the_public_names_are_those_documented(root):
    documented = re.findall(r"^## `(\w+)`", (root / "docs/api.md").read_text(), re.MULTILINE)
    # Without `open`, `import *` leaves the builtin alone.
    assert sorted(documented) == sorted([*my_datasets.__all__, *my_datasets._MODULES, "open"])
    assert list(my_datasets.__all__) == sorted(my_datasets.__all__)


def test_every_public_name_is_there_and_documented():
    for name in my_datasets.__all__:
        value = getattr(my_datasets, name)
        assert name == "__version__" or value.__doc__, name
    assert set(my_datasets.__all__) <= set(dir(my_datasets))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = my_datasets.nothing


@pytest.mark.parametrize(
    "statement",
    [
        "import my_datasets",
        "import my_datasets; my_datasets.DatasetReference.parse('digits:1.*.*')",
        "import my_datasets; my_datasets.errors",
        "import sys; sys.argv[1:] = ['--help']; import my_datasets.__main__",
        "import sys; sys.argv[1:] = ['--version']; import my_datasets.__main__",
        "import sys; sys.argv[1:] = ['build', '--help']; import my_datasets.__main__",
        "import sys; sys.argv[1:] = ['list']; import my_datasets.__main__",
        "import sys; sys.argv[1:] = ['list', '--json']; import my_datasets.__main__",
    ],
)
def test_nothing_heavy_is_loaded(statement, root):
    script = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('\\nLOADED', *{m.partition('.')[0] for m in sys.modules}))\n"
        f"{statement}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, cwd=root
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.rpartition("LOADED")[2].split())
    assert "my_datasets" in loaded, done.stderr
    assert not loaded & HEAVY


def test_importing_tfds_afterwards_or_before_registers_our_datasets(root):
    for order in (
        "my_datasets, tensorflow_datasets as tfds",
        "tensorflow_datasets as tfds, my_datasets",
    ):
        script = f"import {order}\nprint(tfds.builder_cls('digits').__module__)"
        done = zygote.of(Path(sys.executable)).run(["-c", script], root, os.environ)
        assert done.stdout.split() == ["my_datasets.datasets.digits.digits_dataset_builder"]
