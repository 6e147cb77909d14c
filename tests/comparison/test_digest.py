"""The digest is of content: the same however it is stored, another for anything else."""

import hashlib
import json
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from hypothesis import strategies as st

import my_datasets
from my_datasets.metadata import content
from my_datasets.metadata.dataset_info import Declared
from my_datasets.metadata.manifest import Manifest
from my_datasets.records.tf_example import canonical
from my_datasets.verification.adopt import examine_version
from tests.building.engines import toys
from tests.building.engines.builds import THREE_SHARDS, build

ONE_SHARD = tfds.download.DownloadConfig(num_shards=1)


def content_of(version_dir):
    """Returns what is in a version, from its shards alone."""
    return examine_version(version_dir, Declared.read(version_dir), workers=1)[0]


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return build(toys.InUnits, tmp_path_factory.mktemp("reference"), workers=2)


@pytest.mark.parametrize(
    ("cls", "options"),
    [
        (toys.Plain, {}),
        (toys.Columns, {"workers": 2, "config": ONE_SHARD}),
        (toys.InUnits, {"file_format": "array_record"}),
        (toys.InUnits, {"file_format": "parquet", "config": ONE_SHARD}),
    ],
)
def test_it_does_not_depend_on_how_a_version_was_built(reference, tmp_path, cls, options):
    expected = Manifest.read(reference).content
    found = build(cls, tmp_path, **options)
    assert Manifest.read(found).content.digest == expected.digest
    assert content_of(found) == Manifest.read(found).content


def test_it_is_that_of_what_tfds_writes(reference, tmp_path):
    theirs = toys.ByTfds(data_dir=tmp_path)
    theirs.download_and_prepare(download_config=THREE_SHARDS)
    assert content_of(Path(theirs.data_dir)).digest == Manifest.read(reference).content.digest


def test_the_manifest_has_what_is_on_disk(reference):
    manifest = Manifest.read(reference)
    assert content_of(reference) == manifest.content
    for split in manifest.content.splits.values():
        assert sum(one.examples for one in split.shards) == split.examples
        for shard in split.shards:
            data = (reference / shard.name).read_bytes()
            assert (shard.bytes, shard.sha256) == (len(data), hashlib.sha256(data).hexdigest())


def test_it_is_what_the_definition_says(reference):
    """Once more from docs/digest.md, with TensorFlow's own protocol buffers."""

    def packed(example):
        def size(number):
            out = b""
            while number > 0x7F:
                out += bytes([number & 0x7F | 0x80])
                number >>= 7
            return out + bytes([number])

        def field(number, data):
            return bytes([number << 3 | 2]) + size(len(data)) + data

        entries = b""
        for key in sorted(example.features.feature, key=str.encode):
            feature = example.features.feature[key].SerializeToString()
            entries += field(1, field(1, key.encode()) + field(2, feature))
        return field(1, entries)

    splits = {}
    for split in ("train", "test"):
        files = sorted(str(path) for path in reference.glob(f"*-{split}.tfrecord-?????-of-?????"))
        examples = [
            tf.train.Example.FromString(record)
            for record in tf.data.TFRecordDataset(files).as_numpy_iterator()
        ]
        hashes = [hashlib.sha256(packed(one)).digest() for one in examples]
        splits[split] = {
            "examples": len(hashes), "ordered": hashlib.sha256(b"".join(hashes)).hexdigest()
        }  # fmt: skip
        found = Manifest.read(reference).content.splits[split]
        assert found.ordered == splits[split]["ordered"]
        assert found.unordered == hashlib.sha256(b"".join(sorted(hashes))).hexdigest()

    def form(node):
        node = {k: v for k, v in node.items() if k not in ("pythonClassName", "description")}
        if "featuresDict" in node:
            inner = node["featuresDict"]["features"]
            return {"featuresDict": {name: form(one) for name, one in inner.items()}}
        if "sequence" in node:
            node["sequence"]["feature"] = form(node["sequence"]["feature"])
        return node

    def of_json(value):
        text = json.dumps(value, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    features = form(json.loads((reference / "features.json").read_text()))
    labels = {
        path.name: path.read_text().split("\n")[:-1] for path in reference.glob("*.labels.txt")
    }
    schema = of_json({"features": features, "labels": labels})
    assert Manifest.read(reference).content.digest == of_json({"schema": schema, "splits": splits})


FEATURES = st.dictionaries(
    # Of a few letters, too, so that some keys begin with others.
    st.one_of(st.text(min_size=1, max_size=9), st.text("ab/", max_size=3)),
    st.one_of(
        st.lists(st.binary(max_size=200), max_size=4),
        st.lists(st.floats(width=32, allow_nan=False), max_size=40),
        st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40),
    ),
    max_size=6,
)


def example_of(features, order=None):
    """Returns the bytes of an example, with its map in an order."""

    def feature(values):
        if values and isinstance(values[0], bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        if values and isinstance(values[0], float):
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    parts = b""
    for key in order or features:
        one = tf.train.Features(feature={key: feature(features[key])})
        parts += one.SerializeToString()
    return tf.train.Example(features=tf.train.Features.FromString(b"")).SerializeToString() + (
        b"\x0a" + _size(len(parts)) + parts
    )


def _size(number):
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


@hypothesis.given(FEATURES, st.randoms())
def test_the_order_of_a_map_does_not_count(features, random):
    shuffled = list(features)
    random.shuffle(shuffled)
    # As the definition has it: in the order of the keys' bytes.
    expected = example_of(features, sorted(features, key=str.encode)).removeprefix(b"\n\0")
    assert canonical.canonical(example_of(features, shuffled)) == expected
    assert canonical.canonical(expected) == expected
    assert tf.train.Example.FromString(expected) == tf.train.Example.FromString(
        example_of(features)
    )


@hypothesis.given(FEATURES, FEATURES)
def test_other_values_have_other_hashes(one, other):
    def form(features):
        # 0.0 and -0.0 are equal in Python, and two values.
        return {key: list(map(repr, values)) for key, values in features.items()}

    same = canonical.canonical(example_of(one)) == canonical.canonical(example_of(other))
    assert same == (form(one) == form(other))


@hypothesis.given(st.lists(st.binary(min_size=32, max_size=32), max_size=200), st.integers(1, 9))
def test_parts_make_no_difference(hashes, count):
    whole = canonical.joined(hashes)
    parts = np.array_split(whole, count)
    assert content.ordered(parts) == content.ordered([whole])
    expected = hashlib.sha256(b"".join(sorted(hashes))).hexdigest()
    assert content.unordered(parts) == content.unordered([whole]) == expected
    assert content.unordered(parts, at_once=300) == expected


class Numbers(my_datasets.Builder, skip_registration=True):
    """Numbers, of a type."""

    VERSION = tfds.core.Version("1.0.0")
    name = "numbers_with_a_digest"
    dtype = np.int32
    numbers = tuple(range(20))
    labels = ("a", "b")
    note = ""

    def _info(self):
        features = {
            "description": tfds.features.Scalar(self.dtype, doc=self.note),
            "label": tfds.features.ClassLabel(names=list(self.labels)),
        }
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(None)}

    def _generate_examples(self, path):
        for i, number in enumerate(self.numbers):
            yield i, {"description": number, "label": 0}


def digest_of(tmp_path, **changed):
    cls = type("Changed", (Numbers,), {**changed, "name": Numbers.name}, skip_registration=True)
    builder = cls(data_dir=tmp_path / str(len(list(tmp_path.iterdir()))))
    builder.download_and_prepare()
    return Manifest.read(Path(builder.data_dir)).content


def test_any_change_changes_it(tmp_path):
    plain = digest_of(tmp_path)
    assert digest_of(tmp_path).digest == plain.digest
    assert digest_of(tmp_path, note="said in other words").digest == plain.digest
    seen = {plain.digest}
    for changed in (
        {"dtype": np.int64}, {"numbers": (*range(19), 99)}, {"numbers": tuple(range(19))},
        {"labels": ("b", "a")}, {"numbers": tuple(range(19, -1, -1))},
    ):  # fmt: skip
        found = digest_of(tmp_path, **changed)
        assert found.digest not in seen, changed
        seen.add(found.digest)
    # The keys say where an example goes; here the same examples have other ones.
    assert found.splits["train"].unordered == plain.splits["train"].unordered
    assert found.splits["train"].ordered != plain.splits["train"].ordered
