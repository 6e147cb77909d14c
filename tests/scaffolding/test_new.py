"""`my-datasets new`: what it writes passes its own tests, untouched."""

import contextlib
import gzip
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.feather as pafeather
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from tensorflow.core.example import example_pb2

from my_datasets.checking.checker import check
from my_datasets.cli.main import cli
from my_datasets.records import tfrecord
from my_datasets.scaffolding.inspection import inspect, looks_personal, scrambled
from tests.checking.forked import Forked
from tests.datasets.archives import film, photograph, wave
from tests.downloads.server import serving

ROWS = [
    {
        "Passenger Name": f"Ada{i} Lovelace", "e-mail": f"ada{i}@example.org", "age": i / 2 or None,
        "when": f"2024-01-{i % 28 + 1:02} 10:00:00", "species": "abc"[i % 3], "fold": f"f{i % 2}",
        "note": 'with, "quotes"', "n": i,
    }
    for i in range(200)
]  # fmt: skip


def quoted(value):
    return '"' + str(value).replace('"', '""') + '"' if value is not None else ""


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    """Raw data of every kind."""
    top = tmp_path_factory.mktemp("raw")
    header = ",".join(ROWS[0])
    lines = [",".join(map(quoted, row.values())) for row in ROWS]
    (top / "people.csv").write_text("\n".join([header, *lines]) + "\n")
    said = [f'ham\t"Only one mark {i}' if i % 5 else f"spam\tWin {i}" for i in range(50)]
    (top / "sms.tsv").write_text("\n".join(said) + "\n")
    (top / "objects.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    table = pa.table({
        "id": pa.array(range(100), pa.int16()),
        "vector": pa.array(np.ones((100, 3)).tolist(), pa.list_(pa.float32(), 3)),
        "words": [["a", "b"]] * 100,
        "inner": [{"x": 1, "y": "z"}] * 100,
        "label": ["yes", "no"] * 50,
    })  # fmt: skip
    pq.write_table(table, top / "table.parquet")
    pafeather.write_feather(table, top / "table.feather")
    with contextlib.closing(sqlite3.connect(top / "shop.sqlite")) as shop:
        shop.execute('CREATE TABLE sales (id INTEGER PRIMARY KEY, "the item" TEXT, price REAL)')
        sold = [(i, f"item {i % 7}", i / 4 if i % 5 else None) for i in range(300)]
        shop.executemany("INSERT INTO sales VALUES (?, ?, ?)", sold)
        shop.execute("CREATE VIEW dear AS SELECT * FROM sales WHERE price > 10")
        shop.commit()
    np.savez(top / "digits.npz", image=np.arange(6400).reshape(100, 8, 8).astype(np.uint8),
             label=np.arange(100) % 4)  # fmt: skip
    (top / "columns").mkdir()
    for name, made in (("x", np.ones((50, 3), np.float32)), ("y", np.arange(50))):
        np.save(top / "columns" / f"{name}.npy", made)
    examples = []
    for i in range(60):
        example = example_pb2.Example()
        of = example.features.feature
        of["e-mail"].bytes_list.value[:] = [f"ada{i}@example.org".encode()]
        of["pixels"].bytes_list.value[:] = [bytes(range(256))]
        of["numbers"].float_list.value[:] = [0.5] * (i % 3)
        of["label"].int64_list.value[:] = [i % 2]
        examples.append(example.SerializeToString())
    records = tfrecord.framed([pa.array(examples, pa.large_binary())], len(examples)).to_pylist()
    (top / "some.tfrecord-00000-of-00001").write_bytes(b"".join(records))
    for i in range(4):
        path = top / "films" / "xy"[i % 2] / f"{i}.mp4"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(film())
    for name in ("people.csv", "objects.jsonl"):
        (top / f"{name}.gz").write_bytes(gzip.compress((top / name).read_bytes()))
    with zipfile.ZipFile(top / "tables.zip", "w") as tables:
        for i in range(2):
            tables.writestr(f"inner/{i}.csv", "\n".join([header, *lines[i::2]]) + "\n")
        tables.writestr("README.md", "not a table")
    (top / "poem.txt").write_text("one\n\ntwo\nthree\n")
    for i in range(8):
        for kind, made in (("photos", photograph(i, (80, 60))), ("sounds", wave(i, 3000))):
            ending = "jpg" if kind == "photos" else "wav"
            path = top / kind / "xy"[i % 2] / f"{i}.{ending}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(made)
    shutil.make_archive(top / "photos", "zip", top / "photos")
    shutil.make_archive(top / "sounds", "gztar", top, "sounds")
    (top / "parts").mkdir()
    for i in range(2):
        (top / f"parts/{i}.csv").write_text("\n".join([header, *lines[i::2]]) + "\n")
    return top


def new(*arguments):
    return CliRunner().invoke(cli, ["new", *map(str, arguments)])


KINDS = {
    "people": ("people.csv", ["--label", "species", "--split", "train=0.5,test=0.5",
                              "--stratify", "species"]),
    "folded": ("people.csv", ["--split", "fold"]),
    "grouped": ("people.csv", ["--split", "train=0.6,test=0.4", "--group", "n"]),
    "in_folds": ("people.csv", ["--folds", "3", "--group", "n"]),
    "sms": ("sms.tsv", []),
    "objects": ("objects.jsonl", []),
    "in_parquet": ("table.parquet", []),
    "in_feather": ("table.feather", []),
    "poem": ("poem.txt", []),
    "photos": ("photos", []),
    "zipped": ("photos.zip", ["--split", "label"]),
    "in_archive": ("sounds.tar.gz::sounds/*/*.wav", []),
    "several": ("parts/*.csv", []),
    "packed": ("people.csv.gz", ["--split", "fold", "--key", "n"]),
    "packed_objects": ("objects.jsonl.gz", []),
    "tables": ("tables.zip", ["--label", "species"]),
    "arrays": ("digits.npz", ["--split", "label"]),
    "columns": ("columns", []),
    "records": ("some.tfrecord-*", []),
    "films": ("films", []),
    "sales": ("shop.sqlite", ["--table", "sales"]),
    "view": ("shop.sqlite", ["--table", "dear", "--key", "id"]),
    "sounds": ("sounds", ["--split", "train=0.5,test=0.5"]),
}  # fmt: skip


@pytest.fixture(scope="module")
def project(raw, tmp_path_factory):
    """A package with a dataset of each kind, and one that is downloaded."""
    top = tmp_path_factory.mktemp("projects") / "Our data"
    for name, (file, options) in KINDS.items():
        result = new(name, "--from", raw / file, "--package", top, "--yes", *options)
        assert result.exit_code == 0, (name, result.output, result.exception)
    with serving() as server:
        url = server.put("/files/people.csv", (raw / "people.csv").read_bytes())
        result = new("people_by_url", "--from", url, "--package", top, "--json")
        assert result.exit_code == 0, (result.output, result.exception)
    return top


# One of each way in which the tests are given their data.
FEW = ("people", "photos", "sms", "people_by_url")


@pytest.mark.installs
@pytest.mark.parametrize(
    "names", [FEW, pytest.param((*KINDS, "people_by_url"), marks=pytest.mark.slow)]
)
def test_its_tests_pass_as_they_are(project, names):
    """In a new process, as its author would run them."""
    files = [f"tests/test_{name}.py" for name in names]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        cwd=project, env={**os.environ, "PYTHONPATH": str(project)}, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 9 * len(names)


@pytest.mark.parametrize("name", [*KINDS, "people_by_url"])
def test_nothing_is_wrong_with_it(project, name):
    assert check(str(project / "our_data/datasets" / name), launch=Forked) == []


def test_it_is_formatted(project):
    """As ruff would, with this project's width."""
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--line-length", "100", "--check", str(project)],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_what_looks_personal_is_scrambled(project, raw):
    dummy = (project / "our_data/datasets/people/dummy_data/people.csv").read_text()
    assert "Lovelace" not in dummy
    assert "example.org" not in dummy
    assert 'with, ""quotes""' in dummy  # all else is as it was
    result = new("again", "--from", raw / "people.csv", "--package", project, "--json")
    assert json.loads(result.stdout)["personal"] == ["Passenger Name", "e-mail"]


def test_it_is_built_from_the_real_data(project, raw, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(project)
    built = ("people", "folded", "photos", "zipped", "in_archive", "several")
    result = CliRunner().invoke(
        cli, ["build", *built, "--imports", "our_data", "--manual-dir", str(raw),
              "--data-dir", str(tmp_path), "--json"],
    )  # fmt: skip
    assert result.exit_code == 0, (result.output, result.exception)
    sizes = [built["splits"] for built in json.loads(result.stdout)]
    assert sizes[1:] == [{"f0": 100, "f1": 100}, {"train": 8}, {"x": 4, "y": 4}, {"train": 8},
                         {"train": 200}]  # fmt: skip
    assert sum(sizes[0].values()) == 200
    assert abs(sizes[0]["train"] - 100) <= 2  # of each of three species half, to a row


def test_the_package_says_what_is_in_it(project):
    assert (project / "CHANGELOG.md").read_text().count("* The dataset") >= len(KINDS) + 1
    source = (project / "our_data/datasets/people/people_dataset_builder.py").read_text()
    assert '"passenger_name": "Passenger Name"' in source
    assert 'names=["a", "b", "c"]' in source
    assert "1 of 200 missing" in source


def test_what_is_there_is_not_overwritten(project, raw):
    before = sorted(project.rglob("*"))
    result = new("people", "--from", raw / "people.csv", "--package", project, "--yes")
    assert result.exit_code == 1
    assert "already exists" in str(result.exception)
    assert sorted(project.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["Bad-Name", "--from", "people.csv"], "cannot be the name of a dataset"),
        (["x", "--from", "nothing.csv"], "no file to read"),
        (["x", "--from", "people.csv", "--label", "none"], "There is no column 'none'"),
        (["x", "--from", "people.csv", "--label", "e-mail", "--split", "n"], "more than 20 values"),
        (["x", "--from", "people.csv", "--split", "a=b"], "is not NAME=SHARE"),
        (["x", "--from", "people.csv", "--group", "n"], "need shares"),
        (
            ["x", "--from", "people.csv", "--folds", "3", "--split", "n"],
            "cannot be combined with --split",
        ),
        (["x", "--from", "people.csv", "--kind", "excel"], "There is no kind 'excel'"),
        (["x", "--from", "people.csv", "--key", "none"], "has no column 'none'"),
        (["x", "--from", "shop.sqlite"], "several tables, or none"),
        (["x", "--from", "shop.sqlite", "--table", "none"], "no table 'none'"),
        (["x", "--from", "shop.sqlite", "--table", "dear"], "no primary key of one column"),
        (["x", "--from", "photos", "--kind", "sql"], "does not exist"),
        (["x", "--from", "people.csv", "--kind", "sql"], "cannot be read as an SQLite file"),
        (
            ["x", "--from", "postgresql://ada@localhost/shop"],
            "Scaffolding does not support postgresql://",
        ),
    ],
)
def test_what_cannot_be_is_said_and_nothing_is_written(raw, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(raw)
    result = new(*arguments, "--package", tmp_path / "none", "--yes")
    assert result.exit_code in (1, 2)
    assert said in f"{result.output}{result.exception}"
    assert not (tmp_path / "none").exists()


def test_it_asks(raw, tmp_path):
    result = CliRunner().invoke(
        cli, ["new", "x", "--from", str(raw / "poem.txt"), "--package", str(tmp_path)], input="n\n"
    )
    assert result.exit_code == 1
    assert "Write the dataset 'x'?" in result.output
    assert list(tmp_path.iterdir()) == []


def test_this_package_itself_has_places_of_its_own(tmp_path, raw):
    (tmp_path / "my_datasets/datasets").mkdir(parents=True)
    result = new("poem", "--from", raw / "poem.txt", "--package", tmp_path, "--json")
    assert result.exit_code == 0, result.output
    for path in ("dummy_data/poem/poem.txt", "tests/datasets/test_poem.py",
                 "my_datasets/datasets/poem/poem_dataset_builder.py"):  # fmt: skip
        assert (tmp_path / path).is_file()
    assert not (tmp_path / "setup.py").exists()


def test_a_database_in_a_directory_of_any_name(raw, tmp_path):
    """What has a meaning in a URI is quoted there."""
    place = tmp_path / "50% #1?mode=memory" / "shop.sqlite"
    place.parent.mkdir()
    shutil.copy(raw / "shop.sqlite", place)
    other = tmp_path / "50% #10mode=memory" / "shop.sqlite"  # the path as a pattern matches it
    other.parent.mkdir()
    other.write_bytes(b"")
    found = inspect(str(place), table="sales")
    assert found.options["key"] == "id"
    assert found.sample.num_rows == 300
    result = new("sales", "--from", place, "--table", "sales", "--package", tmp_path / "p", "--yes")
    assert result.exit_code == 0, (result.output, result.exception)
    (dummy,) = (tmp_path / "p").rglob("shop.sqlite")
    with contextlib.closing(sqlite3.connect(dummy)) as made:
        assert made.execute("SELECT id, price FROM sales LIMIT 2").fetchall() == [
            (0, None),
            (1, 0.25),
        ]


def test_columns_without_names_and_with_marks(raw):
    found = inspect(str(raw / "sms.tsv"))
    assert found.options["quote"] is None
    assert found.options["columns"] == ["column_0", "column_1"]
    assert found.sample.num_rows == 50


@pytest.mark.parametrize(
    ("column", "values", "expected"),
    [
        ("first name", [], True), ("username", [], True), ("filename", [], False),
        ("contact", ["a@example.org", "b@example.org", "none"], True),
        ("contact", ["+49 30 1234567"], True), ("host", ["10.0.0.1"], True),
        ("pixels", [1, 2], False), ("description", ["a tree"], False),
    ],
)  # fmt: skip
def test_what_looks_personal(column, values, expected):
    assert looks_personal(column, values) is expected


def test_scrambling_keeps_the_form_and_what_is_equal():
    text = "Ada.Lovelace1@example.org"
    found = scrambled(text)
    assert found != text
    assert scrambled(text) == found
    assert re.fullmatch(r"[A-Z][a-z]{2}\.[A-Z][a-z]{7}\d@[a-z]{7}\.[a-z]{3}", found)
    assert scrambled(None) is None
    assert scrambled(True) is True
    # Among so many, a first digit would be zero about every tenth time.
    for number in range(10_000, 10_400):
        assert re.fullmatch(r"[1-9]\d{4}", str(scrambled(number)))
        assert scrambled(number) == scrambled(number)
    assert re.fullmatch(r"-[1-9]\d{4}", str(scrambled(-12345)))
    assert scrambled(1.5) == 1.5
