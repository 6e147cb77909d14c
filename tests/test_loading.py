"""`my_datasets.load`: TFDS's results, and errors that fit on a screen."""

from pathlib import Path

import pytest
import tensorflow_datasets as tfds

import my_datasets
from my_datasets import errors
from my_datasets.builders.find_builder import builders_from_code, find_builder
from tests.builders import toy


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("data")
    my_datasets.load("digits", data_dir=directory)
    return directory


def labels(dataset) -> list[int]:
    return [int(label) for _, label in dataset.as_numpy_iterator()]


def test_it_gives_what_tfds_gives(data_dir):
    options = {"split": "train[:80%]", "as_supervised": True, "data_dir": data_dir}
    ours, info = my_datasets.load("digits:1.*.*", with_info=True, **options)
    assert labels(ours) == labels(tfds.load("digits:1.*.*", **options))
    assert len(ours) == 1150
    assert info.full_name == "digits/1.0.0"


def test_all_splits_batches_and_lists(data_dir):
    assert set(my_datasets.load("digits", data_dir=data_dir)) == {"train", "test"}
    one, two = my_datasets.load("digits", split=["train", "test"], data_dir=data_dir)
    assert (len(one), len(two)) == (1438, 359)
    batch = my_datasets.load("digits", split="test", batch_size=-1, data_dir=data_dir)
    assert batch["image"].shape == (359, 8, 8, 1)


def test_a_reference_object_is_taken_too(data_dir):
    reference = my_datasets.DatasetReference.parse("digits:1.0.0")
    assert len(my_datasets.load(reference, split="test", data_dir=str(data_dir))) == 359


def message_of(error: type[Exception], *args, **kwargs) -> str:
    with pytest.raises(error) as caught:
        my_datasets.load(*args, **kwargs)
    message = str(caught.value)
    assert len(message.splitlines()) <= 10
    assert "Fix:" in message
    return message


def test_an_unknown_name_suggests_ours_first(data_dir):
    message = message_of(errors.DatasetNotFoundError, "digitz", data_dir=data_dir)
    assert "Did you mean 'digits'?" in message
    assert str(data_dir) in message
    assert "my-datasets list" in message


def test_an_unknown_name_near_a_public_one_suggests_that(data_dir):
    message = message_of(errors.DatasetNotFoundError, "mnisst", data_dir=data_dir)
    assert "'mnist'" in message


def test_a_name_like_no_other_suggests_nothing(data_dir):
    message = message_of(errors.DatasetNotFoundError, "qqqqqqqq", data_dir=data_dir)
    assert "Did you mean" not in message


def test_a_malformed_reference_is_refused_before_anything_is_searched():
    assert "'digits:1.*.*'" in message_of(errors.InvalidReferenceError, "digits:1.x")


def test_an_unknown_version_lists_those_that_exist(data_dir):
    message = message_of(errors.VersionNotFoundError, "digits:9.9.9", data_dir=data_dir)
    assert "Versions in code: 1.0.0" in message
    assert f"Versions prepared in {data_dir}: 1.0.0" in message


def test_data_without_code_lists_its_versions(data_dir, tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/2.0.0").symlink_to(data_dir / "digits/1.0.0")
    message = message_of(errors.VersionNotFoundError, "theirs:3.0.0", data_dir=tmp_path)
    assert "Prepared versions of 'theirs' there: 2.0.0" in message


def test_an_unknown_config_lists_those_that_exist(tmp_path, monkeypatch):
    message = message_of(errors.ConfigNotFoundError, "toy_numbers/full", data_dir=tmp_path)
    assert "Its configs: none" in message


def test_an_unknown_version_of_a_tfds_builder_lists_those_that_exist(tmp_path):
    message = message_of(errors.VersionNotFoundError, "mnist:9.9.9", data_dir=tmp_path)
    assert "only: 3." in message


def test_missing_data_names_the_roots_and_the_command(tmp_path):
    missing = tmp_path / "no/such/dir"
    message = message_of(
        errors.NotPreparedError, "digits", data_dir=missing, download=False, split="train"
    )
    assert f"{missing} (that directory does not exist)" in message
    assert f"my-datasets build digits:1.0.0 --data-dir {missing}" in message
    assert "Versions prepared there: none" in message


def test_building_takes_the_code_also_where_data_is_prepared(tmp_path):
    my_datasets.load("toy_numbers", data_dir=tmp_path)
    found = find_builder("toy_numbers:1.*.*", data_dir=tmp_path)
    (built,) = builders_from_code("toy_numbers:1.*.*", data_dir=tmp_path)
    assert not isinstance(found, toy.ToyNumbers)
    assert isinstance(built, toy.ToyNumbers)


def test_overwriting_by_reference_keeps_the_old_data_until_the_new_is_whole(tmp_path, monkeypatch):
    my_datasets.load("toy_numbers", data_dir=tmp_path)

    def fail(value: int) -> None:
        raise RuntimeError("in the middle")

    monkeypatch.setattr(toy.ToyNumbers, "on_example", staticmethod(fail))
    config = tfds.download.DownloadConfig(
        download_mode=tfds.download.GenerateMode.REUSE_CACHE_IF_EXISTS
    )
    with pytest.raises(RuntimeError, match="in the middle"):
        my_datasets.load(
            "toy_numbers:1.*.*",
            data_dir=tmp_path,
            download_and_prepare_kwargs={"download_config": config},
        )
    assert len(my_datasets.load("toy_numbers:1.*.*", split="train", data_dir=tmp_path)) == 3


def test_building_what_has_data_but_no_code_says_so(data_dir, tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/2.0.0").symlink_to(data_dir / "digits/1.0.0")
    with pytest.raises(errors.DatasetNotFoundError, match=r"(?s)No builder of 'theirs'.*--imports"):
        builders_from_code("theirs:2.0.0", data_dir=tmp_path)


def test_an_unknown_split_lists_those_that_exist(data_dir):
    message = message_of(errors.SplitNotFoundError, "digits", split="nope", data_dir=data_dir)
    assert "train, test" in message
