"""A summary of a version's metadata, for cards, Croissant and pages."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from my_datasets.core.value_types import JsonObject
from my_datasets.errors import IncompleteVersionError
from my_datasets.metadata.content import labels_of
from my_datasets.metadata.dataset_info import Declared, dataset_info
from my_datasets.metadata.feature_classes import read_features
from my_datasets.metadata.manifest import Manifest
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


def features(version_dir: Path) -> list[Feature]:
    """Returns the features of a prepared version, in the order of their names.

    Raises:
      OSError, MALFORMED: The features cannot be read; see `my_datasets.metadata.dataset_info`.
    """
    return list(_node(read_features(version_dir), (), version_dir, ""))


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


# The minimum mean length of texts that are not table columns.
_LONG = 40


def _node(
    given: JsonObject, path: tuple[str, ...], version_dir: Path, outer: str, *,
    is_in_sequence: bool = False,
) -> Iterator[Feature]:  # fmt: skip
    said = printable(str(given.get("description", ""))) or outer
    if "featuresDict" in given:
        inner = given["featuresDict"].get("features", {})
        for name in sorted(inner):
            yield from _node(
                inner[name], (*path, name), version_dir, "", is_in_sequence=is_in_sequence
            )
    elif "sequence" in given:
        yield from _node(
            given["sequence"]["feature"], path, version_dir, said, is_in_sequence=True
        )  # fmt: skip
    else:
        yield _leaf(given, path, version_dir, said, is_in_sequence=is_in_sequence)


def _leaf(
    given: JsonObject, path: tuple[str, ...], version_dir: Path, said: str, *,
    is_in_sequence: bool,
) -> Feature:  # fmt: skip
    member = next((one for one in _KINDS if one in given), "")
    python = str(given.get("pythonClassName", "")).rpartition(".")[2]
    own: JsonObject = given.get(member, {})
    dtype = "string" if member in ("text", "translation") else str(own.get("dtype", ""))
    classes, names = 0, tuple[str, ...]()
    if member == "classLabel":
        dtype, classes = "int64", int(own.get("numClasses", 0))
        names = (labels_of(version_dir, path) or ())[:_NAMED]
    return Feature(
        "/".join(path), _KINDS.get(member) or python or "unknown", dtype, _shape(own), said,
        printable(str(given.get("valueRange", ""))), classes, names, is_in_sequence,
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
    def read(cls, version_dir: Path) -> "About":
        """Reads the metadata of a prepared version.

        Raises:
          OSError, IncompleteVersionError, MALFORMED: The metadata cannot be read; see
            `my_datasets.metadata.dataset_info`.
        """
        info = dataset_info(version_dir)
        require_own_metadata(version_dir)
        declared = Declared.read(version_dir)
        manifest = Manifest.read(version_dir)
        found = features(version_dir)
        name, _, version = declared.name.partition(":")
        licence = info.get("redistributionInfo", {}).get("license")
        made = manifest.provenance.get("licence") if manifest else ""
        return cls(
            name, version, _text(info, "description"), _clean(licence or made),
            _text(info, "citation"), tuple(map(_clean, info.get("location", {}).get("urls", []))),
            _clean(info.get("releaseNotes", {}).get(version)),
            {split: sum(one.examples for one in some) for split, some in declared.splits.items()},
            tuple(found), modalities(found, manifest.statistics if manifest else {}),
            manifest.content.digest if manifest and manifest.content else "",
        )  # fmt: skip


def require_own_metadata(version_dir: Path) -> None:
    """Refuses a version in which a file other than a shard is a link out of its directory.

    Otherwise an export could expose that file, such as a private key.

    Raises:
      IncompleteVersionError: It has such a link, or its metadata cannot be read.
    """
    if addresses.is_remote(version_dir):
        return
    shards = {one.name for some in Declared.read(version_dir).splits.values() for one in some}
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
