"""Sources in an object store: real servers of S3 and GCS on loopback."""

import gzip
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow_datasets as tfds

import my_datasets
from my_datasets import sources
from my_datasets.building.options import BuildOptions
from my_datasets.errors import SourceError
from my_datasets.sources import file, text_rows
from tests import servers
from tests.datasets.archives import photograph, zipped
from tests.sources.reading import rows_of

pytestmark = pytest.mark.integration

TABLE = pa.table({"id": [f"r{i}" for i in range(30_000)], "n": np.arange(30_000)})


@pytest.fixture(scope="module", params=[servers.s3, servers.gcs], ids=lambda store: store.__name__)
def bucket(request):
    """A bucket with files of several kinds; the store is that server for as long as it is there."""
    columns = io.BytesIO()
    pq.write_table(TABLE, columns, row_group_size=10_000)
    arrays = io.BytesIO()
    np.savez(arrays, x=np.arange(20), y=np.ones((20, 3)))
    lines = "id,n\n" + "".join(f"r{i},{i}\n" for i in range(1000))
    with request.param("raw") as (url, put):
        for key, body in {
            "table.parquet": columns.getvalue(),
            "parts/a.csv": lines.encode(), "parts/b.csv": lines.encode(),
            "arrays.npz": arrays.getvalue(),
            "lines.csv.gz": gzip.compress(lines.encode()),
            "photos/cat/0.jpg": photograph(0), "photos/dog/1.jpg": photograph(1),
            "photos.zip": zipped({"cat/0.jpg": photograph(0), "dog/1.jpg": photograph(1)}),
        }.items():  # fmt: skip
            put(key, body)
        yield url


def test_files_patterns_and_archives_are_found(bucket):
    assert len(rows_of(sources.csv(f"{bucket}/parts/*.csv"))[0]) == 2000
    assert len(rows_of(sources.parquet(f"{bucket}/table.parquet", key="id"))[0]) == 30_000
    assert rows_of(sources.arrays(f"{bucket}/arrays.npz"))[0][7] == {"x": 7, "y": [1.0] * 3}
    for photos in (f"{bucket}/photos", f"{bucket}/photos.zip"):
        rows, _ = rows_of(sources.image_folder(photos))
        assert {key: row["label"] for key, row in rows.items()} == {
            "cat/0.jpg": "cat", "dog/1.jpg": "dog"
        }  # fmt: skip


def test_a_compressed_file_is_read_in_parts(bucket, monkeypatch):
    monkeypatch.setattr(file, "SMALLEST", 0)
    monkeypatch.setattr(text_rows, "PIECE", 1000)
    source = sources.csv(f"{bucket}/lines.csv.gz")
    assert len(source.items) > 5
    rows, _ = rows_of(source)
    assert [row["n"] for row in rows.values()] == list(range(1000))


def test_what_is_not_there(bucket):
    with pytest.raises(SourceError, match=f"no file to read at {bucket}/nothing"):
        sources.csv(f"{bucket}/nothing/*.csv")


def test_several_processes_read_it(bucket, tmp_path):
    source = sources.parquet(f"{bucket}/table.parquet", key="id")

    class Stored(my_datasets.Builder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            return tfds.core.DatasetInfo(builder=self, features=source.features())

        def _split_generators(self, dl_manager):
            return {"train": source}

    builder = Stored(data_dir=tmp_path)
    builder.download_and_prepare(build_options=BuildOptions(workers=2))
    data = tfds.builder_from_directory(builder.data_dir).as_dataset(split="train", batch_size=-1)
    assert sorted(tfds.as_numpy(data)["n"].tolist()) == TABLE["n"].to_pylist()
