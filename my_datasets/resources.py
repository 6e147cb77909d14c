"""Paths of the files that ship with the code: `checksums/` and `dummy_data/`.

In a wheel they are packages inside this one (`my_datasets/checksums`, `my_datasets/dummy_data`); in
an editable install or a plain checkout they are top-level folders of the repository.
"""

from pathlib import Path

PACKAGE_DIR = Path(__file__).resolve().parent
DATASETS_DIR = PACKAGE_DIR / "datasets"


def _folder(name: str) -> Path:
    inside = PACKAGE_DIR / name
    return inside if inside.is_dir() else PACKAGE_DIR.parent / name


def checksums_path(dataset: str) -> Path:
    """Returns the path of `checksums/<dataset>.tsv`, which may not exist yet."""
    return _folder("checksums") / f"{dataset}.tsv"


def dummy_data_dir(dataset: str) -> Path:
    """Returns the path of `dummy_data/<dataset>/`, which may not exist yet."""
    return _folder("dummy_data") / dataset


def is_packaged(source_file: Path) -> bool:
    """Returns whether a builder's source file belongs to one of this package's own datasets."""
    return DATASETS_DIR in source_file.resolve().parents
