"""What a version's metadata declare: its name, its splits, and the files that hold them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# TFDS's own, where a split names none: `core/naming.py`, `core/file_adapters.py`.
_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
_DIGITS = 5
# What taking JSON of any form for another one may raise.
MALFORMED = (
    ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError
)  # fmt: skip


@dataclass(frozen=True)
class DeclaredShard:
    """A file of a split.

    Attributes:
      name: Its name.
      examples: How many it is said to have.
    """

    name: str
    examples: int


@dataclass(frozen=True)
class Declared:
    """What `dataset_info.json` says.

    Attributes:
      name: The dataset's full name, `name/config:version`.
      file_format: Of the shards, such as `tfrecord`.
      splits: The shards of each split, in their order.
    """

    name: str
    file_format: str
    splits: Mapping[str, tuple[DeclaredShard, ...]]

    @classmethod
    def read(cls, version_dir: Path) -> "Declared":
        """Returns what the metadata of a version declare.

        Raises:
          OSError: They cannot be read.
          ValueError: They are not such metadata.
        """
        text = (version_dir / "dataset_info.json").read_text("utf-8")
        try:
            return cls._of(json.loads(text))
        except MALFORMED as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error

    @classmethod
    def _of(cls, info: Any) -> "Declared":
        config = info.get("configName")
        name = f"{info['name']}{'/' + config if config else ''}:{info['version']}"
        form = info.get("fileFormat", "tfrecord")
        splits: dict[str, tuple[DeclaredShard, ...]] = {}
        for one in info.get("splits", []):
            if not isinstance(one["name"], str) or one["name"] in splits:
                raise ValueError(f"a split is called {one['name']!r}, or two are")
            splits[one["name"]] = _shards(info["name"], form, one)
        names = [shard.name for some in splits.values() for shard in some]
        if not isinstance(form, str) or not all(map(is_plain_name, names)):
            raise ValueError("the names of shards are no names of files")
        if len(set(names)) < len(names):
            raise ValueError("a shard belongs to two splits")
        return cls(name, form, splits)


def essentials(version_dir: Path) -> dict[str, Any]:
    """Returns what else of `dataset_info.json` changes what readers get, for the manifest.

    Raises:
      OSError: It cannot be read.
      ValueError: It is no such file.
    """
    text = (version_dir / "dataset_info.json").read_text("utf-8")
    try:
        info = json.loads(text)
        return {
            "supervisedKeys": info.get("supervisedKeys"),
            "disableShuffling": bool(info.get("disableShuffling", False)),
            "numBytes": {one["name"]: str(one.get("numBytes", 0)) for one in info["splits"]},
        }
    except MALFORMED as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def is_plain_name(name: Any) -> bool:
    """Returns whether something is the name of a file, and no path to one elsewhere."""
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\0" in name:
        return False
    return name.isascii() or name.encode("utf-8", "ignore").decode() == name


def _shards(name: str, form: str, split: Mapping[str, Any]) -> tuple[DeclaredShard, ...]:
    lengths = [int(length) for length in split.get("shardLengths", [])]
    if any(length < 0 for length in lengths):
        raise ValueError("a shard has less than no examples")
    template = split.get("filepathTemplate") or _TEMPLATE
    values = {"DATASET": name, "SPLIT": split["name"], "FILEFORMAT": form}
    width = max(_DIGITS, len(str(len(lengths))))
    found = []
    for i, length in enumerate(lengths):
        number, count = f"{i:0{width}}", f"{len(lengths):0{width}}"
        numbers = {
            "SHARD_INDEX": number,
            "NUM_SHARDS": count,
            "SHARD_X_OF_Y": f"{number}-of-{count}",
        }
        found.append(DeclaredShard(template.format(**values, **numbers), length))
    return tuple(found)
