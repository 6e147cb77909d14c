"""Pieces side by side, against Python's own bytes."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from my_datasets.records.tf_example import pieces


@given(st.data(), st.integers(1, 6))
def test_pieces_are_put_side_by_side(data, n):
    parts, rows = [], [b""] * n
    for kind in data.draw(st.lists(st.sampled_from(["same", "fixed", "ragged"]), max_size=8)):
        if kind == "ragged":
            texts = data.draw(st.lists(st.binary(max_size=9), min_size=n, max_size=n))
            # A slice, as a column of a record batch may be.
            parts.append(pa.array([b"before", *texts], pa.large_binary()).slice(1))
        else:
            width = data.draw(st.integers(0, 100))
            count = n if kind == "fixed" else 1
            flat = data.draw(st.binary(min_size=count * width, max_size=count * width))
            texts = [flat[i * width : (i + 1) * width] for i in range(count)] * (n // count)
            array = np.frombuffer(flat, np.uint8).reshape(count, width)
            parts.append(array if kind == "fixed" else flat)
        rows = [row + text for row, text in zip(rows, texts, strict=True)]
    found = pieces.joined(parts, n)
    assert found.to_pylist() == rows
    assert pieces.bytes_of(found).tobytes() == b"".join(rows)
    assert np.broadcast_to(pieces.widths(parts), n).tolist() == list(map(len, rows))


@given(st.lists(st.integers(0, 30), max_size=9))
def test_texts_by_length(lengths):
    for text in (str, lambda length: f"{length:03}"):
        found = pieces.by_length(
            np.array(lengths, np.int64), lambda length, text=text: text(length).encode()
        )
        expected = [text(length).encode() for length in lengths]
        assert pieces.joined([found], len(lengths)).to_pylist() == expected
