"""TFDS's directory layout `<data_dir>/<name>[/<config>]/<version>/`, read without TFDS."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from my_datasets.core.versioning import Version

# The two files without which TFDS (>= 4) does not take a directory for a prepared version.
METADATA_FILES = ("dataset_info.json", "features.json")
# Its note in the directory of a dataset, of the config that is meant if none is named.
DEFAULT_CONFIG = ".config/metadata.json"


@dataclass(frozen=True)
class PreparedVersion:
    """One prepared version on disk.

    Attributes:
      name: The dataset's name.
      config: The builder config's name, or None.
      version: The version.
      path: The directory that holds its shards and metadata.
    """

    name: str
    config: str | None
    version: Version
    path: Path


def is_remote(directory: str | os.PathLike[str]) -> bool:
    """Returns whether a directory is a URL such as `gs://bucket/data`, not a local path."""
    return "://" in os.fspath(directory)


def as_path(directory: str | os.PathLike[str]) -> Path:
    """Returns a path to read a local or remote directory by; `~` is expanded."""
    if is_remote(directory):
        from etils import epath  # only here: it is not needed, and not free, for local paths

        return cast(Path, epath.Path(directory))
    return Path(directory).expanduser()


def is_prepared(version_dir: Path) -> bool:
    """Returns whether a directory has the metadata of a whole prepared version."""
    return all((version_dir / file).is_file() for file in METADATA_FILES)


def prepared_versions(data_dir: Path) -> Iterator[PreparedVersion]:
    """Yields every prepared version under a data directory, by name, config and version.

    Half-made directories (TFDS names them `incomplete.*`) and anything else that is not a
    prepared version are passed over. Nothing is yielded if `data_dir` does not exist.
    """
    for dataset_dir in _subdirectories(data_dir):
        yield from prepared_versions_of(dataset_dir)


def prepared_versions_of(dataset_dir: Path) -> Iterator[PreparedVersion]:
    """Yields the prepared versions under `<data_dir>/<name>`, all configs, lowest first."""
    name = dataset_dir.name
    yield from _versions_in(dataset_dir, name, None)
    for config_dir in _subdirectories(dataset_dir):
        if Version.parse(config_dir.name) is None:
            yield from _versions_in(config_dir, name, config_dir.name)


def versions_in(directory: Path) -> Iterator[PreparedVersion]:
    """Yields the prepared versions in the directory of a dataset, or of one of its configs."""
    yield from _versions_in(directory, directory.name, None)


def default_config(dataset_dir: Path) -> str | None:
    """Returns the config that is meant if none is named; TFDS notes it beside the configs."""
    try:
        text = (dataset_dir / DEFAULT_CONFIG).read_text("utf-8")
    except FileNotFoundError:
        return None
    name = json.loads(text).get("default_config_name")
    return str(name) if name else None


def _versions_in(parent: Path, name: str, config: str | None) -> Iterator[PreparedVersion]:
    found = ((Version.parse(path.name), path) for path in _subdirectories(parent))
    for version, path in sorted((v, p) for v, p in found if v is not None):
        if is_prepared(path):
            yield PreparedVersion(name, config, version, path)


def _subdirectories(directory: Path) -> list[Path]:
    try:
        return sorted(
            path
            for path in directory.iterdir()
            if not path.name.startswith((".", "incomplete.")) and path.is_dir()
        )
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []  # others' directories, such as lost+found, hold nothing that we could read
