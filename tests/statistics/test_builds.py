"""The statistics that builds note, against NumPy over what was put in."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow_datasets as tfds

from my_datasets.metadata.manifest import Manifest
from my_datasets.verification.adopt import adopt
from tests.building.engines import toys
from tests.building.engines.builds import build
from tests.statistics import rows

ONE_SHARD = tfds.download.DownloadConfig(num_shards=1)


@pytest.fixture(scope="module")
def version(tmp_path_factory):
    return build(rows.Statistics, tmp_path_factory.mktemp("statistics"), workers=2)


@pytest.fixture(scope="module")
def told(version):
    split = Manifest.read(version).statistics["train"]
    assert split["examples"] == rows.ROWS
    return split["features"]


def put_in(name):
    return [rows.row(i)[name] for i in range(rows.ROWS)]


@pytest.mark.parametrize("name", ["amount", "small", "flag"])
def test_numbers(told, name):
    given = np.array(put_in(name), np.float64)
    values = given[np.isfinite(given)]
    found = told[name]
    assert found["kind"] == "number"
    assert (found["values"], found.get("nan", 0)) == (len(given), int(np.isnan(given).sum()))
    assert (found["min"], found["max"]) == (values.min(), values.max())
    assert found["mean"] == pytest.approx(values.mean())
    assert found["std"] == pytest.approx(values.std())
    shares = np.arange(101) / 100
    assert found["percentiles"] == np.quantile(values, shares, method="inverted_cdf").tolist()
    assert sum(found["histogram"]["counts"]) == len(values)
    assert found["distinct"] == {"number": len(set(values)), "is_exact": True}
    first = found["top"]["values"][0]
    assert first["count"] == np.unique(values, return_counts=True)[1].max()


def test_labels(told):
    assert told["label"]["classes"] == {"cat": 180, "dog": 90, "eel": 0}
    assert told["label"]["unknown"] == 30


def test_texts(told):
    lengths = [len(text) for text in put_in("text")]
    found = told["text"]
    assert (found["empty"], found["lengths"]["max"]) == (lengths.count(0), max(lengths))
    assert found["lengths"]["mean"] == pytest.approx(np.mean(lengths))
    assert found["distinct"]["number"] == len(set(put_in("text")))


def test_what_is_missing(told):
    assert told["maybe"]["missing"] == 75
    assert told["maybe"]["values"] == 225
    assert all(found["missing"] == 0 for name, found in told.items() if name != "maybe")


def test_lists(told):
    found = told["list"]
    assert found["values"] == sum(map(len, put_in("list")))
    assert found["values_per_example"]["max"] == 4
    assert found["values_per_example"]["mean"] == pytest.approx(2)
    assert told["nested"]["values_per_example"]["max"] == 2
    assert told["nested"]["values"] == 100


def test_tensors_that_are_stored_as_bytes(told):
    assert (told["packed"]["values"], told["packed"]["max"]) == (6 * rows.ROWS, rows.ROWS - 1)
    assert told["packed"]["mean"] == pytest.approx((rows.ROWS - 1) / 2)


def test_images(told):
    found = told["image"]
    assert found["formats"] == {"png": rows.ROWS}
    assert (found["heights"]["min"], found["heights"]["max"]) == (4, 6)
    assert (found["widths"]["min"], found["widths"]["max"]) == (8, 12)
    assert 70 < found["channels"]["images"] < 130
    assert found["channels"]["means"] == pytest.approx([0.5] * 3, abs=0.03)
    assert found["channels"]["stds"] == pytest.approx([np.sqrt(1 / 12)] * 3, abs=0.03)


def test_sounds(told):
    assert told["sound"]["sample_rate"] == 8000
    assert told["sound"]["values_per_example"]["max"] == 89


@pytest.mark.parametrize("options", [{"workers": 1}, {"file_format": "array_record"},
                                     {"config": ONE_SHARD}])  # fmt: skip
def test_they_do_not_depend_on_how_a_version_is_built(told, tmp_path, options):
    found = build(rows.Statistics, tmp_path, **options)
    assert Manifest.read(found).statistics["train"]["features"] == told


def test_nor_on_rows_or_columns(tmp_path):
    first, second = (build(cls, tmp_path / cls.__name__) for cls in (toys.Plain, toys.Columns))
    assert Manifest.read(first).statistics == Manifest.read(second).statistics


def test_they_are_those_of_what_tfds_writes(told, tmp_path):
    theirs = rows.ByTfds(data_dir=tmp_path)
    theirs.download_and_prepare()
    found = adopt(Path(theirs.data_dir)).statistics["train"]["features"]
    # TFDS's PNG encoder is another one, so other images are chosen to look at their colours.
    for one in (found["image"], told["image"]):
        one.pop("bytes"), one.pop("channels")
    assert found == told


def test_large_shards_are_examined_in_parts(tmp_path, monkeypatch):
    from my_datasets.comparison import examine, shard_parts

    whole = build(toys.InUnits, tmp_path / "whole", workers=1)
    monkeypatch.setattr(shard_parts, "_RECORDS", 37)
    monkeypatch.setattr(examine, "_BYTES_OF_LISTS", 1000)
    monkeypatch.setattr(examine, "FEW_BYTES", 0)
    parts = build(toys.InUnits, tmp_path / "parts", workers=2)
    first, second = Manifest.read(whole), Manifest.read(parts)
    assert first.statistics == second.statistics
    assert first.content == second.content
