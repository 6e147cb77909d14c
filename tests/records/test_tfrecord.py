"""Framing against TensorFlow's own reader, and the record index."""

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from my_datasets.errors import CorruptShardError
from my_datasets.records import index, tfrecord
from my_datasets.records.tf_example import pieces


def frame(records):
    return tfrecord.framed([pa.array(records, pa.large_binary())], len(records))


# Short ones and long ones are checked in different ways, and so are those of one length.
RECORDS = st.one_of(
    st.lists(st.binary(max_size=400), min_size=1, max_size=30),
    st.lists(st.binary(min_size=2500, max_size=3000), min_size=1, max_size=3),
    st.integers(0, 3000).flatmap(
        lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=4)
    ),
)


@given(RECORDS)
def test_frames_are_what_tensorflow_writes(tmp_path_factory, records):
    path = tmp_path_factory.mktemp("frames") / "by_tensorflow"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    framed = frame(records)
    assert pieces.bytes_of(framed).tobytes() == path.read_bytes()
    assert index.scan(path).tolist() == pieces.offsets_of(framed).tolist()
    if len({len(record) for record in records}) == 1 and records[0]:
        rows = np.frombuffer(b"".join(records), np.uint8).reshape(len(records), -1)
        assert tfrecord.framed([rows], len(rows)).to_pylist() == framed.to_pylist()


def test_a_slice_is_framed_as_itself():
    records = pa.array([b"a", b"bb", b"ccc"], pa.large_binary())
    sliced = tfrecord.framed([records.slice(1)], 2)
    assert sliced.to_pylist() == frame([b"bb", b"ccc"]).to_pylist()


@pytest.fixture
def shard(tmp_path):
    path = tmp_path / "x-train.tfrecord-00000-of-00001"
    path.write_bytes(pieces.bytes_of(frame([b"a" * 10, b"", b"b" * 300])).tobytes())
    return path


def test_an_index_finds_each_record(shard):
    index.write(shard, index.scan(shard))
    offsets = index.read(shard)
    data = shard.read_bytes()
    records = [
        data[begin + tfrecord.HEADER : end - tfrecord.FOOTER]
        for begin, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    ]
    assert records == [b"a" * 10, b"", b"b" * 300]
    assert sorted(path.name for path in shard.parent.iterdir()) == [
        index.path_of(shard).name,
        shard.name,
    ]


def test_an_index_of_another_shard_is_refused(shard):
    index.write(shard, np.array([0, 99], np.uint64))
    with pytest.raises(CorruptShardError, match="not that of this shard"):
        index.read(shard)


@pytest.mark.parametrize("damage", ["cut", "length"])
def test_a_damaged_shard_is_not_indexed(shard, damage):
    data = bytearray(shard.read_bytes())
    if damage == "cut":
        del data[-1:]
    else:
        data[0] ^= 1
    shard.write_bytes(data)
    with pytest.raises(CorruptShardError, match="damaged at byte"):
        index.scan(shard)
