"""The lock: which exact version, with which content, each reference of a project means.

`datasets.lock` is found in the working directory or the nearest one above it, as the files of
other tools are, or where the environment variable `MY_DATASETS_LOCK` says; empty, that says that
there is none.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from my_datasets.core.manifest import Manifest
from my_datasets.core.reference import DatasetReference
from my_datasets.core.versioning import Version, VersionPattern
from my_datasets.errors import LockError, explain

FILE_NAME = "datasets.lock"
VARIABLE = "MY_DATASETS_LOCK"
_FORMAT = 1


@dataclass(frozen=True)
class Locked:
    """What a reference means.

    Attributes:
      config: The config; None for a dataset that has none.
      version: The exact version.
      digest: That of its content.
    """

    config: str | None
    version: Version
    digest: str


@dataclass(frozen=True)
class Lock:
    """What a project's references mean.

    Attributes:
      path: The file.
      datasets: By reference, as it is written in code.
    """

    path: Path
    datasets: Mapping[str, Locked] = field(default_factory=dict)

    @classmethod
    def find(cls, start: Path | None = None) -> "Lock | None":
        """Returns the lock that holds in a directory, by default the working directory.

        Raises:
          LockError: It cannot be read.
        """
        said = os.environ.get(VARIABLE)
        if said is not None:
            return cls.read(Path(said)) if said else None
        directory = (start or Path.cwd()).absolute()
        for one in (directory, *directory.parents):
            if (one / FILE_NAME).is_file():
                return cls.read(one / FILE_NAME)
        return None

    @classmethod
    def read(cls, path: Path) -> "Lock":
        """Returns what is in a lock file.

        Raises:
          LockError: It is none.
        """
        try:
            whole = json.loads(path.read_text("utf-8"))
            if whole["format"] != _FORMAT:
                raise ValueError(f"format {whole['format']}")
            return cls(path, {text: _locked(one) for text, one in whole["datasets"].items()})
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise LockError(
                explain(
                    f"{path} is not a lock of format {_FORMAT}.",
                    f"Found: {type(error).__name__}: {error}",
                    mend="make it anew with my-datasets lock, or correct it",
                )
            ) from error

    def write(self) -> None:
        """Writes the file: whole or not at all."""
        whole = {"format": _FORMAT, "datasets": self.to_json()}
        partial = self.path.with_name(f"{self.path.name}.partial")
        partial.write_text(json.dumps(whole, indent=2, sort_keys=True) + "\n", "utf-8")
        partial.replace(self.path)

    def to_json(self) -> dict[str, dict[str, str | None]]:
        """Returns what is locked, by reference."""
        return {
            text: {"config": one.config, "version": str(one.version), "digest": one.digest}
            for text, one in self.datasets.items()
        }

    def exact(self, reference: DatasetReference) -> DatasetReference:
        """Returns the exact version that a reference means; itself if it is not locked."""
        locked = self.datasets.get(str(reference))
        if locked is None:
            return reference
        return DatasetReference(reference.name, locked.config, VersionPattern.of(locked.version))

    def check(self, reference: DatasetReference, version_dir: Path, *, has_shards: bool) -> None:
        """Sees that a version is the one that a reference is locked to.

        Args:
          reference: As it is written in code.
          version_dir: The version's directory.
          has_shards: Whether its shards are there, too; then their sizes are compared.

        Raises:
          LockError: It is another one.
        """
        locked = self.datasets.get(str(reference))
        if locked is None:
            return
        manifest = Manifest.read(version_dir)
        content = manifest.content if manifest else None
        if content is None or content.digest != locked.digest:
            found = f"digest {content.digest[:16]}" if content else "no digest"
            raise self._refusal(
                reference, f"{version_dir} holds other data.",
                f"digest {locked.digest[:16]}", found,
                "build or pull the locked one; or, if this one shall hold from now on: "
                f"my-datasets lock {reference}",
            )  # fmt: skip
        shards = [one for split in content.splits.values() for one in split.shards]
        for one in shards if has_shards else ():
            path = version_dir / one.name
            size = path.stat().st_size if path.is_file() else None
            if size != one.bytes:
                raise self._refusal(
                    reference, f"{path} is not the shard that was locked.",
                    f"{one.bytes:,} bytes", f"{size:,} bytes" if size is not None else "no file",
                    f"my-datasets verify {version_dir} says what is wrong; build or pull it anew",
                )  # fmt: skip

    def _refusal(
        self, reference: DatasetReference, problem: str, expected: str, found: str, mend: str
    ) -> LockError:
        return LockError(
            explain(
                problem,
                f"{str(reference)!r} is locked by {self.path}",
                f"Expected: {expected}",
                f"Found: {found}",
                mend=mend,
            )
        )


def _locked(value: Mapping[str, Any]) -> Locked:
    version = Version.parse(value["version"])
    if version is None or not isinstance(value["digest"], str):
        raise ValueError(f"no version: {value['version']}")
    return Locked(value["config"], version, value["digest"])
