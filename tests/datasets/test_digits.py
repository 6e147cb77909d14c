import gzip
import importlib.metadata
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow_datasets as tfds

import my_datasets
from my_datasets import errors, resources
from my_datasets.builders import base, download_manager
from my_datasets.datasets.digits import digits_dataset_builder


class DigitsTest(my_datasets.testing.BuilderTestCase):
    DATASET_CLASS = digits_dataset_builder.Builder
    SPLITS = {"train": 16, "test": 4}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    data_dir = tmp_path_factory.mktemp("data")
    digits_dataset_builder.Builder(data_dir=data_dir).download_and_prepare()
    return data_dir / "digits/1.0.0"


def rows(prepared: Path, split: str) -> list[bytes]:
    """The examples that TFDS alone reads, each as its 65 numbers, sorted."""
    dataset = tfds.builder_from_directory(prepared).as_dataset(split=split, as_supervised=True)
    return sorted(image.tobytes() + bytes([label]) for image, label in dataset.as_numpy_iterator())


def test_it_holds_what_scikit_learn_loads_split_as_documented(prepared):
    from sklearn.datasets import load_digits  # takes long, and not all workers need it

    source = load_digits()
    expected = [
        image.astype(np.uint8).tobytes() + bytes([label])
        for image, label in zip(source.images, source.target, strict=True)
    ]
    test = expected[4::5]
    assert len(test) == 359
    assert rows(prepared, "test") == sorted(test)
    train = [row for number, row in enumerate(expected) if number % 5 != 4]
    assert rows(prepared, "train") == sorted(train)


def test_its_metadata_is_complete(prepared):
    info = tfds.builder_from_directory(prepared).info
    assert info.supervised_keys == ("image", "label")
    assert info.features["image"].shape == (8, 8, 1)
    assert info.features["label"].num_classes == 10
    assert info.redistribution_info.license == "CC BY 4.0"
    assert "1,797 real images" in info.description
    assert "Alpaydin" in info.citation
    assert "1.0.0" in info.release_notes


def test_a_changed_source_file_is_an_error_and_builds_nothing(tmp_path, monkeypatch):
    source = Path(digits_dataset_builder.__file__)
    copy = shutil.copytree(source.parent, tmp_path / "digits")
    (copy / "digits.csv.gz").write_bytes(gzip.compress(b"0," * 64 + b"0\n"))
    monkeypatch.setattr(base, "source_file", lambda cls: copy / source.name)
    monkeypatch.setattr(resources, "is_packaged", lambda source: True)
    builder = digits_dataset_builder.Builder(data_dir=tmp_path / "data")
    with pytest.raises(errors.ChecksumError, match=r"Expected by .*digits.tsv: 57523 bytes"):
        builder.download_and_prepare()
    assert not (tmp_path / "data/digits/1.0.0").exists()


def test_an_unrecorded_source_file_is_an_error(tmp_path):
    builder = digits_dataset_builder.Builder(data_dir=tmp_path)
    with pytest.raises(errors.SourceError, match="without a recorded checksum"):
        builder.embedded_file("iris.csv")


def test_a_missing_source_file_is_an_error(tmp_path):
    with pytest.raises(errors.SourceError, match="is missing"):
        download_manager.verify_embedded(
            tmp_path / "none", size=1, sha256="0" * 64, recorded_in="x.tsv"
        )


def test_the_source_file_is_scikit_learns_own():
    theirs = importlib.metadata.distribution("scikit-learn").locate_file(
        "sklearn/datasets/data/digits.csv.gz"
    )
    ours = Path(digits_dataset_builder.__file__).parent / "digits.csv.gz"
    assert ours.read_bytes() == Path(str(theirs)).read_bytes()
