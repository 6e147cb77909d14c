"""Tables that are columns already."""

import datetime
import decimal
import os

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.feather as pafeather
import pyarrow.parquet as pq
import pytest

from my_datasets import sources
from my_datasets.errors import SourceError
from my_datasets.sources import columnar
from tests.sources.reading import rows_of

TABLE = pa.table(
    {
        "id": ["a", "b", "c"],
        "n": pa.array([1, 2, 3], pa.int16()),
        "when": [datetime.date(1970, 1, 2)] * 3,
        "price": pa.array([decimal.Decimal("1.50")] * 3),
        "kind": pa.array(["x", "y", "x"]).dictionary_encode(),
        "vector": pa.array([[1.0, 2.0]] * 3, pa.list_(pa.float32(), 2)),
        "objects": [[{"size": 1}], [], [{"size": 2}, {"size": 3}]],
    }
)
ROWS = [
    {
        "id": "abc"[i], "n": i + 1, "when": 1, "price": "1.50", "kind": "xyx"[i],
        "vector": [1.0, 2.0], "objects": [[{"size": 1}], [], [{"size": 2}, {"size": 3}]][i],
    }
    for i in range(3)
]  # fmt: skip


def test_a_table_in_memory():
    assert rows_of(sources.table(TABLE))[0] == dict(enumerate(ROWS))
    assert rows_of(sources.table(TABLE, key="id"))[0] == {row["id"]: row for row in ROWS}
    assert rows_of(sources.table(TABLE.to_batches()[0]))[0] == dict(enumerate(ROWS))


def test_a_frame():
    frame = pandas.DataFrame({"a": [1, 2], "b": ["x", None]}, index=[7, 8])
    assert rows_of(sources.table(frame))[0] == {0: {"a": 1, "b": "x"}, 1: {"a": 2, "b": None}}


def test_what_gives_arrow_data():
    class Frame:
        def __arrow_c_stream__(self, requested_schema=None):
            return TABLE.select(["n"]).__arrow_c_stream__(requested_schema)

    assert [row["n"] for row in rows_of(sources.table(Frame()))[0].values()] == [1, 2, 3]


def test_units_are_ranges_of_rows(monkeypatch):
    monkeypatch.setattr(columnar, "_LEAST_ROWS", 10)
    monkeypatch.setattr(columnar, "_AT_ONCE", 3)
    source = sources.table(pa.table({"n": range(25)}))
    assert [(rows.begin, rows.end) for rows in source.items] == [(0, 10), (10, 20), (20, 25)]
    assert rows_of(source)[0] == {i: {"n": i} for i in range(25)}


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_files_of_columns(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(columnar, "_AT_ONCE", 2)
    monkeypatch.setattr(columnar, "_LEAST", 2)
    read = getattr(sources, kind)
    for name in ("a", "b"):
        path = tmp_path / f"{name}.{kind}"
        if kind == "parquet":
            pq.write_table(TABLE, path, row_group_size=2)
        else:
            pafeather.write_feather(TABLE, path, chunksize=2)
    one = read(tmp_path / f"a.{kind}")
    assert len(one.items) == 2
    assert rows_of(one)[0] == dict(enumerate(ROWS))
    monkeypatch.setattr(columnar, "_LEAST", 3)  # the small groups make one unit
    together = read(tmp_path / f"a.{kind}")
    assert len(together.items) == 1
    assert rows_of(together)[0] == dict(enumerate(ROWS))
    both = rows_of(read(tmp_path))[0]
    assert list(both) == [f"{name}.{kind}:{i}" for name in "ab" for i in range(3)]
    assert list(both.values()) == ROWS * 2
    assert set(rows_of(read(tmp_path / f"a.{kind}", key="id"))[0]) == {"a", "b", "c"}
    (tmp_path / f"c.{kind}").write_bytes(b"no such file")
    with pytest.raises(SourceError, match=rf"c\.{kind} is not a"):
        read(tmp_path)
    with pytest.raises(SourceError, match="no column 'x' for the keys"):
        read(tmp_path / f"a.{kind}", key="x")


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_files_of_other_columns_are_refused(tmp_path, kind):
    for name, table in (("a", TABLE), ("b", TABLE.select(["id", "n"]))):
        path = tmp_path / f"{name}.{kind}"
        (pq.write_table if kind == "parquet" else pafeather.write_feather)(table, path)
    with pytest.raises(SourceError, match=r"columns of .*b\..* differ from those of .*a\."):
        getattr(sources, kind)(tmp_path)


def test_arrays(tmp_path, monkeypatch):
    monkeypatch.setattr(columnar, "_LEAST_ROWS", 4)
    data = {
        "image": np.arange(10 * 2 * 3, dtype=np.uint8).reshape(10, 2, 3),
        "label": np.arange(10),
        "name": np.array([f"n{i}" for i in range(10)]),
    }
    expected = {
        i: {"image": data["image"][i].tolist(), "label": i, "name": f"n{i}"} for i in range(10)
    }
    assert rows_of(sources.arrays(data))[0] == expected
    np.savez(tmp_path / "all.npz", **data)
    assert rows_of(sources.arrays(tmp_path / "all.npz"))[0] == expected
    (tmp_path / "each").mkdir()
    for name, array in data.items():
        np.save(tmp_path / f"each/{name}.npy", array)
    mapped = sources.arrays(tmp_path / "each")
    assert rows_of(mapped)[0] == expected
    assert len(mapped.items) == 3
    assert all(isinstance(array, np.memmap) for array in mapped.generate.arrays.values())


@pytest.mark.parametrize(
    "data", [{}, {"a": np.arange(3), "b": np.arange(2)}, {"a": np.array(3)}], ids=str
)
def test_arrays_that_are_no_table_are_refused(data):
    with pytest.raises(SourceError, match="not the columns of one table"):
        sources.arrays(data)


def test_objects_are_not_unpickled(tmp_path):
    np.save(tmp_path / "bad.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(SourceError, match=r"The arrays in .* cannot be read"):
        sources.arrays(tmp_path / "bad.npy")
    with pytest.raises(SourceError, match=r"cannot be a column|no feature"):
        sources.arrays({"x": np.array([1 + 2j])})


def test_types_that_tfds_cannot_store_are_refused():
    with pytest.raises(SourceError, match="'x' has the Arrow type month_day_nano"):
        sources.table(pa.table({"x": pa.array([(1, 2, 3)], pa.month_day_nano_interval())}))
    with pytest.raises(SourceError, match="all inspected rows are null"):
        sources.table(pa.table({"x": pa.nulls(3)}))
    with pytest.raises(SourceError, match="A list is not a table"):
        sources.table([1, 2])


def test_batches_can_be_changed():
    source = sources.table(TABLE, key="id").map(
        lambda batch: pa.RecordBatch.from_pydict({"double": [2 * n.as_py() for n in batch["n"]]})
    )
    assert source.schema.names == ["double"]
    assert rows_of(source)[0] == {"a": {"double": 2}, "b": {"double": 4}, "c": {"double": 6}}
    with pytest.raises(SourceError, match="did not return a record batch of 3 rows"):
        sources.table(TABLE).map(lambda batch: batch.slice(1))
    with pytest.raises(SourceError, match="no column 'x'"):
        sources.table(TABLE).select(["x"])


def test_the_head():
    assert sources.table(pa.table({"n": range(25)})).head(3).to_pydict() == {"n": [0, 1, 2]}


@pytest.mark.parametrize("make", [lambda n: sources.table(pa.table(n)), sources.arrays])
def test_units_of_other_data_are_others(make):
    """A build goes on with the units that were finished, if they are the same."""
    same, again, other = (make({"n": np.arange(3) * factor}).identities() for factor in (1, 1, 2))
    assert same == again
    assert same != other


def test_units_of_changed_files_are_others(tmp_path):
    before = []
    for factor in (1, 2):
        np.savez(tmp_path / "all.npz", n=np.arange(3 * factor)[:3])
        os.utime(tmp_path / "all.npz", (factor, factor))
        before.append(sources.arrays(tmp_path / "all.npz").identities())
    assert before[0] != before[1]


def test_nulls_are_expected_where_there_are_some(tmp_path):
    some = pa.table({"a": [1, None, 3], "b": [1, 2, 3], "c": [["x"], [], ["y"]]})
    assert sources.table(some).nullable == {"a"}
    pq.write_table(some, tmp_path / "file.parquet", row_group_size=1)
    # Of what is in lists there are no statistics that tell it.
    assert sources.parquet(tmp_path / "file.parquet").nullable == {"a", "c"}
    bare = tmp_path / "bare.parquet"
    pq.write_table(some, bare, write_statistics=False)
    assert sources.parquet(bare).nullable == {"a", "b", "c"}
    pafeather.write_feather(some, tmp_path / "file.feather")
    assert sources.feather(tmp_path / "file.feather").nullable == {"a"}
    (tmp_path / "file.csv").write_text("a,b,c\n1,,x\n,,\n3,1,z\n")
    assert sources.csv(tmp_path / "file.csv").nullable == {"a", "b"}
    assert sources.csv(tmp_path / "file.csv", null_values=[""]).nullable == {"a", "b", "c"}
    (tmp_path / "file.jsonl").write_text('{"a": 1, "b": 1}\n{"b": 2}\n')
    assert sources.json_lines(tmp_path / "file.jsonl").nullable == {"a"}


def test_nulls_are_known_of_chosen_and_changed_columns():
    source = sources.table(pa.table({"a": [1, None, 3], "b": [1, 2, 3]}))
    assert source.select({"x": "a", "b": "b"}).nullable == {"x"}
    assert source.select(["b"]).nullable == set()

    def more(batch):
        return batch.append_column("c", pa.nulls(batch.num_rows, pa.int32()))

    assert source.map(more).nullable == {"a", "c"}


def test_features_of_nullable_columns_are_optional():
    table = pa.table({"n": [1, None], "t": ["a", None], "l": [[1], None], "k": ["x", "y"]})
    features = sources.table(table).features()
    assert [getattr(features[name], "_optional", None) for name in "ntk"] == [True, True, False]
    assert sources.table(table).features(optional=["k"])["n"]._optional is False
    with pytest.raises(SourceError, match="no column 'z'"):
        sources.table(table).features(optional=["z"])
