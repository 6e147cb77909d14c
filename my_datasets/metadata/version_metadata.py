"""The metadata in a version's directory: each file is read once, when it is first needed."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from my_datasets.errors import FeatureError
from my_datasets.metadata import dataset_info, feature_classes
from my_datasets.metadata.dataset_info import Declared

# Commands such as `list` look for versions, and do without what loads NumPy.
if TYPE_CHECKING:
    from my_datasets.metadata.features import Leaf, Schema, Tree
    from my_datasets.metadata.manifest import Manifest


@dataclass(frozen=True)
class VersionMetadata:
    """The metadata of a prepared version.

    Make one for each call, and pass it on: files are cached, so later changes to them are not seen.
    Every property raises FileNotFoundError, IncompleteVersionError or UnregisteredFeatureError if a
    file that it needs is missing, damaged or unsafe. `tree` and `schema` also raise FeatureError if
    a feature is of a kind that only TFDS reads.

    Attributes:
      path: The version's directory; for features alone, a directory with a `features.json`.
    """

    path: Path

    def __reduce__(self) -> tuple[type["VersionMetadata"], tuple[Path]]:
        return VersionMetadata, (self.path,)  # other processes read the files that they need

    @classmethod
    def of(cls, version: "Path | VersionMetadata") -> "VersionMetadata":
        """Returns the metadata of a version, which may be given by its directory."""
        return version if isinstance(version, VersionMetadata) else cls(version)

    @functools.cached_property
    def info(self) -> dict[str, Any]:
        """The checked content of `dataset_info.json`; see `dataset_info.dataset_info`."""
        return dataset_info.dataset_info(self.path)

    @functools.cached_property
    def declared(self) -> Declared:
        """The name, file format and shards that `dataset_info.json` declares."""
        return Declared.of(self.info)

    @property
    def essentials(self) -> dict[str, Any]:
        """Other fields of `dataset_info.json` that affect readers."""
        return dataset_info.essentials_of(self.info)

    @property
    def blocked_reason(self) -> str | None:
        """Why the version must not be used, if its metadata says so.

        TFDS writes it there if the builder gives `is_blocked` to its `DatasetInfo`. Also None if
        the metadata cannot be read: reading the version then raises the error.
        """
        try:
            return self.info.get("isBlocked") or None
        except OSError:
            return None

    @functools.cached_property
    def features_as_written(self) -> Any:
        """The unchecked JSON of `features.json`, only for comparison with other such JSON."""
        return feature_classes.read_unchecked(self.path)

    @functools.cached_property
    def features(self) -> dict[str, Any]:
        """The checked content of `features.json`, in TFDS's own spelling."""
        return feature_classes.check_features(self.features_as_written, self.path)

    @functools.cached_property
    def tree(self) -> "Tree":
        """The features as leaves, nested in dicts as examples are; or a single leaf."""
        from my_datasets.metadata import features

        return features.tree_of(self.features, self.path)

    @property
    def known_leaves(self) -> "list[Leaf] | None":
        """The features in the order of their names; None if only TFDS reads some."""
        from my_datasets.metadata import features

        try:
            return features.leaves_of(self.tree)
        except FeatureError:
            return None

    @functools.cached_property
    def schema(self) -> "Schema":
        """The features, and which of them are input and target."""
        from my_datasets.metadata import features

        return features.Schema(self.tree, features.supervised(self.info, self.tree))

    @functools.cached_property
    def manifest(self) -> "Manifest | None":
        """The manifest; None for data that TFDS built."""
        from my_datasets.metadata.manifest import Manifest

        return Manifest.read(self.path)

    @property
    def schema_digest(self) -> str:
        """The digest of the features, and of the names of their classes."""
        from my_datasets.metadata import content

        return content.schema_digest(self.features, self.path)

    @property
    def decoding_digest(self) -> str:
        """The SHA-256 of all metadata that determine what the bytes of examples mean.

        These are the form and the classes of its features, the names of labels, the file format,
        and the features that `as_supervised` returns as input and label.
        """
        from my_datasets.metadata import content

        supervised = self.essentials["supervisedKeys"]
        form = self.declared.file_format
        return content.decoding_digest(self.features, self.path, form, supervised)
