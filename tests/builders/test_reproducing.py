"""The command in a manifest makes the same bytes again."""

import shlex

import pytest
import tensorflow_datasets as tfds
from click.testing import CliRunner

from my_datasets.builders import build_job
from my_datasets.building.options import BuildOptions
from my_datasets.cli.main import cli
from my_datasets.datasets.digits.digits_dataset_builder import Builder as Digits
from my_datasets.metadata.manifest import Manifest

CODE = """
import numpy as np
import tensorflow_datasets as tfds
import my_datasets


class ToReproduce(my_datasets.Builder):
    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "First."}
    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=name) for name in ("one", "two")]
    name = "to_reproduce"

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict({"x": np.int64})
        )

    def _split_generators(self, dl_manager):
        return {name: self._generate_examples() for name in ("train", "test")}

    def _generate_examples(self):
        for i in range(100):
            yield i, {"x": "none" if i == 99 else i}
"""


def run(words, data_dir):
    done = CliRunner().invoke(cli, [*words, "--data-dir", str(data_dir), "--quiet"])
    assert done.exit_code == 0, done.output
    (manifest,) = data_dir.rglob("my_datasets_manifest.json")
    version = manifest.parent
    shards = sorted(path for path in version.iterdir() if "-of-" in path.name)
    return Manifest.read(version).provenance["reproduce"], {
        path.name: path.read_bytes() for path in shards
    }


@pytest.mark.parametrize(
    "options",
    [
        ["--num-shards", "3"],
        ["--file-format", "parquet", "--splits", "test", "--max-examples-per-split", "40"],
        ["--readers", "2", "--max-examples-per-split", "99"],
    ],
)
def test_the_command_in_the_manifest_makes_it_again(tmp_path, monkeypatch, options):
    (tmp_path / "module_to_reproduce.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    limits = ["--on-error", "quarantine", "--max-quarantined", "0.1"]
    words = ["build", "to_reproduce/two", "--imports", "module_to_reproduce", *options, *limits]
    said, shards = run(words, tmp_path / "first")
    program, *again = shlex.split(said)
    assert program == "my-datasets"
    assert again[:2] == ["build", "to_reproduce/two:1.0.0"]
    assert run(again, tmp_path / "again") == (said, shards)


def test_what_is_as_usual_is_not_said(tmp_path):
    said, _ = run(["build", "digits"], tmp_path)
    assert said == "my-datasets build digits:1.0.0"


@pytest.mark.parametrize(
    ("size", "said"),
    [(64 << 20, " --max-shard-size-mb 64"), (1000, ""), (3 << 19, "")],
)
def test_a_size_of_shards_that_no_option_says_is_left_out(tmp_path, size, said):
    config = tfds.download.DownloadConfig(max_shard_size=size)
    found = build_job.rebuild_command(Digits(data_dir=tmp_path), config, BuildOptions())
    assert found == f"my-datasets build digits:1.0.0{said}"
