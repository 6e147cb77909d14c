"""JSON and Avro give what TFDS would give of the same examples; and no message reads a file."""

import base64
import io
import json

import fastavro
import numpy as np
import pytest
import tensorflow_datasets as tfds

from my_datasets.builders.encode.encoder import ExampleEncoder
from my_datasets.errors import FeatureError, InvalidOptionError
from my_datasets.input_pipeline.decode.decoder import Decoder
from my_datasets.kafka import payloads
from my_datasets.kafka.decoder import Decoding
from my_datasets.kafka.features import DecodedFeatures, check_shapes, described
from my_datasets.kafka.payloads import MessageValues
from my_datasets.kafka.stream import parser_of
from tests.kafka.examples import FEATURES, example, numbered, records

SCHEMA = {
    "type": "record",
    "name": "Example",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "x", "type": {"type": "array", "items": "float"}},
        {"name": "label", "type": "long"},
        {"name": "text", "type": "string"},
        {"name": "list", "type": {"type": "array", "items": "long"}},
    ],
}


def decoding(payload, features=FEATURES, schema=None):
    found = described(features)
    parser = parser_of(payload, found.tree, schema)
    transcoder = None
    if parser is not None:
        transcoder = payloads.Transcoder(parser, ExampleEncoder(found.loaded()))
    whole = Decoding(Decoder(found.tree), transcoder)
    return lambda values: whole(MessageValues.of(values))


def avro(value, schema=SCHEMA):
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), value)
    return file.getvalue()


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert type(a[name]) is type(b[name])
        if hasattr(a[name], "lengths"):
            np.testing.assert_array_equal(a[name].lengths[0], b[name].lengths[0])
            np.testing.assert_array_equal(a[name].values, b[name].values)
        else:
            np.testing.assert_array_equal(a[name], b[name])


def test_json_and_avro_are_what_the_same_examples_are_as_records():
    wanted = decoding("example")(numbered(range(50)))
    assert wanted.undecodable == ()
    as_json = [json.dumps(example(n)).encode() for n in range(50)]
    same(decoding("json")(as_json).columns, wanted.columns)
    as_avro = [avro(example(n)) for n in range(50)]
    same(decoding("avro", schema=SCHEMA)(as_avro).columns, wanted.columns)
    # With the numbers of a registry, also several.
    framed = [b"\0" + (7).to_bytes(4, "big") + one for one in as_avro]
    two = {7: json.dumps(SCHEMA), 9: SCHEMA}
    same(decoding("avro", schema=two)(framed).columns, wanted.columns)
    (found,) = decoding("avro", schema={9: SCHEMA})(framed[:1]).undecodable
    assert (found.expected, found.found) == ("one of the schemas [9]", "schema 7")
    (found,) = decoding("avro", schema={9: SCHEMA})([b""]).undecodable
    assert found.expected == "Avro with the number of a schema"


def test_names_of_classes_and_more_members_are_taken():
    value = {**example(1), "label": "yes", "more": {"of": "this"}}
    columns = decoding("json")([json.dumps(value).encode()]).columns
    assert columns["label"].tolist() == [1]


@pytest.mark.parametrize(
    ("change", "feature", "expected"),
    [
        ({"x": [1.0]}, "x", None),
        ({"x": "text"}, "x", "numbers of float32"),
        ({"x": [1, 2, "/etc/passwd"]}, "x", "numbers of float32"),
        ({"id": "7"}, "id", "numbers of int64"),
        ({"id": None}, "id", None),
        ({"label": "maybe"}, "label", None),
        ({"label": 5}, "label", None),
        ({"list": 3}, "list", None),
        ({"text": 3}, "text", None),
    ],
)
def test_what_does_not_fit_is_distinguished_and_says_which_feature(change, feature, expected):
    values = [json.dumps(example(n)).encode() for n in range(9)]
    values[4] = json.dumps({**example(4), **change}).encode()
    found = decoding("json")(values)
    assert found.rows.tolist() == [0, 1, 2, 3, 5, 6, 7, 8]
    assert found.columns["id"].tolist() == found.rows.tolist()
    (one,) = found.undecodable
    assert one.row == 4
    assert one.feature == feature
    assert one.found
    assert expected is None or one.expected == expected


@pytest.mark.parametrize("value", [b"", b"[]", b"3", b"{", b"\xff", b"{}", b"[" * 100_000, b"null"])
def test_what_is_no_json_of_an_example_is_distinguished(value):
    good = json.dumps(example(0)).encode()
    found = decoding("json")([good, value, good])
    assert [one.row for one in found.undecodable] == [1]
    assert found.rows.tolist() == [0, 2]


def test_what_is_no_avro_is_distinguished():
    good = avro(example(0))
    for value in (b"", good[:-1], good + b"x", b"\xff" * 30):
        found = decoding("avro", schema=SCHEMA)([good, value])
        assert [one.row for one in found.undecodable] == [1]
    with pytest.raises(InvalidOptionError, match="The Avro schema is invalid"):
        decoding("avro", schema="{}")
    with pytest.raises(InvalidOptionError, match="The Avro schema is invalid"):
        decoding("avro", schema={"type": "no such type"})


IMAGES = {"image": tfds.features.Image(shape=(2, 2, 1)), "n": np.int64}


def test_images_are_files_in_base64_or_pixels_but_never_paths(tmp_path):
    pixels = np.arange(4, dtype=np.uint8).reshape(2, 2, 1)
    (record,) = records([{"image": pixels, "n": 0}], tfds.features.FeaturesDict(IMAGES))
    path = tmp_path / "image.png"
    import tensorflow as tf

    path.write_bytes(
        tf.train.Example.FromString(record).features.feature["image"].bytes_list.value[0]
    )
    encoded = base64.b64encode(path.read_bytes()).decode()
    values = [
        json.dumps({"image": image, "n": 0}).encode()
        for image in (encoded, pixels.tolist(), str(path), {"path": str(path)})
    ]
    found = decoding("json", IMAGES)(values)
    np.testing.assert_array_equal(found.columns["image"], [pixels, pixels])
    assert [one.row for one in found.undecodable] == [2, 3]
    assert {one.feature for one in found.undecodable} == {"image"}


def test_nested_features():
    features = {
        "outer": {"inner": np.int64},
        "pairs": tfds.features.Sequence({"a": np.int64, "b": tfds.features.Text()}),
        "ragged": tfds.features.Sequence(tfds.features.Sequence(np.int64)),
    }
    values = [
        {
            "outer": {"inner": n},
            "pairs": [{"a": i, "b": str(i)} for i in range(n)],
            "ragged": [list(range(i)) for i in range(n)],
        }
        for n in range(4)
    ]
    wanted = decoding("example", features)(records(values, tfds.features.FeaturesDict(features)))
    found = decoding("json", features)([json.dumps(one).encode() for one in values])
    assert found.undecodable == ()
    same(found.columns["outer"], wanted.columns["outer"])
    same(found.columns["pairs"], wanted.columns["pairs"])
    assert [[r.tolist() for r in rows] for rows in found.columns["ragged"].rows()] == [
        one["ragged"] for one in values
    ]


def test_which_record_is_wrong_is_not_guessed():
    """The first record has a label of another kind: the others are right nevertheless."""
    import tensorflow as tf

    bad = tf.train.Example.FromString(numbered([0])[0])
    bad.features.feature["label"].bytes_list.value.append(b"yes")
    values = [bad.SerializeToString(), *numbered(range(1, 40))]
    found = decoding("example")(values)
    assert found.rows.tolist() == list(range(1, 40))
    assert [one.row for one in found.undecodable] == [0]


@pytest.mark.parametrize(
    ("feature", "fits"),
    [
        (tfds.features.Image(shape=(None, None, 3)), False),
        (tfds.features.Image(shape=(4, 4, 3)), True),
        (tfds.features.Tensor(shape=(None,), dtype=np.int64), True),
        (tfds.features.Tensor(shape=(2, None), dtype=np.int64), False),
        (tfds.features.Tensor(shape=(None,), dtype=np.int64, encoding="zlib"), False),
        (tfds.features.Sequence(tfds.features.Sequence(np.int64)), True),
        (tfds.features.Text(), True),
    ],
)
def test_what_no_tensor_holds_is_known_before_a_message_comes(feature, fits):
    tree = described({"value": feature}).tree
    if fits:
        check_shapes(tree, None)
    else:
        with pytest.raises(FeatureError, match="'value' has values of different shapes"):
            check_shapes(tree, None)


def video(*arguments):
    return tfds.features.Video(shape=(None, 2, 2, 3), ffmpeg_extra_args=arguments)


OLD_VIDEO = {
    "type": "tensorflow_datasets.core.features.video_feature.Video",
    "content": {"shape": [None, 2, 2, 3], "encoding_format": "png",
                "ffmpeg_extra_args": ["-y", "/tmp/evil"]},
}  # fmt: skip
OF_A_VIDEO = {
    "in a dict": lambda one: {"outer": tfds.features.FeaturesDict({"inner": one})},
    "in a sequence": lambda one: {"sequence": tfds.features.Sequence({"inner": one})},
    "in a dataset": lambda one: {"dataset": tfds.features.Dataset({"inner": one})},
}


@pytest.mark.parametrize("place", OF_A_VIDEO)
def test_a_file_gives_ffmpeg_no_arguments(place, tmp_path):
    """They name files that it writes: only those in code are used."""
    plain, hostile = (
        tfds.features.FeaturesDict(OF_A_VIDEO[place](one)) for one in (video(), video("-y", "/x"))
    )
    plain.save_config(tmp_path)
    assert DecodedFeatures(None, None, directory=tmp_path).loaded().to_json() == plain.to_json()
    hostile.save_config(tmp_path)
    with pytest.raises(FeatureError, match="Found: -y /x\n"):
        DecodedFeatures(None, None, directory=tmp_path).loaded()
    assert DecodedFeatures(None, None, connector=hostile).loaded() is hostile


def test_a_file_of_old_tfds_gives_ffmpeg_no_arguments(tmp_path):
    (tmp_path / "features.json").write_text(json.dumps(OLD_VIDEO))
    with pytest.raises(FeatureError, match="Found: -y /tmp/evil\n"):
        DecodedFeatures(None, None, directory=tmp_path).loaded()
