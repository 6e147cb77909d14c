"""Examples that cannot be decoded are passed over, if that is wanted."""

import io
import logging
import shutil

import numpy as np
import pytest
import tensorflow_datasets as tfds

import my_datasets
from my_datasets.building.options import BuildOptions
from my_datasets.errors import CorruptShardError, ExampleError, InvalidOptionError
from my_datasets.records import index

BROKEN = {3, 4, 11, 29}


def image(i, size=30):
    rng = np.random.default_rng(i)
    return rng.integers(0, 256, (size, size, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    root = tmp_path_factory.mktemp("broken")

    class PartlyBroken(my_datasets.Builder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {"image": tfds.features.Image(shape=(None, None, 3)), "number": np.int64}
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features), disable_shuffling=True
            )

        def _split_generators(self, dl_manager):
            damaged = b"\x89PNG no image"
            return {
                "train": [
                    (i, {"image": io.BytesIO(damaged) if i in BROKEN else image(i), "number": i})
                    for i in range(30)
                ],
                "test": [(i, {"image": io.BytesIO(damaged), "number": i}) for i in range(7)],
            }

    PartlyBroken(data_dir=root).download_and_prepare(build_options=BuildOptions(workers=1))
    return {"reference": "partly_broken", "data_dir": root, "image_size": (30, 30)}


@pytest.mark.parametrize("options", [{"batch_size": 10}, {"batch_size": 1, "workers": 3},
                                     {"cache": "memory"}])  # fmt: skip
def test_the_next_one_comes_in_its_place(broken, caplog, options):
    with pytest.raises(ExampleError, match=r"'image' of record \d+ of .*cannot be decoded"):
        list(my_datasets.batches(**broken, **options))
    batches = my_datasets.batches(**broken, undecodable="skip", shuffle=False, epochs=2, **options)
    with caplog.at_level(logging.WARNING):
        found = list(batches)
    numbers = np.concatenate([batch["number"] for batch in found]).tolist()
    in_place = [{3: 5, 4: 5, 11: 12, 29: 0}.get(i, i) for i in range(30)]
    assert numbers == in_place * 2
    for number, one in zip(numbers, np.concatenate([b["image"] for b in found]), strict=True):
        assert np.array_equal(one, image(number))
    assert batches.skipped == 4
    for number in BROKEN:
        said = [one.getMessage() for one in caplog.records]
        assert sum(f"'image' of record {number} of " in one for one in said) == 1
    assert "skipped, 4 so far" in caplog.text
    assert "skipped" in batches.plan.explain()


def test_tf_data_counts_them_too(broken):
    train = my_datasets.pipeline(**broken, undecodable="skip", batch_size=10)
    numbers = np.concatenate([batch["number"].numpy() for batch in train])
    assert len(numbers) == 30
    assert not BROKEN & set(numbers.tolist())
    assert train.stats().skipped == 4


def test_if_all_are_broken_it_is_an_error(broken):
    with pytest.raises(ExampleError, match="cannot be decoded"):
        list(my_datasets.batches(**broken, split="test", undecodable="skip"))
    with pytest.raises(ExampleError, match="cannot be decoded"):
        list(
            my_datasets.batches(**broken, split="test", undecodable="skip", batch_size=1, workers=3)
        )
    with pytest.raises(InvalidOptionError, match="undecodable='ignore'"):
        my_datasets.plan(**broken, undecodable="ignore")


@pytest.mark.parametrize("where", ["data", "length", "checksum"])
def test_damaged_records_are_skipped_too(broken, tmp_path, caplog, where):
    options = {**broken, "data_dir": shutil.copytree(broken["data_dir"], tmp_path / "data")}
    (shard,) = options["data_dir"].glob("partly_broken/1.0.0/*train.tfrecord-*[0-9]")
    offsets = index.read(shard)
    damaged = {7, 8, 20}
    data = bytearray(shard.read_bytes())
    for number in damaged:
        begin, end = int(offsets[number]), int(offsets[number + 1])
        data[{"data": begin + 40, "length": begin + 1, "checksum": end - 2}[where]] ^= 4
    shard.write_bytes(data)
    with pytest.raises(CorruptShardError, match=r"Record 7 \(counted from 0\) of .* is damaged"):
        list(my_datasets.batches(**options, split="train[5:11]", shuffle=False))
    batches = my_datasets.batches(**options, undecodable="skip", shuffle=False, batch_size=30)
    with caplog.at_level(logging.WARNING):
        (batch,) = batches
    numbers = batch["number"].tolist()
    in_place = {3: 5, 4: 5, 7: 9, 8: 9, 11: 12, 20: 21, 29: 0}
    assert numbers == [in_place.get(i, i) for i in range(30)]
    for number, one in zip(numbers, batch["image"], strict=True):
        assert np.array_equal(one, image(number))
    assert batches.skipped == 7
    assert caplog.text.count("(counted from 0)") == 3
    with shard.open("r+b") as file:
        file.truncate(int(offsets[25]))
    with pytest.raises(CorruptShardError, match="not that of this shard"):
        list(my_datasets.batches(**options, undecodable="skip"))


def test_if_all_are_damaged_it_is_an_error(broken, tmp_path):
    options = {**broken, "data_dir": shutil.copytree(broken["data_dir"], tmp_path / "data")}
    (shard,) = options["data_dir"].glob("partly_broken/1.0.0/*train.tfrecord-*[0-9]")
    offsets = index.read(shard)
    data = bytearray(shard.read_bytes())
    for begin in offsets[:-1].tolist():
        data[begin + 40] ^= 4
    shard.write_bytes(data)
    with pytest.raises(CorruptShardError, match="is damaged"):
        list(my_datasets.batches(**options, undecodable="skip", batch_size=7))


@pytest.mark.parametrize(
    "options",
    [{"columns": ["list"], "pack": 16}, {"columns": ["list", "whole"], "bucket_by": "list"}],
)
def test_where_lengths_are_asked_for_damaged_records_are_skipped_too(data_dir, tmp_path, options):
    shutil.copytree(data_dir / "everything", tmp_path / "everything")
    for shard in (tmp_path / "everything").rglob("*train.tfrecord-*"):
        damaged = bytearray(shard.read_bytes())
        damaged[40] ^= 1
        shard.write_bytes(damaged)
    with pytest.raises(CorruptShardError, match="is damaged"):
        my_datasets.batches("everything", data_dir=tmp_path, **options)
    batches = my_datasets.batches(
        "everything", undecodable="skip", batch_size=10, data_dir=tmp_path, **options
    )
    found = list(batches)
    assert len(found) == len(batches)
    assert 1 <= batches.skipped <= 3
    if "pack" not in options:
        numbers = np.concatenate([batch["whole"] for batch in found])
        assert len(numbers) == 250
        assert len(set(numbers.tolist())) == 247
