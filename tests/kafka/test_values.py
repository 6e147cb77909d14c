"""Values side by side are what lists of them are."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from my_datasets.kafka.payloads import MessageValues, Pieces
from my_datasets.records.tf_example.columns import PADDING

VALUES = st.lists(st.one_of(st.none(), st.binary(max_size=30)), max_size=12)


def same(values, wanted):
    assert len(values) == len(wanted)
    assert list(values) == [one or b"" for one in wanted]
    assert values.are_present.tolist() == [one is not None for one in wanted]
    records = values.records
    places = zip(records.starts.tolist(), records.stops.tolist(), strict=True)
    assert [records.text[a:b] for a, b in places] == [one or b"" for one in wanted]
    # What takes records apart looks at some bytes more.
    assert len(records.data) >= max(records.stops.tolist(), default=0) + PADDING


@given(VALUES, st.slices(12), st.data())
def test_some_of_them_are_those_of_the_list(wanted, rows, data):
    values = MessageValues.of(wanted)
    same(values, wanted)
    begin, end, _ = rows.indices(len(wanted))
    same(values[begin:end], wanted[begin:end])
    chosen = data.draw(st.sets(st.integers(0, len(wanted) - 1))) if wanted else set()
    some = MessageValues.of(wanted)[np.array(sorted(chosen), np.int64)]
    same(some, [wanted[i] for i in sorted(chosen)])
    same(some[1:], [wanted[i] for i in sorted(chosen)][1:])


@given(st.lists(VALUES, max_size=4))
def test_pieces_come_together_in_their_order(parts):
    pieces = Pieces()
    for part in parts:
        pieces.add(part)
    wanted = [one for part in parts for one in part]
    same(pieces.together(), wanted)
    assert len(pieces) == len(wanted)
    assert pieces.size == sum(len(one or b"") for one in wanted)
    assert pieces.deletions == wanted.count(None)
    every_other = np.arange(0, len(wanted), 2)
    same(pieces.only(every_other).together(), wanted[::2])


def test_a_part_does_not_hold_the_whole_buffer_to_be_looked_through():
    values = MessageValues.of([bytes(1000), b"x", bytes(1000)])
    assert len(values[1:2].data) == 1 + PADDING
