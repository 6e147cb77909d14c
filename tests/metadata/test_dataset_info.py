"""`dataset_info.json`: names of files stay in the directory, and all is of TFDS's types."""

import contextlib
import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from my_datasets.errors import IncompleteVersionError, MyDatasetsError
from my_datasets.metadata.dataset_info import Declared, dataset_info, essentials
from tests.storage.test_json_files import HOSTILE

GOOD = {
    "name": "toy", "version": "1.0.0", "configName": "small", "fileFormat": "tfrecord",
    "description": "A toy.", "citation": "", "downloadSize": "10", "isBlocked": "",
    "location": {"urls": ["https://example.org"]}, "releaseNotes": {"1.0.0": "First."},
    "redistributionInfo": {"license": "CC0"}, "disableShuffling": True,
    "supervisedKeys": {"tuple": {"items": [{"featureKey": "a"}, {"dict": {"dict": {
        "b": {"featureKey": "b"}}}}]}},
    "splits": [
        {"name": "train", "numBytes": "100", "shardLengths": ["3", "4"],
         "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"},
        {"name": "test", "numBytes": "10", "shardLengths": ["1"]},
    ],
}  # fmt: skip


def written(tmp_path, **changed):
    (tmp_path / "dataset_info.json").write_text(json.dumps({**GOOD, **changed}))
    return tmp_path


def split(**changed):
    return [{**GOOD["splits"][0], **changed}]


def test_what_tfds_writes(tmp_path):
    found = Declared.read(written(tmp_path))
    assert found.name == "toy/small:1.0.0"
    assert [one.name for one in found.splits["train"]] == [
        "toy-train.tfrecord-00000-of-00002", "toy-train.tfrecord-00001-of-00002",
    ]  # fmt: skip
    assert dataset_info(tmp_path) == GOOD
    assert essentials(tmp_path)["numBytes"] == {"train": "100", "test": "10"}


LEAVING = {
    "a width": split(filepathTemplate="{DATASET:>100000000}"),
    "a width of a number": split(filepathTemplate="{SHARD_INDEX:0>99999999}"),
    "an attribute": split(filepathTemplate="{DATASET.__class__}"),
    "an index": split(filepathTemplate="{DATASET[0]}"),
    "a conversion": split(filepathTemplate="{DATASET!r}"),
    "a position": split(filepathTemplate="{}"),
    "a name within a width": split(filepathTemplate="{DATASET:{SHARD_INDEX}}"),
    "another name": split(filepathTemplate="{HOME}"),
    "a brace": split(filepathTemplate="{DATASET"),
    "a parent": split(filepathTemplate="../../{SHARD_X_OF_Y}"),
    "an absolute path": split(filepathTemplate="/etc/{SHARD_X_OF_Y}"),
    "an absolute path in snake case": [
        {"name": "train", "shard_lengths": ["1"], "filepath_template": "/etc/{SHARD_X_OF_Y}"}
    ],
    "both spellings": [{**split()[0], "filepath_template": "x{SHARD_X_OF_Y}"}],
    "the same shard twice": split(filepathTemplate="one.tfrecord"),
    "a long name": split(filepathTemplate="x" * 300 + "{SHARD_X_OF_Y}"),
    "a split elsewhere": split(name="../x"),
    "a split of control characters": split(name="\x1b[2J"),
    "a split of many examples": split(shardLengths=["4611686018427387903", "1"]),
    "a split of very many": split(shardLengths=[10**30]),
    "less than none": split(shardLengths=["-1"]),
    "lengths that are no list": split(shardLengths={"a": 1}),
    "lengths that are no numbers": split(shardLengths=[[]]),
    "half an example": split(shardLengths=[1.5]),
    "two splits of one name": [*split(), *split()],
    "splits that are no objects": [1],
    "splits that are no list": {"train": 1},
}  # fmt: skip


@pytest.mark.parametrize("what", LEAVING)
def test_splits_that_harm(what, tmp_path):
    written(tmp_path, splits=LEAVING[what])
    with pytest.raises(IncompleteVersionError, match=r"dataset_info\.json cannot be read"):
        Declared.read(tmp_path)


@pytest.mark.parametrize("field", ["name", "version", "configName", "fileFormat"])
@pytest.mark.parametrize(
    "value", ["../x", "/etc/x", "a/b", "\x1b[2J", "x\u202ey", 7, [], "x" * 300]
)
def test_names_that_leave_the_directory(field, value, tmp_path):
    with pytest.raises(IncompleteVersionError, match=field):
        dataset_info(written(tmp_path, **{field: value}))


@pytest.mark.parametrize("what", HOSTILE)
def test_json_that_harms(what, tmp_path):
    data = HOSTILE[what]
    path = tmp_path / "dataset_info.json"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    with pytest.raises(IncompleteVersionError, match="cannot be read"):
        dataset_info(tmp_path)


VALUES = st.sampled_from([
    None, 0, -1, 1 << 70, "", "x", "../x", True, [], {}, [None], {"a": None}, 1.5, "{DATASET:>9}",
    [{"featureKey": 1}], {"tuple": {"items": [{}]}},
])  # fmt: skip


@given(data=st.data())
def test_whatever_it_says_it_is_read_or_refused(data, tmp_path_factory):
    whole = copy.deepcopy(GOOD)
    for _ in range(data.draw(st.integers(1, 3))):
        node = whole
        while True:
            names = sorted(node) if isinstance(node, dict) else range(len(node))
            name = data.draw(st.sampled_from(names))
            if isinstance(node[name], (dict, list)) and node[name] and data.draw(st.integers(0, 3)):
                node = node[name]
                continue
            node[name] = copy.deepcopy(data.draw(VALUES))
            break
    directory = tmp_path_factory.mktemp("info")
    (directory / "dataset_info.json").write_text(json.dumps(whole))
    for reader in (Declared.read, essentials):
        with contextlib.suppress(MyDatasetsError):
            reader(directory)
