"""Shards of each format, read record by record; from files, and where processes were forked."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from my_datasets.comparison import readers
from my_datasets.core.manifest import Manifest
from my_datasets.records import stored
from my_datasets.verification.report import Level
from my_datasets.verification.verifier import verify
from tests.building.engines import toys
from tests.building.engines.builds import build, shards


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    directory = tmp_path_factory.mktemp("stored")
    return {
        form: build(toys.InUnits, directory / form, file_format=form, workers=1)
        for form in ("tfrecord", "array_record", "parquet")
    }


@pytest.mark.parametrize("form", ["tfrecord", "array_record", "parquet"])
@pytest.mark.parametrize("at_once", [1, 7, 1024])
def test_records_come_some_at_a_time(versions, form, at_once):
    (shard, *_), (same, *_) = shards(versions[form]), shards(versions["tfrecord"])
    some = list(stored.records(shard, form, at_once))
    assert max(map(len, some)) <= at_once
    found = [one for part in some for one in part]
    assert found
    assert found == [one for part in stored.records(same, "tfrecord") for one in part]


@pytest.mark.parametrize("form", ["tfrecord", "parquet"])
def test_open_files_are_read_as_well(versions, form):
    (shard, *_) = shards(versions[form])
    from_file = list(stored.records(io.BytesIO(shard.read_bytes()), form))
    assert from_file == list(stored.records(shard, form))


def test_a_record_that_is_stored_once_for_many_rows_takes_little(tmp_path):
    """Some 100 bytes of Parquet that stand for 2 GB of records."""
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int32()), [b"a" * 2_000_000])
    pq.write_table(
        pa.table({"data": column}), tmp_path / "it", compression="zstd", store_schema=False
    )
    assert (tmp_path / "it").stat().st_size < 1000
    before = pa.total_allocated_bytes()
    count = 0
    for part in stored.records(tmp_path / "it", "parquet"):
        assert sum(map(len, part)) <= 6_000_000
        assert pa.total_allocated_bytes() - before < 100_000_000
        count += len(part)
    assert count == 1000


def test_a_column_of_something_else_holds_no_records(tmp_path):
    for values in ([1, 2], [b"a", None]):
        pq.write_table(pa.table({"data": values}), tmp_path / "it")
        with pytest.raises(stored.DamagedError):
            list(stored.records(tmp_path / "it", "parquet"))


def test_array_records_are_read_after_this_process_wrote_some(versions, tmp_path, monkeypatch):
    """Their library crashes in processes that are forked when it was used."""
    monkeypatch.setattr(readers, "FEW_BYTES", 0)
    assert not stored.can_be_read_forked("array_record")
    assert stored.can_be_read_forked("tfrecord")
    version = build(toys.InUnits, tmp_path, file_format="array_record", workers=2)
    digest = Manifest.read(versions["tfrecord"]).content.digest
    assert Manifest.read(version).content.digest == digest
    assert verify(version, level=Level.DEEP, workers=2).is_good
