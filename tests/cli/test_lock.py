"""A project's references stay what they were when they were locked."""

import json
import shutil
from pathlib import Path

import pytest
import tensorflow_datasets as tfds
from click.testing import CliRunner

import my_datasets
from my_datasets import errors
from my_datasets.cli.main import cli
from my_datasets.metadata.manifest import Manifest
from my_datasets.metadata.version_metadata import VersionMetadata
from my_datasets.resolving.lock import FILE_NAME, Lock
from tests.comparison.test_diff import Versions


def run(*arguments):
    return CliRunner().invoke(cli, [str(one) for one in arguments])


def build(data_dir, version, **changed):
    attributes = {**changed, "VERSION": tfds.core.Version(version), "name": Versions.name}
    cls = type("Changed", (Versions,), attributes, skip_registration=True)
    cls(data_dir=data_dir).download_and_prepare()
    return data_dir / Versions.name / version


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "project" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.delenv("MY_DATASETS_LOCK", raising=False)
    return tmp_path / "project"


def test_a_reference_stays_at_its_version(tmp_path, project, monkeypatch):
    data_dir = tmp_path / "data"
    first = build(data_dir, "1.0.0")
    done = run("lock", "compared:1.*.*", "--data-dir", data_dir, "--json")
    assert done.exit_code == 0, done.output
    (locked,) = json.loads(done.stdout)["datasets"].values()
    content = Manifest.read(first).content
    assert locked == {
        "config": None, "version": "1.0.0", "digest": content.digest,
        "decoding": VersionMetadata(first).decoding_digest,
        "splits": {name: split.shards_sha256 for name, split in content.splits.items()},
    }  # fmt: skip
    build(data_dir, "1.0.1")
    for directory in (project, project / "deep"):
        monkeypatch.chdir(directory)
        assert my_datasets.source("compared:1.*.*", data_dir=data_dir).name == "compared:1.0.0"
        _, info = my_datasets.load("compared:1.*.*", data_dir=data_dir, with_info=True)
        assert str(info.version) == "1.0.0"
    # Written otherwise, it is another reference; and elsewhere there is no lock.
    assert my_datasets.source("compared", data_dir=data_dir).name == "compared:1.0.1"
    monkeypatch.setenv("MY_DATASETS_LOCK", "")
    assert my_datasets.source("compared:1.*.*", data_dir=data_dir).name == "compared:1.0.1"
    monkeypatch.setenv("MY_DATASETS_LOCK", str(project / FILE_NAME))
    monkeypatch.chdir(tmp_path)
    assert my_datasets.source("compared:1.*.*", data_dir=data_dir).name == "compared:1.0.0"
    monkeypatch.delenv("MY_DATASETS_LOCK")
    monkeypatch.chdir(project)
    assert run("lock", "--data-dir", data_dir).exit_code == 0
    assert my_datasets.source("compared:1.*.*", data_dir=data_dir).name == "compared:1.0.1"


def test_other_data_under_the_same_version_are_refused(tmp_path, project):
    data_dir = tmp_path / "data"
    version = build(data_dir, "1.0.0")
    assert run("lock", "compared", "--data-dir", data_dir).exit_code == 0
    assert run("lock", "--check", "--data-dir", data_dir).exit_code == 0
    shutil.rmtree(version)
    build(data_dir, "1.0.0", example=lambda self, row: {"x": row, "label": 0})
    for call in (
        lambda: my_datasets.load("compared", data_dir=data_dir),
        lambda: my_datasets.source("compared", data_dir=data_dir),
        lambda: my_datasets.plan("compared", data_dir=data_dir),
        lambda: my_datasets.pipeline("compared", data_dir=data_dir),
    ):
        with pytest.raises(errors.LockError, match=r"holds other data(.|\n)*is locked by"):
            call()
    assert isinstance(run("lock", "--check", "--data-dir", data_dir).exception, errors.LockError)
    assert run("lock", "compared", "--data-dir", data_dir).exit_code == 0
    assert len(my_datasets.source("compared", data_dir=data_dir))


def test_a_copy_that_drifted_is_refused(tmp_path, project):
    data_dir = tmp_path / "data"
    version = build(data_dir, "1.0.0")
    assert run("lock", "compared", "--data-dir", data_dir).exit_code == 0
    shard = next(path for path in version.glob("*-train.tfrecord-*") if path.suffix != ".npy")
    with shard.open("ab") as file:
        file.write(b"more")
    with pytest.raises(errors.LockError, match="is not the shard that was locked"):
        my_datasets.source("compared", data_dir=data_dir)
    shard.unlink()
    with pytest.raises(errors.LockError, match="Found: no file"):
        my_datasets.load("compared", data_dir=data_dir)


def test_what_cannot_be_locked(tmp_path, project):
    data_dir = tmp_path / "data"
    version = build(data_dir, "1.0.0")
    assert isinstance(run("lock").exception, errors.LockError)
    assert isinstance(run("lock", "compared:9.*.*", "--data-dir", data_dir).exception,
                      errors.NotPreparedError)  # fmt: skip
    (version / "my_datasets_manifest.json").unlink()
    refused = run("lock", "compared", "--data-dir", data_dir)
    assert "has no digest" in str(refused.exception)
    assert not Path(FILE_NAME).exists()


@pytest.mark.parametrize(
    "text", ["", "[]", '{"format": 2}', '{"format": 1, "datasets": {"a": {"version": "x"}}}', "\0"]
)
def test_a_lock_that_cannot_be_read(project, text):
    Path(FILE_NAME).write_text(text)
    with pytest.raises(errors.LockError, match=r"datasets\.lock is not a lock of format 1"):
        Lock.find()
