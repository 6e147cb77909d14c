"""The features of a prepared version, read from its `features.json` without TFDS.

A feature is told by the member of TFDS's `feature.proto` that it has in that file. Features inside
of a sequence come as TFDS gives them: a sequence of dicts is a dict of sequences.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from my_datasets.errors import FeatureError, IncompleteVersionError, explain
from my_datasets.metadata.content import labels_of
from my_datasets.metadata.dataset_info import dataset_info
from my_datasets.metadata.feature_classes import read_features

Form = Literal["number", "bytes", "image"]

_BYTES = ("string", "object")


@dataclass(frozen=True)
class Leaf:
    """A feature that holds no others.

    Attributes:
      path: The names from the top to it; empty if the example is nothing else.
      form: What its values are.
      dtype: Their NumPy type; `object` for bytes.
      shape: Of one value; None for a dimension that differs.
      sequence: The lengths of the sequences around it, the outermost first; None for one that
        differs.
      encoding: How a number's tensor is stored: `none`, `bytes` or `zlib`.
      labels: The names of the classes, if it is a class label and they are known.
      is_optional: Whether it may be missing.
      classes: How many classes there are, if it is a class label.
      sample_rate: Of audio, in samples per second, if it is known.
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
        """Whether records have the lengths of its inner sequences beside its values."""
        several = (*self.sequence, *self.shape).count(None) > 1
        return len(self.sequence) > 1 and several and self.form != "image"

    @property
    def has_shapes(self) -> bool:
        """Whether records have the shape of each value beside it."""
        return self.encoding != "none" and self.shape.count(None) > 1

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of records that hold it: that of the values first, then those of sizes."""
        if self.has_shapes:
            return f"{self.name}/value", f"{self.name}/shape"
        if self.is_nested:
            levels = range(len(self.sequence) - 1)
            lengths = (f"{self.name}/ragged_row_lengths_{level}" for level in levels)
            return f"{self.name}/ragged_flat_values", *lengths
        return (self.name,)


@dataclass(frozen=True)
class Schema:
    """The features of a dataset.

    Attributes:
      tree: Leaves, nested in dicts as examples are; or a leaf only.
      supervised: The features that are input and target, nested as they are given; None if none
        are declared.
    """

    tree: Any
    supervised: tuple[Any, Any] | None = None


def read(version_dir: Path) -> Schema:
    """Returns the features of a prepared version.

    Args:
      version_dir: Its directory.

    Raises:
      FeatureError: One of them is of a kind that only TFDS reads.
      IncompleteVersionError: The metadata contradict each other.
    """
    tree = read_tree(version_dir)
    keys = dataset_info(version_dir).get("supervisedKeys", {}).get("tuple", {}).get("items")
    supervised = None
    if keys and len(keys) == 2:
        supervised = (_chosen(keys[0], tree), _chosen(keys[1], tree))
    return Schema(tree, supervised)


def read_tree(directory: Path) -> Any:
    """Returns leaves, nested in dicts as examples are, from the files that describe features.

    Args:
      directory: Where `features.json` and the names of classes are.

    Raises:
      FeatureError: One of them is of a kind that only TFDS reads.
    """
    return _Reader(directory).node(read_features(directory), (), ())


def leaves_of(tree: Any) -> list[Leaf]:
    """Returns the leaves of a tree, in the order of their names."""
    if isinstance(tree, Leaf):
        return [tree]
    return [leaf for name in sorted(tree) for leaf in leaves_of(tree[name])]


def known_leaves(directory: Path) -> list[Leaf] | None:
    """Returns the leaves of features in the order of their names; None if only TFDS reads some.

    Args:
      directory: Where `features.json` and the names of classes are.
    """
    try:
        return leaves_of(read_tree(directory))
    except FeatureError:
        return None


def _chosen(key: Mapping[str, Any], tree: Any) -> Any:
    if "featureKey" in key:
        if not isinstance(tree, Mapping) or key["featureKey"] not in tree:
            raise IncompleteVersionError(
                explain(
                    f"supervised_keys name a feature {key['featureKey']!r}, which is not there.",
                    "dataset_info.json and features.json do not belong together.",
                    fix="build or pull the version anew",
                )
            )
        return tree[key["featureKey"]]
    if "tuple" in key:
        return tuple(_chosen(item, tree) for item in key["tuple"]["items"])
    return {name: _chosen(item, tree) for name, item in key["dict"]["dict"].items()}


@dataclass(frozen=True)
class _Reader:
    version_dir: Path

    def node(
        self, given: Mapping[str, Any], path: tuple[str, ...], sequence: tuple[int | None, ...]
    ) -> Any:
        for member, read in (
            ("featuresDict", self._dict), ("sequence", self._sequence), ("tensor", self._tensor),
            ("classLabel", self._label), ("text", self._text), ("image", self._image),
            ("video", self._video), ("audio", self._audio), ("boundingBox", self._tensor),
            ("translation", self._translation),
        ):  # fmt: skip
            if member in given:
                return read(given[member], path, sequence)
        raise _unknown(path, given.get("pythonClassName", "a feature"))

    def _dict(self, given: Any, path: Any, sequence: Any) -> Any:
        features = given.get("features", {})
        return {
            name: self.node(features[name], (*path, name), sequence) for name in sorted(features)
        }

    def _sequence(self, given: Any, path: Any, sequence: Any) -> Any:
        length = int(given.get("length", -1))
        return self.node(given["feature"], path, (*sequence, None if length < 0 else length))

    def _tensor(self, given: Any, path: Any, sequence: Any) -> Leaf:
        dtype = given.get("dtype", "float32")
        if dtype == "bfloat16":
            raise _unknown(path, "of bfloat16")
        form: Form = "bytes" if dtype in _BYTES else "number"
        return Leaf(
            path, form, "object" if form == "bytes" else dtype, _shape(given), sequence,
            given.get("encoding", "none").lower(), is_optional=bool(given.get("optional")),
        )  # fmt: skip

    def _label(self, given: Any, path: Any, sequence: Any) -> Leaf:
        labels = labels_of(self.version_dir, path)
        classes = int(given.get("numClasses", 0))
        return Leaf(path, "number", "int64", (), sequence, labels=labels, classes=classes)

    def _text(self, _given: Any, path: Any, sequence: Any) -> Leaf:
        return Leaf(path, "bytes", "object", (), sequence)

    def _image(self, given: Any, path: Any, sequence: Any) -> Leaf:
        return Leaf(path, "image", given.get("dtype", "uint8"), _shape(given), sequence)

    def _video(self, given: Any, path: Any, sequence: Any) -> Leaf:
        length, *shape = _shape(given)
        return Leaf(path, "image", given.get("dtype", "uint8"), tuple(shape), (*sequence, length))

    def _audio(self, given: Any, path: Any, sequence: Any) -> Leaf:
        if given.get("lazyDecode") or given.get("encoding", "NONE") != "NONE":
            raise _unknown(path, "audio that is decoded late")
        rate = int(given.get("sampleRate", 0)) or None
        dtype = given.get("dtype", "int64")
        return Leaf(path, "number", dtype, _shape(given), sequence, sample_rate=rate)

    def _translation(self, given: Any, path: Any, sequence: Any) -> Any:
        if "languages" not in given or given.get("variableLanguagesPerExample"):
            raise _unknown(path, "a translation of variable languages")
        return {
            language: Leaf((*path, language), "bytes", "object", (), sequence)
            for language in sorted(given["languages"])
        }


def _shape(given: Mapping[str, Any]) -> tuple[int | None, ...]:
    sizes = [int(size) for size in cast(Any, given.get("shape", {})).get("dimensions", [])]
    return tuple(None if size < 0 else size for size in sizes)


def _unknown(path: tuple[str, ...], what: str) -> FeatureError:
    return FeatureError(
        explain(
            f"The feature {'/'.join(path) or '(all)'!r} is {what}, which only TFDS reads.",
            fix="read this dataset with my_datasets.load, or choose other columns",
        )
    )
