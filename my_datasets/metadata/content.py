"""The content of a prepared version: digests of its examples, independent of how they are stored.

`docs/digest.md` defines them. This module only computes with hashes of examples.
"""

import hashlib
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from my_datasets.core import hash_sets
from my_datasets.core.hash_sets import Hashes
from my_datasets.errors import IncompleteVersionError
from my_datasets.metadata.dataset_info import is_plain_name
from my_datasets.storage.regular_files import open_regular, read_regular

_HEX = re.compile("[0-9a-f]{64}")
# Fields of a feature other than the form of its values. Its class counts if only the class knows
# the form.
NOT_FORM = frozenset({"pythonClassName", "description"})
_OF_A_CLASS = "jsonFeature"
_LABELS = ".labels.txt"
MOST_LABELS = 256 << 20


@dataclass(frozen=True)
class ShardContent:
    """A shard's file name, size, number of examples, and SHA-256 in hexadecimal."""

    name: str
    bytes: int
    examples: int
    sha256: str


@dataclass(frozen=True)
class SplitContent:
    """A split: the digests of its examples in their order and in any order, in hexadecimal."""

    examples: int
    ordered: str
    unordered: str
    shards: tuple[ShardContent, ...] = ()

    @property
    def shards_sha256(self) -> str:
        """The SHA-256 of the list of its shards: name, size, examples and SHA-256 of each."""
        return _of_json([[one.name, one.bytes, one.examples, one.sha256] for one in self.shards])


@dataclass(frozen=True)
class Content:
    """The content of a version: the digest of its features, and its splits by name."""

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
        """Returns the form stored in the manifest."""
        splits = {name: asdict(one) for name, one in self.splits.items()}
        return {"digest": self.digest, "schema": self.schema, "splits": splits}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Content":
        """Returns what `to_json` wrote.

        Raises:
          KeyError, TypeError, ValueError: It is malformed, or its digest does not match.
        """
        splits = {
            _name(name): SplitContent(
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
    size, examples = _number(value["bytes"]), _number(value["examples"])
    return ShardContent(_name(value["name"]), size, examples, _hash(value["sha256"]))


def _name(value: object) -> str:
    if not is_plain_name(value):
        raise ValueError(f"no name of a file: {value!r}")
    return str(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"no text: {value!r}")
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"no number: {value!r}")
    return value


def _hash(value: object) -> str:
    if not _HEX.fullmatch(_text(value)):
        raise ValueError(f"no SHA-256: {value!r}")
    return str(value)


def ordered(parts: Iterable[Hashes]) -> str:
    """Returns the digest of examples in their order, from hashes: uint8 of shape [n, 32]."""
    found = hashlib.sha256()
    for part in parts:
        found.update(np.ascontiguousarray(part).data)
    return found.hexdigest()


def unordered(parts: Sequence[Hashes], at_once: int = hash_sets.AT_ONCE) -> str:
    """Returns the digest of examples in any order: that of their hashes, sorted.

    The hashes are uint8 of shape [n, 32], and may be mapped files; `at_once` is in bytes.
    """
    found = hashlib.sha256()
    for (piece,) in hash_sets.pieces(parts, at_once=at_once):
        found.update(np.sort(piece.texts).data)
    return found.hexdigest()


def schema_digest(features: Mapping[str, Any], version_dir: Path) -> str:
    """Returns the digest of features, and of the names of classes in a version's directory."""
    return _of_json({"features": _form(features), "labels": _labels(version_dir)})


def decoding_digest(
    features: Mapping[str, Any], version_dir: Path, file_format: str, supervised_keys: object
) -> str:
    """Returns the SHA-256 of what determines how examples are decoded: see `VersionMetadata`."""
    return _of_json(
        {
            "features": _form(features, frozenset({"description"})),
            "labels": _labels(version_dir),
            "file_format": file_format,
            "supervised_keys": supervised_keys,
        }
    )


def _labels(version_dir: Path) -> dict[str, tuple[str, ...]]:
    return {path.name: _lines(path) for path in sorted(version_dir.glob(f"*{_LABELS}"))}


def check_labels(version_dir: Path) -> None:
    """Checks that class names are in regular files: TFDS would wait forever for a named pipe.

    Raises:
      IncompleteVersionError: One cannot be opened.
    """
    for path in version_dir.glob(f"*{_LABELS}"):
        try:
            open_regular(path).close()
        except OSError as error:
            raise _unreadable(path, error) from error


def labels_of(version_dir: Path, path: Sequence[str]) -> tuple[str, ...] | None:
    """Returns the names of the classes of the feature at `path`; None if they have no names.

    Raises:
      IncompleteVersionError: The file of them cannot be read.
    """
    file = version_dir / f"{'-'.join(name.replace('/', '.') for name in path)}{_LABELS}"
    return _lines(file) if file.exists() else None


def _lines(path: Path) -> tuple[str, ...]:
    """Returns the non-empty lines of one of TFDS's files."""
    try:
        text = read_regular(path, MOST_LABELS).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error
    lines = io.StringIO(text, newline=None)  # with any system's line ends
    return tuple(line.strip() for line in lines if line.strip())


def _unreadable(path: Path, error: Exception) -> IncompleteVersionError:
    return IncompleteVersionError(
        f"{path} cannot be read.",
        f"Found: {getattr(error, 'strerror', None) or error}",
        fix="build or pull the version again",
    )


def _form(feature: Mapping[str, Any], left_out: Set[str] = NOT_FORM) -> dict[str, Any]:
    """Returns what a feature in `features.json` says about the form of its values."""
    found: dict[str, Any] = {}
    for member, value in feature.items():
        if member == "featuresDict":
            inner = value.get("features", {})
            found[member] = {name: _form(one, left_out) for name, one in inner.items()}
        elif member == "sequence":
            found[member] = {**value, "feature": _form(value["feature"], left_out)}
            if is_nested_dataset(feature):
                found["dataset"] = True
        elif member not in left_out or _OF_A_CLASS in feature:
            found[member] = value
    return found


def is_nested_dataset(feature: Mapping[str, Any]) -> bool:
    """Returns whether a sequence is read as a dataset, which only its class shows."""
    return str(feature.get("pythonClassName", "")).endswith(".Dataset")


def _of_json(value: object) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()
