"""A corpus of broken builders, each with the exact message."""

import json
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from my_datasets.checking.checker import check, new_process
from my_datasets.cli.main import cli
from my_datasets.core.issue import Issue
from my_datasets.errors import DatasetNotFoundError
from tests.checking.forked import Forked

IN_NEW_PROCESSES = {"keys_from_a_set", "it_crashes", "not_installed"}
BROKEN = Path(__file__).parent / "broken"


FOLDERS = sorted(folder for folder in BROKEN.iterdir() if folder.is_dir())


def assert_is_found(folder, launch):
    found = "\n".join(map(str, check(str(folder), launch=launch)))
    found = re.sub(r"\w{8}-\w{4}-4\w{3}-\w{4}-\w{12}", "UUID", found)
    expected = (folder / "expected.txt").read_text().replace("FOLDER", str(folder))
    assert found + "\n" == expected


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_broken_builder(folder):
    """In forks, but for those in which the order of sets must not be one and the same."""
    assert_is_found(folder, new_process if folder.name in IN_NEW_PROCESSES else Forked)


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_broken_builder_in_new_processes(folder):
    assert_is_found(folder, new_process)


def test_there_are_many():
    assert len(FOLDERS) >= 25


@pytest.mark.parametrize(
    "name",
    ["digits", "cats_and_dogs", "collider_events", "movie_sentiment", "penguins_study",
     "spoken_numbers"],
)  # fmt: skip
def test_nothing_is_wrong_with_ours(name):
    assert check(name, launch=new_process if name == "digits" else Forked) == []


def test_a_module_may_be_named_and_a_builder_that_hangs_is_left(tmp_path):
    folder = tmp_path / "slow"
    folder.mkdir()
    source = (BROKEN / "undocumented/undocumented_dataset_builder.py").read_text()
    path = folder / "slow_dataset_builder.py"
    path.write_text("import signal\n\nsignal.pause()\n" + source)
    codes = [issue.code for issue in check(str(path), timeout=1)]
    assert codes == ["timeout", "readme", "citation", "tags"]


def test_features_that_this_package_cannot_encode_matter_only_where_it_encodes(tmp_path):
    name = "no_dummy_data"
    folder = tmp_path / name
    shutil.copytree(BROKEN / name, folder)
    path = folder / f"{name}_dataset_builder.py"
    unknown_shape = "tfds.features.Tensor(shape=(None,), dtype=np.int64, optional=True, "
    source = path.read_text().replace("tfds.features.Scalar(np.int64, ", unknown_shape)
    path.write_text(source)
    assert [issue.code for issue in check(str(path), launch=Forked)] == ["dummy-data"]


def test_what_is_nowhere():
    with pytest.raises(DatasetNotFoundError, match="Did you mean 'digits'"):
        check("digitz")
    assert [i.code for i in check(__file__)] == ["module-name"]


def test_the_command(tmp_path):
    def run(*arguments):
        return CliRunner().invoke(cli, ["check", *arguments])

    broken = str(BROKEN / "duplicate_keys")
    warned = str(BROKEN / "undocumented")
    assert "no problems found" in run("digits").stdout
    result = run(broken, warned)
    assert result.exit_code == 1
    assert "duplicate_keys: 1 error" in result.stdout.replace("\n", "")
    assert run(warned).exit_code == 0
    assert run(warned, "--strict").exit_code == 1
    (issue,) = json.loads(run(broken, "--json").stdout)[broken]
    assert (issue["code"], issue["severity"]) == ("duplicate-key", "error")
    assert issue == Issue.from_json(issue).to_json()
