"""The first examples of versions in each format, here and in a store elsewhere."""

import itertools
import json
import random
import shutil

import numpy as np
import pytest
import tensorflow_datasets as tfds

from my_datasets.catalog import first_records, releases
from my_datasets.catalog.dataset_page import snippets
from my_datasets.catalog.first_records import beginning
from my_datasets.catalog.releases import collect
from my_datasets.catalog.site import write
from my_datasets.publishing.model.rollback_state import RollbackState
from my_datasets.records import shard_reader
from tests.catalog import made
from tests.catalog.markup import Page
from tests.publishing.web import serving

FORMATS = ("tfrecord", "array_record", "parquet")
ROWS = 600


class _Logbook(made._Made, skip_registration=True):
    """Texts that no format can shorten much; records of about 2,000 bytes."""

    about = "What was noted."
    features = {"text": tfds.features.Text(), "number": np.int32}
    rows = ROWS

    def example(self, row):
        noted = random.Random(row).randbytes(1500).hex()
        return {"text": f"note {row} {noted}", "number": row}


def names_of(form):
    return f"logbook_in_{form}"


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    directory = tmp_path_factory.mktemp("beginnings") / "data"
    for form in FORMATS:
        cls = type("Logbook", (_Logbook,), {"name": names_of(form)}, skip_registration=True)
        cls(data_dir=directory, file_format=form).download_and_prepare()
    return directory


@pytest.fixture(scope="module")
def store(data_dir):
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from my_datasets.publishing.model.signing import Signer

    signer = Signer(Ed25519PrivateKey.generate())
    made.publish_all(data_dir, data_dir.parent / "store", data_dir.parent / "m", signer=signer)
    return data_dir.parent / "store", signer.public


@pytest.fixture
def small_blocks(monkeypatch):
    """Shards as small as those here are read like large ones."""
    monkeypatch.setattr(releases, "SMALL_SHARD_BYTES", 0)
    monkeypatch.setattr(first_records, "_BLOCK", 4 << 10)
    monkeypatch.setattr(first_records, "_BUFFER", 16 << 10)


def shard_of(directory, form):
    return next(directory.glob(f"{names_of(form)}/1.0.0/*-train.*-00000-of-?????"))


def first_of(path, form):
    records = itertools.chain.from_iterable(shard_reader.records(path, form))
    return list(itertools.islice(records, 20))


def shown(site, form):
    page = Page((site / "datasets" / names_of(form) / "index.html").read_text())
    return " ".join(page.text.split())


def require_examples(site, data_dir):
    """Fails unless the first ten examples of each format are shown, and can be loaded."""
    import mlcroissant as mlc

    for form in FORMATS:
        records = first_of(shard_of(data_dir, form), form)
        text = shown(site, form)
        assert "The first 10 of train." in text
        for record in records[:10]:
            at = record.index(b"note ")
            assert record[at : at + 60].decode() in text
        found = mlc.Dataset(str(site / "datasets" / names_of(form) / "croissant.json"))
        loaded = [one["examples/text"] for one in found.records("examples")]
        assert len(loaded) == 20
        assert all(one in record for one, record in zip(loaded, records, strict=True))


def test_examples_of_each_format_are_shown(data_dir, tmp_path):
    assert write(collect(data_dir), tmp_path / "site").problems == {}
    require_examples(tmp_path / "site", data_dir)


def test_of_stores_elsewhere_no_more_is_fetched_than_is_needed(
    store, data_dir, tmp_path, small_blocks
):
    with serving(store[0]) as (url, asked):
        found = collect(url, cache=tmp_path / "cache")
        fetched = dict.fromkeys(FORMATS, 0)
        for _, path, wanted in asked:
            for form in FORMATS:
                if path.endswith(shard_of(data_dir, form).name):
                    begin, _, end = wanted.removeprefix("bytes=").partition("-")
                    fetched[form] += int(end) + 1 - int(begin)
        assert not [one for one in asked if "-test." in one[1] or "-00001-of" in one[1]]
        del asked[:]
        collect(url, cache=tmp_path / "cache")
        assert not [one for one in asked if "-of-" in one[1]]
    assert write(found, tmp_path / "site").problems == {}
    require_examples(tmp_path / "site", data_dir)
    sizes = {form: shard_of(data_dir, form).stat().st_size for form in FORMATS}
    assert fetched["tfrecord"] < sizes["tfrecord"] / 8
    assert fetched["array_record"] < sizes["array_record"] / 2
    # All of its records are in one page of one row group.
    assert fetched["parquet"] <= sizes["parquet"]


@pytest.mark.parametrize("form", FORMATS)
def test_records_are_those_of_the_shard(data_dir, form, monkeypatch):
    path = shard_of(data_dir, form)
    data = path.read_bytes()
    for block in (1000, 1 << 20):
        monkeypatch.setattr(first_records, "_BLOCK", block)
        monkeypatch.setattr(first_records, "_BUFFER", block)
        found = first_records.first_records(lambda a, b: data[a:b], len(data), form)
        assert found == first_of(path, form)


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_damaged_is_reported(data_dir, form):
    path = shard_of(data_dir, form)
    data = bytearray(path.read_bytes())
    for i in range(100, len(data) - 1000, 50):
        data[i] ^= 0x55
    with pytest.raises(shard_reader.DamagedError):
        first_records.first_records(lambda a, b: bytes(data[a:b]), len(data), form)


@pytest.mark.parametrize("form", FORMATS)
def test_there_is_a_limit(store, data_dir, tmp_path, small_blocks, monkeypatch, form):
    monkeypatch.setattr(first_records, "MOST_FETCHED", 8 << 10)
    with serving(store[0]) as (url, _):
        found = collect(url, cache=tmp_path / "cache")
    write(found, tmp_path / "site")
    assert "more than 8.0 KiB of the file would have to be fetched" in shown(
        tmp_path / "site", form
    )


def test_what_is_signed_is_shown_if_the_whole_shard_is_what_was_signed(
    store, data_dir, tmp_path, small_blocks, monkeypatch
):
    directory, keys = store
    memory = RollbackState(tmp_path / "memory")
    with serving(directory) as (url, _):
        found = collect(url, keys=keys, memory=memory, cache=tmp_path / "whole")
        write(found, tmp_path / "site")
        require_examples(tmp_path / "site", data_dir)
        monkeypatch.setattr(releases, "MOST_SHARD_BYTES", 1000)
        found = collect(url, keys=keys, memory=memory, cache=tmp_path / "none")
    write(found, tmp_path / "other")
    for form in FORMATS:
        said = shown(tmp_path / "other", form)
        assert "Its examples are not shown" in said
        assert "too large to download for a check of its signature" in said


def test_a_format_that_is_not_read_here(data_dir, tmp_path):
    version = tmp_path / "data" / names_of("tfrecord") / "1.0.0"
    shutil.copytree(data_dir / names_of("tfrecord") / "1.0.0", version)
    info = json.loads((version / "dataset_info.json").read_text())
    (version / "dataset_info.json").write_text(json.dumps({**info, "fileFormat": "riegeli"}))
    write(collect(tmp_path / "data"), tmp_path / "site")
    assert "riegeli files are not read here" in shown(tmp_path / "site", "tfrecord")


@pytest.mark.parametrize(
    ("form", "titles"),
    [("array_record", {"JAX and PyTorch", "TFDS alone", "Command line"}),
     ("parquet", {"TensorFlow", "JAX and PyTorch", "TFDS alone", "Command line"})],
)  # fmt: skip
def test_code_for_other_formats_runs(store, data_dir, tmp_path, monkeypatch, form, titles):
    """What reads a format is what the page names, and reads the same examples."""
    found = collect(store[0], memory=RollbackState(tmp_path / "memory"))
    (dataset,) = [one for one in found.datasets if one.name == names_of(form)]
    code = {
        one.title: one.code
        for one in snippets(
            found, dataset, dataset.shown, "train", has_sizes=False, file_format=form
        )
    }
    assert set(code) == titles
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "data"))
    expected = first_of(shard_of(data_dir, form), form)[0]
    for title in titles - {"Command line"}:
        defined = {}
        exec(code[title], defined)
        text = next(iter(defined["train"]))["text"]
        assert (text if isinstance(text, bytes) else text.numpy()) in expected, title


def test_large_records_are_fewer(data_dir, monkeypatch):
    from my_datasets.catalog import first_records

    monkeypatch.setattr(first_records, "_BYTES", 7000)
    version = data_dir / names_of("tfrecord") / "1.0.0"
    assert len(beginning(version).records()) == 3
