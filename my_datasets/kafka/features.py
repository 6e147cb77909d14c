"""The features of a topic's messages, from code or from a prepared dataset."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from my_datasets.core.reference import DatasetReference
from my_datasets.errors import FeatureError
from my_datasets.input_pipeline.decode import pytree
from my_datasets.input_pipeline.read.prepared import find
from my_datasets.kafka.payloads import Leaves
from my_datasets.metadata import features as schema
from my_datasets.metadata.feature_classes import register_classes_of
from my_datasets.metadata.version_metadata import VersionMetadata

if TYPE_CHECKING:
    from tensorflow_datasets.core.features.feature import FeatureConnector

_FILE = "features.json"

# Features; or a prepared dataset, or a directory with a `features.json`, that declares them.
Features: TypeAlias = (
    "FeatureConnector | Mapping[str, FeatureConnector] | str | os.PathLike[str] | DatasetReference"
)


@dataclass(frozen=True)
class DecodedFeatures:
    """Features, as declared or as read from a `features.json`.

    Attributes:
      tree: Their leaves, nested like examples.
      supervised: The input and the target; None if they are not declared.
      connector: The TFDS feature; None if only a file describes the features.
      directory: The directory of that file.
    """

    tree: Leaves
    supervised: tuple[Leaves, Leaves] | None
    connector: "FeatureConnector | None" = None
    directory: Path | None = None

    def loaded(self) -> "FeatureConnector":
        """Returns the TFDS feature; this imports TFDS."""
        if self.connector is not None:
            return self.connector
        from my_datasets.builders.from_directory import features_from_directory

        return features_from_directory(str(self.directory))

    def chosen(
        self, as_supervised: bool | tuple[str, str], columns: Sequence[str] | None
    ) -> Leaves:
        """Returns the selected leaves, in the structure of the result; see `stream`.

        Raises:
          FeatureError: There is no such feature, or no input and target are declared.
        """
        if as_supervised is True:
            if self.supervised is None:
                raise FeatureError(
                    "These features do not declare an input and a target.",
                    fix="name them: as_supervised=('image', 'label')",
                )
            return self.supervised
        wanted = as_supervised or columns
        if not wanted:
            return self.tree
        tree = self.tree if isinstance(self.tree, Mapping) else {}
        missing = [name for name in wanted if name not in tree]
        if missing:
            raise FeatureError(
                f"There is no feature {', '.join(map(repr, missing))}.",
                f"The features: {', '.join(tree) or 'one, without a name'}",
                fix="choose among those",
            )
        if as_supervised:
            return tuple(tree[name] for name in as_supervised)
        return {name: tree[name] for name in wanted}


def described(
    features: Features, data_dir: str | os.PathLike[str] | None = None
) -> DecodedFeatures:
    """Returns a description of the given features; see `Features` and `stream`.

    Raises:
      FeatureError: It is neither, or of a kind that only TFDS can read.
      NotPreparedError: There is no such dataset.
    """
    if isinstance(features, (str, os.PathLike, DatasetReference)):
        folder = None if isinstance(features, DatasetReference) else Path(features).expanduser()
        if folder is not None and (folder / _FILE).is_file():
            is_version = (folder / "dataset_info.json").is_file()
            metadata = VersionMetadata(folder)
            found = metadata.schema if is_version else schema.Schema(metadata.tree)
            return DecodedFeatures(found.tree, found.supervised, directory=folder)
        prepared = find(features, data_dir)
        return DecodedFeatures(
            prepared.schema.tree, prepared.schema.supervised, directory=prepared.path
        )
    import tensorflow_datasets as tfds

    if isinstance(features, Mapping) and not isinstance(features, tfds.features.FeatureConnector):
        features = tfds.features.FeaturesDict(features)
    if not isinstance(features, tfds.features.FeatureConnector):
        raise FeatureError(
            f"features is a {type(features).__name__}.",
            fix="give tfds.features.FeaturesDict({...}), or a dataset such as 'digits:1.*.*'",
        )
    register_classes_of(features)
    with tempfile.TemporaryDirectory() as directory:
        features.save_config(directory)
        return DecodedFeatures(VersionMetadata(Path(directory)).tree, None, features)


def check_shapes(tree: Leaves, image_size: tuple[int, int] | None) -> None:
    """Raises FeatureError if the values of a feature differ in shape: tensors cannot batch them."""
    for leaf in pytree.columns_of(tree):
        sizes = (*leaf.sequence, *leaf.shape)
        if leaf.form == "image":
            differs = image_size is None and None in leaf.shape[:2]
        elif leaf.encoding != "none":
            differs = None in leaf.shape
        else:
            is_nested = len(leaf.sequence) > 1 and sizes.count(None) > 1
            differs = not is_nested and None in sizes[1:]
        if differs:
            raise FeatureError(
                f"The feature {leaf.name!r} has values of different shapes.",
                fix="give image_size=(height, width), leave it out with columns=[...], or "
                "use as_numpy=True",
            )
