"""The features of a prepared version, read from its `features.json` without TFDS.

The kind of a feature is the member of TFDS's `feature.proto` that it has in that file. Features
inside a sequence are nested as in TFDS: a sequence of dicts is a dict of sequences.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from my_datasets.errors import FeatureError, IncompleteVersionError
from my_datasets.metadata.content import labels_of
from my_datasets.metadata.feature_classes import FeatureNode, map_features

Form = Literal["number", "bytes", "image"]
_Given = Mapping[str, Any]
_Path = tuple[str, ...]
_Sizes = tuple[int | None, ...]

_BYTES = ("string", "object")


@dataclass(frozen=True)
class Leaf:
    """A feature without nested features.

    Attributes:
      path: The names from the top to it; empty if it is the whole example.
      form: The kind of its values.
      dtype: Their NumPy type; `object` for bytes.
      shape: The shape of one value; None for a variable dimension.
      sequence: The lengths of the sequences around it, outermost first; None for a variable length.
      encoding: How a number's tensor is stored: `none`, `bytes` or `zlib`.
      labels: The names of the classes, if it is a class label and they are known.
      is_optional: Whether it may be missing.
      classes: The number of classes, if it is a class label.
      sample_rate: Samples per second, if it is audio and the rate is known.
    """

    path: tuple[str, ...]
    form: Form
    dtype: str
    shape: tuple[int | None, ...] = ()
    sequence: tuple[int | None, ...] = ()
    encoding: str = "none"
    labels: tuple[str, ...] | None = None
    is_optional: bool = False
    classes: int | None = None
    sample_rate: int | None = None

    @property
    def name(self) -> str:
        """Its name in records and messages: the path, with slashes."""
        return "/".join(self.path)

    @property
    def is_nested(self) -> bool:
        """Whether records store the lengths of its inner sequences beside its values."""
        several = (*self.sequence, *self.shape).count(None) > 1
        return len(self.sequence) > 1 and several and self.form != "image"

    @property
    def has_shapes(self) -> bool:
        """Whether records store the shape of each value beside it."""
        return self.encoding != "none" and self.shape.count(None) > 1

    @property
    def keys(self) -> tuple[str, ...]:
        """Its keys in records: that of the values first, then those of sizes."""
        if self.has_shapes:
            return f"{self.name}/value", f"{self.name}/shape"
        if self.is_nested:
            levels = range(len(self.sequence) - 1)
            lengths = (f"{self.name}/ragged_row_lengths_{level}" for level in levels)
            return f"{self.name}/ragged_flat_values", *lengths
        return (self.name,)


# Leaves, nested in dicts as examples are; or a single leaf.
Tree: TypeAlias = "Leaf | dict[str, Tree]"


@dataclass(frozen=True)
class Schema:
    """The features of a dataset.

    Attributes:
      supervised: The declared input and target features, nested as declared; None if none are.
    """

    tree: Tree
    supervised: tuple[Any, Any] | None = None


def supervised(info: Mapping[str, Any], tree: Tree) -> tuple[Any, Any] | None:
    """Returns the declared input and target leaves, nested as declared; None if none are.

    Raises:
      IncompleteVersionError: `dataset_info.json` names a feature that does not exist.
    """
    keys = info.get("supervisedKeys", {}).get("tuple", {}).get("items")
    if not keys or len(keys) != 2:
        return None
    return _chosen(keys[0], tree), _chosen(keys[1], tree)


def tree_of(features: Mapping[str, Any], directory: Path) -> Tree:
    """Returns the leaves that `features.json` describes, nested in dicts as examples are.

    Raises:
      FeatureError: One has a kind that only TFDS reads.
    """
    tree: Tree = map_features(features, functools.partial(_leaf, directory))
    return tree


def leaves_of(tree: Tree) -> list[Leaf]:
    """Returns the leaves of a tree, in the order of their names."""
    if isinstance(tree, Leaf):
        return [tree]
    return [leaf for name in sorted(tree) for leaf in leaves_of(tree[name])]


def _chosen(key: Mapping[str, Any], tree: Tree) -> Any:
    if "featureKey" in key:
        if not isinstance(tree, Mapping) or key["featureKey"] not in tree:
            raise IncompleteVersionError(
                f"supervised_keys name a feature {key['featureKey']!r}, which does not exist.",
                "dataset_info.json and features.json do not belong together.",
                fix="build or pull the version again",
            )
        return tree[key["featureKey"]]
    if "tuple" in key:
        return tuple(_chosen(item, tree) for item in key["tuple"]["items"])
    return {name: _chosen(item, tree) for name, item in key["dict"]["dict"].items()}


def _leaf(directory: Path, node: FeatureNode) -> Leaf | dict[str, Leaf]:
    member = next((one for one in _READERS if one in node.feature), None)
    if member is None:
        raise _unknown(node.path, node.feature.get("pythonClassName", "a feature"))
    if member == "classLabel":
        labels = labels_of(directory, node.path)
        classes = int(node.feature[member].get("numClasses", 0))
        return Leaf(
            node.path, "number", "int64", (), node.lengths, labels=labels, classes=classes
        )  # fmt: skip
    return _READERS[member](node.feature[member], node.path, node.lengths)


def _tensor(given: _Given, path: _Path, sequence: _Sizes) -> Leaf:
    dtype = given.get("dtype", "float32")
    if dtype == "bfloat16":
        raise _unknown(path, "of bfloat16")
    form: Form = "bytes" if dtype in _BYTES else "number"
    return Leaf(
        path, form, "object" if form == "bytes" else dtype, _shape(given), sequence,
        given.get("encoding", "none").lower(), is_optional=bool(given.get("optional")),
    )  # fmt: skip


def _text(_given: _Given, path: _Path, sequence: _Sizes) -> Leaf:
    return Leaf(path, "bytes", "object", (), sequence)


def _image(given: _Given, path: _Path, sequence: _Sizes) -> Leaf:
    return Leaf(path, "image", given.get("dtype", "uint8"), _shape(given), sequence)


def _video(given: _Given, path: _Path, sequence: _Sizes) -> Leaf:
    length, *shape = _shape(given)
    return Leaf(path, "image", given.get("dtype", "uint8"), tuple(shape), (*sequence, length))


def _audio(given: _Given, path: _Path, sequence: _Sizes) -> Leaf:
    if given.get("lazyDecode") or given.get("encoding", "NONE") != "NONE":
        raise _unknown(path, "audio that is decoded late")
    rate = int(given.get("sampleRate", 0)) or None
    dtype = given.get("dtype", "int64")
    return Leaf(path, "number", dtype, _shape(given), sequence, sample_rate=rate)


def _translation(given: _Given, path: _Path, sequence: _Sizes) -> dict[str, Leaf]:
    if "languages" not in given or given.get("variableLanguagesPerExample"):
        raise _unknown(path, "a translation of variable languages")
    return {
        language: Leaf((*path, language), "bytes", "object", (), sequence)
        for language in sorted(given["languages"])
    }


# By the member of TFDS's `feature.proto`.
_READERS: Mapping[str, Callable[[_Given, _Path, _Sizes], Leaf | dict[str, Leaf]]] = {
    "tensor": _tensor, "classLabel": _tensor, "text": _text, "image": _image, "video": _video,
    "audio": _audio, "boundingBox": _tensor, "translation": _translation,
}  # fmt: skip


def _shape(given: _Given) -> _Sizes:
    sizes = [int(size) for size in given.get("shape", {}).get("dimensions", [])]
    return tuple(None if size < 0 else size for size in sizes)


def _unknown(path: tuple[str, ...], what: str) -> FeatureError:
    return FeatureError(
        f"The feature {'/'.join(path) or '(all)'!r} is {what}, which only TFDS reads.",
        fix="read this dataset with my_datasets.load, or choose other columns",
    )
