"""What a version's metadata declare: its name, its splits, and the files that hold them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# TFDS's own, where a split names none: `core/naming.py`, `core/file_adapters.py`.
_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
_DIGITS = 5


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
          ValueError, KeyError, TypeError, AttributeError: They are not such metadata.
        """
        info = json.loads((version_dir / "dataset_info.json").read_text("utf-8"))
        config = info.get("configName")
        name = f"{info['name']}{'/' + config if config else ''}:{info['version']}"
        form = info.get("fileFormat", "tfrecord")
        splits = {one["name"]: _shards(info["name"], form, one) for one in info.get("splits", [])}
        return cls(name, form, splits)


def _shards(name: str, form: str, split: Mapping[str, Any]) -> tuple[DeclaredShard, ...]:
    lengths = [int(length) for length in split.get("shardLengths", [])]
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
