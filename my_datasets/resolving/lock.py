"""The lock: the exact version, with its bytes, that each reference of a project means.

`datasets.lock` is found in the working directory or the nearest one above it, like the files of
other tools, or at the path in the environment variable `MY_DATASETS_LOCK`; if that is empty, there
is no lock.

The digest of a version can only be checked by reading all of its examples. So the lock also has,
for each split, the SHA-256 of the list of its shards with their SHA-256s, and that of the metadata
that determine how they are decoded.
"""

import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from my_datasets.core.logs import get_logger
from my_datasets.core.reference import DatasetReference
from my_datasets.core.version import VersionNumber, VersionPattern
from my_datasets.errors import LockError
from my_datasets.metadata import recorded_files
from my_datasets.metadata.content import Content
from my_datasets.metadata.dataset_info import MALFORMED
from my_datasets.metadata.version_metadata import VersionMetadata
from my_datasets.storage.json_files import read_json
from my_datasets.storage.regular_files import write_whole

FILE_NAME = "datasets.lock"
VARIABLE = "MY_DATASETS_LOCK"
_FORMAT = 2
# The first format has digests only.
_FORMATS = (1, _FORMAT)
_LOGGER = get_logger(__name__)


@dataclass(frozen=True)
class Locked:
    """The locked version of a reference.

    Attributes:
      config: The config; None for a dataset that has none.
      version: The exact version.
      digest: The digest of its content.
      decoding: The SHA-256 of the metadata that determine how its examples are decoded; None in an
        entry of format 1, which has no hashes of bytes.
      splits: For each split, the SHA-256 of the list of its shards.
    """

    config: str | None
    version: VersionNumber
    digest: str
    decoding: str | None = None
    splits: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, version: Path | VersionMetadata) -> "Locked":
        """Returns the lock's entry for a prepared version.

        Raises:
          LockError: It has no manifest, or its metadata contradict each other.
          IncompleteVersionError: Its manifest cannot be read.
        """
        metadata = VersionMetadata.of(version)
        manifest = metadata.manifest
        if manifest is None or manifest.content is None:
            raise LockError(
                f"{metadata.path} has no digest to be locked to.",
                fix=f"my-datasets adopt {metadata.path} notes what is in it now",
            )
        try:
            name, _, text = metadata.declared.name.partition(":")
            number = VersionNumber.parse(text)
            if number is None:
                raise ValueError(f"no version: {text!r}")
            splits, decoding = _splits(metadata, manifest.content), metadata.decoding_digest
        except (OSError, *MALFORMED) as error:
            raise LockError(
                f"The metadata in {metadata.path} cannot be locked.",
                f"Found: {type(error).__name__}: {error}",
                fix=f"my-datasets verify {metadata.path} says what is wrong",
            ) from error
        config = name.partition("/")[2] or None
        return cls(config, number, manifest.content.digest, decoding, splits)

    def to_json(self) -> dict[str, Any]:
        """Returns the form stored in the file."""
        found: dict[str, Any] = {
            "config": self.config, "version": str(self.version), "digest": self.digest
        }  # fmt: skip
        if self.decoding is not None:
            found |= {"decoding": self.decoding, "splits": dict(self.splits)}
        return found


@dataclass(frozen=True)
class TrustedKey:
    """A public key whose signatures are trusted.

    Attributes:
      key: As OpenSSH writes it: `ssh-ed25519 KEY COMMENT`.
      store: The address of the store for which it is trusted; empty for every store.
      store_id: The id that this store must have; empty for any.
    """

    key: str
    store: str = ""
    store_id: str = ""

    def to_json(self) -> dict[str, str]:
        """Returns the form stored in the file, without empty fields."""
        return {name: value for name, value in vars(self).items() if value}


@dataclass(frozen=True)
class Difference:
    """How a version differs from the locked one: a sentence, the locked value, the found one."""

    problem: str
    expected: str
    found: str


@dataclass(frozen=True)
class Lock:
    """The lock of a project.

    Attributes:
      path: The file.
      datasets: The locked versions, by reference as written in code.
      trusted_keys: The keys whose signatures are trusted when the project reads stores.
    """

    path: Path
    datasets: Mapping[str, Locked] = field(default_factory=dict)
    trusted_keys: tuple[TrustedKey, ...] = ()

    @classmethod
    def find(cls, start: Path | None = None) -> "Lock | None":
        """Returns the lock that applies in a directory, by default the working directory.

        Raises:
          LockError: It cannot be read, or belongs to another user, in a folder that everyone can
            write to.
        """
        said = os.environ.get(VARIABLE)
        if said is not None:
            return cls.read(Path(said)) if said else None
        directory = (start or Path.cwd()).absolute()
        for one in (directory, *directory.parents):
            if (one / FILE_NAME).is_file():
                _refuse_planted(one / FILE_NAME)
                return cls.read(one / FILE_NAME)
        return None

    @classmethod
    def read(cls, path: Path) -> "Lock":
        """Returns the content of a lock file.

        Raises:
          LockError: It is none.
        """
        try:
            whole = read_json(path)
            if whole["format"] not in _FORMATS:
                raise ValueError(f"format {whole['format']}")
            datasets = {text: _locked(one) for text, one in whole["datasets"].items()}
            return cls(path, datasets, tuple(map(trusted_key, whole.get("trusted_keys", ()))))
        except (OSError, *MALFORMED) as error:
            raise LockError(
                f"{path} is not a lock of format 1 or {_FORMAT}.",
                f"Found: {type(error).__name__}: {error}",
                fix="create it again with my-datasets lock, or correct it",
            ) from error

    def write(self) -> None:
        """Writes the file atomically."""
        whole: dict[str, Any] = {"format": _FORMAT, "datasets": self.to_json()}
        if self.trusted_keys:
            whole["trusted_keys"] = [one.to_json() for one in self.trusted_keys]
        write_whole(self.path, json.dumps(whole, indent=2, sort_keys=True) + "\n")

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Returns the locked versions, by reference."""
        return {text: one.to_json() for text, one in self.datasets.items()}

    def exact(self, reference: DatasetReference) -> DatasetReference:
        """Returns the exact version that a reference means; itself if it is not locked."""
        locked = self.datasets.get(str(reference))
        if locked is None:
            return reference
        return DatasetReference(reference.name, locked.config, VersionPattern.of(locked.version))

    def references_to(self, name: str) -> list[str]:
        """Returns the references that are locked to a version.

        Args:
          name: The version's full name, `name/config:version`.
        """
        return [
            text for text in self.datasets if str(self.exact(DatasetReference.parse(text))) == name
        ]

    def check(
        self, reference: DatasetReference, version: Path | VersionMetadata, *, has_shards: bool
    ) -> None:
        """Checks that a version is the one that a reference is locked to.

        Shards are hashed, unless this machine has verified them and they have not changed since.

        Args:
          reference: As it is written in code.
          version: The version.
          has_shards: Whether its shards are also on this machine.

        Raises:
          LockError: It is another one.
          CorruptShardError: A record index is not that of its shard.
          IncompleteVersionError: Its manifest cannot be read.
        """
        found = self.difference(reference, version, has_shards=has_shards)
        if found is None:
            return
        raise LockError(
            found.problem,
            f"{str(reference)!r} is locked by {self.path}",
            f"Expected: {found.expected}",
            f"Found: {found.found}",
            fix="build or pull the locked version; or, to accept this one, run "
            f"my-datasets lock {reference}",
        )

    def check_digest(self, reference: DatasetReference, digest: str, place: str) -> None:
        """Checks the digest that a store declares for a release, before anything is downloaded.

        Raises:
          LockError: It is another one.
        """
        locked = self.datasets.get(str(reference))
        if locked is not None and locked.digest != digest:
            raise LockError(
                f"{place} has other data under the version that is locked.",
                f"{str(reference)!r} is locked by {self.path}",
                f"Expected: digest {locked.digest[:16]}",
                f"Found: digest {digest[:16]}",
                fix="pull from the store of the locked version; or, to accept this one, run "
                f"my-datasets pull --no-lock, then my-datasets lock {reference}",
            )

    def difference(
        self, reference: DatasetReference, version: Path | VersionMetadata, *, has_shards: bool
    ) -> Difference | None:
        """Returns how a version differs from the one that a reference is locked to; see `check`.

        Returns:
          None if it does not, or the reference is not locked.

        Raises:
          CorruptShardError: A record index is not that of its shard.
          IncompleteVersionError: Its manifest cannot be read.
        """
        locked = self.datasets.get(str(reference))
        if locked is None:
            return None
        metadata = VersionMetadata.of(version)
        version_dir, manifest = metadata.path, metadata.manifest
        content = manifest.content if manifest else None
        if manifest is None or content is None:
            digest = f"digest {locked.digest[:16]}"
            return Difference(f"{version_dir} holds other data.", digest, "no digest")
        # A part is marked as such, and has another digest; its splits must match the lock.
        is_part = "splits" in manifest.options and locked.decoding is not None
        if content.digest != locked.digest and not is_part:
            return Difference(
                f"{version_dir} holds other data.", f"digest {locked.digest[:16]}",
                f"digest {content.digest[:16]}",
            )  # fmt: skip
        if locked.decoding is None:
            self._advise_renewal(reference)
        else:
            try:
                found = _other_bytes(locked, metadata, content, is_part=is_part)
            except (OSError, *MALFORMED) as error:
                found = Difference(
                    f"The metadata in {version_dir} cannot be compared with the lock.",
                    "those that are locked", f"{type(error).__name__}: {error}",
                )  # fmt: skip
            if found is not None:
                return found
        if not has_shards:
            return None
        found = _other_sizes(version_dir, content)
        if found is None:
            found = _other_contents(version_dir, content)
        return found

    def _advise_renewal(self, reference: DatasetReference) -> None:
        key = (self.path, str(reference))
        if key not in _advised:
            _advised.add(key)
            _LOGGER.warning(
                "%s locks %s by a digest only, which does not protect against forged data. After "
                "my-datasets verify --deep, renew it: my-datasets lock %s",
                self.path, reference, reference,
            )  # fmt: skip


def _refuse_planted(path: Path) -> None:
    """Refuses a lock that another user put above the working directory, for example into `/tmp`.

    A lock can declare trusted keys.
    """
    if not hasattr(os, "geteuid"):
        return
    is_open = path.parent.stat().st_mode & stat.S_IWOTH
    if is_open and path.lstat().st_uid not in (0, os.geteuid()):
        raise LockError(
            f"{path} is another user's, in a folder where everybody writes.",
            "It would say what your references mean, and whose keys you trust",
            fix=f"if you trust it, {VARIABLE}={path}; to use none, {VARIABLE}=",
        )


# Locks of format 1 that this process has already warned about.
_advised: set[tuple[Path, str]] = set()


def _other_bytes(
    locked: Locked, version: VersionMetadata, content: Content, *, is_part: bool
) -> Difference | None:
    """Returns how the files that a manifest lists differ from the locked ones."""
    decoding = version.decoding_digest
    if decoding != locked.decoding:
        return Difference(
            f"The features, labels or supervised keys in {version.path} are other ones.",
            f"SHA-256 {str(locked.decoding)[:16]}", f"SHA-256 {decoding[:16]}",
        )  # fmt: skip
    found = _splits(version, content)
    for name in sorted({*locked.splits, *found}):
        if name not in found:
            if is_part and found:
                continue
            return Difference(f"{version.path} has no split {name!r}.", "this split", "none")
        if found[name] != locked.splits.get(name):
            return Difference(
                f"{version.path} has other shards of the split {name!r}.",
                f"a list of SHA-256 with the SHA-256 {locked.splits.get(name, 'of no such split')}",
                found[name],
            )  # fmt: skip
    return None


def _other_sizes(version_dir: Path, content: Content) -> Difference | None:
    for one in (shard for split in content.splits.values() for shard in split.shards):
        path = version_dir / one.name
        size = path.stat().st_size if path.is_file() else None
        if size != one.bytes:
            return Difference(
                f"{path} is not the shard that was locked.", f"{one.bytes:,} bytes",
                f"{size:,} bytes" if size is not None else "no file",
            )  # fmt: skip
    return None


def _other_contents(version_dir: Path, content: Content) -> Difference | None:
    """Returns the shard whose SHA-256 differs from the manifest's."""
    shards = {
        one.name: (one.bytes, one.sha256)
        for split in content.splits.values()
        for one in split.shards
    }
    for name in recorded_files.other_files(version_dir, shards, "the lock"):
        return Difference(
            f"{version_dir / name} is not the shard that was locked.",
            f"SHA-256 {shards[name][1]}", "other bytes of the same size",
        )  # fmt: skip
    recorded_files.check_indexes(
        version_dir, {name: sha256 for name, (_, sha256) in shards.items()}
    )
    return None


def _splits(version: VersionMetadata, content: Content) -> dict[str, str]:
    """Returns the SHA-256 of each split's list of shards.

    Readers use TFDS's metadata, and the hashes are in the manifest: both must list the same shards.

    Raises:
      OSError: The metadata cannot be read.
      ValueError: They contradict the manifest.
    """
    declared = {
        name: [(one.name, one.examples) for one in some]
        for name, some in version.declared.splits.items()
    }
    listed = {
        name: [(one.name, one.examples) for one in split.shards]
        for name, split in content.splits.items()
    }
    if declared != listed:
        raise ValueError("dataset_info.json lists other shards than the manifest")
    return {name: split.shards_sha256 for name, split in content.splits.items()}


def trusted_key(value: Mapping[str, Any]) -> TrustedKey:
    """Returns a key that is written in a lock, or in the user's settings.

    Raises:
      ValueError, TypeError, KeyError, AttributeError: It is none.
    """
    found = TrustedKey(value["key"], value.get("store", ""), value.get("store_id", ""))
    if not all(isinstance(one, str) for one in vars(found).values()) or set(value) - set(
        vars(found)
    ):
        raise ValueError(f"no trusted key: {dict(value)!r:.80}")
    return found


def _locked(value: Mapping[str, Any]) -> Locked:
    version = VersionNumber.parse(value["version"])
    if version is None or not isinstance(value["digest"], str):
        raise ValueError(f"no version: {value['version']}")
    if not isinstance(value["config"], str | None):
        raise ValueError(f"no config: {value['config']}")
    decoding, splits = value.get("decoding"), value.get("splits", {})
    if decoding is not None and not all(map(_is_sha256, (decoding, *splits.values()))):
        raise ValueError(f"no SHA-256 of {value['version']}")
    return Locked(value["config"], version, value["digest"], decoding, splits)


def _is_sha256(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None
