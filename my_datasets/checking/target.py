"""The target of a check: a builder, identified by its files."""

import difflib
import os
from dataclasses import dataclass
from pathlib import Path

from my_datasets import resources
from my_datasets.core.issue import Issue
from my_datasets.errors import DatasetNotFoundError
from my_datasets.resolving.registry import packaged

SUFFIX = "_dataset_builder.py"


@dataclass(frozen=True)
class CheckTarget:
    """A builder's files.

    Attributes:
      name: The dataset's name.
      source: The builder's module.
      root: The directory from which the module is imported.
      module: The module's dotted name relative to `root`.
      checksums: The file with the checksums of its downloads, which may not exist.
      dummy_data: The directory of its dummy data, which may not exist.
    """

    name: str
    source: Path
    root: Path
    module: str
    checksums: Path
    dummy_data: Path

    @property
    def folder(self) -> Path:
        """The directory of the module, with its README, citation and tags."""
        return self.source.parent


def find(name_or_path: str) -> "CheckTarget | Issue":
    """Returns the builder to check, or an issue if its files are not where TFDS expects them.

    Args:
      name_or_path: A dataset of this package, a builder's folder, or its module.

    Raises:
      DatasetNotFoundError: There is neither such a dataset nor such a path.
    """
    path = Path(name_or_path)
    if name_or_path in packaged.datasets:
        dataset = packaged.datasets[name_or_path]
        source = dataset.source_file
        root = source.parents[len(dataset.module.split(".")) - 1]
        return CheckTarget(
            dataset.name,
            source,
            root,
            dataset.module,
            resources.checksums_path(dataset.name),
            resources.dummy_data_dir(dataset.name),
        )
    if path.is_file():
        return _subject(Path(os.path.realpath(path)))
    if path.is_dir():
        return _in_folder(Path(os.path.realpath(path)))
    near = difflib.get_close_matches(name_or_path, packaged.datasets, n=1)
    raise DatasetNotFoundError(
        f"No dataset or path is called {name_or_path!r}.",
        f"Did you mean {near[0]!r}?" if near else "",
        f"Datasets of this package: {', '.join(packaged.datasets)}",
        fix="pass one of those, or the folder of a builder",
    )


def _in_folder(folder: Path) -> "CheckTarget | Issue":
    wanted = folder / f"{folder.name}{SUFFIX}"
    if wanted.is_file():
        return _subject(wanted)
    others = sorted(path.name for path in folder.glob("*.py") if path.name != "__init__.py")
    return Issue(
        "module-name",
        str(folder),
        "The folder has no builder of the same name.",
        "name the module after the folder, which is how TFDS finds it",
        expected=wanted.name,
        found=", ".join(others) or "no Python module",
    )


def _subject(source: Path) -> "CheckTarget | Issue":
    if not source.name.endswith(SUFFIX):
        return Issue(
            "module-name",
            str(source),
            "The module does not have the name of a builder's module.",
            "rename it, and its folder, to <name>",
            expected=f"<name>{SUFFIX}",
            found=source.name,
        )
    # The outermost enclosing package; TFDS also accepts a folder without __init__.py.
    root, parts = source.parent.parent, [source.parent.name, source.stem]
    while (root / "__init__.py").is_file():
        root, parts = root.parent, [root.name, *parts]
    return CheckTarget(
        source.name.removesuffix(SUFFIX),
        source,
        root,
        ".".join(parts),
        source.parent / "checksums.tsv",
        source.parent / "dummy_data",
    )
