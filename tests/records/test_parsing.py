"""Records taken apart, against protocol buffers' own parser."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tensorflow.core.example import example_pb2

from my_datasets.records.tf_example import reference_parser
from my_datasets.records.tf_example.columns import PADDING, UnreadableRecordError
from my_datasets.records.tf_example.encoding import Kind
from my_datasets.records.tf_example.parsing import Parser

KEYS = ["a", "label", "a_key_of_many_letters", "a_kex_of_many_letters", "é", ""]
INTEGERS = st.integers(-(2**63), 2**63 - 1)
VALUES = {
    "int64_list": st.lists(st.one_of(INTEGERS, st.integers(0, 300)), max_size=5),
    "float_list": st.lists(st.floats(width=32), max_size=40),
    "bytes_list": st.lists(st.binary(max_size=300), max_size=3),
}
KINDS = {"int64_list": Kind.INT64, "float_list": Kind.FLOAT, "bytes_list": Kind.BYTES}


@st.composite
def tables(draw):
    """Returns records, and the kind of each key: rows have all keys, or some, in any order."""
    kinds = {key: draw(st.sampled_from(sorted(VALUES))) for key in KEYS}
    is_even = draw(st.booleans())
    rows = []
    for _ in range(draw(st.integers(1, 6))):
        keys = KEYS if is_even else draw(st.permutations(KEYS))[: draw(st.integers(0, len(KEYS)))]
        rows.append({key: draw(VALUES[kinds[key]]) for key in keys})
    return kinds, rows


def record(row, kinds, order=None):
    """Returns a row's record, with its entries in an order."""
    parts = []
    for key in order or row:
        one = example_pb2.Example()
        feature = one.features.feature[key]
        getattr(feature, kinds[key]).value.extend(row[key])
        if not row[key]:
            getattr(feature, kinds[key]).SetInParent()
        # An entry of a map by itself: concatenated messages are one.
        parts.append(one.features.SerializeToString())
    features = b"".join(parts)
    whole = example_pb2.Example()
    whole.features.ParseFromString(features)
    header = bytearray([0x0A])
    size = len(features)
    while size > 0x7F:
        header.append(size & 0x7F | 0x80)
        size >>= 7
    header.append(size)
    return bytes(header) + features if parts else b""


def parsed(records, keys):
    """Returns the values of each key in each record."""
    sizes = np.array([len(one) for one in records], np.int64)
    data = np.frombuffer(b"".join(records) + bytes(PADDING), np.uint8)
    stops = np.cumsum(sizes)
    columns = Parser(keys)(data, stops - sizes, stops)
    found = {}
    for key, column in columns.items():
        if column.kind is Kind.BYTES:
            flat = [data[a:b].tobytes() for a, b in zip(column.starts, column.stops, strict=True)]
        else:
            flat = [] if column.values is None else column.values.tolist()
        ends = np.cumsum(column.counts).tolist()
        assert len(flat) == ends[-1]
        found[key] = [flat[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    return columns, found


def same(found, row, kind):
    wanted = np.array(row, np.float32).tolist() if kind == "float_list" else row
    return np.array_equal(found, wanted, equal_nan=kind == "float_list") if wanted else not found


@given(tables(), st.booleans())
@example((dict.fromkeys(KEYS, "float_list"), [{key: [0.5] * 70 for key in KEYS}] * 2), False)
def test_values_are_those_of_the_record(table, shuffles):
    kinds, rows = table
    records = [
        record(row, kinds, sorted(row, key=lambda key: hash((key, i))) if shuffles else None)
        for i, row in enumerate(rows)
    ]
    columns, found = parsed(records, [*KEYS, "not there"])
    assert not any(found["not there"])
    for key in KEYS:
        assert columns[key].kind in (None, KINDS[kinds[key]])
        for values, row in zip(found[key], rows, strict=True):
            assert same(values, row.get(key, []), kinds[key]), key


@given(tables())
def test_common_records_are_read_side_by_side(table):
    """Else they would be slow: what protocol buffers write needs no second way."""
    kinds, rows = table
    rows = [{key: row.get(key) or [] for key in KEYS} for row in rows]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference_parser, "columns_of", None)
        parsed([record(row, kinds) for row in rows], KEYS)


def test_numbers_that_are_not_packed_and_keys_given_twice():
    # Int64List { value: 7 value: 300 } as proto2 wrote it, and FloatList likewise.
    integers = b"\x1a\x05\x08\x07\x08\xac\x02"
    floats = b"\x12\x05\x0d\x00\x00\x00\x3f"
    entries = [
        (b"n", integers), (b"f", floats), (b"n", b"\x1a\x03\x0a\x01\x09"),
    ]  # fmt: skip
    body = b""
    for key, value in entries:
        inner = b"\x0a" + bytes([len(key)]) + key + b"\x12" + bytes([len(value)]) + value
        body += b"\x0a" + bytes([len(inner)]) + inner
    whole = b"\x0a" + bytes([len(body)]) + body
    assert example_pb2.Example.FromString(whole).features.feature["n"].int64_list.value == [9]
    _, found = parsed([whole, whole], ["n", "f"])
    assert found == {"n": [[9], [9]], "f": [[0.5], [0.5]]}


def test_a_key_of_two_kinds_is_reported():
    rows = [record({"a": [1]}, {"a": "int64_list"}), record({"a": [1.0]}, {"a": "float_list"})]
    with pytest.raises(UnreadableRecordError, match="another kind") as caught:
        parsed(rows, ["a"])
    assert caught.value.row == 1


@given(st.binary(max_size=60), st.integers(0, 200), st.integers(0, 255))
def test_damage_is_an_error_or_nothing_that_protocol_buffers_would_not_read(noise, at, byte):
    good = record({"a": [1, 2], "label": [3]}, {"a": "int64_list", "label": "int64_list"})
    changed = bytearray(good)
    changed[at % len(good)] = byte
    for bad in (noise, bytes(changed)):
        try:
            _, found = parsed([good, bad], ["a", "label"])
        except UnreadableRecordError:
            continue
        try:
            read = example_pb2.Example.FromString(bad).features.feature
        except Exception:
            continue
        for key in ("a", "label"):
            values = read[key].int64_list.value if key in read else []
            assert found[key][1] == list(values) or read[key].WhichOneof("kind") != "int64_list"
