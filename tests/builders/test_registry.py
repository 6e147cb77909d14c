import os
import sys
import textwrap
import traceback
from pathlib import Path

import pytest

from my_datasets import errors
from my_datasets.core.version import VersionNumber
from my_datasets.resolving.registry import DatasetsPackage, packaged
from tests import zygote
from tests.conftest import ROOT


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of datasets: `package(name, source)` adds one."""
    monkeypatch.syspath_prepend(tmp_path)
    root = tmp_path / "their_datasets"
    root.mkdir()
    (root / "__init__.py").write_text("")

    def add(name: str, source: str, readme: str = "") -> DatasetsPackage:
        folder = root / name
        folder.mkdir()
        (folder / "__init__.py").write_text("")
        (folder / f"{name}_dataset_builder.py").write_text(textwrap.dedent(source))
        if readme:
            (folder / "README.md").write_text(readme)
        return DatasetsPackage("their_datasets")

    yield add
    for module in [name for name in sys.modules if name.startswith("their_datasets")]:
        del sys.modules[module]


def test_listing_reads_files_and_imports_nothing(package):
    datasets = package(
        "broken", "VERSION = tfds.core.Version('2.3.4')\n1 / 0", "# broken\n\nNever works.\n\nMore."
    ).datasets
    assert list(datasets) == ["broken"]
    assert datasets["broken"].version == VersionNumber(2, 3, 4)
    assert datasets["broken"].summary == "Never works."
    assert "their_datasets.broken" not in sys.modules


def test_a_version_that_is_computed_or_unreadable_is_unknown(package):
    package("computed", "VERSION = make()")
    datasets = package("unreadable", "def (").datasets
    assert datasets["computed"].version is None
    assert datasets["unreadable"].version is None
    assert datasets["unreadable"].summary == ""


def test_a_broken_module_is_named_and_its_traceback_kept(package):
    datasets = package("broken", "def half():\n    return 1 / 0\n\nhalf()\n")
    with pytest.raises(errors.BuilderImportError) as caught:
        datasets.get_builder_cls("broken")
    message = str(caught.value)
    assert "'broken'" in message
    assert "ZeroDivisionError" in message
    assert "broken_dataset_builder.py" in message
    cause = "".join(traceback.format_exception(caught.value.__cause__))
    assert 'broken_dataset_builder.py", line 2, in half' in cause


def test_a_missing_module_is_reported_with_its_install(package):
    datasets = package("needy", "import no_such_module_at_all")
    with pytest.raises(errors.BuilderImportError, match="pip install 'no_such_module_at_all'"):
        datasets.get_builder_cls("needy")


def test_a_package_that_is_not_there_has_no_datasets():
    assert dict(DatasetsPackage("no_such_package_at_all").datasets) == {}


def test_ours_are_offered():
    assert packaged.has_dataset("digits")
    assert not packaged.has_dataset("mnist")
    assert packaged.get_builder_cls("digits").name == "digits"


def test_a_builder_of_the_users_with_the_name_of_ours_is_named(tmp_path):
    """In a process of its own: the names of builders are known to the whole process."""
    source = (
        "import tensorflow_datasets as tfds, my_datasets\n"
        "class Digits(my_datasets.Builder):\n"
        "    VERSION = tfds.core.Version('1.0.0')\n"
        "    def _info(self): ...\n"
        "    def _split_generators(self, dl_manager): ...\n"
        "    def _generate_examples(self): ...\n"
    )
    (tmp_path / "their_digits.py").write_text(source)
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import their_digits, my_datasets\n"
        "try:\n"
        "    my_datasets.load('digits', data_dir='/nonexistent')\n"
        "except my_datasets.errors.DuplicateBuilderError as error:\n"
        "    print(error)\n"
    )
    done = zygote.of(Path(sys.executable)).run(["-c", script], ROOT, os.environ)
    assert "Two builders are called 'digits'" in done.stdout
    assert "their_digits.py" in done.stdout
    assert "digits_dataset_builder.py" in done.stdout


def test_a_long_import_error_is_cut_to_its_first_line(package):
    datasets = package("wordy", "raise ImportError('first\\n' + 'more\\n' * 50)")
    with pytest.raises(errors.BuilderImportError) as caught:
        datasets.get_builder_cls("wordy")
    assert len(str(caught.value).splitlines()) <= 10
