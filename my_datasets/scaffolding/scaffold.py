"""Scaffolds a whole dataset: inspects raw data, writes a builder and tries it on its dummy data."""

import contextlib
import importlib
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import tensorflow_datasets as tfds
from tensorflow_datasets.core import registered

from my_datasets.builders.download_cache import url_info
from my_datasets.building.units import InvalidValue
from my_datasets.checking.dummy_downloads import DummyDownloadManager
from my_datasets.checking.target import CheckTarget
from my_datasets.downloads import FetchedFile, fetch
from my_datasets.errors import SourceError
from my_datasets.scaffolding import code, project
from my_datasets.scaffolding import dummy_data as dummies
from my_datasets.scaffolding.code import SplitCode
from my_datasets.scaffolding.inspection import Inspection, inspect
from my_datasets.sources.source import Source

# Initial and maximum number of rows of dummy data; it doubles until no split is empty.
_ROWS, _MOST_ROWS = 12, 400
_TAGS = {
    "image_folder": "content.data-type.image # Contains image data.",
    "audio_folder": "content.data-type.audio # Contains audio data.",
    "video_folder": "content.data-type.video # Contains video data.",
    "text_lines": "content.data-type.text # Contains text data.",
}
_TABLE = "content.data-type.tabular # Contains tabular data."


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
    *,
    kind: str | None = None,
    label: str | None = None,
    split: str | None = None,
    key: str | None = None,
    table: str | None = None,
) -> tuple[Inspection, str, FetchedFile | None]:
    """Inspects raw data, after downloading it if it is at a URL, and returns its local path too.

    `where` is a path, a pattern, an archive, or the HTTP URL of a file; the options are those of
    `inspect`.

    Raises:
      SourceError: There is nothing to read.
    """
    options: dict[str, str | None] = {
        "kind": kind, "label": label, "split": split, "key": key, "table": table
    }  # fmt: skip
    scheme, is_url, _ = where.partition("://")
    if is_url and scheme not in ("http", "https"):
        raise SourceError(
            f"Scaffolding does not support {scheme}:// URLs.",
            "Expected a local path or an HTTP URL, which dummy data can replace",
            fix="copy a sample here; the builder can read all of it with my_datasets.sources",
        )
    if not is_url:
        path, separator, inside = where.partition("::")
        local = f"{os.path.realpath(Path(path).expanduser())}{separator}{inside}"
        return inspect(local, **options), local, None
    address, separator, inside = where.partition("::")
    fetched = fetch(address, scratch)
    named = fetched.path.with_name(fetched.file_name)
    fetched.path.rename(named)
    local = f"{named}{separator}{inside}"
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

    Args:
      name: The name of the new dataset.
      where: The location of the raw data, as given by the user.
      local: The local path of the raw data.
      found: The inspected raw data.
      into: The project's directory.
      split: How the rows are split.
      fetched: The download, if `where` is a URL.

    Raises:
      BuilderError: The name is invalid, or the dataset already exists.
      SourceError: Dummy data cannot be derived from the raw data, or the data cannot be split this
        way.
    """
    at = project.places(name, into)
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
            at.folder / "TAGS.txt": _TAGS.get(found.kind, _TABLE) + "\n",
            at.test: code.test(name, module, splits, file_name if url else None),
        }
        if fetched is not None:
            line = f"{url}\t{fetched.size}\t{fetched.sha256}\t{fetched.file_name}\n"
            texts[at.checksums] = line
        missing = {
            path: text for path, text in project.new_package(at).items() if not path.exists()
        }
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
    subject = CheckTarget(name, path, scratch, module, folder / "checksums.tsv", dummy)
    records = {download.url: url_info(download)} if download is not None else {}
    rows = _ROWS
    with _imported(scratch, module) as builder_class:
        builder = builder_class(data_dir=scratch / "data")
        while True:
            shutil.rmtree(dummy, ignore_errors=True)
            dummies.write(local, found, rows, dummy)
            manager = DummyDownloadManager(subject, records, [])
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
