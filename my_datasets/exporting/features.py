"""The features of a version as its `features.json` declares them, for people."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from my_datasets.metadata.content import labels_of
from my_datasets.metadata.feature_classes import read_features
from my_datasets.printable import printable

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
