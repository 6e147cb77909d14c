"""Scaffolds a whole dataset: inspects raw data, writes a builder and tries it on its dummy data."""

import contextlib
import importlib
import json
import os
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import tensorflow_datasets as tfds
from tensorflow_datasets.core import registered

from my_datasets.builders.download_manager import url_info
from my_datasets.building.units import InvalidValue
from my_datasets.checking.behavior_check import DummyDownloadManager
from my_datasets.checking.builder_files import CheckTarget
from my_datasets.dependencies import EXTRAS
from my_datasets.downloads import FetchedFile, fetch
from my_datasets.errors import BuilderError, SourceError
from my_datasets.scaffolding import code
from my_datasets.scaffolding import dummy_data as dummies
from my_datasets.scaffolding.code import SplitCode
from my_datasets.scaffolding.inspection import Inspection, inspect
from my_datasets.sources.source import Source

_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class DatasetPaths:
    """The locations of a dataset's files."""

    root: Path
    package: str  # with the datasets, such as `ours.datasets`
    folder: Path
    checksums: Path
    dummy_data: Path
    test: Path


def dataset_paths(name: str, project: Path) -> DatasetPaths:
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
    is_this_package = (root / "my_datasets/datasets").is_dir()
    package = "my_datasets" if is_this_package else _identifier(root.name)
    folder = root / package / "datasets" / name
    found = DatasetPaths(
        root,
        f"{package}.datasets",
        folder,
        checksums=root / f"checksums/{name}.tsv" if is_this_package else folder / "checksums.tsv",
        dummy_data=root / "dummy_data" / name if is_this_package else folder / "dummy_data",
        test=root / ("tests/datasets" if is_this_package else "tests") / f"test_{name}.py",
    )
    for path in (found.folder, found.checksums, found.dummy_data, found.test):
        if path.exists():
            raise BuilderError(
                f"{path} already exists.", fix="choose another name, or move it away"
            )
    return found


def new_package(at: DatasetPaths) -> Mapping[Path, str]:
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


# Initial and maximum number of rows of dummy data; it doubles until no split is empty.
_ROWS, _MOST_ROWS = 12, 400
_TAGS = {
    "image_folder": "content.data-type.image # Contains image data.",
    "audio_folder": "content.data-type.audio # Contains audio data.",
    "video_folder": "content.data-type.video # Contains video data.",
    "text_lines": "content.data-type.text # Contains text data.",
}
_TABLE_TAG = "content.data-type.tabular # Contains tabular data."


@dataclass(frozen=True)
class ScaffoldedDataset:
    """A dataset that was written."""

    name: str
    files: list[Path]  # without the dummy data
    folder: Path
    test: Path
    dummy_data: Path
    splits: Mapping[str, int]  # the number of dummy examples
    personal: list[str]  # the columns that look personal and are scrambled
    build: str  # the command


def inspect_raw_data(
    where: str,
    scratch: Path,
    **options: str | None,
) -> tuple[Inspection, str, FetchedFile | None]:
    """Inspects raw data, after downloading it if it is at a URL, and returns its local path too.

    `where` is a path, a pattern, an archive, or the HTTP URL of a file; the options are those of
    `inspect`.

    Raises:
      SourceError: There is nothing to read.
    """
    scheme, is_url, _ = where.partition("://")
    if is_url and scheme not in ("http", "https"):
        raise SourceError(
            f"Scaffolding does not support {scheme}:// URLs.",
            "Expected a local path or an HTTP URL, which dummy data can replace",
            fix="copy a sample here; the builder can read all of it with my_datasets.sources",
        )
    path, separator, inside = where.partition("::")
    fetched = fetch(path, scratch) if is_url else None
    if fetched is not None:
        path = str(fetched.path.rename(fetched.path.with_name(fetched.file_name)))
    else:
        path = os.path.realpath(Path(path).expanduser())
    local = f"{path}{separator}{inside}"
    return inspect(local, **options), local, fetched


def scaffold(
    name: str,
    where: str,
    local: str,
    found: Inspection,
    *,
    into: Path,
    split: SplitCode,
    fetched: FetchedFile | None = None,
) -> ScaffoldedDataset:
    """Writes a dataset, completely or not at all.

    `where` is the location of the raw data as the user gave it, `local` its local path, and
    `fetched` the download if it is a URL.

    Raises:
      BuilderError: The name is invalid, or the dataset already exists.
      SourceError: Dummy data cannot be derived from the raw data, or the data cannot be split this
        way.
    """
    at = dataset_paths(name, into)
    url = where.partition("::")[0] if fetched is not None else None
    file_name = dummies.stem(local)
    outside, _, inside = local.partition("::")
    is_database = found.kind == "sql"  # a single file, even if its path looks like a pattern
    if url is None and not is_database and dummies.is_pattern(str(Path(outside).parent)):
        raise SourceError(
            f"{outside} is a pattern of directories.",
            fix="pass their parent directory, or a pattern of files in one of them",
        )
    module = f"{at.package}.{name}.{name}_dataset_builder"
    source = code.builder(name, found, split, url=url, file_name=file_name, inside=inside)
    with tempfile.TemporaryDirectory() as scratch:
        splits = _tried(name, source, local, found, Path(scratch), fetched)
        texts = {
            at.folder / "__init__.py": f'"""The `{name}` dataset."""\n',
            at.folder / f"{name}_dataset_builder.py": source,
            at.folder / "README.md": _readme(name, found),
            at.folder / "CITATIONS.bib": f"@misc{{{name},\n  title = {{{name}}},\n}}\n",
            at.folder / "TAGS.txt": _TAGS.get(found.kind, _TABLE_TAG) + "\n",
            at.test: code.test(name, module, splits, file_name if url else None),
        }
        if fetched is not None:
            line = f"{url}\t{fetched.size}\t{fetched.sha256}\t{fetched.file_name}\n"
            texts[at.checksums] = line
        missing = {path: text for path, text in new_package(at).items() if not path.exists()}
        texts |= missing
        try:
            for path, text in texts.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, "utf-8")
            shutil.copytree(Path(scratch) / "dummy_data", at.dummy_data)
        except BaseException:
            for path in texts:  # none of them existed before
                path.unlink(missing_ok=True)
            for folder in (at.folder, at.dummy_data):
                shutil.rmtree(folder, ignore_errors=True)
            raise
    _append(at.root / "CHANGELOG.md", f"* The dataset `{name}` 1.0.0.")
    package = at.package.partition(".")[0]
    imports = "" if package == "my_datasets" else f" --imports {package}"
    manual = "" if url else f" --manual-dir {Path(local.partition('::')[0]).parent}"
    return ScaffoldedDataset(
        name=name,
        files=list(texts),
        folder=at.folder,
        test=at.test,
        dummy_data=at.dummy_data,
        splits=splits,
        personal=[column.name for column in found.columns if column.personal],
        build=f"my-datasets build {name}{imports}{manual}",
    )


def _tried(
    name: str,
    source: str,
    local: str,
    found: Inspection,
    scratch: Path,
    download: FetchedFile | None,
) -> dict[str, int]:
    """Writes dummy data, with more rows until no split is empty; returns the splits' sizes."""
    # TFDS requires a package, whose name must be unique.
    package = f"scaffold_{secrets.token_hex(8)}"
    folder = scratch / package / name
    folder.mkdir(parents=True)
    path = folder / f"{name}_dataset_builder.py"
    path.write_text(source, "utf-8")
    for init in (folder.parent, folder):
        (init / "__init__.py").touch()
    (folder / "README.md").write_text(f"# {name}\n", "utf-8")
    module = f"{package}.{name}.{path.stem}"
    dummy = scratch / "dummy_data"
    target = CheckTarget(name, path, scratch, module, folder / "checksums.tsv", dummy)
    records = {download.url: url_info(download)} if download is not None else {}
    rows = _ROWS
    with _imported(scratch, module) as builder_class:
        builder = builder_class(data_dir=scratch / "data")
        while True:
            shutil.rmtree(dummy, ignore_errors=True)
            dummies.write(local, found, rows, dummy)
            manager = DummyDownloadManager(target, records, [])
            parts = builder._split_generators(manager)
            sizes = {split: _size(part) for split, part in parts.items()}
            rows *= 2
            if all(sizes.values()):
                return sizes
            if rows > _MOST_ROWS:
                empty = ", ".join(split for split, size in sizes.items() if not size)
                raise SourceError(
                    f"A split is empty, even with {rows // 2} rows of dummy data: {empty}",
                    fix="choose other splits",
                )


def _size(part: Source) -> int:
    """Returns the number of rows in a split, after checking that each can be read."""
    count = 0
    for key, batch in part:
        if isinstance(batch, InvalidValue):
            raise batch.as_error("dummy data", "0", count, key)
        count += batch.num_rows
    return count


@contextlib.contextmanager
def _imported(root: Path, module: str) -> Iterator[type[tfds.core.GeneratorBasedBuilder]]:
    """Yields the class of a builder below a directory; unloads its modules afterwards."""
    sys.path.insert(0, str(root))
    try:
        with registered.skip_registration():
            yield importlib.import_module(module).Builder
    finally:
        sys.path.remove(str(root))
        top = module.partition(".")[0]
        for name in [name for name in sys.modules if name.partition(".")[0] == top]:
            del sys.modules[name]


def _readme(name: str, found: Inspection) -> str:
    rows = "".join(f"| `{column.feature}` | {column.doc} |\n" for column in found.columns)
    return f"""# {name}

To be described: what the data are, in a line.

Where they come from, who made them, how, and what for.

## Features

| feature | what |
|---|---|
{rows}
## Licence

To be stated.
"""


def _append(changelog: Path, line: str) -> None:
    if changelog.is_file():
        text = changelog.read_text("utf-8").rstrip("\n")
        changelog.write_text(f"{text}\n\n{line}\n", "utf-8")
