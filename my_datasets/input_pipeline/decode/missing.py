"""What stands for a value that is missing, and the mask that says which ones are."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from my_datasets.errors import InvalidOptionError, explain
from my_datasets.metadata.features import Leaf

# What the user gives, and the same as a value of a stage: a mapping is a tuple of its items.
Fill = bool | int | float | str | bytes
Missing = Literal["tfds", "mask"] | Mapping[str, Fill]
MissingItems = Literal["tfds", "mask"] | tuple[tuple[str, Fill], ...]

# What a mask is called, after the name of its feature.
_MASK = "_is_missing"


@dataclass(frozen=True)
class FilledLeaf(Leaf):
    """An optional feature of which something else than TFDS's value stands for a missing one.

    Attributes:
      fill: What stands for it.
    """

    fill: Any = None


@dataclass(frozen=True)
class MaskLeaf(Leaf):
    """Whether another feature is missing.

    Attributes:
      of: That feature.
    """

    of: Leaf = dataclasses.field(default_factory=lambda: Leaf((), "number", "bool"))


def given_by_tfds(dtype: str) -> Any:
    """Returns the number that TFDS gives where one of a type is missing: in effect the least."""
    kind = np.dtype(dtype)
    if kind.kind == "f":
        # It is stored as a float32, which has no such number.
        return -np.inf if kind.itemsize > 4 else np.finfo(kind).min
    return False if kind.kind == "b" else np.iinfo(kind).min


def plain(leaf: Leaf) -> Leaf:
    """Returns a leaf without what stands for its missing values."""
    if not isinstance(leaf, FilledLeaf):
        return leaf
    return Leaf(**{one.name: getattr(leaf, one.name) for one in dataclasses.fields(Leaf)})


def items_of(missing: Missing | MissingItems) -> MissingItems:
    """Returns the option as a value that can be hashed.

    Raises:
      InvalidOptionError: It is neither `"tfds"`, nor `"mask"`, nor a mapping.
    """
    if isinstance(missing, str) and missing in ("tfds", "mask"):
        return missing
    if isinstance(missing, Mapping) and missing:
        return tuple(sorted(missing.items()))
    if isinstance(missing, tuple) and missing:
        return missing
    raise InvalidOptionError(
        explain(
            f"missing={missing!r} is unknown.",
            fix="use 'tfds', 'mask', or what stands for missing values: {'age': -1}",
        )
    )


def with_missing(tree: Any, missing: MissingItems) -> Any:
    """Returns the leaves of examples whose missing values are as the option says.

    Raises:
      InvalidOptionError: There is no such optional feature, what is to stand for its missing
        values is none of its values, or a mask would have no name.
    """
    if missing == "tfds":
        return tree
    if missing == "mask":
        return _masked(tree)
    fills = dict(missing)
    found = _filled(tree, fills)
    if fills:
        raise InvalidOptionError(
            explain(
                f"missing= names {', '.join(map(repr, sorted(fills)))}.",
                f"Optional features here: {', '.join(sorted(_optional(tree))) or 'none'}",
                fix="name those; columns= and as_supervised= say which features there are",
            )
        )
    return found


def _can_miss(node: Any) -> bool:
    """Whether it is a feature with a value that can be missing; lists are empty then."""
    return (
        isinstance(node, Leaf)
        and node.is_optional
        and not node.sequence
        and None not in node.shape
        and node.form != "image"
        and node.encoding == "none"
    )


def _optional(tree: Any) -> list[str]:
    if isinstance(tree, (Mapping, tuple)):
        nodes = tree.values() if isinstance(tree, Mapping) else tree
        return [name for node in nodes for name in _optional(node)]
    return [tree.name] if _can_miss(tree) else []


def _masked(tree: Any) -> Any:
    if not isinstance(tree, Mapping):
        if _optional(tree):
            raise InvalidOptionError(
                explain(
                    "missing='mask' gives masks by name, and there are no names here.",
                    f"Optional: {', '.join(_optional(tree))}",
                    fix="give as_supervised=False, or missing={'NAME': VALUE}",
                )
            )
        return tree
    found: dict[str, Any] = {}
    for name, node in tree.items():
        if not _can_miss(node):
            found[name] = _masked(node) if isinstance(node, Mapping) else node
            continue
        mask = f"{name}{_MASK}"
        if mask in tree:
            raise InvalidOptionError(
                explain(
                    f"There is a feature {mask!r}, which would be the mask of {name!r}.",
                    fix="give missing={'NAME': VALUE}",
                )
            )
        empty = b"" if node.form == "bytes" else np.zeros((), node.dtype)[()]
        found[name] = _with_fill(node, empty)
        found[mask] = MaskLeaf((*node.path[:-1], mask), "number", "bool", of=node)
    return found


def _filled(tree: Any, fills: dict[str, Fill]) -> Any:
    """Takes out of the fills those whose features are found."""
    if isinstance(tree, Mapping):
        return {name: _filled(node, fills) for name, node in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_filled(node, fills) for node in tree)
    if not _can_miss(tree) or tree.name not in fills:
        return tree
    return _with_fill(tree, _value(tree, fills.pop(tree.name)))


def _with_fill(leaf: Leaf, fill: Any) -> FilledLeaf:
    given = {one.name: getattr(leaf, one.name) for one in dataclasses.fields(Leaf)}
    return FilledLeaf(**given, fill=fill)


def _value(leaf: Leaf, fill: Fill) -> Any:
    """Returns a value of a feature's type."""
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
        explain(
            f"missing={{{leaf.name!r}: {fill!r}}} is no value of that feature.",
            f"Expected: {'a text' if leaf.form == 'bytes' else f'a number of type {leaf.dtype}'}",
            fix="give such a value",
        )
    )
