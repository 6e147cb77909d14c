"""Shards of each format, read record by record; from files, and where processes were forked."""

import io
import os
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from my_datasets.comparison import examine
from my_datasets.metadata.manifest import Manifest
from my_datasets.records import shard_reader
from my_datasets.verification.verifier import Level, verify
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
    some = list(shard_reader.records(shard, form, at_once))
    assert max(map(len, some)) <= at_once
    found = [one for part in some for one in part]
    assert found
    assert found == [one for part in shard_reader.records(same, "tfrecord") for one in part]


@pytest.mark.parametrize("form", ["tfrecord", "parquet"])
def test_open_files_are_read_as_well(versions, form):
    (shard, *_) = shards(versions[form])
    from_file = list(shard_reader.records(io.BytesIO(shard.read_bytes()), form))
    assert from_file == list(shard_reader.records(shard, form))


def test_a_record_that_is_stored_once_for_many_rows_takes_little(tmp_path):
    """Some 100 bytes of Parquet that stand for 2 GB of records."""
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int32()), [b"a" * 2_000_000])
    pq.write_table(
        pa.table({"data": column}), tmp_path / "it", compression="zstd", store_schema=False
    )
    assert (tmp_path / "it").stat().st_size < 1000
    before = pa.total_allocated_bytes()
    count = 0
    for part in shard_reader.records(tmp_path / "it", "parquet"):
        assert sum(map(len, part)) <= 6_000_000
        assert len(set(map(id, part))) == 1
        assert pa.total_allocated_bytes() - before < 100_000_000
        count += len(part)
    assert count == 1000


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_that_expand_to_much_are_read_one_after_the_other(tmp_path, version, monkeypatch):
    """Some kilobytes of Parquet that stand for 50 MB, each record in a page of its own."""
    monkeypatch.setattr(shard_reader, "_PAGES_AT_ONCE", 2_000_000)
    with pq.ParquetWriter(
        tmp_path / "it", pa.schema({"data": pa.binary()}), compression="zstd", use_dictionary=False,
        write_batch_size=1, data_page_size=1, write_statistics=False, data_page_version=version,
    ) as writer:  # fmt: skip
        writer.write_table(
            pa.table(
                {"data": pa.array([bytes(500_000) + bytes([i]) for i in range(100)], pa.binary())}
            )
        )
    assert (tmp_path / "it").stat().st_size < 100_000
    before = pa.total_allocated_bytes()
    count = 0
    for part in shard_reader.records(tmp_path / "it", "parquet"):
        assert pa.total_allocated_bytes() - before < 15_000_000
        count += len(part)
    assert count == 100


def test_a_page_that_expands_to_more_than_is_read_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(shard_reader, "MOST_BYTES", 1 << 20)
    for record, is_read in [
        (bytes(1_000_000), True),
        (bytes(2_000_000), False),
        (os.urandom(2_000_000), True),  # as much as is stored
    ]:
        pq.write_table(
            pa.table({"data": [record]}), tmp_path / "it", compression="zstd", use_dictionary=False
        )
        if is_read:
            assert list(shard_reader.records(tmp_path / "it", "parquet")) == [[record]]
        else:
            with pytest.raises(
                shard_reader.DamagedError, match=r"expand to 1\.9 MiB; at most 1\.0 MiB"
            ):
                list(shard_reader.records(tmp_path / "it", "parquet"))
            with pytest.raises(shard_reader.DamagedError, match="expand to"):
                list(shard_reader.records(io.BytesIO((tmp_path / "it").read_bytes()), "parquet"))


def test_values_that_repeat_a_part_of_those_before_are_not_read(tmp_path):
    """Some 100 bytes would be 100 MB, and no header says so."""
    pq.write_table(
        pa.table({"data": [bytes(1_000_000)] * 100}), tmp_path / "it", use_dictionary=False,
        column_encoding={"data": "DELTA_BYTE_ARRAY"}, compression="zstd",
    )  # fmt: skip
    with pytest.raises(shard_reader.DamagedError, match="encoding 7"):
        list(shard_reader.records(tmp_path / "it", "parquet"))


def test_a_dictionary_beside_much_that_is_not_in_it_is_refused(tmp_path, monkeypatch):
    """Arrow keeps all of the row group then."""
    monkeypatch.setattr(shard_reader, "MOST_BYTES", 5_000_000)
    values = [bytes(500_000) + bytes([i]) for i in range(40)]
    pq.write_table(
        pa.table({"data": values}), tmp_path / "it", compression="zstd", write_batch_size=1,
        data_page_size=1, dictionary_pagesize_limit=1_000_000,
    )  # fmt: skip
    with pytest.raises(shard_reader.DamagedError, match="A row group with a dictionary has"):
        list(shard_reader.records(tmp_path / "it", "parquet"))


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_the_headers_of_all_pages_are_read(tmp_path, statistics, dictionary, version):
    values = [os.urandom(10 + i % 3000) for i in range(3000)]
    pq.write_table(
        pa.table({"data": values}), tmp_path / "it", row_group_size=700, data_page_size=5000,
        write_batch_size=10, use_dictionary=dictionary, data_page_version=version,
        write_statistics=statistics, write_page_checksum=True,
    )  # fmt: skip
    metadata = pq.read_metadata(tmp_path / "it")
    with (tmp_path / "it").open("rb") as file:
        pages = [
            page
            for i in range(metadata.num_row_groups)
            for page in shard_reader.parquet_pages(file, metadata.row_group(i))
        ]
    assert sum(page.values for page in pages) == 3000
    groups = [metadata.row_group(i).column(0) for i in range(metadata.num_row_groups)]
    headers = sum(one.total_uncompressed_size for one in groups) - sum(
        page.expands_to for page in pages
    )
    assert headers == sum(one.total_compressed_size for one in groups) - sum(
        page.stored for page in pages
    )


def test_what_is_no_header_of_a_page_is_damage(tmp_path):
    path = tmp_path / "it"
    for data in (b"\xff" * 30, b"\x15\x00" * 15, b"\x00" * 30, b"\x1c" * 30):
        pq.write_table(pa.table({"data": [b"a" * 99]}), path, use_dictionary=False)
        path.write_bytes(b"PAR1" + data + path.read_bytes()[34:])
        with pytest.raises(shard_reader.DamagedError):
            list(shard_reader.records(path, "parquet"))


def page_header(*fields):
    """A header in Thrift's compact protocol, of fields as they are stored."""
    return b"".join(fields) + b"\x00"


# The fields of 32 bits are those of its kind, of what it expands to, and of what is stored.
DATA, EXPANDS_TO_1, STORED_1 = b"\x15\x00", b"\x15\x02", b"\x15\x02"
NO_HEADERS = {
    "nothing": b"",
    "no fields": page_header(),
    "no size": page_header(DATA, EXPANDS_TO_1),
    "text in place of a size": page_header(DATA, EXPANDS_TO_1, b"\x18\x01a"),
    "as many bytes back as it has": page_header(DATA, EXPANDS_TO_1, b"\x15\x0d"),
    "a list": page_header(DATA, EXPANDS_TO_1, STORED_1, b"\x19"),
    "structs in structs": b"\x1c" * 5000,
    "no end": page_header(DATA, EXPANDS_TO_1, STORED_1)[:-1],
    "text beyond the file": page_header(DATA, EXPANDS_TO_1, STORED_1, b"\x18\xff\x01"),
    "a long text": page_header(DATA, EXPANDS_TO_1, STORED_1, b"\x18\x80\x80\x02", b"a" * (1 << 15)),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("what", NO_HEADERS)
def test_headers_that_are_none_are_refused(what, monkeypatch):
    """None is taken for another one, or looked for without end."""
    monkeypatch.setattr(shard_reader, "_MOST_HEADER", 1 << 12)
    data = NO_HEADERS[what]
    chunk = SimpleNamespace(
        path_in_schema="data", data_page_offset=0, dictionary_page_offset=None,
        total_compressed_size=max(1, len(data)),
    )  # fmt: skip
    group = SimpleNamespace(num_columns=1, column=lambda _: chunk)
    with pytest.raises(ValueError, match="no header that can be read"):
        list(shard_reader.parquet_pages(io.BytesIO(data), group))


@pytest.mark.parametrize("dictionary", [True, False])
def test_a_column_of_something_else_holds_no_records(tmp_path, dictionary):
    for values in ([1, 2], [b"a", None]):
        pq.write_table(pa.table({"data": values}), tmp_path / "it", use_dictionary=dictionary)
        with pytest.raises(shard_reader.DamagedError, match="holds no records"):
            list(shard_reader.records(tmp_path / "it", "parquet"))


def test_binary_values_may_have_wide_offsets(tmp_path):
    column = pa.array([b"a", b"bc"], pa.large_binary())
    for dictionary in (True, False):
        pq.write_table(pa.table({"data": column}), tmp_path / "it", use_dictionary=dictionary)
        assert list(shard_reader.records(tmp_path / "it", "parquet")) == [[b"a", b"bc"]]


def test_array_records_are_read_after_this_process_wrote_some(versions, tmp_path, monkeypatch):
    """Their library crashes in processes that are forked when it was used."""
    monkeypatch.setattr(examine, "FEW_BYTES", 0)
    assert not shard_reader.can_be_read_forked("array_record")
    assert shard_reader.can_be_read_forked("tfrecord")
    version = build(toys.InUnits, tmp_path, file_format="array_record", workers=2)
    digest = Manifest.read(versions["tfrecord"]).content.digest
    assert Manifest.read(version).content.digest == digest
    assert verify(version, level=Level.DEEP, workers=2).is_good
