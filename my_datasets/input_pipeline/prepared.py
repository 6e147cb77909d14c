"""A prepared version on this machine: where its records are, and what is in them. No TensorFlow."""

import functools
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from my_datasets.core import layout, schema, subsplits
from my_datasets.core.manifest import Manifest
from my_datasets.core.reference import DatasetReference
from my_datasets.core.schema import Schema
from my_datasets.errors import DataDirError, NotPreparedError, explain
from my_datasets.records.reading import Records, Shard

_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
_DEFAULT_DATA_DIR = "~/tensorflow_datasets"


@dataclass(frozen=True)
class Prepared:
    """A prepared version.

    Attributes:
      path: Its directory.
      name: The dataset's full name, `name/config:version`.
      schema: Its features.
      shards: The shards of each split.
    """

    path: Path
    name: str
    schema: Schema
    shards: Mapping[str, list[Shard]]

    @functools.cached_property
    def content(self) -> str:
        """Which data it is: a hash of what made it, and of the shards' names, sizes and lengths."""
        made_by = Manifest.read(self.path)
        shards = [
            (one.path.name, one.length, one.path.stat().st_size if one.path.exists() else -1)
            for one in self._all_shards()
        ]
        described = [self.name, shards, made_by.fingerprint if made_by else None]
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()

    @property
    def modified(self) -> int:
        """When a shard was written last, in nanoseconds of the epoch."""
        times = [one.path.stat().st_mtime_ns for one in self._all_shards() if one.path.exists()]
        return max(times, default=0)

    def _all_shards(self) -> list[Shard]:
        return [one for some in self.shards.values() for one in some]

    def records(self, split: str) -> Records:
        """Returns the records of a split or slice.

        Raises:
          SplitNotFoundError: There is none of that name.
        """
        lengths = {name: [one.length for one in some] for name, some in self.shards.items()}
        first, begin = {}, 0
        for name, sizes in lengths.items():
            first[name] = begin
            begin += sum(sizes)
        ranges = [
            (first[one.split] + one.begin, first[one.split] + one.end)
            for one in subsplits.resolve(split, lengths)
        ]
        return Records(self._all_shards(), ranges)


def find(
    reference: str | DatasetReference, data_dir: str | os.PathLike[str] | None = None
) -> Prepared:
    """Returns the highest prepared version that a reference means.

    Args:
      reference: For example `digits:1.*.*`; or the directory of a prepared version.
      data_dir: Where the data is; TFDS's default if None.

    Raises:
      InvalidReferenceError: `reference` is malformed.
      NotPreparedError: There is no such version.
      DataDirError: It cannot be read without TFDS: it is remote, or of another file format.
    """
    text = str(reference)
    if data_dir is None and (os.sep in text) and layout.is_prepared(Path(text).expanduser()):
        return _read(Path(text).expanduser())
    parsed = reference if isinstance(reference, DatasetReference) else DatasetReference.parse(text)
    root = layout.as_path(data_dir or os.environ.get("TFDS_DATA_DIR") or _DEFAULT_DATA_DIR)
    if layout.is_remote(os.fspath(root)):
        raise DataDirError(
            explain(
                f"Records at {root} cannot be read at random.",
                mend="copy the version to a local directory, or read it with my_datasets.load",
            )
        )
    config = parsed.config or _default_config(root / parsed.name)
    there = layout.prepared_versions_of(root / parsed.name)
    found = [
        one
        for one in there
        if one.config == config and (parsed.version is None or parsed.version.matches(one.version))
    ]
    if not found:
        raise NotPreparedError(
            explain(
                f"No prepared data matches {text!r}.",
                f"Searched: {root / parsed.name}",
                f"Prepared there: {', '.join(map(_shown, there)) or 'nothing'}",
                mend=f"my-datasets build {parsed.name} --data-dir {root}",
            )
        )
    return _read(max(found, key=lambda version: version.version).path)


def _shown(version: layout.PreparedVersion) -> str:
    return f"{version.config + ':' if version.config else ''}{version.version}"


def _default_config(folder: Path) -> str | None:
    """Returns the config that is meant if none is named; TFDS notes it beside the configs."""
    try:
        text = (folder / ".config" / "metadata.json").read_text("utf-8")
    except FileNotFoundError:
        return None
    name = json.loads(text).get("default_config_name")
    return str(name) if name else None


def _read(path: Path) -> Prepared:
    info = json.loads((path / "dataset_info.json").read_text("utf-8"))
    kind = info.get("fileFormat", "tfrecord")
    if kind != "tfrecord":
        raise DataDirError(
            explain(
                f"{path} holds {kind} files.",
                "Expected TFRecords",
                mend="read it with my_datasets.load, or build it with file_format='tfrecord'",
            )
        )
    config = info.get("configName")
    name = f"{info['name']}{'/' + config if config else ''}:{info['version']}"
    shards = {split["name"]: _shards(path, info["name"], split) for split in info.get("splits", [])}
    return Prepared(path, name, schema.read(path), shards)


def _shards(path: Path, name: str, split: Mapping[str, Any]) -> list[Shard]:
    lengths = [int(length) for length in split.get("shardLengths", [])]
    template = split.get("filepathTemplate") or _TEMPLATE
    values = {"DATASET": name, "SPLIT": split["name"], "FILEFORMAT": "tfrecord"}
    width = max(5, len(str(len(lengths))))
    found = []
    for i, length in enumerate(lengths):
        number, count = f"{i:0{width}}", f"{len(lengths):0{width}}"
        all_values = {
            **values, "SHARD_INDEX": number, "NUM_SHARDS": count,
            "SHARD_X_OF_Y": f"{number}-of-{count}",
        }  # fmt: skip
        found.append(Shard(path / template.format(**all_values), length))
    return found
