"""TFDS's directory layout `<data_dir>/<name>[/<config>]/<version>/`, read without TFDS."""

import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from my_datasets.core.logs import get_logger
from my_datasets.core.version import VersionNumber
from my_datasets.metadata import dataset_info, feature_classes
from my_datasets.metadata.version_metadata import VersionMetadata
from my_datasets.storage import addresses
from my_datasets.storage.json_files import MalformedJsonError, read_json

# The two files that TFDS (>= 4) requires in a directory of a prepared version.
METADATA_FILES = (dataset_info.FILE_NAME, feature_classes.FILE_NAME)
# The record of the release that was pulled or attached in a directory.
RELEASE_RECORD = "my_datasets_release.json"
# TFDS's file in a dataset's directory that names the default config.
DEFAULT_CONFIG = ".config/metadata.json"

_LOGGER = get_logger(__name__)
# Versions that this process has already warned about.
_warned: set[Path] = set()


@dataclass(frozen=True)
class PreparedVersion:
    """One prepared version on disk, in the directory `path`."""

    name: str
    config: str | None
    version: VersionNumber
    path: Path

    @functools.cached_property
    def metadata(self) -> VersionMetadata:
        """Its metadata, read at most once."""
        return VersionMetadata(self.path)


def is_prepared(version_dir: Path) -> bool:
    """Returns whether a directory has the metadata of a whole prepared version.

    Also False if this user may not read the directory: see `why_unreadable`.
    """
    try:
        return all((version_dir / file).is_file() for file in METADATA_FILES)
    except PermissionError:
        return False


def why_unreadable(version_dir: Path) -> str | None:
    """Returns why this user cannot read a version's metadata; None if nothing prevents it."""
    if addresses.is_remote(version_dir):
        return None
    # By opening them: `access` is not reliable for every file system and user.
    try:
        with os.scandir(version_dir):
            pass
        for path in (version_dir / name for name in METADATA_FILES):
            if path.is_file():
                path.open("rb").close()
    except PermissionError as error:
        return f"permission denied: {error.filename}"
    except OSError:
        return None  # there is no such directory
    return None


def prepared_versions(data_dir: Path) -> Iterator[PreparedVersion]:
    """Yields every prepared version under a data directory, by name, config and version.

    Incomplete directories (TFDS names them `incomplete.*`) and anything else that is not a prepared
    version are skipped. So are versions that this user cannot read, with a warning that names them.
    Nothing is yielded if `data_dir` does not exist.
    """
    for dataset_dir in _subdirectories(data_dir):
        yield from prepared_versions_of(dataset_dir)


def prepared_versions_of(dataset_dir: Path) -> Iterator[PreparedVersion]:
    """Yields the prepared versions under `<data_dir>/<name>`, all configs, lowest first."""
    name = dataset_dir.name
    yield from _versions_in(dataset_dir, name, None)
    for config_dir in _subdirectories(dataset_dir):
        if VersionNumber.parse(config_dir.name) is None:
            yield from _versions_in(config_dir, name, config_dir.name)


def unreadable_in(dataset_dir: Path) -> list[str]:
    """Returns why this user cannot read a dataset's versions; empty if all are readable."""
    if addresses.is_remote(dataset_dir) or not dataset_dir.is_dir():
        return []
    folders = [dataset_dir, *_subdirectories(dataset_dir)]
    inner = [path for one in folders[1:] for path in _subdirectories(one)]
    reasons = [why_unreadable(path) for path in (*folders, *inner)]
    return list(dict.fromkeys(reason for reason in reasons if reason is not None))


def versions_in(directory: Path) -> Iterator[PreparedVersion]:
    """Yields the prepared versions in the directory of a dataset, or of one of its configs."""
    yield from _versions_in(directory, directory.name, None)


def default_config(dataset_dir: Path) -> str | None:
    """Returns the default config, which TFDS records beside the configs."""
    try:
        name = read_json(dataset_dir / DEFAULT_CONFIG)["default_config_name"]
    except (OSError, MalformedJsonError, KeyError, TypeError):
        return None  # as if there were no default: the config can still be named
    return str(name) if name else None


def _versions_in(parent: Path, name: str, config: str | None) -> Iterator[PreparedVersion]:
    found = ((VersionNumber.parse(path.name), path) for path in _subdirectories(parent))
    for version, path in sorted((v, p) for v, p in found if v is not None):
        reason = why_unreadable(path)
        if reason is not None:
            if path not in _warned:
                _warned.add(path)
                _LOGGER.warning("Skipping %s, which cannot be read (%s).", path, reason)
        elif is_prepared(path):
            yield PreparedVersion(name, config, version, path)


def _subdirectories(directory: Path) -> list[Path]:
    try:
        return sorted(
            path
            for path in directory.iterdir()
            if not path.name.startswith((".", "incomplete.")) and path.is_dir()
        )
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []  # directories of other users, such as lost+found, have nothing that we could read
