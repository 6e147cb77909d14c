"""What a builder declared is looked at again, in data that were made to pass everything else."""

import shutil
from pathlib import Path

import pytest
import tensorflow as tf

from my_datasets.metadata.manifest import Manifest
from my_datasets.verification.adopt import adopt
from my_datasets.verification.verifier import Level, verify
from tests.statistics import rows
from tests.statistics.test_constraints import GOOD, of


@pytest.fixture(scope="module")
def version(tmp_path_factory):
    return of(GOOD, tmp_path_factory.mktemp("declared"))


def test_data_that_are_as_declared_are_good(version):
    report = verify(version, level=Level.DEEP)
    assert report.issues == ()
    assert report.digest is not None


@pytest.mark.parametrize(
    ("feature", "said", "found"),
    [
        ("amount", {"maximum": 42}, "maximum is 42; found 42."),
        ("small", {"unique": True}, "unique; found 100 that came before"),
        ("label", {"all_labels": True}, "all_labels; train has no eel"),
    ],
)
def test_others_are_reported(version, tmp_path, feature, said, found):
    copy = tmp_path / version.parent.name / version.name
    shutil.copytree(version, copy)
    manifest = Manifest.read(copy)
    manifest.constraints[feature] = said
    manifest.write(copy)
    assert verify(copy).issues == ()
    (issue,) = verify(copy, level=Level.DEEP).issues
    assert (issue.code, issue.node) == ("constraint", f"feature {feature}")
    assert found in issue.found


def test_numbers_that_the_type_does_not_hold_are_reported(tmp_path):
    """As TFDS reads them without a word: int8 = 300, and a class beyond the last."""
    theirs = rows.ByTfds(data_dir=tmp_path)
    theirs.download_and_prepare()
    version = Path(theirs.data_dir)
    (shard,) = version.glob("*.tfrecord*")
    records = [tf.train.Example.FromString(one.numpy()) for one in tf.data.TFRecordDataset(shard)]
    records[3].features.feature["small"].int64_list.value[0] = 300
    records[4].features.feature["label"].int64_list.value[0] = 3
    with tf.io.TFRecordWriter(str(shard)) as writer:
        for one in records:
            writer.write(one.SerializeToString())
    adopt(version)
    told = {issue.node: issue for issue in verify(version, level=Level.FAST).issues}
    assert told["split train, feature small"].found == "1 of them"
    assert told["split train, feature label"].problem == "Values are not classes of the label."
