"""`my-datasets verify` and `adopt`, as scripts and people use them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow_datasets as tfds
from click.testing import CliRunner

import my_datasets
from my_datasets import errors
from my_datasets.cli.main import cli
from my_datasets.metadata.manifest import Manifest
from my_datasets.records import index
from my_datasets.verification.adopt import adopt
from tests.building.engines.builds import THREE_SHARDS
from tests.building.engines.toys import ByTfds
from tests.comparison.test_diff import Versions


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    directory = tmp_path_factory.mktemp("verified")
    done = run("build", "digits", "--data-dir", directory, "--num-shards", 2, "--quiet")
    assert done.exit_code == 0, done.output
    return directory


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_DATASETS_HOME", str(tmp_path))


def run(*arguments):
    return CliRunner().invoke(cli, [str(one) for one in arguments])


def test_good_data(data_dir):
    done = run("verify", "digits:1.*.*", "--data-dir", data_dir, "--deep", "--rebuild", "--json")
    assert done.exit_code == 0, done.output
    (report,) = json.loads(done.stdout)
    manifest = Manifest.read(data_dir / "digits" / "1.0.0")
    assert report["digest"] == manifest.content.digest
    assert (report["good"], report["rebuilt"], report["issues"]) == (True, True, [])
    shown = run("verify", data_dir / "digits" / "1.0.0", "--deep")
    assert "digits:1.0.0: good (every byte and example of 1,797 examples" in shown.output
    assert f"digest {manifest.content.digest}" in shown.output


def test_damaged_data(data_dir, tmp_path):
    version = tmp_path / "digits" / "1.0.0"
    version.mkdir(parents=True)
    for path in (data_dir / "digits" / "1.0.0").iterdir():
        (version / path.name).write_bytes(path.read_bytes())
    shard = next(version.glob("*train*-00000-of-00002"))
    data = bytearray(shard.read_bytes())
    data[int(index.read(shard)[4]) + 30] ^= 1
    shard.write_bytes(data)
    done = run("verify", "digits", "--data-dir", tmp_path)
    assert done.exit_code == 1
    assert f"error: {shard.name}, record 4, byte " in done.output
    assert "The checksum of the record is wrong. [damaged]" in done.output
    assert "Fix: " in done.output
    assert run("verify", "digits", "--data-dir", tmp_path, "--fast").exit_code == 0
    (version / "my_datasets_manifest.json").unlink()
    assert run("verify", "digits", "--data-dir", tmp_path, "--fast").exit_code == 0
    assert run("verify", "digits", "--data-dir", tmp_path, "--fast", "--strict").exit_code == 1


def test_what_is_good_and_not_what_its_builder_makes(data_dir, tmp_path):
    version = tmp_path / "digits" / "1.0.0"
    version.mkdir(parents=True)
    for path in (data_dir / "digits" / "1.0.0").iterdir():
        (version / path.name).write_bytes(path.read_bytes())
    one, other = sorted(version.glob("*test*-of-00002"))
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)
    info = version / "dataset_info.json"
    whole = json.loads(info.read_text())
    (test,) = [split for split in whole["splits"] if split["name"] == "test"]
    test["shardLengths"].reverse()
    info.write_text(json.dumps(whole))
    for path in version.glob("my_datasets_offsets_*.npy"):
        path.unlink()
    (version / "my_datasets_manifest.json").unlink()
    adopt(version)
    assert run("verify", "digits", "--data-dir", tmp_path, "--deep").exit_code == 0
    done = run("verify", "digits", "--data-dir", tmp_path, "--rebuild")
    assert done.exit_code == 1
    assert "split test: The rebuild has the same examples in a different order" in done.output


def test_adopt(tmp_path):
    builder = ByTfds(data_dir=tmp_path)
    builder.download_and_prepare(download_config=THREE_SHARDS)
    directory = Path(builder.data_dir)
    done = run("adopt", directory, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["digest"] == Manifest.read(directory).content.digest
    again = run("adopt", directory)
    assert isinstance(again.exception, errors.DataDirError)
    (directory / "my_datasets_manifest.json").unlink()
    assert "split train: 2,400 examples in 3 shards" in run("adopt", directory).output


def test_wrong_usage(tmp_path):
    assert run("verify").exit_code == 2
    assert run("verify", "digits", "--fast", "--deep").exit_code == 2
    assert run("verify", "digits", "--near-duplicates").exit_code == 2
    assert run("verify", "digits", "--deep", "--image-distance", 40).exit_code == 2
    nowhere = run("verify", "digits", "--data-dir", tmp_path)
    assert isinstance(nowhere.exception, errors.NotPreparedError)


def test_diff(tmp_path):
    more = {**Versions.features, "y": np.int64}
    newer = type("Newer", (Versions,), {
        "VERSION": tfds.core.Version("1.1.0"), "name": Versions.name, "features": more,
        "example": lambda _, row: {"x": row * 7, "label": row % 2, "y": row},
    }, skip_registration=True)  # fmt: skip
    for cls in (Versions, newer):
        cls(data_dir=tmp_path).download_and_prepare()
    both = ["compared:1.0.0", "compared:1.1.0", "--data-dir", tmp_path]
    done = run("diff", *both, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["required"], found["actual"], found["enough"]) == ("minor", "minor", True)
    assert {change["kind"] for change in found["changes"]} == {"feature-added"}
    assert "required: minor; actual: minor" in run("diff", *both).output
    back = run("diff", *reversed(both[:2]), *both[2:])
    assert back.exit_code == 1
    assert "the version number is too low: use 2.0.0 or higher" in back.output
    assert "feature-removed: code that reads it fails" in back.output
    same = run("diff", both[0], both[0], *both[2:])
    assert "identical, example for example" in same.output


@pytest.mark.parametrize(
    "name", ["dataset_info.json", "features.json", "my_datasets_manifest.json"]
)
def test_what_cannot_be_read_is_not_built_again(data_dir, tmp_path, name):
    version = tmp_path / "digits" / "1.0.0"
    version.mkdir(parents=True)
    for path in (data_dir / "digits" / "1.0.0").iterdir():
        (version / path.name).write_bytes(path.read_bytes())
    (version / name).write_text("{")
    done = run("verify", version, "--rebuild", "--json")
    assert done.exit_code == 1, done.exception
    (report,) = json.loads(done.stdout)
    assert [issue["node"] for issue in report["issues"]] == [name]
    assert not report["rebuilt"]
    assert "rebuild" in report["not_checked"][0]
    if name == "dataset_info.json":
        with pytest.raises(errors.IncompleteVersionError, match="cannot be read"):
            my_datasets.source(str(version))


def test_releases_in_a_store(data_dir, tmp_path):
    store = tmp_path / "store"
    my_datasets.publish("digits", store, data_dir=data_dir)
    done = run("verify", "digits:1.*.*", "--from", store, "--deep")
    assert done.exit_code == 0, done.output
    assert "digits:1.0.0: good (every byte and example of 1,797 examples" in done.output
    shard = store / "digits" / "1.0.0" / "digits-train.tfrecord-00001-of-00002"
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    damaged = run("verify", "digits", "--from", store)
    assert isinstance(damaged.exception, errors.CorruptReleaseError)
    assert shard.name in str(damaged.exception)
    assert run("verify", "digits", "--from", store, "--rebuild").exit_code == 2


def test_near_duplicates(data_dir):
    done = run("verify", data_dir / "digits" / "1.0.0", "--deep", "--near-duplicates")
    assert done.exit_code == 0, done.output
    assert "digits:1.0.0: good" in done.output
    assert "not checked: near-duplicates of feature image: 1,797 images, which are" in done.output


def test_an_interrupted_run_resumes(data_dir, tmp_path):
    """Ctrl-C, in a process of its own, and the same command once more."""
    version = tmp_path / "digits" / "1.0.0"
    version.parent.mkdir()
    shutil.copytree(data_dir / "digits" / "1.0.0", version)
    slow = (
        "import os, signal, sys\n"
        "from my_datasets.verification import shard_reading\n"
        "check, done = shard_reading.check_shard, []\n"
        "def slow(*arguments):\n"
        "    if len(done) == 2:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    done.append(1)\n"
        "    return check(*arguments)\n"
        "shard_reading.check_shard = slow\n"
        "from my_datasets.cli.main import main\n"
        "main()\n"
    )
    environment = {**os.environ, "MY_DATASETS_HOME": str(tmp_path)}
    arguments = ["verify", str(version), "--workers", "1"]
    killed = subprocess.run(
        [sys.executable, "-c", slow, *arguments], env=environment, capture_output=True, text=True
    )
    assert killed.returncode == 130
    assert "Verified shards are kept." in killed.stderr
    assert f"my-datasets {' '.join(arguments)}" in killed.stderr
    assert "Traceback" not in killed.stderr
    (state,) = (tmp_path / "cache" / "verify").glob("*/")
    again = CliRunner().invoke(cli, arguments, env={"MY_DATASETS_HOME": str(tmp_path)})
    assert "digits:1.0.0: good (every byte of" in again.output
    assert "2 shards by an earlier run)" in again.output
    assert not state.exists()
    whole = CliRunner().invoke(
        cli, [*arguments, "--json", "--restart"], env={"MY_DATASETS_HOME": str(tmp_path)}
    )
    assert json.loads(whole.stdout)[0]["resumed"] == 0
