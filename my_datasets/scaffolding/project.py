"""The location of a new dataset: this package, or a user's own package with the same layout."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from my_datasets.dependencies import EXTRAS
from my_datasets.errors import BuilderError

_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Places:
    """The locations of a dataset's files."""

    root: Path
    package: str  # with the datasets, such as `ours.datasets`
    folder: Path
    checksums: Path
    dummy_data: Path
    test: Path


def places(name: str, project: Path) -> Places:
    """Returns the locations of a dataset's files.

    Raises:
      BuilderError: The name is invalid, or the dataset already exists.
    """
    if not _NAME.fullmatch(name):
        raise BuilderError(
            f"{name!r} cannot be the name of a dataset.",
            "Expected lowercase letters, digits and underscores, starting with a letter",
            fix="choose another name, such as " + (_identifier(name) or "my_dataset"),
        )
    root = Path(os.path.realpath(project))
    if (root / "my_datasets/datasets").is_dir():  # the project is this package
        folder = root / "my_datasets/datasets" / name
        found = Places(
            root, "my_datasets.datasets", folder, root / f"checksums/{name}.tsv",
            root / "dummy_data" / name, root / f"tests/datasets/test_{name}.py",
        )  # fmt: skip
    else:
        package = _identifier(root.name)
        folder = root / package / "datasets" / name
        found = Places(
            root, f"{package}.datasets", folder, folder / "checksums.tsv",
            folder / "dummy_data", root / f"tests/test_{name}.py",
        )  # fmt: skip
    for path in (found.folder, found.checksums, found.dummy_data, found.test):
        if path.exists():
            raise BuilderError(
                f"{path} already exists.", fix="choose another name, or move it away"
            )
    return found


def new_package(at: Places) -> Mapping[Path, str]:
    """Returns the files that a package other than this one needs besides the dataset, by path."""
    package = at.package.partition(".")[0]
    if package == "my_datasets":
        return {}
    return {
        at.root / "setup.py": f'''"""The distribution `{package}`: datasets."""

from setuptools import find_packages, setup

setup(
    name="{package}",
    version="0.1.0",
    packages=find_packages(include=["{package}", "{package}.*"]),
    package_data={{"": ["*.md", "*.bib", "*.txt", "*.tsv"]}},
    python_requires=">=3.11",
    install_requires=["my_datasets"],
    extras_require={{"test": {json.dumps(EXTRAS["test"])}}},
)
''',
        at.root / "README.md": f"""# {package}

Datasets, made with `my_datasets`. `tfds.load` finds them after `import {package}`.

    pip install -e '.[test]'    # where `my_datasets` is installed
    pytest
    my-datasets check {package}/datasets/NAME
    my-datasets build NAME --imports {package}
""",
        at.root / "CHANGELOG.md": "# Changes\n\n## 0.1.0 (unreleased)\n",
        at.root
        / package
        / "__init__.py": f'''"""Datasets; importing this package registers them with TFDS."""

import my_datasets

my_datasets.register("{at.package}")
''',
        at.root / package / "datasets/__init__.py": '"""The datasets."""\n',
    }


def _identifier(text: str) -> str:
    return re.sub(r"\W+", "_", text.lower()).strip("_").lstrip("0123456789_")
