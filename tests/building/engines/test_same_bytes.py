"""The same bytes, order and content, however and by whomever they are made."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from my_datasets import errors
from my_datasets.building import shards as shard_planning
from my_datasets.building.engines import local
from my_datasets.records import index
from tests.building.engines import toys
from tests.building.engines.builds import THREE_SHARDS, build, hashes, records, shards


@pytest.mark.parametrize(
    ("cls", "options"),
    [
        (toys.Plain, {}),
        (toys.InUnits, {"workers": 2}),
        (toys.InUnits, {"workers": 4, "max_memory": 64 << 20}),
        (toys.InUnits, {"workers": 8}),
        (toys.Columns, {"workers": 1}),
        (toys.Columns, {"workers": 2}),
    ],
)
def test_bytes_do_not_depend_on_how_they_are_made(reference, tmp_path, cls, options):
    assert hashes(build(cls, tmp_path, **options)) == reference


def test_bytes_do_not_depend_on_memory_nor_on_the_order_of_units(
    reference, tmp_path, steer, monkeypatch
):
    """Hundreds of small runs and chunks, units that end in another order, hash seed and all."""
    monkeypatch.setattr(local, "_BUFFER_SHARE", 0.0005)
    monkeypatch.setattr(shard_planning, "_CHUNK", 0.0005)
    steer(lambda unit, i: time.sleep(0.3 * (6 - unit)) if i == 0 and unit < 6 else None)
    found = build(toys.InUnits, tmp_path, workers=2, max_memory=64 << 20)
    assert hashes(found) == reference


def test_order_and_content_are_those_of_tfds(tmp_path):
    theirs = toys.ByTfds(data_dir=tmp_path / "theirs")
    theirs.download_and_prepare(download_config=THREE_SHARDS)
    ours = build(toys.InUnits, tmp_path / "ours", workers=2)
    for split in ("train", "test"):
        assert records(ours, split) == records(Path(theirs.data_dir), split)
    assert (
        json.loads((ours / "dataset_info.json").read_text())["splits"]
        == json.loads((Path(theirs.data_dir) / "dataset_info.json").read_text())["splits"]
    )
    read = tfds.builder_from_directory(ours).as_dataset(split="train")
    assert len(list(read)) == toys.UNITS * toys._Toy.rows


@pytest.mark.parametrize("keys", ["texts", "ints"])
def test_unshuffled_order_is_that_of_tfds(tmp_path, steer, monkeypatch, keys):
    def before(unit, i):
        if keys == "ints":
            return (1000 * ((unit * 7) % 5) - i + (50_000 if unit == 99 else 10_000 * unit),
                    toys.row(unit, i))  # fmt: skip
        return None

    steer(before)
    monkeypatch.setattr(toys.ByTfds, "before", staticmethod(before))
    monkeypatch.setattr(toys.ByTfds, "disable_shuffling", True)
    theirs = toys.ByTfds(data_dir=tmp_path / "theirs")
    theirs.download_and_prepare(download_config=THREE_SHARDS)
    ours = build(toys.Ordered, tmp_path / "ours", workers=2)
    assert records(ours) == records(Path(theirs.data_dir))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ([1, "a"], "either all keys are ints or none is"),  # in one unit
        ([2**63, 1], "must fit in a signed 64-bit integer"),
        ([-(2**70), 1], "must fit in a signed 64-bit integer"),
    ],
)
def test_unshuffled_keys_that_give_no_order_are_refused(tmp_path, steer, monkeypatch, keys, said):
    monkeypatch.setattr(toys._Toy, "rows", len(keys))
    steer(lambda unit, i: (keys[i], toys.row(unit, i)))
    with pytest.raises(errors.InvalidKeyError, match=said):
        build(toys.Ordered, tmp_path, workers=1)


def test_unshuffled_keys_of_two_kinds_are_refused_also_across_units(tmp_path, steer):
    def before(unit, i):
        return (10_000 * unit + i if unit % 2 else f"{unit}-{i}"), toys.row(unit, i)

    steer(before)
    with pytest.raises(errors.InvalidKeyError, match="either all keys are ints or none is"):
        build(toys.Ordered, tmp_path, workers=2)


@pytest.mark.parametrize("file_format", ["array_record", "parquet"])
def test_other_formats_hold_the_same_and_are_the_same_twice(tmp_path, file_format):
    first = build(toys.InUnits, tmp_path / "a", file_format=file_format, workers=2)
    again = build(toys.Plain, tmp_path / "b", file_format=file_format)
    assert hashes(first) == hashes(again)
    plain = build(toys.InUnits, tmp_path / "c", workers=1)
    builder = tfds.builder_from_directory(first)
    if file_format == "array_record":
        source = builder.as_data_source(split="train")
        texts = [source[i]["text"] for i in range(len(source))]
    else:
        import pyarrow.parquet as pq

        data = [r for p in shards(first) if "-train." in p.name for r in pq.read_table(p)["data"]]
        texts = [
            tf.train.Example.FromString(r.as_py()).features.feature["text"].bytes_list.value[0]
            for r in data
        ]
    expected = [r.features.feature["text"].bytes_list.value[0] for r in records(plain)]
    assert texts == expected


def test_each_shard_has_its_record_index(tmp_path):
    version_dir = build(toys.InUnits, tmp_path, workers=2)
    assert len(shards(version_dir)) == 6
    for shard in shards(version_dir):
        assert index.read(shard).tolist() == index.scan(shard).tolist()


@pytest.mark.parametrize("limit", [1, 399, 400, 1000, 10**6])
def test_a_sample_is_the_beginning(tmp_path, limit):
    config = tfds.download.DownloadConfig(max_examples_per_split=limit)
    ours = build(toys.InUnits, tmp_path / "ours", config=config, workers=2)
    theirs = toys.ByTfds(data_dir=tmp_path / "theirs")
    theirs.download_and_prepare(download_config=config)
    assert records(ours) == records(Path(theirs.data_dir))


def test_only_some_splits(tmp_path):
    version_dir = build(toys.InUnits, tmp_path, splits=("test",))
    assert list(tfds.builder_from_directory(version_dir).info.splits) == ["test"]
    with pytest.raises(errors.SplitNotFoundError, match="Splits of this dataset: train, test"):
        build(toys.InUnits, tmp_path / "other", splits=("validation",))


@pytest.mark.parametrize(
    ("size", "count", "readers", "expected"),
    [
        (1, 1, 1, 1),
        (9 << 20, 1000, 1, 1),
        (100 << 20, 1000, 1, 10),  # ten for one reader, none below 10 MB
        (100 << 20, 4, 1, 4),
        (3 << 30, 10**6, 1, 21),  # 150 MB each
        (3 << 30, 10**6, 4, 40),
        (300 << 20, 10**6, 8, 31),
    ],
)
def test_shards_follow_the_published_guidance(size, count, readers, expected):
    from my_datasets.building.shards import number_of_shards

    assert number_of_shards(size, count, readers) == expected


def test_numbers_of_all_kinds_survive_a_large_batch(tmp_path, monkeypatch):
    """More rows than one batch of either path."""
    monkeypatch.setattr(toys._Toy, "rows", 9000)
    monkeypatch.setattr(toys, "UNITS", 1)
    rows = build(toys.InUnits, tmp_path / "rows", splits=("test",), workers=2)
    columns = build(toys.Columns, tmp_path / "columns", splits=("test",), workers=2)
    assert hashes(rows) == hashes(columns)
    values = np.array([r.features.feature["n"].int64_list.value[0] for r in records(rows, "test")])
    assert len(values) == 9000
