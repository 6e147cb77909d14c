"""Each way in which a version can be damaged is found, and told exactly; good data are good."""

import hashlib
import itertools
import json
import os
import shutil
import struct
import tempfile
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
import tensorflow_datasets as tfds

import my_datasets
from my_datasets.comparison import examine
from my_datasets.errors import CorruptShardError, DataDirError, IncompleteVersionError
from my_datasets.metadata import manifest
from my_datasets.metadata.manifest import Manifest
from my_datasets.records import index, tfrecord
from my_datasets.verification.adopt import adopt
from my_datasets.verification.verifier import Level, verify
from tests.building.engines import toys
from tests.building.engines.builds import THREE_SHARDS, build

TRAIN = [f"{toys.InUnits.name}-train.tfrecord-0000{i}-of-00003" for i in range(3)]
TEST = [f"{toys.InUnits.name}-test.tfrecord-0000{i}-of-00003" for i in range(3)]
INDEX = {name: index.path_of(Path(name)).name for name in (*TRAIN, *TEST)}


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return build(toys.InUnits, tmp_path_factory.mktemp("good"), workers=2)


@pytest.fixture
def version(good, tmp_path):
    copy = tmp_path / good.parent.name / good.name
    shutil.copytree(good, copy)
    return copy


def place(path, row):
    """Returns where a record begins, and how long it is."""
    offsets = index.scan(path)
    return int(offsets[row]), int(offsets[row + 1] - offsets[row]) - tfrecord.OVERHEAD


def flipped(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def edited(path, change):
    whole = json.loads(path.read_text())
    change(whole)
    path.write_text(json.dumps(whole))


def sealed(path, change):
    """Edits a manifest as somebody would who knows how it is sealed."""
    whole = json.loads(path.read_text())
    whole.pop("seal")
    change(whole)
    whole["seal"] = manifest._seal(whole)
    path.write_text(json.dumps(whole))


def replaced(path, row, change):
    """Puts another record in a place, with the right checksum."""
    begin, size = place(path, row)
    data = bytearray(path.read_bytes())
    record = change(bytes(data[begin + 12 : begin + 12 + size]))
    footer = tfrecord.footer(google_crc32c.value(record))
    data[begin : begin + size + 16] = tfrecord.header(len(record)) + record + footer
    path.write_bytes(data)


def manifest_that_was_edited(version):
    edited(version / "my_datasets_manifest.json", lambda whole: whole["options"].update(splits=[]))


def odd(name, text):
    """Returns what puts a text in the place of a metadata file."""

    def damage(version):
        (version / name).write_bytes(text if isinstance(text, bytes) else text.encode())

    damage.__name__ = f"{name}_{len(text)}_{text[:9]}"
    return damage


def info_with(change):
    def damage(version):
        edited(version / "dataset_info.json", change)

    return damage


def shifted_index(version):
    path = index.path_of(version / TEST[0])
    offsets = np.load(path)
    offsets[3] += 5
    np.save(path, offsets)


def index_that_is_none(version):
    index.path_of(version / TEST[0]).write_bytes(b"\x93NUMPY\x01\x00v\x00{'descr': (")


def without_manifest(version):
    (version / "my_datasets_manifest.json").unlink()


def other_schema(version):
    def change(whole):
        features = whole["featuresDict"]["features"]
        name = next(name for name, one in features.items() if one.get("tensor"))
        features[name]["tensor"]["dtype"] = "uint8"

    edited(version / "features.json", change)


def damaged_length(version):
    flipped(version / TRAIN[0], place(version / TRAIN[0], 5)[0])


def damaged_length_checksum(version):
    flipped(version / TRAIN[0], place(version / TRAIN[0], 5)[0] + 9)


def damaged_record(version):
    flipped(version / TRAIN[1], place(version / TRAIN[1], 7)[0] + 20)


def damaged_checksum(version):
    begin, size = place(version / TRAIN[1], 0)
    flipped(version / TRAIN[1], begin + 12 + size + 1)


def cut_within(version):
    path = version / TRAIN[2]
    path.write_bytes(path.read_bytes()[:-9])


def cut_between(version):
    path = version / TRAIN[2]
    offsets = index.scan(path)
    path.write_bytes(path.read_bytes()[: int(offsets[-2])])


def cut_in_the_length(version):
    path = version / TRAIN[2]
    offsets = index.scan(path)
    path.write_bytes(path.read_bytes()[: int(offsets[-2]) + 5])


def emptied(version):
    (version / TRAIN[0]).write_bytes(b"")


def swapped(version):
    one, other = version / TRAIN[0], version / TRAIN[1]
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)


def of_the_other_split(version):
    (version / TRAIN[0]).write_bytes((version / TEST[0]).read_bytes())


def foreign(version):
    record = b"\x0a\x00"
    one = tfrecord.header(2) + record + tfrecord.footer(google_crc32c.value(record))
    count = len(index.scan(version / TRAIN[0])) - 1
    (version / TRAIN[0]).write_bytes(one * count)


def longer(version):
    path = version / TRAIN[0]
    data = path.read_bytes()
    path.write_bytes(data + data[: int(index.scan(path)[1])])


def same_size_other_values(version):
    replaced(version / TRAIN[0], 3, lambda record: record[:-1] + bytes([record[-1] ^ 1]))


def no_example(version):
    replaced(version / TRAIN[0], 3, lambda record: b"\xff" * len(record))


def missing(version):
    (version / TEST[0]).unlink()


def extra(version):
    shutil.copy(version / TEST[0], version / "toy-extra.tfrecord-00000-of-00001")


def linked(version):
    path = version / TEST[0]
    path.rename(version.parent / "elsewhere")
    path.symlink_to(version.parent / "elsewhere")


def a_directory(version):
    (version / TEST[0]).unlink()
    (version / TEST[0]).mkdir()


def stale_index(version):
    index.write(version / TEST[0], np.array([0, 5], np.uint64))


def unreadable_index(version):
    index.path_of(version / TEST[0]).write_bytes(b"no index")


def half_written(version):
    (version / "something.partial").write_bytes(b"")


def no_info(version):
    (version / "dataset_info.json").unlink()


def torn_info(version):
    path = version / "dataset_info.json"
    path.write_text(path.read_text()[:-20])


def no_features(version):
    (version / "features.json").unlink()


def torn_features(version):
    (version / "features.json").write_text('{"pythonClass')


def info_of_another_version(version):
    edited(version / "dataset_info.json", lambda whole: whole.update(version="9.9.9"))


def info_of_another_dataset(version):
    def change(whole):
        whole["name"] = "other"
        for split in whole["splits"]:
            split["filepathTemplate"] = split["filepathTemplate"].replace(
                "{DATASET}", toys.InUnits.name
            )

    edited(version / "dataset_info.json", change)


def other_counts(version):
    def change(whole):
        lengths = whole["splits"][0]["shardLengths"]
        lengths[0] = str(int(lengths[0]) + 1)

    edited(version / "dataset_info.json", change)


def a_split_less(version):
    edited(version / "dataset_info.json", lambda whole: whole["splits"].pop())


def torn_manifest(version):
    (version / "my_datasets_manifest.json").write_text("{")


def manifest_of_tomorrow(version):
    sealed(version / "my_datasets_manifest.json", lambda whole: whole.update(format=99))


def manifest_with_another_digest(version):
    def change(whole):
        whole["content"]["splits"]["train"]["ordered"] = "0" * 64

    sealed(version / "my_datasets_manifest.json", change)


def manifest_that_lost_a_field(version):
    sealed(version / "my_datasets_manifest.json", lambda whole: whole["content"].pop("schema"))


def forged(version):
    """The shard and its SHA-256 in the manifest are both others; the digest is that of before."""
    same_size_other_values(version)
    data = (version / TRAIN[0]).read_bytes()

    def change(whole):
        whole["content"]["splits"]["train"]["shards"][0]["sha256"] = hashlib.sha256(
            data
        ).hexdigest()

    sealed(version / "my_datasets_manifest.json", change)


FAST = [
    (missing, [("missing-shard", TEST[0])]),
    (extra, [("extra-shard", "toy-extra.tfrecord-00000-of-00001")]),
    (linked, [("link", TEST[0])]),
    (a_directory, [("no-file", TEST[0])]),
    (stale_index, [("stale-index", INDEX[TEST[0]])]),
    (unreadable_index, [("stale-index", INDEX[TEST[0]])]),
    (half_written, [("half-written", "something.partial")]),
    (no_info, [("missing-metadata", "dataset_info.json")]),
    (torn_info, [("unreadable-metadata", "dataset_info.json")]),
    (no_features, [("missing-metadata", "features.json")]),
    (torn_features, [("unreadable-metadata", "features.json")]),
    (other_schema, [("other-features", "features.json")]),
    (info_of_another_version, [("other-version", "dataset_info.json")]),
    (info_of_another_dataset, [("other-dataset", "dataset_info.json")]),
    (torn_manifest, [("unreadable-manifest", "my_datasets_manifest.json")]),
    (manifest_of_tomorrow, [("unreadable-manifest", "my_datasets_manifest.json")]),
    (manifest_with_another_digest, [("unreadable-manifest", "my_datasets_manifest.json")]),
    (manifest_that_lost_a_field, [("unreadable-manifest", "my_datasets_manifest.json")]),
    (other_counts, [("other-shards", "split train")]),
    *[
        (
            info_with(lambda whole, change=change: whole.update(change)),
            [("other-metadata", "dataset_info.json")],
        )
        for change in ({"supervisedKeys": {"tuple": {"items": []}}}, {"disableShuffling": True})
    ],
    (
        info_with(lambda whole: whole["splits"][0].update(numBytes="7")),
        [("other-metadata", "dataset_info.json")],
    ),
    (a_split_less, [("other-metadata", "dataset_info.json"), ("other-splits", "split ")]),
    (manifest_that_was_edited, [("unreadable-manifest", "my_datasets_manifest.json")]),
    (index_that_is_none, [("stale-index", INDEX[TEST[0]])]),
    *[
        (odd(name, text), [("unreadable-" + kind, name)])
        for name, kind in (
            ("dataset_info.json", "metadata"),
            ("features.json", "metadata"),
            ("my_datasets_manifest.json", "manifest"),
        )
        for text in ("", "[]", "7", "[" * 100_000, b"\xff\xfe", '{"featuresDict": []}')
    ],
    *[
        (
            info_with(lambda whole, change=change: whole["splits"][0].update(change)),
            [("unreadable-metadata", "dataset_info.json")],
        )
        for change in (
            {"filepathTemplate": "../{SPLIT}"},
            {"filepathTemplate": "/tmp/x"},
            {"filepathTemplate": "{}"},
            {"filepathTemplate": "same"},
            {"name": None},
            {"shardLengths": ["-1"]},
            {"shardLengths": [1e999]},
            {"name": "test"},
            {"filepathTemplate": "\0"},
            {"filepathTemplate": "\ud800"},
        )
    ],
    (without_manifest, [("no-manifest", "my_datasets_manifest.json")]),
]
BYTES = [
    (damaged_length, [("damaged", f"{TRAIN[0]}, record 5, byte ")]),
    (damaged_length_checksum, [("damaged", f"{TRAIN[0]}, record 5, byte ")]),
    (damaged_record, [("damaged", f"{TRAIN[1]}, record 7, byte ")]),
    (damaged_checksum, [("damaged", f"{TRAIN[1]}, record 0, byte 0")]),
    (shifted_index, [("stale-index", INDEX[TEST[0]])]),
    (swapped, [told for name in TRAIN[:2] for told in (
        ("size", name), ("stale-index", INDEX[name]), ("swapped-shard", name))]),
    (same_size_other_values, [("other-bytes", TRAIN[0])]),
    (no_example, [("other-bytes", TRAIN[0])]),
    (of_the_other_split, [("size", TRAIN[0]), ("stale-index", INDEX[TRAIN[0]]),
                          ("swapped-shard", TRAIN[0])]),
    (foreign, [("other-bytes", TRAIN[0]), ("size", TRAIN[0]),
               ("stale-index", INDEX[TRAIN[0]])]),
    (emptied, [("count", TRAIN[0]), ("size", TRAIN[0]),
               ("stale-index", INDEX[TRAIN[0]])]),
    (longer, [("count", TRAIN[0]), ("size", TRAIN[0]),
              ("stale-index", INDEX[TRAIN[0]])]),
    (cut_within, [("damaged", f"{TRAIN[2]}, record "), ("size", TRAIN[2]),
                  ("stale-index", INDEX[TRAIN[2]])]),
    (cut_between, [("count", TRAIN[2]), ("size", TRAIN[2]),
                   ("stale-index", INDEX[TRAIN[2]])]),
    (cut_in_the_length, [("damaged", f"{TRAIN[2]}, record "), ("size", TRAIN[2]),
                         ("stale-index", INDEX[TRAIN[2]])]),
]  # fmt: skip


def codes(report):
    return sorted((issue.code, issue.node) for issue in report.issues)


def assert_told(report, expected):
    found = codes(report)
    assert len(found) == len(expected), report.issues
    for (code, node), (wanted, beginning) in zip(found, sorted(expected), strict=True):
        assert code == wanted
        assert node.startswith(beginning)
    for issue in report.issues:
        assert issue.fix
        assert issue.problem.endswith(".")
        assert "Traceback" not in str(issue)


@pytest.mark.parametrize("level", list(Level))
def test_good_data_are_good(version, level):
    report = verify(version, level=level)
    assert report.issues == ()
    assert report.is_good
    assert report.examples == sum(
        one.examples for one in Manifest.read(version).content.splits.values()
    )
    expected = Manifest.read(version).content.digest if level is Level.DEEP else None
    assert report.digest == expected
    assert json.loads(json.dumps(report.to_json()))["good"] is True


@pytest.mark.parametrize(("damage", "expected"), FAST, ids=lambda one: getattr(one, "__name__", ""))
def test_what_is_found_without_reading(version, damage, expected):
    damage(version)
    assert_told(verify(version, level=Level.FAST), expected)


@pytest.mark.parametrize(
    ("damage", "expected"), BYTES, ids=lambda one: getattr(one, "__name__", "")
)
@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_found_in_the_bytes(version, damage, expected, workers, monkeypatch):
    monkeypatch.setattr(examine, "FEW_BYTES", 0)
    damage(version)
    report = verify(version, workers=workers)
    assert not report.is_good
    assert_told(report, expected)


def test_permissions(good):
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch).chmod(0o755)
        copy = Path(scratch) / good.parent.name / good.name
        shutil.copytree(good, copy)
        (copy / TEST[0]).chmod(0)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)  # the superuser may read everything
        try:
            report = verify(copy, workers=1)
        finally:
            os.seteuid(user)
    assert_told(report, [("unreadable-shard", TEST[0])])
    assert "ermission denied" in report.issues[0].found


def test_a_forged_manifest_is_found_by_the_digest(version):
    forged(version)
    assert verify(version).is_good
    report = verify(version, level=Level.DEEP)
    assert_told(report, [("other-examples", "split train")])
    assert report.digest is None


def test_other_order_is_distinguished_from_other_examples(version):
    path = version / TRAIN[0]
    offsets = [int(at) for at in index.scan(path)]
    data = path.read_bytes()
    records = [data[a:b] for a, b in itertools.pairwise(offsets)]
    path.write_bytes(b"".join([*records[1:], records[0]]))
    index.write(path, index.scan(path))

    def change(whole):
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        whole["content"]["splits"]["train"]["shards"][0]["sha256"] = sha256

    sealed(version / "my_datasets_manifest.json", change)
    assert_told(verify(version, level=Level.DEEP), [("other-order", "split train")])


def test_without_a_manifest_each_record_counts(version):
    without_manifest(version)
    assert [issue.code for issue in verify(version).issues] == ["no-manifest"]
    assert verify(version).is_good
    damaged_record(version)
    report = verify(version)
    assert_told(
        report,
        [("damaged", f"{TRAIN[1]}, record 7, byte "), ("no-manifest", "my_datasets_manifest.json")],
    )
    assert report.issues[0].problem == "The checksum of the record is wrong."


def test_without_a_manifest_an_index_is_compared_with_its_shard(version):
    without_manifest(version)
    shifted_index(version)
    assert ("stale-index", INDEX[TEST[0]]) in codes(verify(version))


def test_examples_that_are_not_what_the_features_declare(version):
    without_manifest(version)

    def change(record):
        # The key of a feature, by another one of its length.
        return record.replace(b"label", b"lebal")

    replaced(version / TRAIN[0], 300, change)
    report = verify(version, level=Level.DEEP)
    (found,) = [issue for issue in report.issues if issue.code == "misfit"]
    assert found.node == f"{TRAIN[0]}, record 300, feature label"
    no_example(version)
    report = verify(version, level=Level.DEEP)
    assert ("no-example", f"{TRAIN[0]}, record 3") in codes(report)


def test_a_version_of_tfds_is_adopted(tmp_path):
    theirs = toys.ByTfds(data_dir=tmp_path)
    theirs.download_and_prepare(download_config=THREE_SHARDS)
    path = Path(theirs.data_dir)
    manifest = adopt(path)
    assert verify(path, level=Level.DEEP).digest == manifest.content.digest
    assert tfds.builder_from_directory(path).info.splits["train"].num_examples
    with pytest.raises(DataDirError, match="already has a manifest"):
        adopt(path)
    (path / "my_datasets_manifest.json").unlink()
    shard = next(path.glob("*-train.tfrecord-*"))
    flipped(shard, 30)
    with pytest.raises(CorruptShardError, match="record 0"):
        adopt(path)
    assert not (path / "my_datasets_manifest.json").exists()
    (path / "features.json").unlink()
    with pytest.raises(IncompleteVersionError, match=r"features\.json"):
        adopt(path)


def test_examples_in_two_splits_are_reported(version):
    shutil.copy(version / TRAIN[0], version / TEST[0])
    shutil.copy(index.path_of(version / TRAIN[0]), index.path_of(version / TEST[0]))
    without_manifest(version)
    count = len(index.scan(version / TRAIN[0])) - 1

    def change(whole):
        (test,) = [one for one in whole["splits"] if one["name"] == "test"]
        test["shardLengths"][0] = str(count)

    edited(version / "dataset_info.json", change)
    report = verify(version, level=Level.DEEP)
    (found,) = [issue for issue in report.issues if issue.code == "leak"]
    assert found.problem.startswith(f"{count:,} examples")
    assert "train 0 and test 0" in found.found
    assert report.is_good


def test_a_record_that_claims_to_be_huge(version):
    path = version / TRAIN[0]
    header = struct.pack("<Q", 1 << 50)
    data = header + tfrecord.footer(google_crc32c.value(header)) + path.read_bytes()[12:]
    path.write_bytes(data)
    report = verify(version)
    assert codes(report) == [("damaged", f"{TRAIN[0]}, record 0, byte 0")]
    assert report.issues[0].problem == "The file ends within the record."


@pytest.mark.parametrize("file_format", ["array_record", "parquet"])
def test_shards_of_other_formats_that_are_cut_off(tmp_path, file_format):
    path = build(toys.Plain, tmp_path, file_format=file_format)
    assert verify(path, level=Level.DEEP).is_good
    for has_manifest in (True, False):
        if not has_manifest:
            without_manifest(path)
        (shard, *_) = sorted(path.glob(f"*-train*{file_format}*"))
        whole = shard.read_bytes()
        for size in (0, 1, 50, len(whole) // 2, len(whole) - 1):
            shard.write_bytes(whole[:size])
            report = verify(path, level=Level.DEEP)
            assert not report.is_good
            assert "damaged" in {issue.code for issue in report.issues}
        shard.write_bytes(whole)
    if file_format == "parquet":  # each page has its checksum
        data = bytearray(whole)
        data[len(data) // 3] ^= 4
        shard.write_bytes(data)
        assert not verify(path).is_good


class Odd(my_datasets.Builder, skip_registration=True):
    """Features that TFDS alone reads, and texts of any shape."""

    VERSION = tfds.core.Version("1.0.0")
    name = "odd_features"
    features = {
        "words": tfds.features.Tensor(shape=(None,), dtype=np.str_),
        "pair": tfds.features.Tensor(shape=(2,), dtype=np.str_),
    }

    def _info(self):
        features = tfds.features.FeaturesDict(dict(self.features))
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def example(self, i):
        return {"words": ["w"] * i, "pair": ["a", str(i)]}

    def _generate_examples(self):
        for i in range(6):
            yield i, self.example(i)


class Copies(Odd, skip_registration=True):
    """Two examples three times, one twice, the others once."""

    VERSION = tfds.core.Version("3.0.0")
    name = "odd_features"
    features = {"n": np.int64}

    def example(self, i):
        return {"n": {1: 0, 4: 0, 2: 9, 5: 9, 3: 9, 7: 6}.get(i, i)}

    def _generate_examples(self):
        for i in range(12):
            yield i, self.example(i)


def test_examples_that_are_more_than_once_in_a_split_are_reported(tmp_path):
    builder = Copies(data_dir=tmp_path)
    builder.download_and_prepare()
    report = verify(builder.data_dir, level=Level.DEEP)
    (found,) = report.issues
    assert (found.code, found.node, found.severity) == ("duplicates", "split train", "warning")
    # 9 itself is there, too.
    assert found.problem == ("3 examples occur more than once, value for value: 6 copies.")
    values = [int(example["n"]) for example in my_datasets.source(str(builder.data_dir))]
    places = {}
    for place, value in enumerate(values):
        places.setdefault(value, []).append(place)
    twice = sorted(some[:2] for some in places.values() if len(some) > 1)
    expected = ", ".join(f"{one} and {other}" for one, other in twice)
    assert found.found == f"{expected} (counted from 0)"
    assert report.is_good
    assert report.digest


def test_no_false_alarm_for_any_feature(tmp_path):
    builder = Odd(data_dir=tmp_path)
    builder.download_and_prepare()
    report = verify(builder.data_dir, level=Level.DEEP)
    assert (report.issues, report.not_checked) == ((), ())
    found = list(my_datasets.source(str(builder.data_dir)))
    theirs = tfds.as_numpy(builder.as_dataset(split="train"))
    for ours, expected in zip(found, theirs, strict=True):
        assert ours["words"].tolist() == expected["words"].tolist()
        assert ours["pair"].tolist() == expected["pair"].tolist()
    features = {"text": tfds.features.TranslationVariableLanguages(languages=["de", "en"])}
    cls = type("Odder", (Odd,), {
        "features": features, "name": Odd.name, "VERSION": tfds.core.Version("2.0.0"),
        "example": lambda _, i: {"text": {"de": str(i), "en": ["a", "b"]}},
    }, skip_registration=True)  # fmt: skip
    builder = cls(data_dir=tmp_path)
    builder.download_and_prepare()
    report = verify(builder.data_dir, level=Level.DEEP)
    assert report.issues == ()
    assert "variable languages" in report.not_checked[0]


def test_a_shard_that_goes_away_meanwhile(version):
    def gone(looked):
        if looked.stage == TRAIN[0]:
            (version / TRAIN[1]).unlink()

    report = verify(version, level=Level.DEEP, workers=1, report=gone)
    assert codes(report) == [("unreadable-shard", TRAIN[1])]
    assert report.digest is None


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_damaged_metadata_is_an_issue_at_every_level(version, text):
    (version / "dataset_info.json").write_text(text)
    for level in Level:
        codes = [issue.code for issue in verify(version, level=level, workers=1).issues]
        assert codes == ["unreadable-metadata"]


def test_supervised_keys_of_another_dataset_do_not_end_a_deep_verification(version):
    path = version / "dataset_info.json"
    info = json.loads(path.read_text())
    keys = [{"featureKey": "no"}, {"featureKey": "such"}]
    path.write_text(json.dumps({**info, "supervisedKeys": {"tuple": {"items": keys}}}))
    report = verify(version, level=Level.DEEP, workers=1)
    assert "other-metadata" in {issue.code for issue in report.issues}
    assert any("supervised_keys" in note for note in report.not_checked)
