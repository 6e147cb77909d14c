"""TFRecord files that TensorFlow wrote."""

import gzip

import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from my_datasets import sources
from my_datasets.errors import SourceError
from tests.sources.reading import misfit, rows_of


def feature(values):
    if values and isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if values and isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def example(row):
    features = {name: feature(values) for name, values in row.items()}
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def write(path, rows, compression=""):
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for row in rows:
            writer.write(row if isinstance(row, bytes) else example(row))
    return path


ROWS = [
    {"id": [b"a"], "n": [1], "x": [0.5], "tags": [b"p", b"q"]},
    {"id": [b"b"], "n": [-2], "x": [1.5], "tags": []},
]


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_columns_are_known_from_the_first_records(tmp_path, compression):
    path = write(tmp_path / ("r.tfrecord" + ".gz" * bool(compression)), ROWS, compression)
    source = sources.tfrecords(path)
    assert dict(zip(source.schema.names, source.schema.types, strict=True)) == {
        "id": pa.large_binary(), "n": pa.int64(), "tags": pa.list_(pa.large_binary()),
        "x": pa.float32(),
    }  # fmt: skip
    assert rows_of(source)[0] == {
        0: {"id": b"a", "n": 1, "x": 0.5, "tags": [b"p", b"q"]},
        1: {"id": b"b", "n": -2, "x": 1.5, "tags": []},
    }


def test_columns_are_chosen_with_their_types(tmp_path):
    for name in ("a", "b"):
        write(tmp_path / name, ROWS)
    columns = {"id": pa.large_string(), "n": pa.int8()}
    source = sources.tfrecords(tmp_path, columns=columns)
    assert rows_of(source)[0] == {
        f"{file}:{i}": {"id": "ab"[i], "n": [1, -2][i]} for file in "ab" for i in range(2)
    }
    one = sources.tfrecords(tmp_path / "a", columns=columns, key="id")
    assert set(rows_of(one)[0]) == {"a", "b"}
    with pytest.raises(SourceError, match="no column 'z' for the keys"):
        sources.tfrecords(tmp_path, columns=columns, key="z")


def test_what_does_not_fit_is_distinguished(tmp_path):
    odd = [{"n": [300]}, {"n": [1, 2]}, {"n": [0.5]}, {}, {"n": [7]}]
    path = write(tmp_path / "r", odd)
    rows, misfits = rows_of(sources.tfrecords(path, columns={"n": pa.int8()}))
    assert rows == {4: {"n": 7}}
    assert {key: misfit(found) for key, found in misfits.items()} == {
        0: ("n", "values of type int8", "other values"),
        1: ("n", "one value", "2 values"),
        2: ("n", "values in its int64_list", "values in its float_list"),
        3: ("n", "one value", "0 values"),
    }


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lambda data: b"\x01" + data[1:], "At byte 0: no record length"),
        (lambda data: data[:20] + b"?" + data[21:], "At byte 0: a record whose checksum is wrong"),
        (lambda data: data[:-1], "the file ends within a record"),
        (lambda data: data + b"x", "no record length, or a damaged one"),
        (lambda data: gzip.compress(data), "its name must end in .gz"),
    ],
)
def test_damage_is_an_error(tmp_path, damage, found):
    path = write(tmp_path / "r", ROWS)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(SourceError) as caught:
        rows_of(sources.tfrecords(path, columns={"n": pa.int64()}))
    assert "is not a complete TFRecord file" in str(caught.value)
    assert found in str(caught.value)


def test_other_messages_are_an_error(tmp_path):
    path = write(tmp_path / "r", [b"\xff\xff"])
    with pytest.raises(SourceError, match=r"Record 0 of .* is not a tf\.Example"):
        sources.tfrecords(path)
    with pytest.raises(SourceError, match="has no features in its first 1 records"):
        sources.tfrecords(write(tmp_path / "s", [b""]))


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "b": st.lists(st.binary(max_size=5), min_size=1, max_size=3),
                "f": st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=3),
                "i": st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=3),
            }
        ),
        min_size=1,
        max_size=20,
    )
)
def test_values_are_those_that_were_written(tmp_path_factory, rows):
    path = write(tmp_path_factory.mktemp("r") / "r", rows)
    columns = {
        "b": pa.list_(pa.large_binary()), "f": pa.list_(pa.float32()), "i": pa.list_(pa.int64())
    }  # fmt: skip
    assert rows_of(sources.tfrecords(path, columns=columns))[0] == dict(enumerate(rows))
