"""Sidecars are found by no glob that finds shards; those of earlier versions are still read."""

import glob
import shutil
from pathlib import Path

import fsspec
import grain.python as grain
import numpy as np
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

import my_datasets
from my_datasets.comparison.diff import diff
from my_datasets.errors import PublishError
from my_datasets.metadata import sidecars
from my_datasets.metadata.manifest import Manifest
from my_datasets.metadata.sidecars import Sidecar
from my_datasets.publishing.upload import Outcome
from my_datasets.records import index
from my_datasets.verification.verifier import Level, verify
from tests.building.engines import toys
from tests.building.engines.builds import build
from tests.golden.sidecars_named_after_shards import Golden

FORMATS = ("tfrecord", "array_record", "parquet")
GOLDEN = Path(__file__).parents[1] / "golden" / "sidecars_named_after_shards"
# As people write them, from a version's directory on, or from the data directory.
OF_TRAIN = (
    "{version}/toy_engine-train.{form}*", "{version}/toy_engine-train*", "{version}/*-train*",
    "{version}/*train*", "{version}/*train*{form}*", "{version}/*-train.*-of-*",
    "{root}/*/*/*-train*", "{root}/**/*-train*", "{root}/**/*train*{form}*",
)  # fmt: skip
OF_ALL = (
    "{version}/*.{form}*", "{version}/*{form}*", "{version}/toy_engine*", "{version}/*-of-*",
    "{version}/*.{form}-?????-of-?????", "{version}/*-0000*", "{root}/**/*.{form}*",
)  # fmt: skip


def python_glob(pattern):
    """What `glob.glob` finds, with hidden files."""
    return glob.glob(pattern, recursive=True, include_hidden=True)  # noqa: PTH207


GLOBS = {
    "Python": python_glob,
    # It takes ** for *.
    "TensorFlow": lambda pattern: tf.io.gfile.glob(pattern.replace("/**/", "/*/*/")),
    "fsspec": fsspec.filesystem("file").glob,
}


@pytest.fixture(scope="module", params=FORMATS)
def version(request, tmp_path_factory):
    """The directory of a version, and its format."""
    return build(
        toys.InUnits, tmp_path_factory.mktemp("globs"), file_format=request.param
    ), request.param


def shards_of(directory, *splits):
    """The files of some splits, as TFDS finds them."""
    info = tfds.builder_from_directory(directory).info
    return sorted(str(path) for split in splits for path in info.splits[split].filepaths)


@pytest.mark.parametrize("find", GLOBS.values(), ids=GLOBS)
def test_globs_find_shards_and_nothing_else(version, find):
    directory, form = version
    names = {"version": directory, "root": directory.parents[1], "form": form}
    train, both = shards_of(directory, "train"), shards_of(directory, "train", "test")
    assert len(train) == 3
    for pattern in OF_TRAIN:
        assert sorted(find(pattern.format(**names))) == train, pattern
    for pattern in OF_ALL:
        assert sorted(find(pattern.format(**names))) == both, pattern


def test_what_a_glob_finds_is_read(version):
    """By the readers of each format that people give a glob to."""
    directory, form = version
    paths = sorted(python_glob(f"{directory}/*-train*"))
    if form == "tfrecord":
        found = list(tf.data.TFRecordDataset(paths).as_numpy_iterator())
    elif form == "array_record":
        source = grain.ArrayRecordDataSource(paths)
        found = [source[i] for i in range(len(source))]
    else:
        found = pq.read_table(paths)["data"].to_pylist()
    feature = tfds.builder_from_directory(directory).info.features
    numbers = [int(feature.deserialize_example_np(one)["n"]) for one in found]
    if form == "array_record":
        expected = tfds.data_source("toy_engine", split="train", data_dir=directory.parents[1])
    else:
        in_order = tfds.ReadConfig(interleave_cycle_length=1)
        data = tfds.builder_from_directory(directory).as_dataset("train", read_config=in_order)
        expected = tfds.as_numpy(data)
    assert numbers == [int(one["n"]) for one in expected]
    assert len(numbers) == Manifest.read(directory).content.splits["train"].examples > 0


def test_each_shard_has_its_own_sidecars(version):
    directory, form = version
    kinds = [Sidecar.OFFSETS, Sidecar.KEYS] if form == "tfrecord" else [Sidecar.KEYS]
    shards = [Path(one).name for one in shards_of(directory, "train", "test")]
    wanted = {sidecars.name_of(shard, kind) for shard in shards for kind in kinds}
    assert len(wanted) == len(shards) * len(kinds)
    found = {path.name for path in directory.glob("*.npy")}
    assert found == wanted
    assert {sidecars.kind_of(name) for name in found} == set(kinds)


def test_names_do_not_change():
    """What lies in stores and data directories is found by them."""
    shard = "mnist-train.tfrecord-00000-of-00001"
    assert sidecars.names_of(shard) == (
        "my_datasets_offsets_f4eb6e2337d92617.npy", f"{shard}.offsets.npy",
        "my_datasets_keys_f4eb6e2337d92617.npy", f"{shard}.keys.npy",
    )  # fmt: skip


@pytest.fixture
def golden(tmp_path):
    """A version as it was made when sidecars were called after their shards."""
    return Path(shutil.copytree(GOLDEN / "tfrecord", tmp_path / "data")) / "golden" / "1.0.0"


def numbers(reference, **options):
    return sorted(int(one["number"]) for one in my_datasets.source(reference, **options))


def test_a_version_with_old_names_is_read_and_verified(golden):
    shard = golden / "golden-train.tfrecord-00000-of-00002"
    assert index.path_of(shard).name == f"{shard.name}.offsets.npy"
    assert index.keys_path(shard).name == f"{shard.name}.keys.npy"
    assert numbers(str(golden)) == [0, 1, 2, 3, 4]
    for level in Level:
        assert not verify(golden, level=level).issues
    # Its index is what readers go by: with another one, they fail.
    index.path_of(shard).write_bytes(b"no index")
    with pytest.raises(Exception, match=r"index|pickled"):
        numbers(str(golden))
    (issue,) = verify(golden).issues
    assert issue.node == f"{shard.name}.offsets.npy"


def test_an_old_index_is_made_anew_in_its_place(golden):
    shard = golden / "golden-train.tfrecord-00000-of-00002"
    before = {path.name: path.read_bytes() for path in golden.iterdir()}
    index.path_of(shard).write_bytes(b"no index")
    index.write(shard, index.scan(shard))
    assert {path.name: path.read_bytes() for path in golden.iterdir()} == before


def test_examples_of_a_version_with_old_names_are_distinguished_by_their_keys(golden, tmp_path):
    class Changed(Golden, skip_registration=True):
        name = "golden"

        def _examples(self, rows):
            for row in rows:
                yield row, {"number": row + 100 * (row == 3), "parity": row % 2}

    builder = Changed(data_dir=tmp_path / "new")
    builder.download_and_prepare()
    train, _ = diff(golden, Path(builder.data_dir)).splits
    assert (train.changed, train.added, train.removed) == (1, 0, 0)


def test_a_version_with_old_names_is_published_pulled_and_streamed(golden, tmp_path):
    published = my_datasets.publish(str(golden), tmp_path / "store")
    assert published.outcome is Outcome.PUBLISHED
    store = str(tmp_path / "store")
    pulled = my_datasets.pull("golden:1.0.0", store, tmp_path / "pulled")
    names = {path.name for path in golden.iterdir()}
    assert {path.name for path in pulled.path.iterdir()} == {*names, "my_datasets_release.json"}
    attached = my_datasets.attach("golden:1.0.0", store, tmp_path / "cache")
    assert numbers(attached) == [0, 1, 2, 3, 4]
    assert not [path for path in attached.path.iterdir() if path.name.endswith(".keys.npy")]


def test_a_release_with_old_names_is_pulled_and_streamed(tmp_path):
    store = shutil.copytree(GOLDEN / "store", tmp_path / "store")
    pulled = my_datasets.pull("golden", store, tmp_path / "whole")
    assert numbers(str(pulled.path)) == [0, 1, 2, 3, 4]
    assert verify(pulled.path, level=Level.DEEP).is_good
    part = my_datasets.pull("golden", store, tmp_path / "part", splits=["test"]).path
    assert numbers(str(part), split="test") == [5, 6]
    assert not [path.name for path in part.iterdir() if "train" in path.name]
    assert len(list(part.glob("*.npy"))) == 4
    attached = my_datasets.attach("golden", str(store), tmp_path / "cache")
    assert numbers(attached) == [0, 1, 2, 3, 4]


def test_the_same_data_with_the_names_of_today_are_published_already(tmp_path, monkeypatch):
    """Sidecars have the same bytes; what they are called does not make other data of them."""
    store = shutil.copytree(GOLDEN / "store", tmp_path / "store")
    # TFDS notes the module of the builder, which was run as a script then.
    monkeypatch.setattr(Golden, "__module__", "__main__")
    builder = Golden(data_dir=tmp_path / "data")
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=2))
    built = Path(builder.data_dir)
    old, new = Manifest.read(GOLDEN / "tfrecord/golden/1.0.0"), Manifest.read(built)
    assert new.content == old.content
    done = my_datasets.publish(str(built), store)
    assert done.outcome is Outcome.ALREADY
    shard = built / "golden-train.tfrecord-00000-of-00002"
    np.save(index.keys_path(shard), np.zeros((2, 2), np.uint64))
    with pytest.raises(PublishError, match=index.keys_path(shard).name):
        my_datasets.publish(str(built), store)


def test_splits_of_a_release_come_with_their_sidecars_only(tmp_path):
    builder = Golden(data_dir=tmp_path / "data")
    builder.download_and_prepare()
    my_datasets.publish(str(builder.data_dir), tmp_path / "store")
    part = my_datasets.pull("golden", tmp_path / "store", tmp_path / "part", splits=["test"]).path
    shard = part / "golden-test.tfrecord-00000-of-00001"
    assert {path.name for path in part.glob("*.npy")} == {
        index.path_of(shard).name, index.keys_path(shard).name
    }  # fmt: skip
    assert not verify(part).issues
