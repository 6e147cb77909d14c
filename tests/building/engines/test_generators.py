"""What a generator may do: use its objects again, yield large examples, generators, open files."""

import json
from pathlib import Path

import pytest
import tensorflow as tf

from my_datasets import errors
from tests.building.engines import toys
from tests.building.engines.builds import build, hashes, records


@pytest.mark.parametrize("workers", [1, 2])
def test_a_generator_may_use_its_objects_again(tmp_path, workers):
    """One dict, array, list and file for all examples, as TFDS allows; files that are closed."""
    theirs = toys.ReusingByTfds(data_dir=tmp_path / "theirs")
    theirs.download_and_prepare()
    expected = [with_pixels(record) for record in records(Path(theirs.data_dir))]
    assert len(expected) == 50
    for cls in (toys.Reusing, toys.ReusingInUnits):
        ours = build(cls, tmp_path / cls.__name__, config=None, workers=workers)
        assert [with_pixels(record) for record in records(ours)] == expected


def with_pixels(record):
    """Two encoders make two PNG files of the same array."""
    image = record.features.feature["image"].bytes_list
    image.value[0] = tf.io.decode_png(image.value[0]).numpy().tobytes()
    return record


def test_large_examples_of_a_plain_generator_are_encoded_in_threads(tmp_path):
    once, again = (
        build(toys.Large, tmp_path / str(workers), config=None, workers=workers, splits=("train",))
        for workers in (1, 4)
    )
    assert hashes(once) == hashes(again)
    assert len(records(once)) == toys.Large.rows


def test_an_error_in_a_thread_is_described(tmp_path, monkeypatch):
    monkeypatch.setattr(toys.Large, "wrong", 30)
    with pytest.raises(errors.ExampleError, match=r"example 30 .*\n  Key: 30\n  Feature: array"):
        build(toys.Large, tmp_path, config=None, workers=2, splits=("train",))
    kept = build(
        toys.Large, tmp_path, config=None, workers=2, splits=("train",), on_error="quarantine",
        max_quarantined=0.1,
    )  # fmt: skip
    assert len(records(kept)) == toys.Large.rows - 1


def test_steps_are_generated_once_also_beside_an_example_that_does_not_fit(tmp_path):
    """Going through a batch again must not find generators that are at their end."""
    ours = build(toys.Episodes, tmp_path, config=None, on_error="quarantine", max_quarantined=0.5)
    found = sorted(
        len(record.features.feature["steps/action"].int64_list.value) for record in records(ours)
    )
    assert found == [1, 2, 4, 5]
    entry = json.loads((ours / "quarantine.jsonl").read_text())
    assert (entry["key"], entry["feature"]) == ("3", "n")
