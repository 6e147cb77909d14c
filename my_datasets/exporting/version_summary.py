"""What is known of a version, from its metadata, for those who describe it."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from my_datasets.errors import IncompleteVersionError
from my_datasets.metadata.content import labels_of
from my_datasets.metadata.dataset_info import Declared, dataset_info
from my_datasets.metadata.feature_classes import read_features
from my_datasets.metadata.manifest import Manifest
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


def features(version_dir: Path) -> list[Feature]:
    """Returns the features of a prepared version, in the order of their names.

    Raises:
      OSError, MALFORMED: They cannot be read; see `my_datasets.metadata.dataset_info`.
    """
    return list(_node(read_features(version_dir), (), version_dir, ""))


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


def _node(
    given: Mapping[str, Any], path: tuple[str, ...], version_dir: Path, outer: str, *,
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
    given: Mapping[str, Any], path: tuple[str, ...], version_dir: Path, said: str, *,
    is_in_sequence: bool,
) -> Feature:  # fmt: skip
    member = next((one for one in _KINDS if one in given), "")
    python = str(given.get("pythonClassName", "")).rpartition(".")[2]
    own: Mapping[str, Any] = given.get(member, {})
    dtype = "string" if member in ("text", "translation") else str(own.get("dtype", ""))
    classes, names = 0, tuple[str, ...]()
    if member == "classLabel":
        dtype, classes = "int64", int(own.get("numClasses", 0))
        names = (labels_of(version_dir, path) or ())[:_NAMED]
    return Feature(
        "/".join(path), _KINDS.get(member) or python or "unknown", dtype, _shape(own), said,
        printable(str(given.get("valueRange", ""))), classes, names, is_in_sequence,
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
    def read(cls, version_dir: Path) -> "About":
        """Returns what the metadata of a prepared version say.

        Raises:
          OSError, IncompleteVersionError, MALFORMED: They cannot be read; see
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
    """Refuses a version of which a file is a link that leads elsewhere, except for shards.

    What is written of it for others could hold what is in that file, such as a private key.

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
                fix="look at that file; if it belongs to the version, copy it in place of the link",
            )


def _text(info: Mapping[str, Any], name: str) -> str:
    return _clean(info.get(name))


def _clean(text: Any) -> str:
    """Returns a text for pages and cards; see `printable`."""
    return printable(str(text or "")).strip()
