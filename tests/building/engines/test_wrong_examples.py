"""Wrong examples, keys and options: told exactly, or set aside."""

import json
import re

import pyarrow as pa
import pytest
import tensorflow_datasets as tfds

from my_datasets import errors
from my_datasets.building.options import BuildOptions
from tests.building.engines import toys
from tests.building.engines.builds import build, records


def test_duplicate_keys_are_named_with_both_origins(tmp_path, steer):
    def before(unit, i):
        return ("1-17", toys.row(unit, i)) if (unit, i) == (4, 250) else None

    steer(before)
    for cls in (toys.InUnits, toys.Plain):
        with pytest.raises(errors.DuplicateKeyError) as caught:
            build(cls, tmp_path / cls.__name__, workers=2)
        assert "the key '1-17'" in str(caught.value)
        if cls is toys.InUnits:
            assert "First: unit 1 (1), example 17" in str(caught.value)
            assert "Again: unit 4 (4), example 250" in str(caught.value)
    config = tfds.download.DownloadConfig(ignore_duplicates=True)
    version_dir = build(toys.InUnits, tmp_path / "ignored", config=config, workers=2)
    assert len(records(version_dir)) == toys.UNITS * toys._Toy.rows - 1


def misfit(unit, i):
    return (f"{unit}-{i}", {**toys.row(unit, i), "label": "zebra"}) if (unit, i) == (2, 5) else None


@pytest.mark.parametrize("cls", [toys.InUnits, toys.Plain])
def test_an_example_that_does_not_fit_is_described(tmp_path, steer, cls):
    steer(misfit)
    with pytest.raises(errors.ExampleError) as caught:
        build(cls, tmp_path, workers=2)
    text = str(caught.value)
    assert "Key: 2-5" in text
    assert "Feature: label" in text
    assert "Found: zebra (str)" in text
    if cls is toys.InUnits:
        assert "Unit: 2 (2), example 5" in text


def test_quarantine_sets_aside_and_reports(tmp_path, steer):
    steer(misfit)
    version_dir = build(toys.InUnits, tmp_path / "a", workers=2, on_error="quarantine")
    assert len(records(version_dir)) == toys.UNITS * toys._Toy.rows - 1
    (line,) = (version_dir / "quarantine.jsonl").read_text().splitlines()
    entry = json.loads(line)
    assert (entry["unit"], entry["position"], entry["key"]) == ("2 (2)", 5, "2-5")
    assert entry["feature"] == "label"
    manifest = json.loads((version_dir / "my_datasets_manifest.json").read_text())
    assert manifest["quarantined"] == {"train": 1}
    with pytest.raises(errors.QuarantineError, match="1 of 2,400 examples"):
        build(toys.InUnits, tmp_path / "b", workers=2, on_error="quarantine", max_quarantined=0.0)


def test_quarantine_of_rows_in_columns(tmp_path, monkeypatch):
    monkeypatch.setattr(
        toys, "row",
        lambda unit, i, usual=toys.row: {**usual(unit, i), "label": "ab?"[2 if i == 5 else i % 2]},
    )  # fmt: skip
    with pytest.raises(errors.ExampleError, match=r"Key: \d+-5\n  Feature: label"):
        build(toys.Columns, tmp_path / "a", workers=2)
    version_dir = build(toys.Columns, tmp_path / "b", workers=2, on_error="quarantine")
    assert len(records(version_dir)) == toys.UNITS * (toys._Toy.rows - 1)


@pytest.mark.parametrize(
    ("pair", "error", "said"),
    [
        ((None, {}), errors.ExampleError, "the keys"),
        ("ab", errors.ExampleError, "Found: b"),
        (5, errors.BuilderError, "yielded a int, not a pair"),
        (("absent", pa.RecordBatch.from_pydict({"x": [1]})), errors.InvalidKeyError, "'absent'"),
        (([1, 2], pa.RecordBatch.from_pydict({"x": [1]})), errors.InvalidKeyError, "2 keys"),
    ],
)
def test_what_is_no_example_is_refused(tmp_path, steer, pair, error, said):
    steer(lambda unit, i: pair if i == 1 else None)
    with pytest.raises(error, match=re.escape(said)):
        build(toys.InUnits, tmp_path, workers=2)


def test_an_empty_split_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(toys._Toy, "rows", 0)
    with pytest.raises(errors.EmptySplitError, match="'train' has no example"):
        build(toys.InUnits, tmp_path, workers=2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"workers": 0}, "at least 1"),
        ({"max_memory": 1000}, "at least 67,108,864 bytes"),
        ({"on_error": "ignore"}, "'fail' or 'quarantine'"),
        ({"max_quarantined": 2.0}, "from 0 to 1"),
        ({"unit_timeout": 0}, "above 0"),
        ({"readers": 0}, "at least 1"),
    ],
)
def test_options_out_of_range(options, said):
    with pytest.raises(errors.InvalidOptionError, match=said):
        BuildOptions(**options)


def test_work_that_set_examples_aside_is_not_taken_up_by_a_build_that_must_not(
    tmp_path, steer, caplog
):
    def before(unit, i):
        if unit == 99:
            raise RuntimeError("stop")
        return misfit(unit, i)

    steer(before)
    with pytest.raises(errors.UnitError):
        build(toys.InUnits, tmp_path, workers=2, on_error="quarantine")
    steer(misfit)
    with pytest.raises(errors.ExampleError):
        build(toys.InUnits, tmp_path, workers=2)


def test_a_table_with_too_many_keys_is_refused(tmp_path, steer):
    table = pa.table({"x": [1, 2]})
    steer(lambda unit, i: ([1, 2, 3], table) if i == 1 else None)
    with pytest.raises(errors.InvalidKeyError, match="2 rows came with 3 keys"):
        build(toys.InUnits, tmp_path, workers=2)
