"""What is known of a version, from its metadata, for those who describe it."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from my_datasets.errors import IncompleteVersionError, explain
from my_datasets.metadata.content import labels_of
from my_datasets.metadata.feature_classes import FeatureNode, feature_nodes
from my_datasets.metadata.version_metadata import VersionMetadata
from my_datasets.printable import printable
from my_datasets.storage import addresses

# What each kind is called, by its member in TFDS's `feature.proto`.
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
# Names of classes that a row quotes.
_NAMED = 12


@dataclass(frozen=True)
class Feature:
    """A feature that holds no others.

    Attributes:
      name: The names from the top to it, with slashes; empty if an example is nothing else.
      kind: What it is.
      dtype: Its type.
      shape: Of one value, such as `8 x 8 x 1`; a dimension that differs is `?`.
      description: What its builder says of it.
      values: What its builder says of its values.
      classes: How many classes there are; 0 if it is no label.
      class_names: The names of the first few, as far as they have names.
      is_in_sequence: Whether an example has any number of them.
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
      OSError, MALFORMED: They cannot be read; see `my_datasets.metadata.dataset_info`.
    """
    return [_feature(one, version.path) for one in feature_nodes(version.features)]


def modalities(found: list[Feature], statistics: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns what a dataset is of: `image`, `video`, `audio` or `text`, or else `table`.

    Args:
      found: Its features.
      statistics: By split, as in the manifest: texts of few characters are values of a table.
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


# Characters of a text that is read, not a value of a table.
_LONG = 40


def _feature(node: FeatureNode, version_dir: Path) -> Feature:
    member = next((one for one in _KINDS if one in node.feature), "")
    python = str(node.feature.get("pythonClassName", "")).rpartition(".")[2]
    own: Mapping[str, Any] = node.feature.get(member, {})
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


def _shape(given: Mapping[str, Any]) -> str:
    sizes = [int(size) for size in (given.get("shape") or {}).get("dimensions", [])]
    return " x ".join("?" if size < 0 else str(size) for size in sizes)


@dataclass(frozen=True)
class SummaryFile:
    """A file.

    Attributes:
      name: What it is called.
      url: Where it is: an address, or a path beside the description.
      bytes: Its size.
      sha256: Of its contents, in hexadecimal.
      kind: Its media type.
    """

    name: str
    url: str
    bytes: int
    sha256: str
    kind: str = "application/octet-stream"


@dataclass(frozen=True)
class About:
    """What is known of a version.

    Attributes:
      name: Its name, with the config.
      version: Its version.
      description: What it is, in Markdown.
      licence: Its licence.
      citation: How it is cited.
      urls: Where there is more about it.
      notes: What its release notes say of this version.
      examples: How many examples each split has.
      features: Its features.
      modalities: What it is of.
      digest: That of its content; empty if it is not known.
      published: When, in ISO 8601; empty if it is not.
      files: Its files.
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
        """What each feature is, by name."""
        return {one.name: one.description for one in self.features}

    @classmethod
    def read(cls, version: Path | VersionMetadata) -> "About":
        """Returns what the metadata of a prepared version say.

        Raises:
          OSError, IncompleteVersionError, MALFORMED: They cannot be read; see
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
    """Refuses a version of which a file is a link that leads elsewhere, except for shards.

    What is written of it for others could hold what is in that file, such as a private key.

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
                explain(
                    f"{path} is a link that leads out of the version's directory.",
                    f"It leads to: {os.path.realpath(path)}",
                    fix="look at that file; if it belongs to the version, copy it in place of the "
                    "link",
                )
            )


def _text(info: Mapping[str, Any], name: str) -> str:
    return _clean(info.get(name))


def _clean(text: Any) -> str:
    """Returns a text for pages and cards; see `printable`."""
    return printable(str(text or "")).strip()
