"""Records that are not what their features declare, and features that only TFDS reads."""

import tracemalloc
import zlib

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from my_datasets.errors import FeatureError, OutOfMemoryError
from my_datasets.input_pipeline.decode.decoder import Decoder, FeatureMismatchError
from my_datasets.metadata.features import Leaf
from my_datasets.metadata.version_metadata import VersionMetadata
from my_datasets.records.random_access import RecordBatch
from my_datasets.records.tf_example.columns import PADDING
from my_datasets.statistics.feature import tensor

PACKED = {"dtype": "int16", "encoding": "zlib"}


def batch_of(*examples):
    """Returns records of dicts of lists."""

    def feature(values):
        if values and isinstance(values[0], bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        if values and isinstance(values[0], float):
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    texts = [
        tf.train.Example(
            features=tf.train.Features(feature={k: feature(v) for k, v in one.items()})
        ).SerializeToString()
        for one in examples
    ]
    stops = np.cumsum([len(text) for text in texts])
    data = np.frombuffer(b"".join(texts) + bytes(PADDING), np.uint8)
    return RecordBatch(data, stops - [len(text) for text in texts], stops)


def packed(*values):
    return zlib.compress(np.array(values, np.int16).tobytes())


@pytest.mark.parametrize(
    ("leaf", "good", "bad", "expected", "found"),
    [
        (Leaf(("x",), "number", "int64", (2,)), [1, 2], [1, 2, 3], "2 values", "3"),
        (Leaf(("x",), "number", "int64"), [1], [1.5], "kind int64", "float"),
        (Leaf(("x",), "number", "int64", (2,), (None,)), [1, 2], [1], "multiple of 2", "1"),
        (Leaf(("x",), "number", shape=(3,), **PACKED), [packed(1, 2, 3)], [packed(1)],
         r"int16 of shape \(3,\) as zlib", "cannot reshape"),
        (Leaf(("x",), "number", shape=(3,), **PACKED), [packed(1, 2, 3)], [b"no"],
         "as zlib", "decompress"),
        (Leaf(("x",), "number", shape=(3,), **PACKED), [packed(1, 2, 3)], [packed(1, 2, 3)[:-5]],
         "as zlib", "ends early"),
        (Leaf(("x",), "bytes", "object"), [b"a"], [2], "kind bytes", "int64"),
    ],
)  # fmt: skip
def test_a_misfit_says_its_row(leaf, good, bad, expected, found):
    decoder = Decoder({"x": leaf})
    decoder(batch_of({"x": good}, {"x": good}))
    before = [] if "kind" in expected else [{"x": good}, {"x": good}]
    with pytest.raises(FeatureMismatchError) as caught:
        decoder(batch_of(*before, {"x": bad}))
    assert list(caught.value.rows) == [len(before)]
    assert caught.value.feature == "x"
    caught.match(expected)
    caught.match(found)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"x/value": [packed(1, 2)], "x/shape": [2]}, "1 numbers for 1"),
        ({"x/value": [packed(1, 2)], "x/shape": [3, 3]}, "cannot reshape"),
        ({"x/value": [b"?"], "x/shape": [1, 1]}, "decompress"),
    ],
)
def test_a_misfit_of_a_dynamic_tensor_says_its_row(bad, said):
    decoder = Decoder({"x": Leaf(("x",), "number", shape=(None, None), **PACKED)})
    good = {"x/value": [packed(1, 2)], "x/shape": [1, 2]}
    assert decoder(batch_of(good))["x"][0].tolist() == [[1, 2]]
    with pytest.raises(FeatureMismatchError, match=said) as caught:
        decoder(batch_of(good, bad))
    assert list(caught.value.rows) == [1]


@pytest.fixture
def bomb(monkeypatch):
    """A tensor of more than may be, which is less here, so that the test takes little."""
    monkeypatch.setattr("my_datasets.records.tf_example.columns.MOST_TENSOR_BYTES", 64 << 20)
    return zlib.compress(bytes(65 << 20))


@pytest.mark.parametrize(
    ("shape", "given"),
    [((3,), None), ((None,), None), ((None, None), [1, 3]), ((None, None), [1 << 29, 2])],
)
def test_little_that_decompresses_to_much_is_refused(shape, given, bomb):
    """It takes 64 kB, and the memory of what its feature, or `MOST_TENSOR_BYTES`, lets it have."""
    leaf = Leaf(("x",), "number", shape=shape, **PACKED)
    bad = {"x/value": [bomb], "x/shape": given} if given else {"x": [bomb]}
    tracemalloc.start()
    with pytest.raises(FeatureMismatchError, match="zlib makes more than") as caught:
        Decoder({"x": leaf})(batch_of(bad))
    if shape == (3,):
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
        assert not tensor(leaf, memoryview(bomb)).size
    tracemalloc.stop()
    assert (list(caught.value.rows), caught.value.feature) == ([0], "x")


def test_many_tensors_that_decompress_to_much_are_refused(monkeypatch):
    """What is left is small here, so that the test takes little."""
    monkeypatch.setattr("my_datasets.input_pipeline.decode.decoder.MOST_TENSOR_BYTES", 1 << 20)
    monkeypatch.setattr(
        "my_datasets.input_pipeline.decode.decoder.available_memory", lambda: 4 << 20
    )
    decoder = Decoder({"x": Leaf(("x",), "number", shape=(None,), **PACKED)})
    one = {"x": [zlib.compress(bytes(1 << 20))]}
    assert len(decoder(batch_of(one, one))["x"]) == 2
    with pytest.raises(OutOfMemoryError, match="'x' take more than half"):
        decoder(batch_of(*[one] * 9))


def test_what_only_tfds_reads_is_refused(tmp_path):
    of_tfds = {"x": tfds.features.Tensor(shape=(), dtype=tf.bfloat16)}
    tfds.features.FeaturesDict(of_tfds).save_config(tmp_path)
    (tmp_path / "dataset_info.json").write_text("{}")
    with pytest.raises(FeatureError, match="'x' is of bfloat16"):
        _ = VersionMetadata(tmp_path).schema


def test_kinds_that_differ_between_records_are_reported():
    decoder = Decoder({"x": Leaf(("x",), "number", "int64")})
    with pytest.raises(FeatureMismatchError, match=r"a tf\.Example") as caught:
        decoder(batch_of({"x": [1]}, {"x": [1.5]}))
    assert list(caught.value.rows) == [1]


@pytest.mark.parametrize(
    ("leaf", "good", "bad"),
    [
        (Leaf(("x",), "number", "int64"), {"x": [1]}, {"x": [1.5]}),
        (Leaf(("x",), "number", "float32"), {"x": [1.5]}, {"x": [1]}),
        (Leaf(("x",), "bytes", "object"), {"x": [b"a"]}, {"x": [2]}),
        (Leaf(("x",), "image", "uint8", (8, 9, 3)), {"x": [b"a"]}, {"x": [2]}),
        (Leaf(("x",), "number", shape=(None, None), **PACKED),
         {"x/value": [packed(1)], "x/shape": [1, 1]}, {"x/value": [packed(1)], "x/shape": [b"1"]}),
    ],
)  # fmt: skip
def test_of_kinds_that_differ_the_wrong_one_is_reported_if_it_comes_first(leaf, good, bad):
    with pytest.raises(FeatureMismatchError, match="of another kind") as caught:
        Decoder({"x": leaf})(batch_of(bad, good, good))
    assert list(caught.value.rows) == [0]


def image_of(*shape):
    return tf.io.encode_jpeg(np.full(shape, 100, np.uint8)).numpy()


@pytest.mark.parametrize("is_float", [False, True])
def test_an_image_of_another_shape_is_reported(is_float):
    decoder = Decoder({"x": Leaf(("x",), "image", "uint8", (8, 9, 3))}, floats=is_float)
    good = {"x": [image_of(8, 9, 3)]}
    assert decoder(batch_of(good, good))["x"].shape == (2, 8, 9, 3)
    assert decoder(batch_of())["x"].shape == (0, 8, 9, 3)
    with pytest.raises(FeatureMismatchError, match=r"\(8, 9, 3\), found \(9, 8, 3\)") as caught:
        decoder(batch_of(good, {"x": [image_of(9, 8, 3)]}, good))
    assert list(caught.value.rows) == [1]


def test_photographs_of_an_image_of_uint16():
    data = image_of(20, 30, 3)
    decoder = Decoder({"x": Leaf(("x",), "image", "uint16", (None, None, 3))})
    expected = tf.io.decode_image(data, channels=3, dtype=tf.uint16).numpy()
    (found,) = decoder(batch_of({"x": [data]}))["x"]
    assert found.dtype == np.uint16
    assert np.array_equal(found, expected)


def test_images_of_any_channels_are_together_if_they_are_alike():
    decoder = Decoder({"x": Leaf(("x",), "image", "uint8", (None, None, None))}, (4, 5))
    colour, grey = {"x": [image_of(8, 9, 3)]}, {"x": [image_of(8, 9, 1)]}
    assert decoder(batch_of(colour, colour))["x"].shape == (2, 4, 5, 3)
    several = decoder(batch_of(colour, grey))["x"]
    assert [image.shape for image in several] == [(4, 5, 3), (4, 5, 1)]


NESTED = Leaf(("x",), "number", "int64", (), (None, None))


@pytest.mark.parametrize(
    ("lengths", "said"),
    [([2, 7], "9 values"), ([-1, 4], "a length"), ([1.0, 2.0], "kind int64"),
     ([b"1"], "kind int64"), ([1], "1 values")],
)  # fmt: skip
def test_lengths_that_do_not_add_up(lengths, said):
    good = {"x/ragged_flat_values": [1, 2, 3], "x/ragged_row_lengths_0": [1, 2]}
    decoder = Decoder({"x": NESTED})
    assert decoder(batch_of(good))["x"].rows()[0][1].tolist() == [2, 3]
    with pytest.raises(FeatureMismatchError, match=said):
        decoder(batch_of({**good, "x/ragged_row_lengths_0": lengths}))
