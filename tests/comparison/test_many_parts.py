"""Versions of more parts than a process may have files open."""

import resource
from pathlib import Path

import numpy as np
import pytest
import tensorflow_datasets as tfds

import my_datasets
from my_datasets.comparison import shard_parts
from my_datasets.comparison.diff import diff
from my_datasets.errors import ConstraintError
from my_datasets.metadata import manifest
from my_datasets.metadata.manifest import Manifest
from my_datasets.verification.adopt import adopt
from my_datasets.verification.verifier import Level, verify

ROWS = 300


class ManyParts(my_datasets.Builder, skip_registration=True):
    """A dataset of which each example is a part of its own."""

    VERSION = tfds.core.Version("1.0.0")
    CONSTRAINTS = {"x": my_datasets.Constraint(unique=True)}
    name = "many_parts"
    seventh = 7

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict({"x": np.int32})
        )

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for row in range(ROWS):
            yield row, {"x": self.seventh if row == 7 else row}


def build(directory, *, version="1.0.0", shards, seventh=7):
    attributes = {"VERSION": tfds.core.Version(version), "seventh": seventh, "name": ManyParts.name}
    builder = type("Changed", (ManyParts,), attributes, skip_registration=True)(data_dir=directory)
    builder.download_and_prepare(
        download_config=tfds.download.DownloadConfig(num_shards=shards), file_format="tfrecord"
    )
    return Path(builder.data_dir)


@pytest.fixture
def few_descriptors():
    """Of which there are fewer than parts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A limit is one on the numbers of descriptors, of which those that are taken do not count.
    highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + ROWS // 3, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_build_examines_any_number_of_parts(tmp_path, monkeypatch, few_descriptors):
    expected = Manifest.read(build(tmp_path / "one", shards=1)).content
    monkeypatch.setattr(shard_parts, "_RECORDS", 1)
    assert Manifest.read(build(tmp_path / "many", shards=1)).content.digest == expected.digest
    with pytest.raises(ConstraintError, match=r"unique; found 1 that came before"):
        build(tmp_path / "twice", shards=1, seventh=0)


def test_any_number_of_shards_is_verified_and_compared(tmp_path, few_descriptors):
    many = build(tmp_path / "many", shards=ROWS)
    assert len(list(many.glob("*.tfrecord-*-of-00300"))) == ROWS
    found = verify(many, level=Level.DEEP, workers=1)
    assert (found.issues, found.digest) == ((), Manifest.read(many).content.digest)
    changed = build(tmp_path / "changed", version="2.0.0", shards=ROWS - 1, seventh=-1)
    (split,) = diff(many, changed, workers=1).splits
    assert (split.added, split.removed, split.changed) == (0, 0, 1)
    (many / manifest.FILE_NAME).unlink()
    assert adopt(many, workers=1).content.digest == found.digest
