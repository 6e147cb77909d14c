from pathlib import Path

from my_datasets import resources


def test_files_of_digits_are_found():
    assert resources.checksums_path("digits").is_file()
    assert resources.dummy_data_dir("digits").is_dir()


def test_a_wheel_holds_them_inside_the_package(tmp_path, monkeypatch):
    (tmp_path / "my_datasets" / "checksums").mkdir(parents=True)
    monkeypatch.setattr(resources, "PACKAGE_DIR", tmp_path / "my_datasets")
    assert resources.checksums_path("x") == tmp_path / "my_datasets/checksums/x.tsv"
    assert resources.dummy_data_dir("x") == tmp_path / "dummy_data/x"


def test_only_files_below_datasets_are_packaged(root):
    assert resources.is_packaged(root / "my_datasets/datasets/digits/digits_dataset_builder.py")
    assert not resources.is_packaged(Path(__file__))
