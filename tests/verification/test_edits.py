"""What `verify` finds of edits of sidecars and of texts in the metadata: the file and the field."""

import dataclasses
import json
import pickle
import shutil
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import tensorflow_datasets as tfds
from click.testing import CliRunner

import my_datasets
from my_datasets.cli.main import cli
from my_datasets.errors import PublishError
from my_datasets.metadata import manifest
from my_datasets.metadata.manifest import Manifest
from my_datasets.records import index
from my_datasets.verification.adopt import adopt
from my_datasets.verification.verifier import Level, verify
from tests.building.engines import toys
from tests.publishing.web import serving

GOLDEN = Path(__file__).parents[1] / "golden" / "sidecars_named_after_shards"
INFO, FEATURES = "dataset_info.json", "features.json"
SHARD = "described-train.tfrecord-00000-of-00001"


class Described(my_datasets.Builder, skip_registration=True):
    """A few numbers, and all that can be said of them."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "The first one."}
    MANUAL_DOWNLOAD_INSTRUCTIONS = None
    name = "described"
    description: ClassVar[str] = "Numbers."

    def _info(self):
        features = {
            "n": tfds.features.Scalar(np.int64, doc="A number."),
            "text": tfds.features.Text(),
        }
        return tfds.core.DatasetInfo(
            builder=self, description=self.description, citation="@misc{numbers}",
            homepage="https://example.org/numbers", license="CC BY 4.0",
            features=tfds.features.FeaturesDict(features), supervised_keys=("text", "n"),
        )  # fmt: skip

    def _split_generators(self, dl_manager):
        return {"train": self._examples(range(9))}

    def _examples(self, rows):
        for row in rows:
            yield row, {"n": row, "text": str(row)}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    builder = Described(data_dir=tmp_path_factory.mktemp("edits"))
    builder.download_and_prepare()
    return Path(builder.data_dir)


@pytest.fixture
def version(built, tmp_path):
    return Path(shutil.copytree(built, tmp_path / "described" / "1.0.0"))


def told(report):
    return [(issue.code, issue.node) for issue in report.issues]


def verified(directory):
    """The exit code and the output of plain `my-datasets verify`."""
    done = CliRunner().invoke(cli, ["verify", str(directory)])
    return done.exit_code, done.output


def leaves(value, at=()):
    """Each value within JSON that has no parts, by its place."""
    if isinstance(value, dict) and value:
        for name, part in value.items():
            yield from leaves(part, (*at, name))
    else:
        yield at, value


def put(path, at, value):
    whole = json.loads(path.read_text())
    inner = whole
    for name in at[:-1]:
        inner = inner[name]
    inner[at[-1]] = value
    path.write_text(json.dumps(whole))


def test_what_was_downloaded_is_no_edit(tmp_path):
    """TFDS writes the size of all downloads into `dataset_info.json` when a build ends."""

    class Downloading(Described, skip_registration=True):
        name = "described"

        def _split_generators(self, dl_manager):
            path = dl_manager.download(f"{address}/numbers.txt")
            return {"train": self._examples(range(len(path.read_text().split())))}

    (tmp_path / "numbers.txt").write_text("1 2 3")
    with serving(tmp_path) as (address, _):
        builder = Downloading(data_dir=tmp_path / "data")
        builder.download_and_prepare()
    version = Path(builder.data_dir)
    assert json.loads((version / INFO).read_text())["downloadSize"] == "5"
    assert not verify(version, level=Level.DEEP).issues
    put(version / INFO, ("downloadSize",), "6")
    assert told(verify(version)) == [("other-metadata", INFO)]


@pytest.mark.parametrize("name", [INFO, FEATURES])
def test_an_edit_of_any_field_is_found(version, name):
    path = version / name
    before = path.read_text()
    fields = [(at, value) for at, value in leaves(json.loads(before)) if at[0] != "splits"]
    names = {at[-1] for at, _ in fields}
    assert (
        names
        >= {
            INFO: {"description", "citation", "1.0.0", "moduleName", "license"},
            FEATURES: {"pythonClassName", "description", "dtype"},
        }[name]
    )
    for at, value in fields:
        put(path, at, "false" if not isinstance(value, list) else [*value, "more"])
        code, output = verified(version)
        assert code == 1, at
        assert name in output
        # Others are told in words of their own, such as metadata of another dataset.
        if name == INFO or at[-1] == "description":
            assert ".".join(at) in output or at[0] in ("supervisedKeys", "name", "version")
        path.write_text(before)
    assert verified(version)[0] == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("numShards", "7"),
        ("statistics", {"numExamples": "3"}),
        ("filepathTemplate", "described-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"),
        ("anything", "else"),
    ],
)
def test_an_edit_of_a_split_is_found(version, field, value):
    """Also of fields that change neither the names of shards nor their sizes."""
    put(version / INFO, ("splits", 0, field), value)
    assert told(verify(version)) == [("other-metadata", INFO)]
    assert f"splits.train.{field}" in verified(version)[1]


@pytest.mark.parametrize("feature", ["n", "text"])
def test_another_class_of_a_feature_is_found(version, feature):
    at = ("featuresDict", "features", feature, "pythonClassName")
    put(version / FEATURES, at, "tensorflow_datasets.core.features.tensor_feature.Tensor")
    code, output = verified(version)
    assert code == 1
    assert f"error: {FEATURES}: The field {'.'.join(at)} differs from the manifest" in output


@pytest.mark.parametrize("field", ["description", "citation", "releaseNotes", "redistributionInfo"])
def test_a_field_that_is_gone_or_new_is_found(version, field):
    path = version / INFO
    before = json.loads(path.read_text())
    path.write_text(json.dumps({name: one for name, one in before.items() if name != field}))
    (issue,) = verify(version, level=Level.FAST).issues
    assert (issue.node, issue.found) == (INFO, "null")
    assert field in issue.problem
    path.write_text(json.dumps({**before, "isBlocked": "nobody may use it"}))
    (issue,) = verify(version, level=Level.FAST).issues
    assert "isBlocked" in issue.problem


def test_the_same_json_in_another_form_is_no_edit(version):
    for name in (INFO, FEATURES):
        whole = json.loads((version / name).read_text())
        (version / name).write_text(json.dumps(whole, indent=7, sort_keys=True))
    assert not verify(version).issues


def edited(path):
    found = np.load(path)
    found[1] += 1
    np.save(path, found)


def truncated(path):
    path.write_bytes(path.read_bytes()[:-1])


def pickled(path):
    with path.open("wb") as file:
        np.lib.format.write_array(file, np.array([print], object))


def a_pickle(path):
    path.write_bytes(pickle.dumps([1]))


def emptied(path):
    path.write_bytes(b"")


def gone(path):
    path.unlink()


def a_link(path):
    path.rename(path.with_name(".moved"))
    path.symlink_to(".moved")


DAMAGES = (edited, truncated, pickled, a_pickle, emptied, gone, a_link)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("path_of", [index.path_of, index.keys_path])
def test_a_damaged_sidecar_is_found(version, path_of, damage):
    path = path_of(version / SHARD)
    damage(path)
    code, output = verified(version)
    assert code == 1
    assert path.name in output
    assert SHARD in output
    assert [issue.node for issue in verify(version).issues] == [path.name]


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_said_against_a_damaged_index_mends_it(version, damage):
    path = index.path_of(version / SHARD)
    before = path.read_bytes()
    damage(path)
    (issue,) = verify(version).issues
    assert issue.fix == f"my-datasets index {version} --overwrite"
    path.unlink(missing_ok=True)
    done = CliRunner().invoke(cli, ["index", str(version), "--overwrite"])
    assert done.exit_code == 0, done.output
    assert path.read_bytes() == before
    assert not verify(version).issues


def test_unrecorded_keys_are_found(version):
    made = Manifest.read(version)
    path = index.keys_path(version / SHARD)
    files = {name: one for name, one in made.files.items() if name != path.name}
    dataclasses.replace(made, files=files).write(version)
    assert told(verify(version)) == [("extra-sidecar", path.name)]


@pytest.mark.parametrize("path_of", [index.path_of, index.keys_path])
def test_damaged_sidecars_are_not_published(version, path_of, tmp_path):
    edited(path_of(version / SHARD))
    with pytest.raises(PublishError, match=path_of(version / SHARD).name):
        my_datasets.publish(str(version), tmp_path / "store")


def test_edited_metadata_are_not_published(version, tmp_path):
    put(version / INFO, ("citation",), "@misc{mine}")
    with pytest.raises(PublishError, match="citation"):
        my_datasets.publish(str(version), tmp_path / "store")


def test_what_is_pulled_is_good(version, tmp_path):
    my_datasets.publish(str(version), tmp_path / "store")
    pulled = my_datasets.pull("described", tmp_path / "store", tmp_path / "here").path
    report = verify(pulled, level=Level.DEEP)
    assert not report.issues
    assert not report.not_checked


def reversed_splits(version):
    return json.loads((version / INFO).read_text())["splits"][::-1]


def test_a_part_of_a_release_is_good_and_its_edits_are_found(tmp_path):
    class Two(Described, skip_registration=True):
        name = "described"

        def _split_generators(self, dl_manager):
            return {"train": self._examples(range(9)), "test": self._examples(range(9, 12))}

    builder = Two(data_dir=tmp_path / "data")
    builder.download_and_prepare()
    my_datasets.publish(str(builder.data_dir), tmp_path / "store")
    part = my_datasets.pull("described", tmp_path / "store", tmp_path / "here", splits=["test"])
    assert not verify(part.path).issues
    put(part.path / INFO, ("splits", 0, "numShards"), "7")
    put(builder.data_path / INFO, ("splits",), reversed_splits(builder.data_path))
    for path in (part.path, builder.data_path):
        assert told(verify(path)) == [("other-metadata", INFO)]
    put(part.path / INFO, ("splits", 0, "numShards"), None)
    edited(index.keys_path(part.path / "described-test.tfrecord-00000-of-00001"))
    assert [code for code, _ in told(verify(part.path))] == ["other-bytes"]


def test_an_adopted_version_is_watched_as_well(tmp_path):
    theirs = toys.ByTfds(data_dir=tmp_path)
    theirs.download_and_prepare()
    path = Path(theirs.data_dir)
    adopt(path)
    assert not verify(path).issues
    put(path / INFO, ("description",), "Something else.")
    assert told(verify(path)) == [("other-metadata", INFO)]


def test_an_older_manifest_verifies_as_it_did_and_says_what_was_not_checked(tmp_path):
    golden = Path(shutil.copytree(GOLDEN / "tfrecord/golden", tmp_path / "golden")) / "1.0.0"
    put(golden / INFO, ("citation",), "@misc{mine}")
    report = verify(golden)
    assert report.is_good
    (note,) = report.not_checked
    assert "citation" in note
    assert "not checked: " in verified(golden)[1]


def test_an_update_of_the_metadata_by_tfds_is_recorded(version, monkeypatch):
    """It takes what the code says now: that is no edit."""
    root = version.parents[1]
    update = tfds.download.DownloadConfig(download_mode=tfds.GenerateMode.UPDATE_DATASET_INFO)
    monkeypatch.setattr(Described, "description", "Other words.")
    Described(data_dir=root).download_and_prepare(download_config=update)
    assert "Other words." in (version / INFO).read_text()
    assert not verify(version).issues
    put(version / INFO, ("description",), "Yet other words.")
    assert told(verify(version)) == [("other-metadata", INFO)]


@pytest.mark.parametrize(
    "files",
    [
        {"../other": {"bytes": 1, "sha256": "0" * 64}},
        {"x.npy": {"bytes": "1", "sha256": "0" * 64}},
        {"x.npy": {"bytes": 1, "sha256": "0"}}, {"x.npy": {}}, {"x.npy": None},
        {"features.json": {"bytes": 1, "sha256": "0" * 64}},
    ],
)  # fmt: skip
def test_a_manifest_with_impossible_files_is_refused(version, files):
    path = version / manifest.FILE_NAME
    whole = json.loads(path.read_text())
    whole.pop("seal")
    whole["files"] = files
    path.write_text(json.dumps({**whole, "seal": manifest._seal(whole)}))
    assert told(verify(version)) == [("unreadable-manifest", manifest.FILE_NAME)]
