"""CSV files, against Python's own `csv`."""

import bz2
import csv
import dataclasses
import functools
import gzip
import io
import multiprocessing
import os

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from my_datasets import sources
from my_datasets.errors import SourceError
from my_datasets.sources import file as seekable
from my_datasets.sources import text_rows
from my_datasets.sources.folders import files
from tests.sources.reading import misfit, rows_of, strings

# No lone carriage returns: to pyarrow they end a row, as a newline does.
TEXTS = st.text(
    st.one_of(
        st.sampled_from('",\n;é '), st.characters(codec="utf-8", exclude_characters="\r\x00")
    ),
    max_size=12,
)


def written(path, rows, **options):
    text = io.StringIO()
    csv.writer(text, **options).writerows(rows)
    path.write_text(text.getvalue(), "utf-8", newline="")
    return path


@given(
    rows=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=30),
    piece=st.integers(1, 80),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    ending=st.sampled_from(["\n", "\r\n"]),
    compress=st.sampled_from([None, gzip.compress, bz2.compress]),
    smallest=st.sampled_from([0, 1 << 30]),
)
def test_rows_are_those_that_were_written(
    tmp_path_factory, rows, piece, quoting, ending, compress, smallest
):
    """However the file is cut into parts, and whatever is between quotes."""
    directory = tmp_path_factory.mktemp("csv")
    path = written(
        directory / "file.csv", [("a", "b"), *rows], quoting=quoting, lineterminator=ending
    )
    if compress is not None:
        data = compress(path.read_bytes())
        path = directory / ("file.csv.gz" if compress is gzip.compress else "file.csv.bz2")
        path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_rows, "PIECE", piece)
        patch.setattr(seekable, "SMALLEST", smallest)
        source = sources.csv(path, types=strings("a", "b"))
        found, misfits = rows_of(source)
    assert not misfits
    assert found == {i: {"a": a, "b": b} for i, (a, b) in enumerate(rows)}


@pytest.fixture(params=["gz", "bz2"])
def compressed(request, tmp_path):
    """Returns a file of 200,000 rows, its bytes, and what they are of."""
    rows = "a,b\n" + "".join(f"{i},{i * i % 1009}\n" for i in range(200_000))
    path = tmp_path / f"file.csv.{request.param}"
    compress = gzip.compress if request.param == "gz" else bz2.compress
    path.write_bytes(compress(rows.encode()))
    return path


def test_a_large_compressed_file_has_many_parts(compressed, tmp_path, monkeypatch):
    whole = sources.csv(compressed)
    assert len(whole.items) == 1
    monkeypatch.setattr(seekable, "SMALLEST", 100_000)
    monkeypatch.setattr(text_rows, "PIECE", 100_000)
    parts = sources.csv(compressed)
    assert len(parts.items) > 10
    assert rows_of(parts)[0] == rows_of(whole)[0]
    # In no order, and in processes with and without the notes.
    backwards = dataclasses.replace(parts, items=list(reversed(parts.items)))
    assert rows_of(backwards)[0] == rows_of(whole)[0]
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        counts = pool.map(functools.partial(_count, parts), parts.items)
    assert sum(counts) == 200_000
    monkeypatch.setattr(seekable, "_indexes", {})
    seekable.close()
    assert rows_of(parts)[0] == rows_of(whole)[0]


def _count(source, part):
    return sum(batch.num_rows for _, batch in source.generate(part))


def replaced(path, digit, modified):
    """Puts another file in the place of one; they are of the same size."""
    new = path.with_suffix(".new")
    new.write_bytes(gzip.compress(b"n\n" + f"{digit}\n".encode() * 50_000, 0))
    os.utime(new, ns=(0, modified))
    new.replace(path)


@pytest.mark.parametrize("modified", [(1, 2), (1, 1)], ids=["later", "at the same time"])
def test_a_compressed_file_that_is_replaced_is_read_anew(tmp_path, monkeypatch, modified):
    """In one process, where the first one is still open, and there are notes of it."""
    monkeypatch.setattr(seekable, "SMALLEST", 0)
    monkeypatch.setattr(text_rows, "PIECE", 10_000)
    path = tmp_path / "file.csv.gz"
    sizes = set()
    for digit, time in enumerate(modified):
        replaced(path, digit, time)
        sizes.add(path.stat().st_size)
        rows, misfits = rows_of(sources.csv(path))
        assert not misfits
        assert {row["n"] for row in rows.values()} == {digit}
    assert len(sizes) == 1


def test_what_is_open_is_not_taken_for_the_file_in_its_place(tmp_path, monkeypatch):
    monkeypatch.setattr(seekable, "SMALLEST", 0)
    path = tmp_path / "file.csv.gz"
    for digit in (1, 2):
        replaced(path, digit, digit)
        (file,) = files(path)
        assert file.read_at(2, 4) == f"{digit}\n".encode() * 2


@pytest.mark.parametrize("smallest", [0, 1 << 30])
def test_a_compressed_file_that_is_damaged_is_reported(compressed, monkeypatch, smallest):
    monkeypatch.setattr(seekable, "SMALLEST", smallest)
    data = compressed.read_bytes()
    for damaged in (data[:-1000], data[:-6] + b"\0\1\2\3" + data[-2:]):
        compressed.write_bytes(damaged)
        with pytest.raises(SourceError, match="cannot be read to its end"):
            rows_of(sources.csv(compressed))


def test_a_large_file_has_many_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(text_rows, "PIECE", 100)
    path = written(tmp_path / "file.csv", [("n",), *((i,) for i in range(1000))])
    source = sources.csv(path)
    assert len(source.items) > 20
    assert rows_of(source)[0] == {i: {"n": i} for i in range(1000)}


def test_types_are_guessed_and_stored_as_tfds_can(tmp_path):
    path = tmp_path / "file.csv"
    path.write_text("i,f,b,t,d,s\n1,1.5,true,x,2020-01-02,2020-01-01 00:00:01\n", "utf-8")
    source = sources.csv(path)
    assert source.schema.types == [
        pa.int64(), pa.float64(), pa.bool_(), pa.large_string(), pa.int32(), pa.int64()
    ]  # fmt: skip
    assert rows_of(source)[0] == {
        0: {"i": 1, "f": 1.5, "b": True, "t": "x", "d": 18263, "s": 1577836801}
    }


@pytest.mark.parametrize("piece", [20, 1 << 20])
def test_rows_that_cannot_be_read_are_reported_one_by_one(tmp_path, monkeypatch, piece):
    path = tmp_path / "file.csv"
    path.write_bytes(b"id,x\n1,1.5\n2,oops\n\n3,2.5\n4\n5,3.5,9\n\xff,4.5\n6,5.5\n")
    monkeypatch.setattr(text_rows, "PIECE", piece)
    source = sources.csv(path, types={"id": pa.string(), "x": pa.float32()})
    rows, misfits = rows_of(source)
    assert [row["id"] for row in rows.values()] == ["1", "3", "6"]
    assert list(rows) == [0, 2, 6]
    assert {row: misfit(found) for row, found in misfits.items()} == {
        1: ("x", "a value of type float", "'oops'"),
        3: ("", "2 columns", "1 columns: '4'"),
        4: ("", "2 columns", "3 columns: '5,3.5,9'"),
        5: ("id", "a value of type string", "invalid UTF8 data"),
    }


def test_a_later_value_of_another_type_names_the_guess(tmp_path, monkeypatch):
    from my_datasets.sources import text_formats

    monkeypatch.setattr(text_formats, "_SAMPLE", 8)
    path = tmp_path / "file.csv"
    path.write_text("id,x\n1,1\n2,2\n3,2.5\n", "utf-8")
    _, misfits = rows_of(sources.csv(path))
    expected = "a value of type int64, as inferred (types={...} overrides it)"
    assert misfit(misfits[2]) == ("x", expected, "'2.5'")


def test_irregular_quotes_are_no_silent_loss(tmp_path, monkeypatch):
    """An inch mark hides row ends from the search for them; the rows are found out as odd."""
    path = tmp_path / "file.csv"
    path.write_text('id,x\nrow1,5" pipe\nrow2,b\nrow3,6" pipe\nrow4,"c\nc"\n', "utf-8")
    for piece in (6, 12, 20, 1 << 20):
        monkeypatch.setattr(text_rows, "PIECE", piece)
        rows, misfits = rows_of(sources.csv(path, types=strings("id", "x")))
        lost = {"row1", "row2", "row3", "row4"} - {row["id"] for row in rows.values()}
        assert misfits or not lost, piece
        assert all(any(i in str(m.found) for m in misfits.values()) for i in lost), piece


def test_several_files_have_keys_of_their_names(tmp_path):
    for name in ("b/x.csv", "a/x.csv", "a/_hidden.csv", "a/notes.md"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"n\n{len(name)}\n", "utf-8")
    expected = {"a/x.csv:0": {"n": 7}, "b/x.csv:0": {"n": 7}}
    assert rows_of(sources.csv(tmp_path))[0] == expected
    assert rows_of(sources.csv(tmp_path / "*/x.csv"))[0] == expected
    assert rows_of(sources.csv([tmp_path / "b/x.csv", tmp_path / "a/x.csv"]))[0] == expected


def test_keys_of_a_column(tmp_path):
    path = tmp_path / "file.csv"
    path.write_text("id,n\na,1\nb,2\n", "utf-8")
    source = sources.csv(path, key="id")
    assert rows_of(source)[0] == {"a": {"id": "a", "n": 1}, "b": {"id": "b", "n": 2}}
    assert rows_of(source.select({"count": "n"}))[0] == {"a": {"count": 1}, "b": {"count": 2}}


def test_a_dialect(tmp_path):
    path = tmp_path / "file.tsv"
    path.write_bytes("comment\ncafé\t1\n".encode("latin-1"))
    source = sources.tsv(path, columns=["name", "n"], skip_rows=1, encoding="latin-1")
    assert rows_of(source)[0] == {0: {"name": "café", "n": 1}}


def test_nulls(tmp_path):
    path = tmp_path / "file.csv"
    path.write_text("name,n\nNA,1\nx,NA\n-,3\n", "utf-8")
    assert list(rows_of(sources.csv(path))[0].values()) == [
        {"name": "NA", "n": 1}, {"name": "x", "n": None}, {"name": "-", "n": 3}
    ]  # fmt: skip
    path.write_text("name,n\n-,1\nx,-\n", "utf-8")
    assert list(rows_of(sources.csv(path, null_values=["-"]))[0].values()) == [
        {"name": None, "n": 1}, {"name": "x", "n": None}
    ]  # fmt: skip


def test_a_byte_order_mark_is_no_part_of_the_header(tmp_path):
    path = tmp_path / "file.csv"
    path.write_text("n\n1\n2\n", "utf-8-sig")
    assert rows_of(sources.csv(path))[0] == {0: {"n": 1}, 1: {"n": 2}}


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("", {}, "ends before its header"),
        ("a,b\n", {}, "has no row from which types could be inferred"),
        ("a,a\n1,2\n", {}, "two columns with the same name: 'a'"),
        ("a,\n1,2\n", {}, "a column without a name, number 2 of 2"),
        ("a,b\n1,2\n", {"key": "c"}, "no column 'c'"),
        ("a,b\n1,2\n", {"types": {"c": pa.int8()}}, "no column 'c'"),
        ("a,b\n1,\n", {}, "all inspected rows are null"),
        ("a,b\n1,2\n", {"encoding": "utf-16"}, "utf-16 cannot be read in parts"),
        (",".join(f"c{i}" for i in range(1_000_000)) + "\n1\n", {}, "1,000,000 columns"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path, content, options, message):
    path = tmp_path / "file.csv"
    path.write_text(content, "utf-8")
    with pytest.raises(SourceError, match=message):
        sources.csv(path, **options)


def test_files_of_other_columns_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n", "utf-8")
    (tmp_path / "b.csv").write_text("a,c\n1,2\n", "utf-8")
    with pytest.raises(SourceError, match=r"columns of .*b\.csv differ from those of .*a\.csv"):
        sources.csv(tmp_path)


def test_no_file_is_an_error(tmp_path):
    for where in (tmp_path / "no.csv", tmp_path, tmp_path / "*.csv"):
        with pytest.raises(SourceError, match="There is no file to read"):
            sources.csv(where)


def test_a_quote_without_partner_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(text_rows, "LONGEST_ROW", 1000)
    monkeypatch.setattr(text_rows, "PIECE", 100)
    path = tmp_path / "file.csv"
    path.write_text('a,b\n1,"2\n' + "3,4\n" * 1000, "utf-8")
    with pytest.raises(SourceError, match="It is row 2"):
        sources.csv(path, types=strings("a", "b"))


def test_a_file_that_changes_between_planning_and_reading_is_an_error(tmp_path):
    path = tmp_path / "file.csv"
    path.write_text("n\n1\n2\n", "utf-8")
    source = sources.csv(path)
    path.write_text("n\n1\n", "utf-8")
    with pytest.raises(SourceError, match="changed while it was read"):
        list(source)


@pytest.mark.parametrize("options", [{"delimiter": "||"}, {"quote": "«"}, {"delimiter": ""}])
def test_marks_that_cannot_be_read_are_refused(tmp_path, options):
    path = written(tmp_path / "file.csv", [("a", "b")])
    with pytest.raises(SourceError, match="Expected one ASCII character"):
        sources.csv(path, **options)
