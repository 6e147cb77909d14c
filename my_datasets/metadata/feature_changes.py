"""The differences between the features of two versions, from their metadata alone."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from my_datasets.core.version import ChangeKind, VersionChange
from my_datasets.metadata.content import NOT_FORM, is_nested_dataset, labels_of
from my_datasets.metadata.feature_classes import FeatureNode, feature_nodes
from my_datasets.metadata.version_metadata import VersionMetadata

_Sizes = tuple[int | None, ...]

# Names of classes that a message shows.
_SHOWN = 8


@dataclass(frozen=True)
class _Leaf:
    """A feature without nested features.

    Attributes:
      kind: The member of TFDS's `feature.proto` that it has.
      sequence: The lengths of the sequences around it.
      labels: The names of its classes, if any.
      form: Its other fields.
    """

    kind: str
    sequence: _Sizes
    labels: tuple[str, ...] | None
    form: Mapping[str, Any] = field(default_factory=dict)

    @property
    def dtype(self) -> str:
        return str(self.form.get("dtype", ""))

    @property
    def shape(self) -> _Sizes:
        sizes = self.form.get("shape", {}).get("dimensions", [])
        return tuple(None if int(size) < 0 else int(size) for size in sizes)

    @property
    def is_optional(self) -> bool:
        return bool(self.form.get("optional"))

    @property
    def encoding(self) -> str:
        return str(self.form.get("encoding", "none")).lower()


def changes(old: VersionMetadata, new: VersionMetadata) -> Iterator[VersionChange]:
    """Yields the differences between the features of two versions."""
    before, after = _leaves(old), _leaves(new)
    for name in sorted({*before, *after}):
        node = f"feature {name}" if name else "the example"
        if name not in after:
            yield VersionChange(ChangeKind.FEATURE_REMOVED, node, _shown(before[name]))
        elif name not in before:
            yield VersionChange(ChangeKind.FEATURE_ADDED, node, after=_shown(after[name]))
        else:
            yield from _of_one(node, before[name], after[name])
    yield from _supervised(old, new)


def not_in_both(old: VersionMetadata, new: VersionMetadata) -> frozenset[str]:
    """Returns the names of the features that only one of two versions has."""
    return frozenset(set(_leaves(old)) ^ set(_leaves(new)))


def _of_one(node: str, old: _Leaf, new: _Leaf) -> Iterator[VersionChange]:
    if old.kind != new.kind:
        yield VersionChange(ChangeKind.FEATURE_KIND, node, _shown(old), _shown(new))
        return
    if old.dtype != new.dtype:
        kind = (
            ChangeKind.FEATURE_TYPE_WIDENED
            if _widens(old.dtype, new.dtype)
            else ChangeKind.FEATURE_TYPE
        )
        yield VersionChange(kind, node, old.dtype, new.dtype)
    for before, after in ((old.shape, new.shape), (old.sequence, new.sequence)):
        if before != after:
            kind = (
                ChangeKind.FEATURE_SHAPE_NARROWED
                if _narrows(before, after)
                else ChangeKind.FEATURE_SHAPE
            )
            yield VersionChange(kind, node, str(before), str(after))
    if old.is_optional != new.is_optional:
        kind = ChangeKind.FEATURE_OPTIONAL if new.is_optional else ChangeKind.FEATURE_REQUIRED
        yield VersionChange(
            kind, node, *(("required", "optional")[one.is_optional] for one in (old, new))
        )
    if old.encoding != new.encoding:
        yield VersionChange(ChangeKind.FEATURE_ENCODING, node, old.encoding, new.encoding)
    yield from _labels(node, old, new)
    known = ("dtype", "shape", "optional", "encoding", "numClasses")
    rest = [{k: v for k, v in one.form.items() if k not in known} for one in (old, new)]
    if rest[0] != rest[1]:
        yield VersionChange(ChangeKind.FEATURE_OTHERWISE, node, *(json.dumps(one) for one in rest))


def _labels(node: str, old: _Leaf, new: _Leaf) -> Iterator[VersionChange]:
    counts = [int(one.form.get("numClasses", 0)) for one in (old, new)]
    if old.labels is None or new.labels is None:
        if old.labels is None and new.labels is not None and counts[0] in (0, counts[1]):
            yield VersionChange(ChangeKind.LABELS_NAMED, node, "no names", _few(new.labels))
        elif old.labels != new.labels:
            yield VersionChange(ChangeKind.LABELS_CHANGED, node, _few(old.labels), _few(new.labels))
        elif counts[0] != counts[1]:
            kind = (
                ChangeKind.LABELS_APPENDED if counts[1] > counts[0] else ChangeKind.LABELS_CHANGED
            )
            yield VersionChange(kind, node, f"{counts[0]} classes", f"{counts[1]} classes")
        return
    if old.labels != new.labels:
        is_longer = new.labels[: len(old.labels)] == old.labels
        kind = ChangeKind.LABELS_APPENDED if is_longer else ChangeKind.LABELS_CHANGED
        yield VersionChange(kind, node, _few(old.labels), _few(new.labels))


def _supervised(old: VersionMetadata, new: VersionMetadata) -> Iterator[VersionChange]:
    before, after = (one.info.get("supervisedKeys") for one in (old, new))
    if before != after:
        kind = ChangeKind.SUPERVISED_CHANGED if before else ChangeKind.SUPERVISED_ADDED
        shown = [json.dumps(one) if one else "none" for one in (before, after)]
        yield VersionChange(kind, "as_supervised", *shown)


def _widens(old: str, new: str) -> bool:
    """Returns whether a type can represent all numbers of another."""
    (kind, bits), (new_kind, new_bits) = _type(old), _type(new)
    if kind == new_kind:
        return 0 < bits < new_bits
    return (kind, new_kind) == ("uint", "int") and 0 < bits < new_bits


def _type(dtype: str) -> tuple[str, int]:
    kind = dtype.rstrip("0123456789")
    bits = dtype[len(kind) :]
    return (kind, int(bits)) if kind in ("int", "uint", "float") and bits else (dtype, 0)


def _narrows(old: _Sizes, new: _Sizes) -> bool:
    """Returns whether every shape allowed now was allowed before."""
    return len(old) == len(new) and all(
        before in (None, after) for before, after in zip(old, new, strict=True)
    )


def _leaves(version: VersionMetadata) -> dict[str, _Leaf]:
    nodes = feature_nodes(version.features)
    return {"/".join(one.path): _leaf(one, labels_of(version.path, one.path)) for one in nodes}


def _leaf(node: FeatureNode, labels: tuple[str, ...] | None) -> _Leaf:
    kind = next((name for name in node.feature if name not in NOT_FORM), "")
    form = node.feature.get(kind, {})
    if not isinstance(form, Mapping) or kind == "jsonFeature":
        # Fields of a user's own class, which alone knows their meaning.
        form = {"json": form, "class": node.feature.get("pythonClassName")}
    datasets = sum(map(is_nested_dataset, node.sequences))
    return _Leaf(kind + datasets * " of a dataset", node.lengths, labels, form)


def _shown(leaf: _Leaf) -> str:
    sequence = f" in sequences of {leaf.sequence}" if leaf.sequence else ""
    dtype = f" {leaf.dtype}" if leaf.dtype else ""
    shape = f" of shape {leaf.shape}" if leaf.shape else ""
    return f"{leaf.kind}{dtype}{shape}{sequence}"


def _few(labels: tuple[str, ...] | None) -> str:
    if labels is None:
        return "no names"
    shown = ", ".join(labels[:_SHOWN])
    return f"{len(labels)} classes: {shown}{', ...' if len(labels) > _SHOWN else ''}"
