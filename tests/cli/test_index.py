"""`my-datasets index` on data that TFDS built."""

import json
from pathlib import Path

from click.testing import CliRunner

from my_datasets import errors
from my_datasets.cli.main import cli
from my_datasets.records import index
from tests.building.engines.toys import ByTfds


def test_shards_of_tfds_get_their_index(tmp_path):
    builder = ByTfds(data_dir=tmp_path)
    builder.download_and_prepare()
    directory = Path(builder.data_dir)
    first = CliRunner().invoke(cli, ["index", str(directory), "--json"])
    assert first.exit_code == 0, first.output
    found = json.loads(first.stdout)["shards"]
    assert [(s["records"], s["made"]) for s in found] == [(400, True), (2400, True)]
    shard = next(directory.glob("*train*-of-?????"))
    assert len(index.read(shard)) == 2401
    again = CliRunner().invoke(cli, ["index", str(directory)])
    assert "2 shards, 0 indexed now" in again.output
    assert len(list(builder.as_dataset(split="train"))) == 2400


def test_what_is_no_version_is_refused(tmp_path):
    result = CliRunner().invoke(cli, ["index", str(tmp_path)])
    assert isinstance(result.exception, errors.NotPreparedError)
