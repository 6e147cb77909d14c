"""What is in a prepared version: digests of its examples, whatever form they are stored in.

`docs/digest.md` defines them. All here is arithmetic on hashes of examples; where those come from
is others' business.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from my_datasets.core import hashes
from my_datasets.core.declared import is_plain_name
from my_datasets.core.hashes import Hashes

_HEX = re.compile("[0-9a-f]{64}")
# What a feature says beside the form of its values. The class counts where it alone knows the form.
NOT_FORM = frozenset({"pythonClassName", "description"})
_OF_A_CLASS = "jsonFeature"


@dataclass(frozen=True)
class ShardContent:
    """A shard.

    Attributes:
      name: Its file name.
      bytes: The size of the file.
      examples: How many it has.
      sha256: Of the file; in hexadecimal.
    """

    name: str
    bytes: int
    examples: int
    sha256: str


@dataclass(frozen=True)
class SplitContent:
    """A split.

    Attributes:
      examples: How many it has.
      ordered: The digest of its examples in their order; in hexadecimal.
      unordered: That of the same examples in any order.
      shards: Its shards.
    """

    examples: int
    ordered: str
    unordered: str
    shards: tuple[ShardContent, ...] = ()


@dataclass(frozen=True)
class Content:
    """All that is in a version.

    Attributes:
      schema: The digest of its features.
      splits: Its splits, by name.
    """

    schema: str
    splits: Mapping[str, SplitContent]

    @property
    def digest(self) -> str:
        """The digest of the version: of its features, and of its splits' examples in order."""
        return _of_json(
            {
                "schema": self.schema,
                "splits": {
                    name: {"examples": one.examples, "ordered": one.ordered}
                    for name, one in self.splits.items()
                },
            }
        )

    def to_json(self) -> dict[str, Any]:
        """Returns it for the manifest."""
        splits = {name: asdict(one) for name, one in self.splits.items()}
        return {"digest": self.digest, "schema": self.schema, "splits": splits}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Content":
        """Returns what `to_json` wrote.

        Raises:
          KeyError, TypeError, ValueError: It is something else, or its digest is not its own.
        """
        splits = {
            _text(name): SplitContent(
                _number(split["examples"]), _hash(split["ordered"]), _hash(split["unordered"]),
                tuple(_shard(one) for one in split["shards"]),
            )
            for name, split in value["splits"].items()
        }  # fmt: skip
        found = cls(_hash(value["schema"]), splits)
        if found.digest != value["digest"]:
            raise ValueError("the digest is not that of the splits")
        return found


def _shard(value: Mapping[str, Any]) -> ShardContent:
    if not is_plain_name(value["name"]):
        raise ValueError(f"no name of a file: {value['name']!r}")
    size, examples = _number(value["bytes"]), _number(value["examples"])
    return ShardContent(value["name"], size, examples, _hash(value["sha256"]))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"no text: {value!r}")
    return value


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"no number: {value!r}")
    return value


def _hash(value: Any) -> str:
    if not _HEX.fullmatch(_text(value)):
        raise ValueError(f"no SHA-256: {value!r}")
    return str(value)


def ordered(parts: Iterable[Hashes]) -> str:
    """Returns the digest of examples in their order.

    Args:
      parts: Their hashes, uint8 of shape [n, 32], part after part.
    """
    found = hashlib.sha256()
    for part in parts:
        found.update(np.ascontiguousarray(part).data)
    return found.hexdigest()


def unordered(parts: Sequence[Hashes], at_once: int = hashes.AT_ONCE) -> str:
    """Returns the digest of examples in any order: that of their hashes, sorted.

    Args:
      parts: Their hashes, uint8 of shape [n, 32]; may be mapped files.
      at_once: How many bytes are sorted at a time.
    """
    found = hashlib.sha256()
    for (piece,) in hashes.pieces(parts, at_once=at_once):
        found.update(np.sort(piece.texts).data)
    return found.hexdigest()


def schema_of(version_dir: Path) -> str:
    """Returns the digest of a version's features, and of the names of its classes."""
    features = json.loads((version_dir / "features.json").read_text("utf-8"))
    labels = {path.name: labels_of(path) for path in sorted(version_dir.glob("*.labels.txt"))}
    return _of_json({"features": _form(features), "labels": labels})


def labels_of(path: Path) -> tuple[str, ...]:
    """Returns the names of classes in a file of TFDS's: its lines, those without text left out."""
    lines = path.read_text("utf-8").split("\n")
    return tuple(line.strip() for line in lines if line.strip())


def _form(feature: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a feature, as it is in `features.json`, says of the form of its values."""
    found: dict[str, Any] = {}
    for member, value in feature.items():
        if member == "featuresDict":
            inner = value.get("features", {})
            found[member] = {name: _form(one) for name, one in inner.items()}
        elif member == "sequence":
            found[member] = {**value, "feature": _form(value["feature"])}
            if is_nested_dataset(feature):
                found["dataset"] = True
        elif member not in NOT_FORM or _OF_A_CLASS in feature:
            found[member] = value
    return found


def is_nested_dataset(feature: Mapping[str, Any]) -> bool:
    """Returns whether a sequence is given as a dataset; only its class tells."""
    return str(feature.get("pythonClassName", "")).endswith(".Dataset")


def _of_json(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()
