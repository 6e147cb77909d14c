"""Versions in object stores, read a window of shards at a time, from real servers."""

import hashlib
import io
import itertools
import json
import os
import pickle
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from hypothesis import given
from hypothesis import strategies as st

import my_datasets
from my_datasets.building.options import BuildOptions
from my_datasets.core.reference import DatasetReference
from my_datasets.errors import (
    CorruptShardError,
    DataDirError,
    InvalidOptionError,
    NotPreparedError,
    PlanError,
)
from my_datasets.input_pipeline.engine import Engine
from my_datasets.input_pipeline.order.permutation import Order, WindowOrder
from my_datasets.input_pipeline.plan.plan import Plan
from my_datasets.input_pipeline.plan.planner import plan
from my_datasets.input_pipeline.read import prepared
from my_datasets.loading import _locked
from my_datasets.metadata import manifest
from my_datasets.metadata.manifest import Manifest
from my_datasets.records import index, tfrecord
from my_datasets.records.random_access import RecordReader, RecordShard
from my_datasets.resolving import bucket_version
from my_datasets.resolving.bucket_version import BucketVersion
from my_datasets.resolving.lock import Lock, Locked
from my_datasets.resolving.resolver import Request
from tests import servers
from tests.conftest import SERVERS

N, SHARDS = 600, 12
SHARD = "far-train.tfrecord-00000-of-00012"


@given(
    runs=st.lists(st.integers(0, 40), min_size=1, max_size=12), window=st.integers(1, 15),
    seed=st.integers(0, 9), epoch=st.integers(0, 3),
)  # fmt: skip
def test_an_order_by_windows_is_a_permutation(runs, window, seed, epoch):
    announced = []
    order = WindowOrder(tuple(runs), window, seed, announced.append)
    if not order.size:
        return
    numbers = order(epoch, np.arange(order.size))
    assert sorted(numbers.tolist()) == list(range(sum(runs)))
    ends = np.cumsum(runs)
    shards = np.searchsorted(ends, numbers, side="right")
    in_turn = Order(len(runs), seed)(epoch, np.arange(len(runs))).tolist()
    at = 0
    for first in range(0, len(runs), window):
        some = in_turn[first : first + window]
        count = sum(runs[i] for i in some)
        assert set(shards[at : at + count].tolist()) == {i for i in some if runs[i]}
        at += count
    assert announced[0] == in_turn[: 2 * window] or not sum(runs[i] for i in in_turn[:window])
    places = np.random.default_rng(epoch).permutation(order.size)
    assert np.array_equal(order(epoch, places), numbers[places])


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    root = tmp_path_factory.mktemp("local")

    class Far(my_datasets.Builder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {"number": np.int64, "text": tfds.features.Text()}
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features)
            )

        def _split_generators(self, dl_manager):
            return {"train": ((i, {"number": i, "text": "x" * (i % 9)}) for i in range(N))}

    Far(data_dir=root).download_and_prepare(
        download_config=tfds.download.DownloadConfig(num_shards=SHARDS),
        build_options=BuildOptions(workers=1),
    )
    return root


@pytest.fixture(scope="module", params=SERVERS)
def store(request, local):
    """The same data directory in an object store."""
    with getattr(servers, request.param)("ours") as (url, put):
        for path in local.rglob("*"):
            if path.is_file():
                put(f"data/{path.relative_to(local).as_posix()}", path.read_bytes())
        yield f"{url}/data", put


@pytest.fixture
def fetched(monkeypatch):
    """The names of the shards that come from the store, each time one does."""
    names, read = [], BucketVersion.read

    def noted(self, name):
        if "tfrecord-" in name:
            names.append(name)
        return read(self, name)

    monkeypatch.setattr(BucketVersion, "read", noted)
    return names


def copies(directory):
    """The shards that lie in a directory for copies."""
    shards = directory.rglob("*tfrecord*")
    return sorted(path for path in shards if path.name[-1].isdigit() and path.is_file())


def numbers_of(batches):
    return [batch["number"].tolist() for batch in batches]


def test_the_batches_are_those_of_a_local_copy(store, local, tmp_path):
    options = {"batch_size": 32, "epochs": 2, "seed": 3}
    made = plan("far:1.*.*", data_dir=store[0], shards_dir=tmp_path, **options)
    assert "up to 12 shards" in made.explain()
    assert Plan.from_json(made.to_json()) == made
    read = json.loads(made.to_json())["stages"][0]
    assert read["held"] == 12  # the keys of earlier releases
    assert str(tmp_path) in read["held_at"]
    here = plan("far", data_dir=local, shuffle_window=4, **options)
    assert numbers_of(my_datasets.batches(made)) == numbers_of(my_datasets.batches(here))
    assert made.beginning == here.beginning  # a position goes on where the data lies elsewhere
    first = itertools.chain.from_iterable(numbers_of(my_datasets.batches(made))[:19])
    assert sorted(first) == list(range(N))
    loader = my_datasets.torch_loader(made, workers=2)
    assert numbers_of(loader) == numbers_of(my_datasets.batches(here))
    train = my_datasets.pipeline(made)
    assert [one["number"].numpy().tolist() for one in train] == numbers_of(
        my_datasets.batches(here)
    )


def test_few_shards_lie_here_and_each_is_read_once(store, tmp_path, fetched):
    made = plan(
        "far", data_dir=store[0], shards_dir=tmp_path, shuffle_window=2, batch_size=10, epochs=1,
        prefetch=0,
    )  # fmt: skip
    assert len(copies(tmp_path)) <= 2  # to plan takes no more
    batches = my_datasets.batches(made)
    fetched.clear()
    most = max(len(copies(tmp_path)) for _ in batches)
    assert 2 <= most <= 6
    assert SHARDS - 6 <= len(fetched) <= SHARDS
    assert len(set(fetched)) == len(fetched)


def test_going_on_reads_no_more_than_a_window_again(store, tmp_path):
    options = {"shards_dir": tmp_path, "shuffle_window": 2, "batch_size": 10, "data_dir": store[0]}
    made = plan("far", **options)
    whole = numbers_of(my_datasets.batches(made))
    state = Engine(made).batching.state_after(31)
    shutil.rmtree(tmp_path)
    rest = my_datasets.batches(made, state=state)
    assert numbers_of(rest) == whole[31:]
    with pytest.raises(PlanError, match="2 shards"):
        Engine(plan("far", **{**options, "shuffle_window": 3}), state)


def test_single_examples_and_slices(store, tmp_path):
    made = plan("far", split="train[25%:75%]", data_dir=store[0], shards_dir=tmp_path)
    found = sorted(n for one in numbers_of(my_datasets.batches(made)) for n in one)
    assert len(found) == N // 2
    source = my_datasets.source("far", data_dir=store[0], shards_dir=tmp_path)
    again = pickle.loads(pickle.dumps(source))
    assert source[7] == again[7]
    version = my_datasets.source(f"{store[0]}/far/1.0.0", shards_dir=tmp_path)
    assert version[N - 1] == source[N - 1]


def test_a_version_of_another_format_is_refused(store, local, tmp_path):
    url, put = store
    info = json.loads((local / "far/1.0.0/dataset_info.json").read_text("utf-8"))
    info["fileFormat"] = "array_record"
    put("records/far/1.0.0/dataset_info.json", json.dumps(info).encode())
    put("records/far/1.0.0/features.json", (local / "far/1.0.0/features.json").read_bytes())
    directory = f"{url.removesuffix('data')}records"
    for read in (lambda one: one.as_dataset("train"), lambda one: one.source()):
        with pytest.raises(DataDirError, match="has array_record files"):
            read(my_datasets.open("far", data_dir=directory))


@pytest.mark.parametrize("store", ["s3"], indirect=True)  # TensorFlow itself reads gs://
def test_load_reads_in_place(store, local, tmp_path, monkeypatch, fetched):
    monkeypatch.setenv("MY_DATASETS_HOME", str(tmp_path))
    url, _ = store
    options = {"data_dir": url, "cache_dir": tmp_path / "shards"}
    ours, info = my_datasets.load("far:1.*.*", split="train[100:]", with_info=True, **options)
    assert info.full_name == "far/1.0.0"
    theirs = tfds.load("far", split="train[100:]", data_dir=local, download=False)
    assert [one["number"] for one in ours.as_numpy_iterator()] == [
        one["number"] for one in theirs.as_numpy_iterator()
    ]
    assert fetched
    assert copies(tmp_path / "shards")
    assert set(my_datasets.load("far", data_dir=url)) == {"train"}
    with pytest.raises(NotPreparedError, match="my-datasets build far:2"):
        my_datasets.load("far:2.*.*", data_dir=url)
    with pytest.raises(InvalidOptionError, match="have no effect"):
        my_datasets.load("far", data_dir=url, builder_kwargs={"config": "x"})


def test_what_is_not_shuffled_comes_in_order(store, local, tmp_path):
    far = plan("far", data_dir=store[0], shards_dir=tmp_path, shuffle=False, batch_size=32)
    here = plan("far", data_dir=local, shuffle=False, batch_size=32)
    assert numbers_of(my_datasets.batches(far)) == numbers_of(my_datasets.batches(here))


def exchanged(shard):
    """A shard with its first two records exchanged, and its index: both files keep their sizes."""
    records = index.read(shard)
    data = shard.read_bytes()
    begin, middle, end = (int(offset) for offset in records[:3])
    offsets = records.copy()
    offsets[1] = begin + end - middle
    written = io.BytesIO()
    np.save(written, offsets)
    changed = {
        shard: data[:begin] + data[middle:end] + data[begin:middle] + data[end:],
        index.path_of(shard): written.getvalue(),
    }
    assert all(len(new) == path.stat().st_size for path, new in changed.items())
    return changed


def upload(local, put, changed):
    for path in sorted((local / "far").rglob("*")):
        if path.is_file():
            name = f"far/{path.relative_to(local / 'far').as_posix()}"
            put(name, changed.get(path) or path.read_bytes())


def manifest_of(version, changed):
    """The manifest of a version with other shards, as whoever builds it writes it."""
    made = Manifest.read(version)
    shards = {path.name: hashlib.sha256(data).hexdigest() for path, data in changed.items()}
    splits = {
        name: replace(one, shards=tuple(
            replace(shard, sha256=shards.get(shard.name, shard.sha256)) for shard in one.shards
        ))
        for name, one in made.content.splits.items()
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        replace(made, content=replace(made.content, splits=splits)).write(Path(folder))
        return (Path(folder) / manifest.FILE_NAME).read_bytes()


def test_a_version_that_was_built_anew_is_fetched_anew(local, tmp_path):
    """Of the same sizes, which tell nothing."""
    with servers.s3("again") as (url, put):
        upload(local, put, {})
        options = {"data_dir": url, "shards_dir": tmp_path, "split": "train[:10]"}
        first = [example["number"] for example in my_datasets.source("far", **options)]
        version = local / "far" / "1.0.0"
        changed = exchanged(version / SHARD)
        changed[version / manifest.FILE_NAME] = manifest_of(version, changed)
        time.sleep(1.1)  # the store tells whole seconds
        upload(local, put, changed)
        second = [example["number"] for example in my_datasets.source("far", **options)]
        assert first[0] != first[1]
        assert second == [first[1], first[0], *first[2:]]


def test_the_index_of_a_version_that_has_none_any_more_is_not_used(tmp_path):
    version, name = tmp_path / "store" / "1.0.0", "far-train.tfrecord-00000-of-00002"
    other = "far-train.tfrecord-00001-of-00002"  # which makes room for both
    version.mkdir(parents=True)
    (version / "dataset_info.json").write_text("{}")
    (version / other).write_bytes(bytes(1000))
    for records, has_index in (([b"a", b"b"], True), ([b"longer", b"b"], False)):
        (version / name).write_bytes(b"".join(map(tfrecord.framed_one, records)))
        if has_index:
            index.write(version / name, index.scan(version / name))
        else:
            index.path_of(version / name).unlink()
        url = f"file://{version}"
        directory, files = bucket_version.mirror(url, tmp_path / "copies")
        fetcher = BucketVersion(url, directory, files, "", 1).fetcher([name, other], 2)
        reader = RecordReader(
            [RecordShard(directory / name, 2)], [(0, 2)], fetcher, fetcher.max_open
        )
        found = reader.read(np.array([0]))
        assert found.data[found.starts[0] : found.stops[0]].tobytes() == records[0]


def test_a_relative_folder_for_copies_stays_where_it_was(local, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    records = prepared.find(f"file://{local}/far/1.0.0", shards_dir="copies").records("train")
    monkeypatch.chdir(local)
    assert len(records.read(np.arange(N)).starts) == N


def test_copies_are_compared_with_the_manifest_of_now(local, tmp_path):
    """Also in a process that still reads what the same bucket had before."""
    version = local / "far" / "1.0.0"
    changed = exchanged(version / SHARD)
    of_these = {**changed, version / manifest.FILE_NAME: manifest_of(version, changed)}
    with servers.s3("manifests") as (url, put):
        upload(local, put, of_these)
        options = {"data_dir": url, "shards_dir": tmp_path, "split": "train[:10]"}
        before = my_datasets.source("far", **options)
        assert len(list(before)) == 10
        time.sleep(1.1)  # the store tells whole seconds
        put(f"far/1.0.0/{manifest.FILE_NAME}", (version / manifest.FILE_NAME).read_bytes())
        with pytest.raises(CorruptShardError, match="the manifest says"):
            list(my_datasets.source("far", **options))


@pytest.mark.parametrize(("what", "read"), [
    ("shard", "source"), ("index", "source"), ("shard", "load"),
])  # fmt: skip
def test_the_lock_holds_in_an_object_store(store, local, tmp_path, monkeypatch, what, read):
    """Sizes and metadata are those of the original: only bytes tell."""
    version = local / "far" / "1.0.0"
    path = tmp_path / "datasets.lock"
    lock = Lock(path, {"far:1.*.*": Locked.of(version)})
    lock.write()
    monkeypatch.setenv("MY_DATASETS_LOCK", str(path))
    monkeypatch.setenv("MY_DATASETS_HOME", str(tmp_path / "home"))

    def first(url):
        if read == "source":
            return my_datasets.source("far:1.*.*", data_dir=url)[0]["number"]
        # What TFDS reads by itself: no test has a bucket for TensorFlow.
        builder = SimpleNamespace(data_dir=f"{url}/far/1.0.0")
        found = _locked(Request(DatasetReference.parse("far:1.*.*"), lock), builder, url)
        return next(iter(found.as_dataset(split="train[:10]")))["number"].numpy()

    assert first(store[0]) == my_datasets.source(version)[0]["number"]
    changed = exchanged(version / SHARD)
    forged = version / SHARD if what == "shard" else index.path_of(version / SHARD)
    folder = f"forged_{what}_{read}"
    upload(local, lambda name, data: store[1](f"{folder}/{name}", data), {forged: changed[forged]})
    said = "the manifest says" if what == "shard" else "record index of"
    with pytest.raises((CorruptShardError, tf.errors.OpError), match=said):
        first(f"{store[0].removesuffix('data')}{folder}")


def test_threads_share_a_cache(store, tmp_path):
    options = {"data_dir": store[0], "shards_dir": tmp_path}
    source = my_datasets.source("far", **options)
    spool = source.records.fetch
    paths = [path for path, _ in source.records.runs()]
    spool._cache.most //= 6  # of the 12 that may be there
    orders = [np.random.default_rng(i).permutation(len(paths)) for i in range(4)]

    def go(order):
        for i in order:
            spool(paths[i])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(go, orders))
    assert len([path for path in paths if path.is_file()]) <= 2


def test_datasets_in_a_store_are_not_mixed(store, tmp_path):
    made = plan("far", data_dir=store[0], shards_dir=tmp_path)
    with pytest.raises(InvalidOptionError, match="copy them to this machine"):
        my_datasets.mix([made, made])


def test_what_is_wrong_is_said(store, tmp_path):
    """The last one: it leaves a shard damaged."""
    url, put = store
    for reference in ("far:2.*.*", "nothing"):
        with pytest.raises(NotPreparedError):
            plan(reference, data_dir=url, shards_dir=tmp_path)
    with pytest.raises(InvalidOptionError, match="copy the version to this machine"):
        plan("far", data_dir=url, shards_dir=tmp_path, bucket_by="text")
    with pytest.raises(InvalidOptionError, match="shuffle_window=-1"):
        plan("far", data_dir=url, shards_dir=tmp_path, shuffle_window=-1)
    with pytest.raises(DataDirError, match="password"):
        plan("far", data_dir="s3://key:secret@bucket/data", shards_dir=tmp_path)
    made = plan("far", data_dir=url, shards_dir=tmp_path)
    shard = next(Path(tmp_path).rglob("*.tfrecord-00003*"), None)
    if shard is not None:
        shard.unlink()
    put("data/far/1.0.0/far-train.tfrecord-00003-of-00012", b"other")
    with pytest.raises((CorruptShardError, PlanError), match=r"is not the file|other data"):
        list(my_datasets.batches(made))


@pytest.mark.parametrize("has_state", [True, False])
def test_a_planted_copy_is_not_read(store, local, tmp_path, monkeypatch, has_state):
    options = {"data_dir": store[0], "shards_dir": tmp_path / "copies", "split": "train[:25%]"}
    expected = list(my_datasets.source("far", data_dir=local, split="train[:25%]"))
    assert list(my_datasets.source("far", **options)) == expected
    shard, *_ = found = copies(tmp_path / "copies")
    before, data = shard.stat(), bytearray(shard.read_bytes())
    length = int.from_bytes(data[:8], "little")
    body = bytearray(data[tfrecord.HEADER : tfrecord.HEADER + length])
    body[body.rindex(b"x")] = ord("y")
    data[: length + tfrecord.OVERHEAD] = tfrecord.framed_one(bytes(body))  # with the right checksum
    shard.write_bytes(data)
    os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))
    if not has_state:
        monkeypatch.setenv("MY_DATASETS_HOME", str(tmp_path / "home"))
    assert list(my_datasets.source("far", **options)) == expected
    assert copies(tmp_path / "copies") == found


def test_copies_of_earlier_versions_are_used(store, local, tmp_path, monkeypatch):
    """They lay in the version's directory itself."""
    options = {"data_dir": store[0], "shards_dir": tmp_path / "copies", "split": "train[:25%]"}
    found = list(my_datasets.source("far", **options))
    before = copies(tmp_path / "copies")
    for path in before:
        path.unlink()
        shutil.copy(local / "far" / "1.0.0" / path.name, path)
    for folder in (tmp_path / "copies").rglob(".shards"):
        shutil.rmtree(folder)
    before[0].write_bytes(bytes(before[0].stat().st_size))  # one that was damaged since
    urls, read = [], bucket_version._read
    monkeypatch.setattr(bucket_version, "_read", lambda url: urls.append(url) or read(url))
    assert list(my_datasets.source("far", **options)) == found
    assert [url for url in urls if "tfrecord-" in url] == [f"{store[0]}/far/1.0.0/{before[0].name}"]
    assert all(path.is_symlink() for path in before)


def test_another_machine_hashes_copies_and_fetches_no_shard_again(
    store, tmp_path, monkeypatch, fetched
):
    options = {"data_dir": store[0], "shards_dir": tmp_path / "copies", "split": "train[:25%]"}
    list(my_datasets.source("far", **options))
    before = {path: path.stat() for path in copies(tmp_path / "copies")}
    monkeypatch.setenv("MY_DATASETS_HOME", str(tmp_path / "home"))
    fetched.clear()
    list(my_datasets.source("far", **options))
    assert {path: path.stat() for path in copies(tmp_path / "copies")} == before
    assert not fetched


@pytest.mark.parametrize("depth", ["folder", "version"])
def test_nothing_is_written_or_deleted_where_links_lead(store, tmp_path, depth):
    victim = tmp_path / "victim"
    victim.mkdir()
    names = ("notes.txt", "dataset_info.json", "far-train.tfrecord-00000-of-00012")
    for name in names:
        (victim / name).write_text("mine")
    options = {"data_dir": store[0], "shards_dir": tmp_path / "copies"}
    my_datasets.source("far", **options)
    (folder,) = (tmp_path / "copies").glob("*/far")
    link = folder if depth == "folder" else folder / "1.0.0"
    shutil.rmtree(link)
    link.symlink_to(victim)
    with pytest.raises(DataDirError, match="is a link, or in one"):
        my_datasets.source("far", **options)
    assert {path.name: path.read_text() for path in victim.iterdir()} == dict.fromkeys(
        names, "mine"
    )


@pytest.mark.parametrize("key", ["../../../evil.json", "1.0.0/../../../../evil.txt", "./a.json"])
def test_no_name_in_a_bucket_leads_elsewhere(local, tmp_path, key):
    copies_at = tmp_path / "a" / "b" / "c" / "copies"
    with servers.s3(f"evil{len(key)}") as (url, put):
        for path in local.rglob("*"):
            if path.is_file():
                put(f"data/{path.relative_to(local).as_posix()}", path.read_bytes())
        put(f"data/far/{key}", b"evil")
        with pytest.raises(DataDirError, match="lists a file that is not in it"):
            my_datasets.source("far", data_dir=f"{url}/data", shards_dir=copies_at)
    outside = list(tmp_path.rglob("evil.*"))
    assert [path for path in outside if copies_at not in path.parents] == []
