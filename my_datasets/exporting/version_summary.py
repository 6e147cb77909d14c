"""A summary of a version's metadata and features, for cards, Croissant and pages."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from my_datasets.core.json_types import JsonObject
from my_datasets.errors import IncompleteVersionError
from my_datasets.metadata.content import labels_of
from my_datasets.metadata.feature_classes import FeatureNode, feature_nodes
from my_datasets.metadata.version_metadata import VersionMetadata
from my_datasets.printable import printable
from my_datasets.storage import addresses

# The name of each kind, by its member in TFDS's `feature.proto`.
_KINDS = {
    "tensor": "tensor",
    "classLabel": "class label",
    "text": "text",
    "image": "image",
    "video": "video",
    "audio": "audio",
    "boundingBox": "bounding box",
    "translation": "translation",
}
# The maximum number of class names to show.
_NAMED = 12

# The minimum mean length of texts that are not table columns.
_LONG = 40


@dataclass(frozen=True)
class Feature:
    """A leaf feature.

    Attributes:
      name: Its path with slashes; empty if it is the whole example.
      kind: Its kind, such as `class label`.
      shape: The shape of one value, such as `8 x 8 x 1`; unknown dimensions are `?`.
      values: The description of its value range.
      classes: The number of classes; 0 if it is not a label.
      class_names: The names of the first few classes, if they have names.
    """

    name: str
    kind: str
    dtype: str
    shape: str
    description: str = ""
    values: str = ""
    classes: int = 0
    class_names: tuple[str, ...] = ()
    is_in_sequence: bool = False


def features(version: VersionMetadata) -> list[Feature]:
    """Returns the features of a prepared version, in the order of their names.

    Raises:
      OSError, MALFORMED: The features cannot be read; see `my_datasets.metadata.dataset_info`.
    """
    return [_feature(one, version.path) for one in feature_nodes(version.features)]


def modalities(found: list[Feature], statistics: JsonObject) -> tuple[str, ...]:
    """Returns a dataset's modalities: `image`, `video`, `audio`, `text`, or else `table`.

    Args:
      found: Its features.
      statistics: By split, as in the manifest; features with short texts are table columns.
    """
    kinds = {one.kind for one in found}
    media: list[str] = [kind for kind in ("image", "video", "audio") if kind in kinds]
    if "translation" in kinds or any(
        given["kind"] == "text" and given.get("lengths", {}).get("mean", 0) >= _LONG
        for split in statistics.values()
        for given in split["features"].values()
    ):
        media.append("text")
    is_of_text = kinds <= {"text", "class label"} and "text" in kinds and not statistics
    return tuple(media) or (("text",) if is_of_text else ("table",))


def _feature(node: FeatureNode, version_dir: Path) -> Feature:
    member = next((one for one in _KINDS if one in node.feature), "")
    python = str(node.feature.get("pythonClassName", "")).rpartition(".")[2]
    own: JsonObject = node.feature.get(member, {})
    dtype = "string" if member in ("text", "translation") else str(own.get("dtype", ""))
    classes, names = 0, tuple[str, ...]()
    if member == "classLabel":
        dtype, classes = "int64", int(own.get("numClasses", 0))
        names = (labels_of(version_dir, node.path) or ())[:_NAMED]
    return Feature(
        "/".join(node.path), _KINDS.get(member) or python or "unknown", dtype, _shape(own),
        printable(node.text), printable(str(node.feature.get("valueRange", ""))), classes, names,
        bool(node.sequences),
    )  # fmt: skip


def _shape(given: JsonObject) -> str:
    sizes = [int(size) for size in (given.get("shape") or {}).get("dimensions", [])]
    return " x ".join("?" if size < 0 else str(size) for size in sizes)


@dataclass(frozen=True)
class SummaryFile:
    """A file: `url` is a URL or relative path, and `kind` its media type."""

    name: str
    url: str
    bytes: int
    sha256: str
    kind: str = "application/octet-stream"


@dataclass(frozen=True)
class About:
    """A summary of a version's metadata.

    Attributes:
      name: The dataset's name with the config.
      description: Its description, in Markdown.
      urls: Its homepages.
      notes: The release notes of this version.
      examples: The number of examples of each split.
      modalities: Its modalities, such as `image`.
      published: Time of publication in ISO 8601; empty if it is not published.
    """

    name: str
    version: str
    description: str = ""
    licence: str = ""
    citation: str = ""
    urls: Sequence[str] = ()
    notes: str = ""
    examples: Mapping[str, int] = field(default_factory=dict)
    features: Sequence[Feature] = ()
    modalities: Sequence[str] = ()
    digest: str = ""
    published: str = ""
    files: Sequence[SummaryFile] = ()

    @property
    def descriptions(self) -> dict[str, str]:
        """The descriptions of features, by name."""
        return {one.name: one.description for one in self.features}

    @classmethod
    def read(cls, version: Path | VersionMetadata) -> "About":
        """Reads the metadata of a prepared version.

        Raises:
          OSError, IncompleteVersionError, MALFORMED: The metadata cannot be read; see
            `my_datasets.metadata.dataset_info`.
        """
        metadata = VersionMetadata.of(version)
        info, declared = metadata.info, metadata.declared
        require_own_metadata(metadata)
        manifest = metadata.manifest
        found = features(metadata)
        name, _, number = declared.name.partition(":")
        licence = info.get("redistributionInfo", {}).get("license")
        made = manifest.provenance.get("licence") if manifest else ""
        return cls(
            name, number, _text(info, "description"), _clean(licence or made),
            _text(info, "citation"), tuple(map(_clean, info.get("location", {}).get("urls", []))),
            _clean(info.get("releaseNotes", {}).get(number)),
            {split: sum(one.examples for one in some) for split, some in declared.splits.items()},
            tuple(found), modalities(found, manifest.statistics if manifest else {}),
            manifest.content.digest if manifest and manifest.content else "",
        )  # fmt: skip


def require_own_metadata(version: Path | VersionMetadata) -> None:
    """Refuses a version in which a file other than a shard is a link out of its directory.

    Otherwise an export could expose that file, such as a private key.

    Raises:
      IncompleteVersionError: It has such a link, or its metadata cannot be read.
    """
    metadata = VersionMetadata.of(version)
    version_dir = metadata.path
    if addresses.is_remote(version_dir):
        return
    shards = {one.name for some in metadata.declared.splits.values() for one in some}
    own = os.path.realpath(version_dir)
    for path in sorted(version_dir.iterdir()):
        if not path.is_symlink() or path.name in shards:
            continue
        if not Path(os.path.realpath(path)).is_relative_to(own):
            raise IncompleteVersionError(
                f"{path} is a link that leads out of the version's directory.",
                f"It leads to: {os.path.realpath(path)}",
                fix="check that file; if it belongs to the version, replace the link with a copy",
            )


def _text(info: JsonObject, name: str) -> str:
    return _clean(info.get(name))


def _clean(text: object) -> str:
    """Returns a printable text."""
    return printable(str(text or "")).strip()
