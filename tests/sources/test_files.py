"""Where files lie."""

import gzip

import fsspec
import pytest

from my_datasets import sources
from my_datasets.errors import SourceError
from my_datasets.sources.folders import files
from tests.sources.reading import rows_of


@pytest.fixture
def bucket():
    """An object store of fsspec's, with two tables in it."""
    system = fsspec.filesystem("memory")
    for name, rows in (("a", 3), ("b", 2)):
        text = "n\n" + "".join(f"{name}{i}\n" for i in range(rows))
        system.pipe(f"/bucket/{name}/x.csv", text.encode())
    system.pipe("/bucket/a/y.csv.gz", gzip.compress(b"n\nc0\n"))
    system.pipe("/bucket/_log", b"x")
    yield "memory://bucket"
    system.rm("/bucket", recursive=True)


@pytest.mark.parametrize(
    ("where", "keys"),
    [
        ("", ["a/x.csv:0", "a/x.csv:1", "a/x.csv:2", "a/y.csv.gz:0", "b/x.csv:0", "b/x.csv:1"]),
        ("/*/x.csv", ["a/x.csv:0", "a/x.csv:1", "a/x.csv:2", "b/x.csv:0", "b/x.csv:1"]),
        ("/b/x.csv", [0, 1]),
        ("/a/y*", [0]),
    ],
)
def test_tables_of_an_object_store(bucket, where, keys):
    rows, _ = rows_of(sources.csv(bucket + where))
    assert list(rows) == keys


def test_what_is_not_in_the_store_is_reported(bucket):
    for where in ("/c", "/*.csv", "/a/z.csv"):
        with pytest.raises(SourceError, match="There is no file to read"):
            files(bucket + where)


def test_an_unknown_kind_of_store_is_reported():
    with pytest.raises(SourceError, match="nosuch://x/y cannot be read here"):
        files("nosuch://x/y")


def test_names_tell_files_apart_and_nothing_else(tmp_path):
    for name in ("ab/c/x.txt", "ab/cd/x.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text("x")
    assert [file.name for file in files(tmp_path)] == ["c/x.txt", "cd/x.txt"]
    assert [file.name for file in files(tmp_path / "ab/c")] == [""]
    assert files(f"file://{tmp_path}/ab/c/x.txt")[0].size == 1
