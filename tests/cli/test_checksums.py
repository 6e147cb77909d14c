"""`my-datasets checksums`."""

import json
import sys

import pytest
from click.testing import CliRunner

from my_datasets.cli.main import cli
from tests.downloads.server import serving

BUILDER = """
import tensorflow_datasets as tfds
import my_datasets

class Builder(my_datasets.Builder):
    VERSION = tfds.core.Version("1.0.0")
    name = "downloaded"

    def _info(self):
        features = tfds.features.FeaturesDict({"text": tfds.features.Text()})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager):
        path = dl_manager.download("%s")
        return {"train": my_datasets.sources.text_lines(str(path))}
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A server, and a package whose one dataset is downloaded from it."""
    with serving() as server:
        url = server.put("/lines.txt", b"one\ntwo\n")
        (tmp_path / "their_downloads").mkdir()
        (tmp_path / "their_downloads/__init__.py").write_text(BUILDER % url)
        monkeypatch.syspath_prepend(tmp_path)
        yield server, url, tmp_path
        sys.modules.pop("their_downloads", None)


def run(*arguments):
    return CliRunner().invoke(cli, ["checksums", *arguments])


def test_they_are_shown():
    result = run("digits", "--json")
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)
    assert row["file_name"] == "digits.csv.gz"
    assert row["change"] is None
    assert "SHA-256" in run("digits").stdout


def test_they_are_recorded_and_what_changed_is_shown(package):
    server, url, tmp_path = package
    options = ["--imports", "their_downloads", "--data-dir", str(tmp_path / "data")]
    assert "No checksums are recorded" in run("downloaded", *options).stdout
    first = run("downloaded", *options, "--update", "--json")
    assert first.exit_code == 0, first.output
    (row,) = json.loads(first.stdout)
    assert (row["url"], row["size"], row["change"]) == (url, 8, "new")
    assert (
        json.loads(run("downloaded", *options, "--update", "--json").stdout)[0]["change"] == "same"
    )
    server.put("/elsewhere/lines.txt", b"three\n")
    mirror = f"{server.url('/lines')}={server.url('/elsewhere/lines')}"
    changed = run("downloaded", *options, "--update", "--mirror", mirror)
    assert changed.exit_code == 0, changed.output
    assert "changed" in changed.stdout
    assert "was: 8 bytes" in changed.stdout
    assert (tmp_path / "their_downloads/checksums.tsv").read_text().split("\t")[1] == "6"


def test_a_mirror_is_two_addresses():
    result = run("digits", "--mirror", "https://example.org")
    assert result.exit_code == 2
    assert "is not ADDRESS=OTHER" in result.output
