"""Fill values for missing features, and masks of what is missing."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from my_datasets.errors import InvalidOptionError
from my_datasets.input_pipeline.decode.pytree import Leaves, columns_of, map_columns
from my_datasets.metadata.features import Leaf

# The user's option, and its hashable form in a stage: a mapping becomes a tuple of its items.
Fill = bool | int | float | str | bytes
Missing = Literal["tfds", "mask"] | Mapping[str, Fill]
MissingItems = Literal["tfds", "mask"] | tuple[tuple[str, Fill], ...]

# The suffix of a mask's name.
_MASK = "_is_missing"


@dataclass(frozen=True)
class FilledLeaf(Leaf):
    """An optional feature whose missing values become `fill`, not TFDS's value."""

    fill: object = None


@dataclass(frozen=True)
class MaskLeaf(Leaf):
    """Whether the feature `of` is missing."""

    of: Leaf = dataclasses.field(default_factory=lambda: Leaf((), "number", "bool"))


def given_by_tfds(dtype: str) -> float | np.floating:
    """Returns TFDS's value for a missing number of this type: in effect the smallest one."""
    kind = np.dtype(dtype)
    if kind.kind == "f":
        # float64 is stored as float32, which cannot hold the smallest float64.
        return -np.inf if kind.itemsize > 4 else np.finfo(kind).min
    return False if kind.kind == "b" else np.iinfo(kind).min


def plain(leaf: Leaf) -> Leaf:
    """Returns a leaf without its fill value."""
    return Leaf(**_fields(leaf)) if isinstance(leaf, FilledLeaf) else leaf


def _fields(leaf: Leaf) -> dict[str, Any]:
    return {one.name: getattr(leaf, one.name) for one in dataclasses.fields(Leaf)}


def items_of(missing: Missing | MissingItems) -> MissingItems:
    """Returns the option in its hashable form; InvalidOptionError if it is no valid one."""
    if isinstance(missing, str) and missing in ("tfds", "mask"):
        return missing
    if isinstance(missing, Mapping) and missing:
        return tuple(sorted(missing.items()))
    if isinstance(missing, tuple) and missing:
        return missing
    raise InvalidOptionError(
        f"missing={missing!r} is unknown.",
        fix="use 'tfds', 'mask', or values by feature: {'age': -1}",
    )


def with_missing(tree: Leaves, missing: MissingItems) -> Leaves:
    """Returns the leaves with the fill values and masks that the option asks for.

    Raises:
      InvalidOptionError: An optional feature does not exist, a fill value does not fit its type,
        or a mask would have no name.
    """
    if missing == "tfds":
        return tree
    if missing == "mask":
        return _masked(tree)
    fills = dict(missing)
    found = _filled(tree, fills)
    if fills:
        raise InvalidOptionError(
            f"missing= names {', '.join(map(repr, sorted(fills)))}.",
            f"Optional features here: {', '.join(sorted(_optional(tree))) or 'none'}",
            fix="name those; columns= and as_supervised= choose the features",
        )
    return found


def _can_miss(leaf: Leaf) -> bool:
    """Whether the leaf has a value that can be missing; missing lists are empty instead."""
    return (
        leaf.is_optional
        and not leaf.sequence
        and None not in leaf.shape
        and leaf.form != "image"
        and leaf.encoding == "none"
    )


def _optional(tree: Leaves) -> list[str]:
    return [leaf.name for leaf in columns_of(tree) if _can_miss(leaf)]


def _masked(tree: Leaves) -> Leaves:
    if not isinstance(tree, Mapping):
        if _optional(tree):
            raise InvalidOptionError(
                "missing='mask' names masks after features, which have no names here.",
                f"Optional: {', '.join(_optional(tree))}",
                fix="give as_supervised=False, or missing={'NAME': VALUE}",
            )
        return tree
    found: dict[str, Leaves] = {}
    for name, node in tree.items():
        if not isinstance(node, Leaf) or not _can_miss(node):
            found[name] = _masked(node) if isinstance(node, Mapping) else node
            continue
        mask = f"{name}{_MASK}"
        if mask in tree:
            raise InvalidOptionError(
                f"There is a feature {mask!r}, which would be the mask of {name!r}.",
                fix="give missing={'NAME': VALUE}",
            )
        empty = b"" if node.form == "bytes" else np.zeros((), node.dtype)[()]
        found[name] = FilledLeaf(**_fields(node), fill=empty)
        found[mask] = MaskLeaf((*node.path[:-1], mask), "number", "bool", of=node)
    return found


def _filled(tree: Leaves, fills: dict[str, Fill]) -> Leaves:
    """Applies the fills, and removes those that were applied."""

    def filled(leaf: Leaf) -> Leaf:
        if not _can_miss(leaf) or leaf.name not in fills:
            return leaf
        return FilledLeaf(**_fields(leaf), fill=_value(leaf, fills.pop(leaf.name)))

    return map_columns(filled, tree)


def _value(leaf: Leaf, fill: Fill) -> object:
    """Converts a fill value to the feature's type."""
    if leaf.form == "bytes":
        if isinstance(fill, (str, bytes)):
            return fill.encode() if isinstance(fill, str) else fill
    else:
        dtype = np.dtype(leaf.dtype)
        given = np.asarray(fill).dtype.kind
        fits = {"b": "b", "f": "fiu", "i": "iu", "u": "iu"}.get(dtype.kind, "")
        if given in fits:
            try:
                with np.errstate(over="ignore"):
                    found = np.array(fill, dtype)[()]
            except OverflowError:
                found = None
            is_float = dtype.kind == "f"
            if found is not None and (
                np.isfinite(found) == np.isfinite(fill) if is_float else found == fill
            ):
                return found
    raise InvalidOptionError(
        f"missing={{{leaf.name!r}: {fill!r}}} does not fit the feature's type.",
        f"Expected: {'a text' if leaf.form == 'bytes' else f'a number of type {leaf.dtype}'}",
        fix="give such a value",
    )
