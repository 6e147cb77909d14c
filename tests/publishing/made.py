"""Small datasets, really built, to be published."""

import hashlib
from pathlib import Path
from typing import ClassVar

import numpy as np
import tensorflow_datasets as tfds

import my_datasets

NAME = "released"
CONFIGURED = "released_in_configs"
ROWS = 60


class Released(my_datasets.Builder, skip_registration=True):
    """Numbers, each with some kilobytes that cannot be compressed."""

    VERSION = tfds.core.Version("1.0.0")
    name = NAME
    rows: ClassVar[int] = ROWS
    salt: ClassVar[str] = ""
    size: ClassVar[int] = 4000
    more: ClassVar[dict] = {}

    def _info(self):
        features = {"number": np.int64, "noise": tfds.features.Text(), **self.more}
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        rows = type(self).rows
        return {
            "train": self._generate_examples(range(rows)),
            "test": self._generate_examples(range(rows, rows + 10)),
        }

    def _generate_examples(self, rows):
        for row in rows:
            noise = b"".join(
                hashlib.sha256(f"{self.salt}{row}.{i}".encode()).digest()
                for i in range(self.size // 64)
            )
            yield row, {"number": row, "noise": noise.hex(), **dict.fromkeys(self.more, row)}


class InConfigs(Released, skip_registration=True):
    name = CONFIGURED
    BUILDER_CONFIGS: ClassVar = [
        tfds.core.BuilderConfig(name="small", description="Few."),
        tfds.core.BuilderConfig(name="large", description="More."),
    ]


def make(data_dir, version="1.0.0", *, shards=4, base=Released, config=None, **changed) -> Path:
    """Builds a version; returns its directory."""
    attributes = {**changed, "VERSION": tfds.core.Version(version), "name": base.name}
    cls = type("Made", (base,), attributes, skip_registration=True)
    builder = cls(data_dir=data_dir, **({"config": config} if config else {}))
    builder.download_and_prepare(
        download_config=tfds.download.DownloadConfig(num_shards=shards),
        build_options=my_datasets.BuildOptions(version_gate=False),
    )
    return Path(builder.data_dir)


def contents(directory) -> dict[str, bytes]:
    """The files of a directory, hidden ones left out."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(Path(directory).rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def numbers(directory, split="train") -> list[int]:
    """What plain TFDS reads."""
    data = tfds.builder_from_directory(directory).as_dataset(split=split)
    return sorted(int(one["number"]) for one in tfds.as_numpy(data))
