"""Records that look alike, against protocol buffers' own parser."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from my_datasets.records.tf_example.columns import PADDING, UncommonError
from my_datasets.records.tf_example.encoding import Kind
from my_datasets.records.tf_example.parsing import UniformParser
from tests.records.test_parsing import KEYS, KINDS, record, same

# Integers of one length as varints; the last are negative, of ten bytes.
WIDTHS = [(0, 128), (128, 16384), (2**32, 2**35), (-(2**63), 0)]
FLOATS = st.floats(width=32)


@st.composite
def alike(draw):
    """Returns the kind of each key, and rows with as many values each, as long as each other."""
    kinds = {key: draw(st.sampled_from(sorted(KINDS))) for key in KEYS}
    sizes = {key: draw(st.lists(st.integers(0, 90), max_size=3)) for key in KEYS}
    # Values themselves are many, and none is more telling than others.
    random = np.random.default_rng(draw(st.integers(0, 2**32)))

    def values(kind, sizes):
        if kind == "float_list":
            return random.normal(size=sum(sizes)).astype(np.float32).tolist()
        if kind == "bytes_list":
            return [random.bytes(n) for n in sizes]
        return [int(random.integers(*WIDTHS[n % len(WIDTHS)])) for n in sizes]

    rows = range(draw(st.integers(1, 5)))
    return kinds, [{key: values(kinds[key], sizes[key]) for key in KEYS} for _ in rows]


def laid_out(records, order, gap=b""):
    """Returns a buffer of records, with something between them, and where they are in an order."""
    data = np.frombuffer(gap.join([*records, bytes(PADDING)]), np.uint8)
    sizes = np.array([len(one) for one in records], np.int64)
    starts = np.cumsum(sizes + len(gap)) - sizes - len(gap)
    return data, starts[order], (starts + sizes)[order]


def values_of(column, data):
    """Returns the values of each record."""
    if column.kind is Kind.BYTES:
        flat = [data[a:b].tobytes() for a, b in zip(column.starts, column.stops, strict=True)]
    else:
        flat = [] if column.values is None else column.values.tolist()
    ends = np.cumsum(column.counts).tolist()
    assert len(flat) == ends[-1]
    return [flat[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def check(columns, data, rows, kinds):
    for key, column in zip(KEYS, columns, strict=True):
        assert column.kind in (None, KINDS[kinds[key]])
        for values, row in zip(values_of(column, data), rows, strict=True):
            assert same(values, row.get(key, []), kinds[key]), key


def reader():
    return UniformParser([key.encode() for key in KEYS])


@given(alike(), st.sampled_from([b"", b"between"]), st.data())
def test_records_that_look_alike_are_read_wherever_they_lie(table, gap, data):
    kinds, rows = table
    order = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=7))
    buffer, starts, stops = laid_out([record(row, kinds) for row in rows], order, gap)
    found = reader().columns(buffer, starts, stops)
    check(found, buffer, [rows[i] for i in order], kinds)


@given(st.lists(st.tuples(st.integers(0, 2**21 - 1), FLOATS), min_size=1, max_size=20))
def test_an_integer_may_have_a_byte_more_or_less(values):
    kinds = dict.fromkeys(KEYS, "float_list") | {"label": "int64_list"}
    rows = [{"a": [x, x], "label": [n]} for n, x in values]
    buffer, starts, stops = laid_out([record(row, kinds) for row in rows], range(len(rows)))
    check(reader().columns(buffer, starts, stops), buffer, rows, kinds)


@given(alike(), alike())
def test_what_is_remembered_of_other_records_changes_nothing(first, second):
    one = reader()
    for kinds, rows in (first, second, first):
        buffer, starts, stops = laid_out([record(row, kinds) for row in rows], range(len(rows)))
        check(one.columns(buffer, starts, stops), buffer, rows, kinds)


def test_layouts_are_remembered_up_to_a_number():
    one = reader()
    for size in range(200):
        kinds = {"a": "bytes_list"}
        row = {"a": [bytes(size)]}
        buffer, starts, stops = laid_out([record(row, kinds)], [0])
        check(one.columns(buffer, starts, stops), buffer, [row], dict.fromkeys(KEYS, "bytes_list"))
    assert len(one._layouts) <= 64


INT = {"a": "int64_list", "label": "int64_list"}


@pytest.mark.parametrize(
    "other",
    [
        record({"a": [1, 300], "label": [2]}, INT),  # the same size, cut at another place
        record({"label": [2], "a": [300, 1]}, INT, ["label", "a"]),
        record({"b": [300, 1], "label": [2]}, {**INT, "b": "int64_list"}),
        record({"a": [300, 1], "label": [2, 3]}, INT),
        b"\xff" * len(record({"a": [300, 1], "label": [2]}, INT)),
        b"",
    ],
)
def test_records_that_do_not_look_alike_are_left_to_others(other):
    good = record({"a": [300, 1], "label": [2]}, INT)
    for pair in ([good, other], [other, good]):
        buffer, starts, stops = laid_out(pair, [0, 1])
        with pytest.raises(UncommonError):
            reader().columns(buffer, starts, stops)


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_damaged_byte_is_seen_or_is_within_a_value(at, change):
    rows = [{"a": [300, 1], "é": [b"four"], "": [0.5, 2.0]}] * 3
    kinds = {"a": "int64_list", "é": "bytes_list", "": "float_list"}
    good = record(rows[0], kinds)
    damaged = bytearray(good)
    damaged[at % len(good)] ^= change
    buffer, starts, stops = laid_out([good, bytes(damaged), good], [0, 1, 2])
    try:
        columns = reader().columns(buffer, starts, stops)
    except UncommonError:
        return
    from tensorflow.core.example import example_pb2

    found = example_pb2.Example.FromString(bytes(damaged)).features.feature
    assert set(found) == set(kinds)
    for key, column in zip(KEYS, columns, strict=True):
        if key in kinds:
            wanted = list(getattr(found[key], kinds[key]).value)
            assert same(values_of(column, buffer)[1], wanted, kinds[key])
