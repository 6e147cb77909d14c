"""The record of a release: each of its files with size and SHA-256. It never changes."""

import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from my_datasets.core.reference import DatasetReference
from my_datasets.core.version import VersionNumber
from my_datasets.errors import CorruptReleaseError, PublishError, explain
from my_datasets.metadata import manifest, sidecars
from my_datasets.metadata.dataset_info import MALFORMED, is_plain_name
from my_datasets.metadata.layout import METADATA_FILES
from my_datasets.metadata.sidecars import Sidecar
from my_datasets.metadata.version_metadata import VersionMetadata
from my_datasets.printable import clipped, reason
from my_datasets.storage import json_files
from my_datasets.storage.json_files import parse_json
from my_datasets.storage.regular_files import open_regular, read_regular
from my_datasets.storage.store import BLOCK

FILE_NAME = "my_datasets_release.json"
# The signatures of a release that was pulled, beside its record.
SIGNATURES = "my_datasets_release_signatures.json"
# No record is larger: 100,000 files have 15 MB.
MOST_BYTES = 64 << 20
_FORMAT = 1
_HEX = re.compile("[0-9a-f]{64}")
_LONGEST_NAME = 255
_LARGEST_FILE = 1 << 50
# Without these there is no release; they say what the others are.
FIRST = (*METADATA_FILES, manifest.FILE_NAME)
# No larger ones could be read.
_MOST_BYTES_OF = {manifest.FILE_NAME: json_files.MOST_MANIFEST_BYTES}
# What lies in a version's directory and is nobody else's business.
_NOT_RELEASED = frozenset({FILE_NAME, SIGNATURES, "quarantine.jsonl"})
# What this package writes beside a version's files is none of a release; readers would believe it.
_RESERVED = "my_datasets_"
_NOT_DATA = frozenset({manifest.FILE_NAME})


@dataclass(frozen=True)
class ReleasedFile:
    """A file of a release.

    Attributes:
      name: Its name.
      bytes: Its size.
      sha256: Of its contents, in hexadecimal.
    """

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Record:
    """What a release is.

    Attributes:
      name: The dataset's name.
      config: The builder config; None if there is none.
      version: The version.
      digest: That of its content; see `docs/digest.md`.
      files: Its files, by name.
    """

    name: str
    config: str | None
    version: VersionNumber
    digest: str
    files: tuple[ReleasedFile, ...]

    @property
    def key(self) -> str:
        """Its name among the releases of the dataset: `1.0.0` or `config/1.0.0`."""
        return key_of(self.config, self.version)

    @property
    def size(self) -> int:
        """The size of all files, in bytes."""
        return sum(one.bytes for one in self.files)

    @cached_property
    def data(self) -> bytes:
        """The record as it is stored."""
        whole = {**asdict(self), "format": _FORMAT, "version": str(self.version)}
        return (json.dumps(whole, sort_keys=True, indent=1) + "\n").encode("ascii")

    @property
    def identity(self) -> str:
        """The SHA-256 of the record, and so of all bytes of the release."""
        return hashlib.sha256(self.data).hexdigest()

    @property
    def identity_of_data(self) -> str:
        """The same without the manifest, which also says with which software it was made."""
        files = [asdict(one) for one in self.files if one.name not in _NOT_DATA]
        # The same whether sidecars have the names that they get now, or those they had before.
        old = {
            sidecars.name_of(one.name, kind): sidecars.old_name_of(one.name, kind)
            for one in self.files
            for kind in Sidecar
        }
        for file in files:
            file["name"] = old.get(file["name"], file["name"])
        files.sort(key=lambda file: str(file["name"]))
        return hashlib.sha256(json.dumps([self.digest, files]).encode()).hexdigest()

    @classmethod
    def of(cls, version: Path | VersionMetadata) -> "Record":
        """Returns the record of a prepared version. The hashes of shards are the manifest's.

        Raises:
          PublishError: It has no manifest, or files that cannot be released.
        """
        metadata = VersionMetadata.of(version)
        version_dir = metadata.path
        try:
            reference = DatasetReference.parse(metadata.declared.name)
            number = VersionNumber.parse(str(reference.version))
        except (OSError, *MALFORMED) as error:
            raise _unfit(version_dir, f"its metadata cannot be read: {reason(error)}") from error
        made = metadata.manifest
        if made is None or made.content is None or number is None:
            raise PublishError(
                explain(
                    f"{version_dir} has no manifest that says what is in it.",
                    fix=f"my-datasets adopt {version_dir}",
                )
            )
        known = {
            one.name: one.sha256 for split in made.content.splits.values() for one in split.shards
        }
        # With other bytes, the upload fails, and nothing has to be read twice.
        known |= {name: one["sha256"] for name, one in made.files.items()}
        files = tuple(
            ReleasedFile(path.name, path.stat().st_size, known.get(path.name) or _sha256(path))
            for path in _files(version_dir)
        )
        found = cls(reference.name, reference.config, number, made.content.digest, files)
        try:
            return cls.parse(found.data, str(version_dir))
        except CorruptReleaseError as error:
            found_there = str(error).split("\n")[1].strip()
            raise _unfit(version_dir, f"nobody could pull it. {found_there}") from error

    @classmethod
    def parse(cls, data: bytes, place: str) -> "Record":
        """Returns a record that came from anywhere.

        Args:
          data: As it is stored.
          place: Where it came from, for messages.

        Raises:
          CorruptReleaseError: It is none, or names files that nobody may write.
        """
        try:
            whole = parse_json(data)
            if whole["format"] != _FORMAT:
                raise ValueError(f"format {whole['format']}")
            reference = _reference(whole["name"], whole["config"], whole["version"])
            files = tuple(map(_file, whole["files"]))
            found = cls(*reference, _sum(whole["digest"]), files)
            _check(files)
        except MALFORMED as error:
            raise CorruptReleaseError(
                explain(
                    f"The record of a release at {place} cannot be used.",
                    f"Found: {type(error).__name__}: {clipped(str(error))}",
                    fix="ask who publishes there to look at it; nothing was written",
                )
            ) from error
        return found

    def read_from(self, version_dir: Path) -> bool:
        """Returns whether a directory holds this release as it was pulled."""
        try:
            return read_regular(version_dir / FILE_NAME, len(self.data)) == self.data
        except OSError:
            return False


def key_of(config: str | None, version: VersionNumber) -> str:
    """Returns the name of a release among those of its dataset."""
    return f"{config}/{version}" if config else str(version)


def parse_key(key: Any) -> tuple[str | None, VersionNumber]:
    """Returns the config and the version that `key_of` was given.

    Raises:
      ValueError, TypeError: It is no such name.
    """
    config, _, text = key.rpartition("/")
    version = VersionNumber.parse(text)
    if version is None or len(key) > _LONGEST_NAME:
        raise ValueError(f"no release: {key[:_LONGEST_NAME]!r}")
    if config:
        DatasetReference.parse(f"name/{config}")
        _plain(config)
    return config or None, version


def _reference(name: Any, config: Any, version: Any) -> tuple[str, str | None, VersionNumber]:
    parsed = DatasetReference.parse(f"{_plain(name)}{'/' + _plain(config) if config else ''}")
    found = VersionNumber.parse(version)
    if found is None or (config is not None and not config):
        raise ValueError(f"no version: {version!r}")
    return parsed.name, parsed.config, found


def _file(value: Mapping[str, Any]) -> ReleasedFile:
    name, size = _plain(value["name"]), value["bytes"]
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < _LARGEST_FILE:
        raise ValueError(f"no size: {size!r}")
    return ReleasedFile(name, size, _sum(value["sha256"]))


def _plain(name: Any) -> str:
    """Returns a name that means a file in a directory, on any system."""
    if not is_plain_name(name) or name.startswith(".") or len(name.encode()) > _LONGEST_NAME:
        raise ValueError(f"no name of a file: {str(name)[:80]!r}")
    if not name.isprintable() or set(name) & set('\\\\:*?"<>|') or name.endswith((" ", ".")):
        raise ValueError(f"no name of a file: {name[:80]!r}")
    return str(name)


def _sum(value: Any) -> str:
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise ValueError(f"no SHA-256: {str(value)[:80]!r}")
    return value


def _check(files: tuple[ReleasedFile, ...]) -> None:
    # macOS takes two forms of one letter for the same name.
    names = [unicodedata.normalize("NFC", one.name.casefold()) for one in files]
    if len(set(names)) < len(names):
        raise ValueError("two files have one name, on some systems")
    if [one.name for one in files] != sorted(one.name for one in files):
        raise ValueError("the files are not in their order")
    for one in files:
        most = _MOST_BYTES_OF.get(one.name, json_files.MOST_BYTES)
        if one.name in FIRST and one.bytes > most:
            raise ValueError(f"{one.name} is larger than {most:,} bytes")
    missing = {*FIRST} - {one.name for one in files}
    if missing:
        raise ValueError(f"no version has such files; missing: {', '.join(sorted(missing))}")
    for name in names:
        is_ours = name == manifest.FILE_NAME or sidecars.kind_of(name) is not None
        if name.endswith(".partial") or (name.startswith(_RESERVED) and not is_ours):
            raise ValueError(f"no release may have a file of this name: {name}")


def _files(version_dir: Path) -> Iterator[Path]:
    for path in sorted(version_dir.iterdir(), key=lambda one: one.name):
        if path.name.startswith(".") or path.name in _NOT_RELEASED or path.suffix == ".partial":
            continue
        if path.is_symlink() or not path.is_file():
            raise _unfit(version_dir, f"{path.name} is a link, or no file")
        if not os.access(path, os.R_OK):
            raise _unfit(version_dir, f"{path.name} cannot be read")
        yield path


def _sha256(path: Path) -> str:
    found = hashlib.sha256()
    with open_regular(path) as file:
        while block := file.read(BLOCK):
            found.update(block)
    return found.hexdigest()


def _unfit(version_dir: Path, found: str) -> PublishError:
    return PublishError(
        explain(
            f"{version_dir} cannot be published: {found}.",
            fix=f"see my-datasets verify {version_dir}",
        )
    )
