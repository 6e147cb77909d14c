"""`my-datasets stats`, run as users run it, on a version that was built."""

import json
import struct

import pytest
from click.testing import CliRunner

from my_datasets.cli.main import cli
from my_datasets.errors import NotPreparedError
from my_datasets.metadata import manifest
from tests.building.engines.builds import build
from tests.statistics import rows


@pytest.fixture(scope="module")
def version(tmp_path_factory):
    return build(rows.Statistics, tmp_path_factory.mktemp("stats"))


def run(*arguments):
    return CliRunner().invoke(cli, ["stats", *map(str, arguments)], env={"COLUMNS": "180"})


def test_a_table_says_what_the_values_are_like(version):
    shown = run(version).output
    assert "toy_statistics:1.0.0 train: 300 examples" in shown
    for told in (
        "21.41 ± 12.37", "nan: 6", "294 distinct", "unknown: 30; cat 180, dog 90, eel 0",
        "4-6 x 8-12 pixels, png", "0-89 values per example", "at 8,000 Hz", "empty: 105",
        "▄█",
    ):  # fmt: skip
        assert told in shown, told


def test_json_and_a_choice_of_features(version):
    found = json.loads(run(version, "--json", "--feature", "label", "--split", "train").output)
    assert found["name"] == "toy_statistics:1.0.0"
    assert list(found["statistics"]["train"]["features"]) == ["label"]


def test_what_is_not_there_is_reported_with_what_is(version):
    done = run(version, "--feature", "lable")
    assert done.exit_code == 2
    assert "there is no feature lable; there are amount, flag" in " ".join(done.output.split())


def test_a_plot(version, tmp_path):
    assert run(version, "--plot", tmp_path / "all.png").exit_code == 0
    data = (tmp_path / "all.png").read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    assert data.startswith(b"\x89PNG")
    assert (width, height) > (1000, 500)


def test_a_version_without_statistics(version, tmp_path):
    for path in version.iterdir():
        if path.name != manifest.FILE_NAME:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    done = run(tmp_path)
    assert done.exit_code == 1
    assert isinstance(done.exception, NotPreparedError)
    assert "There are no statistics" in str(done.exception)
    assert "my-datasets adopt" in str(done.exception)
