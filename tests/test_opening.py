"""`my_datasets.open`: a version, and everything that can be done with it."""

import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow_datasets as tfds

import my_datasets
from my_datasets.core.reference import DatasetReference
from my_datasets.errors import InvalidOptionError, LockError, NotPreparedError, VersionBlockedError
from my_datasets.resolving.lock import Lock, Locked

NAME = "opened"
ROWS = 20


class Opened(my_datasets.Builder):
    """Numbers."""

    VERSION = tfds.core.Version("1.1.0")
    SUPPORTED_VERSIONS = BUILDABLE_VERSIONS = [tfds.core.Version("1.0.0")]
    RELEASE_NOTES = {"1.1.0": "More.", "1.0.0": "First."}

    def _info(self):
        names = "xy"[: self.version.minor + 1]
        features = tfds.features.FeaturesDict(dict.fromkeys(names, np.int64))
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(), "test": self._generate_examples()}

    def _generate_examples(self):
        for row in range(ROWS):
            yield row, dict.fromkeys(self.info.features, row)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    directory = tmp_path_factory.mktemp("data")
    for version in ("1.0.0", "1.1.0"):
        Opened(data_dir=directory, version=version).download_and_prepare()
    return directory


@pytest.fixture(autouse=True)
def _no_lock(monkeypatch):
    monkeypatch.setenv("MY_DATASETS_LOCK", "")


@pytest.fixture(params=["reference", "directory", "store", "streamed"])
def version(request, data_dir, tmp_path):
    """The same version, from wherever it is opened."""
    if request.param == "reference":
        return my_datasets.open(f"{NAME}:1.0.*", data_dir=data_dir)
    directory = data_dir / NAME / "1.0.0"
    if request.param == "directory":
        return my_datasets.open(directory)
    my_datasets.publish(directory, tmp_path / "store")
    return my_datasets.open(
        f"{NAME}:1.*.*", data_dir=tmp_path / "pulled", store=tmp_path / "store",
        stream=request.param == "streamed", cache_dir=tmp_path / "cache",
    )  # fmt: skip


def values(examples):
    return sorted(int(x) for one in examples for x in np.ravel(np.asarray(one["x"])))


def test_what_it_is(version):
    assert version.name == f"{NAME}:1.0.0"
    assert version.reference == DatasetReference.parse(f"{NAME}:1.0.0")
    assert {name: one.examples for name, one in version.splits.items()} == {
        "train": ROWS, "test": ROWS
    }  # fmt: skip
    assert version.manifest.content.digest
    assert list(version.schema.tree) == ["x"]
    assert list(version.features) == ["x"]
    assert version.info.splits["train"].num_examples == ROWS
    assert NAME in repr(version)


READERS = {
    "batches": lambda version: version.batches(batch_size=7, as_supervised=False),
    "plan": lambda version: my_datasets.batches(version.plan(batch_size=7)),
    "pipeline": lambda version: version.pipeline(batch_size=7).as_numpy_iterator(),
    "torch_loader": lambda version: version.torch_loader(batch_size=7),
    "source": lambda version: iter(version.source()),
    "grain_dataset": lambda version: iter(version.grain_dataset()),
    "as_dataset": lambda version: version.as_dataset("train").as_numpy_iterator(),
}


@pytest.mark.parametrize("name", READERS)
def test_reading_it(name, version):
    found = values(READERS[name](version))
    assert set(found) == set(range(ROWS))
    if name not in ("batches", "plan", "pipeline", "torch_loader"):  # whose last batch is filled up
        assert found == list(range(ROWS))


def test_what_is_done_with_it(data_dir, tmp_path):
    version, newer = (
        my_datasets.open(f"{NAME}:{one}", data_dir=data_dir) for one in ("1.0.0", "1.1.0")
    )
    assert set(version.stats()) == {"train", "test"}
    assert version.verify().is_good
    assert {version.diff(newer).old, version.diff(newer.path).new} == {version.name, newer.name}
    assert version.publish(tmp_path / "store").name == version.name
    done = version.export(tmp_path / "parquet", splits=["test"])
    assert [one.examples for one in done.files] == [ROWS]
    assert (tmp_path / "parquet/README.md").exists()
    assert my_datasets.open(version) is version


def test_without_statistics_it_says_how_to_get_them(data_dir, tmp_path):
    directory = shutil.copytree(data_dir / NAME / "1.0.0", tmp_path / NAME / "1.0.0")
    (directory / "my_datasets_manifest.json").unlink()
    with pytest.raises(NotPreparedError, match="my-datasets adopt"):
        my_datasets.open(directory).stats()


def test_what_is_not_there(data_dir, tmp_path):
    with pytest.raises(NotPreparedError, match="No prepared data matches"):
        my_datasets.open(f"{NAME}:2.*.*", data_dir=data_dir)
    with pytest.raises(NotPreparedError, match="is no prepared version"):
        my_datasets.open(tmp_path)
    with pytest.raises(NotPreparedError, match="is no prepared version"):
        my_datasets.open("./nothing")
    with pytest.raises(InvalidOptionError):
        my_datasets.open(f"{NAME}:1.0.0", data_dir=3)


def test_a_blocked_version_is_not_opened(data_dir, monkeypatch):
    blocked = tfds.core.utils.BlockedVersions({"1.1.0": "Wrong labels."})
    monkeypatch.setattr(Opened, "BLOCKED_VERSIONS", blocked)
    assert my_datasets.open(NAME, data_dir=data_dir).name == f"{NAME}:1.0.0"
    with pytest.raises(VersionBlockedError, match=r"Wrong labels\."):
        my_datasets.open(f"{NAME}:1.1.0", data_dir=data_dir)


def test_the_lock_says_which(data_dir, tmp_path, monkeypatch):
    lock = Lock(tmp_path / "datasets.lock", {NAME: Locked.of(data_dir / NAME / "1.0.0")})
    lock.write()
    monkeypatch.setenv("MY_DATASETS_LOCK", str(lock.path))
    assert my_datasets.open(NAME, data_dir=data_dir).name == f"{NAME}:1.0.0"
    other = shutil.copytree(data_dir, tmp_path / "data")
    shard = next((other / NAME / "1.0.0").glob("*.tfrecord-*"))
    data = bytearray(shard.read_bytes())
    data[20] ^= 1
    shard.write_bytes(data)
    with pytest.raises(LockError):
        my_datasets.open(NAME, data_dir=other)


def test_opening_loads_no_tensorflow(data_dir):
    code = (
        "import sys, my_datasets\n"
        f"version = my_datasets.open('{NAME}:1.0.0', data_dir={str(data_dir)!r})\n"
        "assert version.splits['train'].examples and version.manifest and version.schema\n"
        "assert sum(len(one['x']) for one in version.batches(batch_size=5)) == 20\n"
        "assert not {'tensorflow', 'tensorflow_datasets', 'apache_beam'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_star_import_leaves_the_builtin():
    names = {}
    exec("from my_datasets import *", names)
    assert "open" not in names
    assert "Version" in names
