"""What is different between two versions that were really built."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow_datasets as tfds

import my_datasets
from my_datasets.comparison.diff import diff
from my_datasets.core.version import Bump, ChangeKind
from my_datasets.errors import CorruptShardError, IncompleteVersionError
from my_datasets.metadata.content import Content
from my_datasets.metadata.manifest import Manifest
from my_datasets.records import index

ROWS = 300


class Versions(my_datasets.Builder, skip_registration=True):
    """A dataset of which each test makes another version."""

    VERSION = tfds.core.Version("1.0.0")
    name = "compared"
    features = {"x": np.int32, "label": tfds.features.ClassLabel(names=["a", "b"])}
    supervised = None

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict(dict(self.features)),
            supervised_keys=self.supervised,
        )  # fmt: skip

    def _split_generators(self, dl_manager):
        return {name: self._generate_examples(rows) for name, rows in self.splits().items()}

    def splits(self):
        return {"train": range(ROWS), "test": range(ROWS, ROWS + 60)}

    def key(self, row):
        return row

    def example(self, row):
        return {"x": row * 7, "label": row % 2}

    def _generate_examples(self, rows):
        for row in rows:
            yield self.key(row), self.example(row)


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    scratch = tmp_path_factory.mktemp("versions")
    made = []

    def make(version="2.0.0", *, shards=2, file_format=None, **changed):
        made.append(version)
        attributes = {
            **changed, "VERSION": tfds.core.Version(version), "name": Versions.name
        }  # fmt: skip
        cls = type("Changed", (Versions,), attributes, skip_registration=True)
        builder = cls(data_dir=scratch / str(len(made)))
        builder.download_and_prepare(
            download_config=tfds.download.DownloadConfig(num_shards=shards),
            file_format=file_format,
        )
        return Path(builder.data_dir)

    return make


@pytest.fixture(scope="module")
def first(build):
    return build("1.0.0")


def kinds(found):
    return sorted((change.kind.value, change.node) for change in found.changes)


def test_the_same_is_the_same_without_reading(first, build, monkeypatch):
    again = build("1.0.1")
    monkeypatch.setattr(sys.modules[diff.__module__], "examine", None)
    found = diff(first, again)
    assert found.changes == ()
    assert (found.required, found.actual, found.is_enough) == (Bump.NONE, Bump.PATCH, True)


def test_other_shards_are_a_patch(first, build):
    found = diff(first, build("1.0.1", shards=3))
    assert kinds(found) == [("shards", "split test"), ("shards", "split train")]
    assert found.is_enough
    other = build("1.0.0", file_format="array_record")
    found = diff(first, other)
    assert kinds(found) == [("file-format", "all splits")]
    assert found.required is Bump.PATCH
    assert not found.is_enough
    assert str(found.least) == "1.0.1"


def test_a_new_feature_is_minor_if_the_rest_is_the_same(first, build):
    features = {**Versions.features, "x_squared": np.int64, "x": np.int32}

    def example(self, row):
        return {"x": row * 7, "label": row % 2, "x_squared": row**2}

    found = diff(first, build("1.1.0", features=features, example=example))
    assert kinds(found) == [("feature-added", "feature x_squared")]
    assert (found.required, found.is_enough) == (Bump.MINOR, True)

    def other(self, row):
        return {**example(self, row), "x": row * 7 + (row == 11)}

    found = diff(first, build("1.1.0", features=features, example=other))
    assert kinds(found) == [
        ("examples-changed", "split train"), ("feature-added", "feature x_squared"),
    ]  # fmt: skip
    assert (found.required, found.is_enough) == (Bump.MAJOR, False)
    assert str(found.least) == "2.0.0"


def stored(version):
    """Returns the numbers of the split `train` in the order in which they are stored."""
    in_order = tfds.ReadConfig(interleave_cycle_length=1)
    builder = tfds.builder_from_directory(version)
    examples = builder.as_dataset(split="train", read_config=in_order)
    return [int(one["x"]) for one in tfds.as_numpy(examples)]


def test_examples_that_come_and_go_are_named(first, build):
    def splits(self):
        return {"train": [*range(5, ROWS), 1000, 1001], "test": range(ROWS, ROWS + 60)}

    new = build(splits=splits)
    (train,) = [one for one in diff(first, new).splits if one.name == "train"]
    assert (train.added, train.removed, train.moved) == (2, 5, {})
    values, old = stored(new), stored(first)
    assert sorted(values[place] for place in train.examples["added"]) == [7000, 7007]
    assert sorted(old[place] for place in train.examples["removed"]) == [0, 7, 14, 21, 28]
    (gone,) = [c for c in diff(first, new).changes if c.kind is ChangeKind.EXAMPLES_REMOVED]
    assert "train[" in gone.before
    assert gone.bump is Bump.MAJOR


def test_examples_that_changed_are_reported_by_their_keys(first, build):
    def splits(self):
        return {"train": [*range(3, ROWS), 1000], "test": range(ROWS, ROWS + 60)}

    def example(self, row):
        return {"x": row * 7 + (row % 100 == 50), "label": row % 2}

    new = build(splits=splits, example=example, shards=3)
    train, test = diff(first, new).splits
    assert (train.added, train.removed, train.changed) == (1, 3, 3)
    assert (test.added, test.removed, test.changed) == (0, 0, 1)
    values, old = stored(new), stored(first)
    assert sorted(values[place] for place in train.examples["changed"]) == [351, 1051, 1751]
    assert [values[place] for place in train.examples["added"]] == [7000]
    assert sorted(old[place] for place in train.examples["removed"]) == [0, 7, 14]
    (change,) = [one for one in diff(first, new).changes
                 if (one.kind, one.node)
                 == (ChangeKind.EXAMPLES_CHANGED, "split train")]  # fmt: skip
    assert change.before == "3 examples"
    assert change.after.startswith("other values of the same keys: train[")


def test_without_keys_they_are_removed_and_added(first, build):
    new = build(example=lambda self, row: {"x": row * 7 + (row == 11), "label": row % 2})
    for shard in new.glob("*-train.*"):
        index.keys_path(shard).unlink()
    train, _ = diff(first, new).splits
    assert (train.added, train.removed, train.changed) == (1, 1, 0)
    assert stored(new)[train.examples["added"][0]] == 78


def test_keys_that_the_manifest_does_not_list_are_not_used(first, build):
    """Somebody planted them: the version was published without."""
    new = build(example=lambda self, row: {"x": row * 7 + (row == 11), "label": row % 2})
    made = Manifest.read(new)
    names = {index.keys_path(shard).name for shard in new.glob("*-of-*")}
    assert names <= made.files.keys()
    listed = {name: one for name, one in made.files.items() if name not in names}
    replace(made, files=listed).write(new)
    train, _ = diff(first, new).splits
    assert (train.added, train.removed, train.changed) == (1, 1, 0)


def test_examples_that_move(first, build):
    def splits(self):
        return {"train": range(3, ROWS), "test": [0, 1, 2, *range(ROWS, ROWS + 60)]}

    found = diff(first, build(splits=splits))
    assert [kind for kind, _ in kinds(found)] == ["examples-moved"]
    test = next(one for one in found.splits if one.name == "test")
    assert (test.added, test.moved, len(test.examples["moved"])) == (0, {"train": 3}, 3)
    train = next(one for one in found.splits if one.name == "train")
    assert (train.added, train.removed) == (0, 0)


def test_another_order(first, build):
    found = diff(first, build("1.5.0", key=lambda self, row: f"other {row}"))
    assert kinds(found) == [
        ("examples-reordered", "split test"), ("examples-reordered", "split train")
    ]  # fmt: skip
    assert (found.actual, found.is_enough) == (Bump.MINOR, False)


def test_copies_count(build):
    def example(self, row):
        return {"x": 7 * min(row, 3), "label": 0}

    def splits(self):
        return {"train": range(ROWS + 5), "test": range(ROWS, ROWS + 60)}

    one, other = build(example=example), build(example=example, splits=splits)
    (train,) = [split for split in diff(one, other).splits if split.name == "train"]
    assert (train.added, train.removed, train.before, train.after) == (5, 0, ROWS, ROWS + 5)


def test_splits_that_come_and_go(first, build):
    def splits(self):
        return {"train": range(ROWS), "dev": range(ROWS, ROWS + 60)}

    found = diff(first, build(splits=splits))
    assert kinds(found) == [("split-added", "split dev"), ("split-removed", "split test")]


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ({"x": np.int64}, "feature-type-widened"),
        ({"x": np.uint8}, "feature-type"),
        ({"x": np.float32}, "feature-type"),
        ({"x": tfds.features.Scalar(np.int32, optional=True)}, "feature-optional"),
        ({"x": tfds.features.Tensor(shape=(1,), dtype=np.int32)}, "feature-shape"),
        ({"x": tfds.features.Sequence(np.int32)}, "feature-shape"),
        ({"label": tfds.features.ClassLabel(names=["a", "b", "c"])}, "labels-appended"),
        ({"label": tfds.features.ClassLabel(names=["b", "a"])}, "labels-changed"),
        ({"label": tfds.features.ClassLabel(names=["a", "B"])}, "labels-changed"),
        ({"label": tfds.features.ClassLabel(num_classes=2)}, "labels-changed"),
        ({"label": np.int64}, "feature-kind"),
    ],
)
def test_features_that_change(first, build, features, expected):
    def example(self, row):
        found = {"x": row * 7, "label": row % 2}
        is_list = isinstance(features.get("x"), (tfds.features.Tensor, tfds.features.Sequence))
        is_list = is_list and not isinstance(features["x"], tfds.features.Scalar)
        found["x"] %= 128
        return {**found, "x": [row * 7]} if is_list else found

    found = diff(first, build(features={**Versions.features, **features}, example=example))
    assert expected in [kind for kind, _ in kinds(found)]


def test_a_feature_that_says_more(build):
    loose = {"x": tfds.features.Tensor(shape=(None,), dtype=np.int32)}
    tight = {"x": tfds.features.Tensor(shape=(2,), dtype=np.int32)}
    options = {"example": lambda self, row: {"x": [row, row]}}
    one = build("1.0.0", features=loose, **options)
    other = build("1.1.0", features=tight, **options)
    assert kinds(diff(one, other)) == [("feature-shape-narrowed", "feature x")]
    assert diff(one, other).is_enough
    assert kinds(diff(other, one)) == [("feature-shape", "feature x")]
    assert diff(other, one).actual is None


def test_a_sequence_that_becomes_a_dataset(build):
    options = {"example": lambda self, row: {"x": [{"a": row}]}}
    one = build("1.0.0", features={"x": tfds.features.Sequence({"a": np.int32})}, **options)
    other = build("1.0.1", features={"x": tfds.features.Dataset({"a": np.int32})}, **options)
    found = diff(one, other)
    assert kinds(found) == [("feature-kind", "feature x/a")]
    assert Manifest.read(one).content.digest != Manifest.read(other).content.digest


def test_what_is_supervised(first, build):
    found = diff(first, build("1.1.0", supervised=("x", "label")))
    assert kinds(found) == [("supervised-added", "as_supervised")]
    assert found.is_enough


def test_pieces_make_no_difference(first, build, monkeypatch):
    from my_datasets.core import hash_sets

    new = build(splits=lambda self: {"train": range(9, ROWS + 4), "test": range(9)})
    expected = diff(first, new)
    real = hash_sets.pieces
    monkeypatch.setattr(
        hash_sets, "pieces", lambda *parts, at_once=0: real(*parts, at_once=at_once or 500)
    )
    found = diff(first, new)
    assert found == expected
    assert found.to_json() == expected.to_json()


def test_what_cannot_be_compared(first, tmp_path, build):
    with pytest.raises(IncompleteVersionError, match="not a prepared version"):
        diff(first, tmp_path)
    new = build(example=lambda self, row: {"x": row, "label": 0})
    shard = next(new.glob("*-train.tfrecord-00000-*"))
    data = bytearray(shard.read_bytes())
    data[40] ^= 1
    shard.write_bytes(data)
    with pytest.raises(CorruptShardError, match="record"):
        diff(first, new)


def test_the_content_reads_back(first):
    found = Manifest.read(first).content
    assert Content.from_json(found.to_json()) == found
