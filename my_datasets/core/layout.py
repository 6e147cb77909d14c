"""TFDS's directory layout `<data_dir>/<name>[/<config>]/<version>/`, read without TFDS."""

import os
import re
import urllib.parse
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from my_datasets.core.json_files import MalformedJsonError, read_json
from my_datasets.core.logs import get_logger
from my_datasets.core.versioning import Version
from my_datasets.errors import InvalidOptionError, explain

# The two files without which TFDS (>= 4) does not take a directory for a prepared version.
METADATA_FILES = ("dataset_info.json", "features.json")
# Its note in the directory of a dataset, of the config that is meant if none is named.
DEFAULT_CONFIG = ".config/metadata.json"
# Object stores in which TFDS reads and writes data.
BY_TENSORFLOW = ("gs",)
# NUL, and bytes that are no UTF-8 as `os.fsdecode` shows them.
_IMPOSSIBLE = re.compile("[\0\ud800-\udfff]")
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")

_LOGGER = get_logger(__name__)
# Versions of which this process has warned.
_warned: set[Path] = set()


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


def scheme_of(path: str | os.PathLike[str]) -> str | None:
    """Returns the scheme of an address, such as `s3`; None for a path.

    `pathlib.Path("s3://bucket")` is `s3:/bucket`, and was meant as an address all the same.
    """
    found = _ADDRESS.match(os.fspath(path))
    return found[1].lower() if found else None


def local_path(
    path: str | os.PathLike[str], what: str, mend: str = "name a path on this machine"
) -> Path:
    """Returns the path on this machine that a path or a `file:///` address means.

    All that only works on this machine goes through here: as a path, `s3://bucket` would be a
    folder called `s3:` in the working directory.

    Args:
      path: A path, in which `~` is expanded; or an address.
      what: What it is, for the error, such as "The data directory".
      mend: What to do in place of naming an address.

    Raises:
      InvalidOptionError: It is an address elsewhere, or no name that a file can have.
    """
    text = _possible(path, what)
    if scheme_of(text) is None:
        return Path(text).expanduser()
    if text.lower().startswith("file:///"):
        return Path(urllib.parse.unquote(text[len("file://") :]))
    raise InvalidOptionError(
        explain(
            f"{what} {text} is an address; it must be on this machine.",
            "Expected: a path, or file:///PATH",
            mend=mend,
        )
    )


def path_or_address(
    path: str | os.PathLike[str],
    what: str,
    schemes: Collection[str] | None = BY_TENSORFLOW,
) -> str:
    """Returns a path on this machine, or an address of one of some kinds, as text.

    Args:
      path: A path or an address; of `file:///PATH` the path is returned.
      what: What it is, for the error.
      schemes: The kinds of addresses, such as `gs`; None for all.

    Raises:
      InvalidOptionError: It is another kind of address, an address that is none, or no name that
        a file can have.
    """
    text, scheme = _possible(path, what), scheme_of(path)
    if scheme is None or text.lower().startswith("file:///"):
        return os.fspath(local_path(text, what)) if scheme else text
    if "://" not in text:
        raise InvalidOptionError(
            explain(
                f"{what} {text} is neither a path nor an address.",
                "pathlib.Path takes a slash out of an address.",
                mend=f"give it as a str: {text.replace(':/', '://', 1)}",
            )
        )
    if schemes is not None and scheme not in schemes:
        known = "".join(f", {one}://..." for one in schemes)
        raise InvalidOptionError(
            explain(
                f"{what} {text} is an address of a kind that is not supported here.",
                f"Expected: a path{known}",
                mend="name one of these",
            )
        )
    return text


def _possible(path: str | os.PathLike[str], what: str) -> str:
    """Returns a path as text if a file can have that name, on this machine and for TensorFlow."""
    text = os.fspath(path)
    if text and not _IMPOSSIBLE.search(text):
        return text
    raise InvalidOptionError(
        explain(
            f"{what} {text!r} is no name that a file can have.",
            "Expected: a text that is not empty, without NUL, in UTF-8",
            mend="give another name",
        )
    )


def is_remote(directory: str | os.PathLike[str]) -> bool:
    """Returns whether a directory is a URL such as `gs://bucket/data`, not a local path."""
    return "://" in os.fspath(directory) and scheme_of(directory) != "file"


def as_path(directory: str | os.PathLike[str]) -> Path:
    """Returns a path to read a local or remote directory by; `~` is expanded."""
    if is_remote(path_or_address(directory, "The directory", ("gs", "s3"))):
        from etils import epath  # only here: it is not needed, and not free, for local paths

        return cast(Path, epath.Path(directory))
    return local_path(directory, "The directory")


def is_prepared(version_dir: Path) -> bool:
    """Returns whether a directory has the metadata of a whole prepared version.

    False as well if this user may not look into it: see `why_unreadable`.
    """
    try:
        return all((version_dir / file).is_file() for file in METADATA_FILES)
    except PermissionError:
        return False


def why_unreadable(version_dir: Path) -> str | None:
    """Returns why this user cannot read a version's metadata; None if nothing prevents it."""
    if is_remote(version_dir):
        return None
    # By opening them: what `access` says does not hold for every file system and user.
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

    Half-made directories (TFDS names them `incomplete.*`) and anything else that is not a
    prepared version are passed over. So are versions that this user cannot read, with a warning
    that names them. Nothing is yielded if `data_dir` does not exist.
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


def unreadable_in(dataset_dir: Path) -> list[str]:
    """Returns why this user cannot read what is in a dataset's directory; empty if nothing is."""
    if is_remote(dataset_dir) or not dataset_dir.is_dir():
        return []
    folders = [dataset_dir, *_subdirectories(dataset_dir)]
    inner = [path for one in folders[1:] for path in _subdirectories(one)]
    reasons = [why_unreadable(path) for path in (*folders, *inner)]
    return list(dict.fromkeys(reason for reason in reasons if reason is not None))


def versions_in(directory: Path) -> Iterator[PreparedVersion]:
    """Yields the prepared versions in the directory of a dataset, or of one of its configs."""
    yield from _versions_in(directory, directory.name, None)


def default_config(dataset_dir: Path) -> str | None:
    """Returns the config that is meant if none is named; TFDS notes it beside the configs."""
    try:
        name = read_json(dataset_dir / DEFAULT_CONFIG)["default_config_name"]
    except (OSError, MalformedJsonError, KeyError, TypeError):
        return None  # as if there were none: whoever names the config finds it
    return str(name) if name else None


def _versions_in(parent: Path, name: str, config: str | None) -> Iterator[PreparedVersion]:
    found = ((Version.parse(path.name), path) for path in _subdirectories(parent))
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
        return []  # others' directories, such as lost+found, hold nothing that we could read
