"""The immutable record of a release: the size and SHA-256 of each of its files.

The metadata of a release is checked against it, and may be reduced to some of the splits.
"""

import hashlib
import json
import os
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated

import msgspec

from my_datasets.core.reference import DatasetReference
from my_datasets.core.version import VersionNumber, VersionPattern
from my_datasets.errors import (
    CorruptReleaseError,
    MyDatasetsError,
    PublishError,
    UnregisteredFeatureError,
    problem_of,
)
from my_datasets.metadata import manifest, sidecars
from my_datasets.metadata.content import MOST_LABELS, Content
from my_datasets.metadata.dataset_info import FILE_NAME as DATASET_INFO
from my_datasets.metadata.dataset_info import (
    MALFORMED,
    Declared,
    dataset_info,
    essentials,
    is_plain_name,
)
from my_datasets.metadata.feature_classes import read_features
from my_datasets.metadata.layout import METADATA_FILES, RELEASE_RECORD
from my_datasets.metadata.manifest import Manifest
from my_datasets.metadata.sidecars import Sidecar
from my_datasets.metadata.version_metadata import VersionMetadata
from my_datasets.printable import clipped, reason
from my_datasets.storage import json_files
from my_datasets.storage.json_files import convert_json, parse_json
from my_datasets.storage.regular_files import read_regular, sha256_of, write_whole
from my_datasets.storage.verified_files import verified_files

FILE_NAME = RELEASE_RECORD
# The signatures of a pulled release, beside its record.
SIGNATURES = "my_datasets_release_signatures.json"
# Maximum size of a record; one of 100,000 files has 15 MB.
MOST_BYTES = 64 << 20
_FORMAT = 1
Sha256 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
_LONGEST_NAME = 255
_LARGEST_FILE = 1 << 50
# Every release has these; they describe the other files.
FIRST = (*METADATA_FILES, manifest.FILE_NAME)
# Maximum sizes that readers accept.
_MOST_BYTES_OF = {manifest.FILE_NAME: json_files.MOST_MANIFEST_BYTES}
# Files of a version's directory that are not published.
_NOT_RELEASED = frozenset({FILE_NAME, SIGNATURES, "quarantine.jsonl"})
# Reserved for files that this package writes beside a version's own: readers trust those.
_RESERVED = "my_datasets_"
_NOT_DATA = frozenset({manifest.FILE_NAME})


@dataclass(frozen=True)
class ReleasedFile:
    """A file of a release."""

    name: str
    bytes: Annotated[int, msgspec.Meta(ge=0, lt=_LARGEST_FILE)]
    sha256: Sha256


@dataclass(frozen=True)
class Record:
    """The record of a release; `files` are sorted by name, `digest` is that of `docs/digest.md`."""

    name: str
    config: str | None
    version: VersionNumber
    digest: Sha256
    files: tuple[ReleasedFile, ...]

    @property
    def key(self) -> str:
        """The key of the release in the dataset's index: `1.0.0` or `config/1.0.0`."""
        return key_of(self.config, self.version)

    @property
    def full_name(self) -> str:
        """The full name of the release: `name:1.0.0` or `name/config:1.0.0`."""
        return str(DatasetReference(self.name, self.config, VersionPattern.of(self.version)))

    @property
    def size(self) -> int:
        """The total size of the files, in bytes."""
        return sum(one.bytes for one in self.files)

    @cached_property
    def data(self) -> bytes:
        """The record as it is stored."""
        whole = {**asdict(self), "format": _FORMAT, "version": str(self.version)}
        return (json.dumps(whole, sort_keys=True, indent=1) + "\n").encode("ascii")

    @property
    def identity(self) -> str:
        """The SHA-256 of the record, which covers all bytes of the release."""
        return hashlib.sha256(self.data).hexdigest()

    @property
    def identity_of_data(self) -> str:
        """`identity` without the manifest, which also depends on the software that built it."""
        files = [asdict(one) for one in self.files if one.name not in _NOT_DATA]
        # Independent of whether sidecars have their current or their former names.
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
        """Returns the record of a prepared version, with the manifest's hashes of shards.

        Raises:
          PublishError: It has no manifest, or has files that cannot be published.
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
                f"{version_dir} has no manifest that describes its content.",
                fix=f"my-datasets adopt {version_dir}",
            )
        known = {
            one.name: one.sha256 for split in made.content.splits.values() for one in split.shards
        }
        # Not verified here: the upload fails if the bytes differ, so nothing is read twice.
        known |= {name: one["sha256"] for name, one in made.files.items()}
        files = tuple(
            ReleasedFile(path.name, path.stat().st_size, known.get(path.name) or sha256_of(path))
            for path in _files(version_dir)
        )
        found = cls(reference.name, reference.config, number, made.content.digest, files)
        try:
            return cls.parse(found.data, str(version_dir))
        except CorruptReleaseError as error:
            raise _unfit(version_dir, f"no reader accepts it. {error.facts[0]}") from error

    @classmethod
    def parse(cls, data: bytes, place: str) -> "Record":
        """Parses an untrusted record; `place` says where it came from, for messages.

        Raises:
          CorruptReleaseError: It is not a record, or has file names that are not allowed.
        """
        try:
            whole = parse_json(data)
            if whole["format"] != _FORMAT:
                raise ValueError(f"format {whole['format']}")
            found = convert_json({**whole, "version": _version(whole["version"])}, cls)
            _check(found)
        except MALFORMED as error:
            raise CorruptReleaseError(
                f"The release record at {place} is invalid.",
                f"Found: {type(error).__name__}: {clipped(str(error))}",
                fix="ask the publisher to check it; nothing was written",
            ) from error
        return found

    def read_from(self, version_dir: Path) -> bool:
        """Returns whether a directory contains this release as pulled."""
        try:
            return read_regular(version_dir / FILE_NAME, len(self.data)) == self.data
        except OSError:
            return False


def key_of(config: str | None, version: VersionNumber) -> str:
    """Returns the key of a release in its dataset's index."""
    return f"{config}/{version}" if config else str(version)


def parse_key(key: str) -> tuple[str | None, VersionNumber]:
    """Returns the config and the version of a key that `key_of` made.

    Raises:
      ValueError: It is not such a key.
    """
    config, _, text = key.rpartition("/")
    version = VersionNumber.parse(text)
    if version is None or len(key) > _LONGEST_NAME:
        raise ValueError(f"not the key of a release: {key[:_LONGEST_NAME]!r}")
    if config:
        DatasetReference.parse(f"name/{config}")
        _check_name(config)
    return config or None, version


def _version(text: str) -> VersionNumber:
    if (found := VersionNumber.parse(text)) is None:
        raise ValueError(f"not a version: {text[:80]!r}")
    return found


def _check_name(name: str) -> None:
    """Refuses a name that does not mean a file in a directory on every system."""
    if (
        not is_plain_name(name)
        or name.startswith(".")
        or len(name.encode()) > _LONGEST_NAME
        or not name.isprintable()
        or set(name) & set('\\:*?"<>|')
        or name.endswith((" ", "."))
    ):
        raise ValueError(f"not a file name: {name[:80]!r}")


def _check(found: Record) -> None:
    files, config = found.files, () if found.config is None else (found.config,)
    for name in (found.name, *config, *(one.name for one in files)):
        _check_name(name)
    DatasetReference.parse("/".join((found.name, *config)))
    # macOS treats composed and decomposed letters as the same name.
    names = [unicodedata.normalize("NFC", one.name.casefold()) for one in files]
    if len(set(names)) < len(names):
        raise ValueError("two files have the same name on some systems")
    if [one.name for one in files] != sorted(one.name for one in files):
        raise ValueError("the files are not sorted by name")
    for one in files:
        most = _MOST_BYTES_OF.get(one.name, json_files.MOST_BYTES)
        if one.name in FIRST and one.bytes > most:
            raise ValueError(f"{one.name} is larger than {most:,} bytes")
    missing = {*FIRST} - {one.name for one in files}
    if missing:
        raise ValueError(f"missing files: {', '.join(sorted(missing))}")
    for name in names:
        is_ours = name == manifest.FILE_NAME or sidecars.kind_of(name) is not None
        if name.endswith(".partial") or (name.startswith(_RESERVED) and not is_ours):
            raise ValueError(f"reserved file name: {name}")


def _files(version_dir: Path) -> Iterator[Path]:
    for path in sorted(version_dir.iterdir(), key=lambda one: one.name):
        if path.name.startswith(".") or path.name in _NOT_RELEASED or path.suffix == ".partial":
            continue
        if path.is_symlink() or not path.is_file():
            raise _unfit(version_dir, f"{path.name} is not a regular file")
        if not os.access(path, os.R_OK):
            raise _unfit(version_dir, f"{path.name} cannot be read")
        yield path


def _unfit(version_dir: Path, found: str) -> PublishError:
    return PublishError(
        f"{version_dir} cannot be published: {found}.", fix=f"see my-datasets verify {version_dir}"
    )


_LABELS = ".labels.txt"
# Larger files of class names are not shown.
MOST_SHOWN_LABELS = 16 << 20

# The metadata files that are rewritten.
REWRITTEN = (DATASET_INFO, manifest.FILE_NAME)


def parse_metadata(wanted: Record, directory: Path, url: str) -> tuple[Declared, Content]:
    """Returns the metadata of a release; `url` is its store, for messages.

    Raises:
      CorruptReleaseError: They do not match the record or each other.
      UnregisteredFeatureError: They name a feature class that is neither TFDS's nor registered.
    """
    try:
        declared = Declared.read(directory)
        read_features(directory)
        made = Manifest.read(directory)
        if made is None or made.content is None or made.content.digest != wanted.digest:
            raise ValueError("the manifest is missing or has another digest")
        if declared.name != wanted.full_name:
            raise ValueError(f"dataset_info.json describes {declared.name:.100}")
        names = shards_of(declared)
        files = {one.name: (one.bytes, one.sha256) for one in wanted.files}
        missing = sorted(names - {*files})
        if missing:
            raise ValueError(f"the record lacks the shard {missing[0]:.100}")
        listed = [one for split in made.content.splits.values() for one in split.shards]
        other = [one.name for one in listed if files.get(one.name) != (one.bytes, one.sha256)]
        if other or {one.name for one in listed} != names:
            raise ValueError(f"the manifest lists other shards: {(*other, 'other names')[0]:.100}")
        if names & set(FIRST):
            raise ValueError("a metadata file is declared as a shard")
    except UnregisteredFeatureError:
        raise
    except (MyDatasetsError, OSError, *MALFORMED) as error:
        raise CorruptReleaseError(
            f"The metadata of {wanted.name}:{wanted.key} in {url} is inconsistent.",
            f"Found: {problem_of(error)[:200]}",
            fix="ask the publisher to check it; this machine uses nothing of it",
        ) from error
    return declared, made.content


def is_metadata(one: ReleasedFile, most_labels: int = MOST_LABELS) -> bool:
    """Returns whether a file describes the others, and so is downloaded first.

    Files of class names of more than `most_labels` bytes do not count.
    """
    return one.name in FIRST or (one.name.endswith(_LABELS) and one.bytes <= most_labels)


def shards_of(declared: Declared) -> set[str]:
    """Returns the names of the files that contain examples."""
    return {one.name for some in declared.splits.values() for one in some}


def read_with(wanted: Record, declared: Declared) -> list[ReleasedFile]:
    """Returns the files that readers need in addition to shards: metadata and indexes."""
    shards = shards_of(declared)
    return [
        one
        for one in wanted.files
        if one.name not in shards and sidecars.kind_of(one.name) is not Sidecar.KEYS
    ]


def only_splits(version_dir: Path, splits: Collection[str], content: Content) -> None:
    """Rewrites the metadata of a version with the whole release's, for some of its splits.

    Like a version built with `--splits`, it has another digest, and the option in its manifest.
    """
    path, info = version_dir / DATASET_INFO, dataset_info(version_dir)
    info["splits"] = [one for one in info["splits"] if one["name"] in splits]
    write_whole(path, json.dumps(info, indent=2, sort_keys=True))
    made = Manifest.read(version_dir)
    if made is None:
        return
    chosen = {name: one for name, one in content.splits.items() if name in splits}
    left_out = {
        sidecar
        for name, split in content.splits.items()
        if name not in splits
        for shard in split.shards
        for sidecar in sidecars.names_of(shard.name)
    }
    replace(
        made,
        options={**made.options, "splits": sorted(splits)},
        quarantined={name: n for name, n in made.quarantined.items() if name in splits},
        splits={name: one for name, one in made.splits.items() if name in splits},
        content=Content(content.schema, chosen),
        metadata=essentials(version_dir),
        files={name: one for name, one in made.files.items() if name not in left_out},
        statistics={name: one for name, one in made.statistics.items() if name in splits},
    ).write(version_dir)


def is_part_made_here(version_dir: Path, whole: Record, splits: object) -> bool:
    """Returns whether this machine wrote the metadata of some splits, unchanged since."""
    verified = verified_files()
    return isinstance(splits, list | tuple) and all(
        verified.knows(version_dir / name, _written_for(whole, splits, name)) for name in REWRITTEN
    )


def remember_part(version_dir: Path, whole: Record, splits: Sequence[str]) -> None:
    """Records that this machine wrote the metadata; see `is_part_made_here`."""
    for name in REWRITTEN:
        verified_files().remember(version_dir / name, _written_for(whole, splits, name))


def _written_for(whole: Record, splits: Sequence[str], name: str) -> str:
    """Returns the key that stands for the SHA-256 of a rewritten file."""
    text = json.dumps([whole.identity, list(splits), name])
    return hashlib.sha256(text.encode()).hexdigest()
