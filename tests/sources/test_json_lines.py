"""JSON Lines and plain text, against Python's own readers."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from my_datasets import sources
from my_datasets.errors import SourceError
from my_datasets.sources import text_formats, text_rows
from tests.sources.reading import misfit, rows_of

OBJECTS = st.fixed_dictionaries(
    {
        "n": st.integers(-(2**60), 2**60),
        "text": st.text(st.characters(codec="utf-8"), max_size=10),
        "list": st.lists(st.integers(0, 9), max_size=3),
        "inner": st.fixed_dictionaries({"x": st.floats(-1e6, 1e6), "flag": st.booleans()}),
    }
)
TYPES = {
    "n": pa.int64(), "text": pa.string(), "list": pa.list_(pa.int64()),
    "inner": pa.struct([("x", pa.float64()), ("flag", pa.bool_())]),
}  # fmt: skip


@given(objects=st.lists(OBJECTS, min_size=1, max_size=20), piece=st.integers(1, 200))
def test_objects_are_those_that_were_written(tmp_path_factory, objects, piece):
    path = tmp_path_factory.mktemp("json") / "file.jsonl"
    path.write_text("".join(json.dumps(item) + "\n" for item in objects), "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_rows, "PIECE", piece)
        rows, misfits = rows_of(sources.json_lines(path, types=TYPES))
    assert not misfits
    assert rows == dict(enumerate(objects))


def test_lines_that_cannot_be_read_are_reported_one_by_one(tmp_path, monkeypatch):
    monkeypatch.setattr(text_formats, "_SAMPLE", 10)
    path = tmp_path / "file.jsonl"
    lines = ['{"a": 1, "b": "x"}', '{"a": "no", "b": "x"}', "[1]", '{"a": 2}', '{"a": 3, "c": 1}',
             '{"a": 4, "b"', '{"a": 5, "b": "y"}']  # fmt: skip
    path.write_text("\n".join(lines), "utf-8")
    rows, misfits = rows_of(sources.json_lines(path, types={"a": pa.int64(), "b": pa.string()}))
    assert rows == {0: {"a": 1, "b": "x"}, 3: {"a": 2, "b": None}, 6: {"a": 5, "b": "y"}}
    assert {row: misfit(found)[:2] for row, found in misfits.items()} == {
        1: ("a", "a value of type int64 (types={...} overrides it)"),
        2: ("", "one JSON object per line"),
        4: ("", "the names a, b"),
        5: ("", "one JSON object per line"),
    }


def test_names_and_types_are_guessed_from_what_can_be_read(tmp_path):
    path = tmp_path / "file.jsonl"
    path.write_text('{"a": 1}\n[1]\n{"a": "x", "b": 2}\n{"a": 3, "c": null}\n', "utf-8")
    with pytest.raises(SourceError, match="have values of different types"):
        sources.json_lines(path)
    types = {"a": pa.int64(), "c": pa.int8()}
    rows, misfits = rows_of(sources.json_lines(path, types=types))
    assert rows == {0: {"a": 1, "c": None}, 3: {"a": 3, "c": None}}
    assert list(misfits) == [1, 2]


def test_what_is_no_json_is_refused(tmp_path):
    path = tmp_path / "file.json"
    path.write_text("[\n1,\n2\n]\n", "utf-8")
    with pytest.raises(SourceError, match="no line from which"):
        sources.json_lines(path)
    path.write_text("", "utf-8")
    with pytest.raises(SourceError, match="no line from which"):
        sources.json_lines(path)
    path.write_text('{"a": 1}\n', "utf-8")
    with pytest.raises(SourceError, match="no column 'b' for the keys"):
        sources.json_lines(path, key="b")


@given(
    texts=st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1), min_size=1
    ),
    piece=st.integers(1, 50),
    ending=st.sampled_from(["\n", "\r\n", "\n\n"]),
)
def test_lines_are_those_that_were_written(tmp_path_factory, texts, piece, ending):
    path = tmp_path_factory.mktemp("text") / "file.txt"
    path.write_bytes(ending.join(texts).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_rows, "PIECE", piece)
        rows, misfits = rows_of(sources.text_lines(path))
    assert not misfits
    start = "\ufeff"  # a mark of the encoding, not a character, at the beginning of a file
    expected = [texts[0].removeprefix(start), *texts[1:]]
    assert [row["text"] for row in rows.values()] == [text for text in expected if text]


def test_a_line_in_another_encoding_is_reported(tmp_path):
    path = tmp_path / "file.txt"
    path.write_bytes("one\ncafé\nthree\n".encode("latin-1"))
    rows, misfits = rows_of(sources.text_lines(path, column="line"))
    assert rows == {0: {"line": "one"}, 2: {"line": "three"}}
    assert misfit(misfits[1]) == ("line", "text in utf8", r"'caf\\xe9'")
    assert rows_of(sources.text_lines(path, encoding="latin-1"))[0][1] == {"text": "café"}
