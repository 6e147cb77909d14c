"""`tf.Example` bytes against those of the protocol buffer library."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorflow_datasets.proto import tf_example_pb2, tf_feature_pb2

from my_datasets.records.tf_example import encoding, pieces
from tests.records.oracle import in_order

INT64 = st.integers(-(2**63), 2**63 - 1)


def serialised(rows):
    return [
        in_order(tf_example_pb2.Example(features=tf_feature_pb2.Features(feature=row)))
        for row in rows
    ]  # fmt: skip


def found(entries, n):
    return pieces.joined(encoding.messages(entries), n).to_pylist()


def ints(values):
    return tf_feature_pb2.Feature(int64_list=tf_feature_pb2.Int64List(value=values))


def floats(values):
    return tf_feature_pb2.Feature(float_list=tf_feature_pb2.FloatList(value=values))


def binaries(values):
    return tf_feature_pb2.Feature(bytes_list=tf_feature_pb2.BytesList(value=values))


@given(st.data(), st.integers(1, 8), st.integers(0, 4))
def test_records_are_those_of_the_protocol(data, n, width):
    stem = data.draw(st.text(max_size=200))
    keys = [f"{stem}{i}" for i in range(7)]
    size = n * width
    whole = np.frombuffer(data.draw(st.binary(min_size=size * 8, max_size=size * 8)), np.int64)
    # Numbers of all lengths, not only of nine bytes.
    whole = (whole >> data.draw(st.integers(0, 63))).reshape(n, width)
    small = np.frombuffer(data.draw(st.binary(min_size=n * 3, max_size=n * 3)), np.uint8)
    real = np.frombuffer(data.draw(st.binary(min_size=size * 4, max_size=size * 4)), np.float32)
    real = np.nan_to_num(real).reshape(n, width)  # a NaN's payload need not survive Python
    texts = data.draw(st.lists(st.binary(max_size=300), min_size=n, max_size=n))
    lists = data.draw(st.lists(st.lists(INT64, max_size=3), min_size=n, max_size=n))
    some = data.draw(st.lists(st.lists(st.binary(max_size=9), max_size=3), min_size=n, max_size=n))
    flags = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), np.bool_)

    lengths = np.array([len(item) for item in lists])
    flat = np.array([value for item in lists for value in item], np.int64)
    flat_texts = pa.array([value for item in some for value in item], pa.large_binary())
    entries = [
        *encoding.integers(keys[0], whole),
        *encoding.integers(keys[1], small.reshape(n, 3)),
        *encoding.floats(keys[2], real),
        *encoding.binaries(keys[3], pa.array(texts, pa.large_binary())),
        *encoding.ragged_integers(keys[4], flat, lengths),
        *encoding.ragged_binaries(keys[5], flat_texts, np.array([len(item) for item in some])),
        *encoding.integers(keys[6], flags.reshape(n, 1)),
    ]
    rows = [
        {
            keys[0]: ints(whole[i]),
            keys[1]: ints(small.reshape(n, 3)[i]),
            keys[2]: floats(real[i]),
            keys[3]: binaries([texts[i]]),
            keys[4]: ints(lists[i]),
            keys[5]: binaries(some[i]),
            keys[6]: ints([int(flags[i])]),
        }
        for i in range(n)
    ]
    assert found(entries, n) == serialised(rows)


def test_unsigned_64_bit_numbers_keep_their_bits():
    values = np.array([[2**64 - 1], [2**63]], np.uint64)
    assert found(encoding.integers("x", values), 2) == serialised(
        [{"x": ints([-1])}, {"x": ints([-(2**63)])}]
    )


@given(st.binary(min_size=1, max_size=60), st.integers(1, 9))
def test_bytes_are_the_same_in_pieces_of_any_size(data, at_once):
    values = np.frombuffer(data, np.uint8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "_SCATTERED", at_once)
        made = found(encoding.integers("x", values[None]), 1)
    assert made == serialised([{"x": ints(values)}])


def test_no_feature_at_all_is_an_empty_example():
    assert found([], 2) == serialised([{}, {}])


def test_an_entry_can_be_given_as_the_library_serialised_it():
    large = serialised([{"x": binaries([b"y" * 1000])}])[0]
    feature = binaries([b"y" * 1000]).SerializeToString()
    assert found(encoding.raw([encoding.entry("x", feature)]), 1) == [large]
