"""The metadata of a version that is verified or compared, as far as it can be read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from my_datasets.core.issue import Issue
from my_datasets.core.processes import unless_out_of_memory
from my_datasets.errors import IncompleteVersionError, UnregisteredFeatureError
from my_datasets.metadata import feature_changes
from my_datasets.metadata.content import Content
from my_datasets.metadata.dataset_info import MALFORMED, Declared, DeclaredShard
from my_datasets.metadata.manifest import FILE_NAME, Manifest
from my_datasets.metadata.version_metadata import VersionMetadata
from my_datasets.printable import reason

REBUILD = "rebuild the version, or pull it again"


@dataclass
class ComparedVersion:
    """A version to verify or compare.

    Attributes:
      metadata: Its metadata, read at most once.
      declared: The declarations in its metadata; None if they cannot be read.
      manifest: Its manifest; None if it is missing or cannot be read.
      issues: The issues found while reading them.
    """

    metadata: VersionMetadata
    declared: Declared | None = None
    manifest: Manifest | None = None
    issues: list[Issue] = field(default_factory=list)

    @classmethod
    def read(cls, version: Path | VersionMetadata) -> "ComparedVersion":
        """Reads the metadata of a version; problems are added to `issues`."""
        metadata = VersionMetadata.of(version)
        found = cls(metadata)
        try:
            found.declared = metadata.declared
        except (OSError, *MALFORMED) as error:
            found.issues.append(_unreadable("dataset_info.json", error))
        try:
            # Comparing features parses the file in both of these ways.
            _ = metadata.schema_digest
            feature_changes.not_in_both(metadata, metadata)
        except (OSError, *MALFORMED) as error:
            found.issues.append(_unreadable("features.json", error))
        try:
            found.manifest = metadata.manifest
        except (IncompleteVersionError, OSError) as error:
            why = str(error) if isinstance(error, OSError) else error.facts[0]
            problem = "The manifest cannot be read."
            issue = Issue("unreadable-manifest", FILE_NAME, problem, REBUILD, found=why)
            found.issues.append(issue)
        return found

    @property
    def path(self) -> Path:
        """Its directory."""
        return self.metadata.path

    @property
    def recorded(self) -> Manifest:
        """Its manifest; an empty one if it is missing or cannot be read."""
        return self.manifest or Manifest({})

    @property
    def content(self) -> Content | None:
        """The content listed in the manifest."""
        return self.recorded.content

    @property
    def splits(self) -> Mapping[str, tuple[DeclaredShard, ...]]:
        """The declared shards of each split; none if the declarations cannot be read."""
        return self.declared.splits if self.declared else {}

    @property
    def name(self) -> str:
        """The dataset's full name, or the directory if the name is unknown."""
        return self.declared.name if self.declared else str(self.path)


def _unreadable(name: str, error: Exception) -> Issue:
    unless_out_of_memory(error)
    if isinstance(error, FileNotFoundError):
        return Issue("missing-metadata", name, "The file is missing.", REBUILD)
    if isinstance(error, UnregisteredFeatureError):
        return Issue("unregistered-feature", name, error.problem, error.fix)
    if isinstance(error, IncompleteVersionError):
        found = error.facts[0].partition(": ")[2]
    else:
        found = f"{type(error).__name__}: {reason(error)}"
    return Issue("unreadable-metadata", name, "The metadata cannot be read.", REBUILD, found=found)
