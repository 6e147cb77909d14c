"""Hashes of many keys, against TFDS's own hasher."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorflow_datasets.core import hashing as tfds_hashing

from my_datasets.errors import InvalidKeyError
from my_datasets.records import shuffle_order

KEYS = st.one_of(
    st.text(), st.binary(max_size=200), st.integers(), st.text(min_size=60, max_size=130)
)


def whole(hashes):
    high, low = hashes
    return [int(h) << 64 | int(v) for h, v in zip(high, low, strict=True)]


@given(st.text(max_size=80), st.lists(KEYS, min_size=1, max_size=20), st.booleans())
def test_hashes_are_those_of_tfds(salt, keys, many):
    if many:  # beyond the number up to which keys are hashed one by one
        keys = keys * 250
    hasher = tfds_hashing.Hasher(salt)
    found = whole(shuffle_order.hash_keys(salt, shuffle_order.key_array(keys)))
    expected = map(hasher.hash_key, keys)
    wrong = [key for key, ours, its in zip(keys, found, expected, strict=True) if ours != its]
    assert wrong[:1] == []  # pytest would compare whole lists for hours


@pytest.mark.parametrize(
    ("column", "keys"),
    [
        (pa.array([1, -5, 2**40]), [1, -5, 2**40]),
        (pa.array(["a\\b", "é"]), ["a\\b", "é"]),
        (pa.array([b"\xff", b""]), [b"\xff", b""]),
        (pa.array(["x", "y", "x"]).dictionary_encode(), ["x", "y", "x"]),
        (pa.chunked_array([["p"], ["q"]]), ["p", "q"]),
        (pa.array(["a", "b", "c"]).slice(1), ["b", "c"]),
    ],
)
def test_a_column_of_keys_counts_as_the_keys_themselves(column, keys):
    expected = shuffle_order.hash_keys("train", shuffle_order.key_array(keys))
    found = shuffle_order.hash_keys("train", shuffle_order.key_array(column))
    assert whole(found) == whole(expected)


def test_an_array_of_one_is_a_key():
    assert shuffle_order.key_bytes(np.array([7])) == b"7"


@pytest.mark.parametrize("key", [None, 1.5, ("a",), np.array([1, 2])])
def test_what_is_no_key_is_refused(key):
    with pytest.raises(InvalidKeyError, match="cannot be an example's key"):
        shuffle_order.key_array([key])


def test_texts_that_are_no_unicode_are_refused():
    with pytest.raises(InvalidKeyError, match=r"'b\\ud800' cannot be a key"):
        shuffle_order.key_array(["a", "b\ud800"])


def test_nulls_are_no_keys():
    with pytest.raises(InvalidKeyError, match="key of row 1 is null"):
        shuffle_order.key_array(pa.array(["a", None]))
    with pytest.raises(InvalidKeyError, match="type double"):
        shuffle_order.key_array(pa.array([1.5]))
