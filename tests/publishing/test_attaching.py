"""Streaming: what comes from a store through a small cache is what a pull brings."""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import filelock
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

import my_datasets
from my_datasets.core.version import VersionNumber
from my_datasets.errors import (
    CorruptReleaseError,
    DataDirError,
    DiskFullError,
    InvalidOptionError,
    LockError,
    NotPreparedError,
    ReleaseNotFoundError,
    SignatureError,
    SplitNotFoundError,
    YankedError,
)
from my_datasets.publishing import admin
from my_datasets.publishing.catalog_client import CatalogClient
from my_datasets.publishing.model.rollback_state import RollbackState
from my_datasets.publishing.model.signing import Signer, TrustedKeys
from my_datasets.publishing.publisher import publish
from my_datasets.records import attachments
from my_datasets.records.attachments import Attachment
from my_datasets.resolving.lock import Lock, Locked
from my_datasets.storage.backends import open_store
from my_datasets.storage.retry import RetryingStore
from my_datasets.storage.user_folders import state_folder
from tests.publishing import made
from tests.publishing.test_signing import keygen
from tests.publishing.web import serving
from tests.waiting import LONGEST_SECONDS

ROWS, SHARDS = 400, 10
# Of a shard of train: 40 examples of 4 kB. Those of test have one example each.
SHARD = 170_000


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A version of several shards; nobody changes it."""
    return made.make(tmp_path_factory.mktemp("wide"), rows=ROWS, shards=SHARDS)


@pytest.fixture(scope="module")
def store(tmp_path_factory, wide):
    """A store with that version; nobody changes it."""
    directory = tmp_path_factory.mktemp("store")
    publish(str(wide), directory)
    return directory


def noted():
    """The directories that this user's state says are attached."""
    files = state_folder("attached").glob("*.json")
    return {Path(json.loads(path.read_text())["version_dir"]) for path in files}


def test_directories_that_are_gone_are_forgotten(store, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_DATASETS_HOME", str(tmp_path / "home"))
    paths = [
        my_datasets.attach("released", store, tmp_path / name, cache_bytes="100M").path
        for name in ("gone", "stays")
    ]
    assert noted() == set(paths)
    shutil.rmtree(tmp_path / "gone")
    (state_folder("attached") / "other.json").write_text("{")
    new = my_datasets.attach("released", store, tmp_path / "new", cache_bytes="100M").path
    (state_folder("attached") / "other.json").unlink()
    assert noted() == {paths[1], new}
    assert len(list(my_datasets.source(paths[1], split="test"))) == 10


@pytest.fixture
def own_store(store, tmp_path):
    """A copy of it, to be changed."""
    return shutil.copytree(store, tmp_path / "own_store")


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def shards_in(cache):
    """The shards that lie in a cache, and their sizes, at one moment."""
    directory = cache / "shards"
    with filelock.FileLock(directory / ".lock"):
        found = {}
        for path in directory.glob("[!.]*"):
            with contextlib.suppress(FileNotFoundError):
                state = path.stat()
                found[state.st_ino] = (path.name, state.st_size)
    return dict(found.values())


class Looking(threading.Thread):
    """Looks all the time how much lies in a cache."""

    def __init__(self, cache):
        super().__init__(daemon=True)
        self._cache = cache
        self._ended = threading.Event()
        self.most = 0

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self.join()
        self._look()

    def run(self):
        while not self._ended.wait(0.001):
            self._look()

    def _look(self):
        if (self._cache / "shards").is_dir():
            self.most = max(self.most, sum(shards_in(self._cache).values()))


def stream(store, cache, reference="released:1.*.*", *, room=SHARDS * SHARD, **options):
    return my_datasets.load(
        reference, store=store, data_dir=cache / "no_data", stream=True, cache_dir=cache,
        cache_bytes=room, **options,
    )  # fmt: skip


def rows(dataset):
    return [(int(one["number"]), one["noise"]) for one in tfds.as_numpy(dataset)]


def whole(wide, split="train", **options):
    return rows(tfds.builder_from_directory(wide).as_dataset(split=split, **options))


def test_from_each_kind_of_store_in_the_order_of_a_pull(address, wide, cache):
    publish(str(wide), address)
    with Looking(cache) as looking:
        assert rows(stream(address, cache, split="train")) == whole(wide)
        assert rows(stream(address, cache, split="test")) == whole(wide, "test")
        attached = my_datasets.attach("released", address, cache, cache_bytes=6 * SHARD)
        options = {"batch_size": 30, "seed": 3, "epochs": 2, "shuffle_window": 2}
        batches = list(my_datasets.batches(attached, **options))
    assert 0 < looking.most <= SHARDS * SHARD
    for one, other in zip(batches, my_datasets.batches(wide, **options), strict=True):
        assert one["number"].tolist() == other["number"].tolist()
        assert one["noise"].tolist() == other["noise"].tolist()


def test_who_asks_is_not_forgotten(gcs_bucket, wide, cache):
    address = f"{gcs_bucket}/for_all"
    assert address.startswith("gs://anonymous@")
    publish(str(wide), address)
    attached = my_datasets.attach("released", address, cache)
    assert Attachment.find(attached.path).store == address
    assert len(list(my_datasets.source(attached, split="test"))) == 10


@pytest.mark.parametrize("ranges", [True, False])
def test_from_any_web_server(store, wide, cache, ranges):
    with serving(store, ranges=ranges) as (url, _):
        assert rows(stream(url, cache, split="train[5%:95%]")) == whole(wide, "train[5%:95%]")


@pytest.mark.parametrize(
    "options",
    [
        {"split": "train[33:101]+test"},
        {"split": "train", "shuffle_files": True, "read_config": {"shuffle_seed": 5}},
        {"split": "train", "read_config": {"add_tfds_id": True}},
        {"split": "train[10:]", "read_config": {"add_tfds_id": True}},
        {"split": "train", "read_config": {"interleave_cycle_length": 3}},
        {"split": "train", "read_config": {"interleave_cycle_length": 1}, "batch_size": 7},
        {"split": "train", "read_config": {"experimental_interleave_sort_fn": lambda x: x[::-1]}},
        {"split": "train", "read_config": {
            "input_context": tf.distribute.InputContext(num_input_pipelines=3, input_pipeline_id=1)
        }},
        {"split": "test", "batch_size": -1},
        {"split": ["train[:10]", "test"]},
        {"split": None},
        {"split": "train", "decoders": {"noise": tfds.decode.SkipDecoding()}},
        {"split": "train", "decoders": tfds.decode.PartialDecoding({"number": True})},
    ],
)  # fmt: skip
def test_load_gives_what_it_gives_of_a_version_that_is_here(options, store, wide, cache):
    config = tfds.ReadConfig(**options.get("read_config", {}))
    options = {name: value for name, value in options.items() if name != "read_config"}
    ours = stream(store, cache, **options, read_config=config)
    theirs = tfds.builder_from_directory(wide).as_dataset(**options, read_config=config)
    if options.get("batch_size") != -1:
        specs = [
            tf.nest.map_structure(lambda one: (one.element_spec, int(one.cardinality())), some)
            for some in (ours, theirs)
        ]
        assert specs[0] == specs[1]
    tf.nest.map_structure(assert_same, ours, theirs)


def assert_same(ours, theirs):
    if not isinstance(theirs, tf.data.Dataset):
        assert np.array_equal(ours, theirs)
        return
    for one, other in zip(ours, theirs, strict=True):
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[name], other[name]) for name in one)


def test_input_and_target(tmp_path, cache):
    my_datasets.load("digits", data_dir=tmp_path)
    publish("digits", tmp_path / "store", data_dir=tmp_path)
    options = {"split": "test", "as_supervised": True, "batch_size": 50, "with_info": True}
    ours, info = stream(tmp_path / "store", cache, "digits", **options)
    theirs, _ = my_datasets.load("digits", data_dir=tmp_path, **options)
    assert (ours.element_spec, info.full_name) == (theirs.element_spec, "digits/1.0.0")
    for one, other in zip(ours, theirs, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    with pytest.raises(SplitNotFoundError, match="no split 'valid'"):
        stream(tmp_path / "store", cache, "digits", split="valid")


def asked_for(asked):
    """The shards that were asked for, each as often as it was."""
    names = [path.rpartition("/")[2] for method, path, _ in asked if method == "GET"]
    return sorted(name for name in names if "tfrecord" in name and not name.endswith(".npy"))


def test_only_what_is_read_comes(store, wide, cache):
    with serving(store) as (url, asked):
        assert rows(stream(url, cache, split="train[10%:20%]")) == whole(wide, "train[10%:20%]")
        assert asked_for(asked) == ["released-train.tfrecord-00001-of-00010"]
        attached = my_datasets.attach("released", url, cache, cache_bytes="100M")
        source = my_datasets.source(attached)
        assert source[399] == my_datasets.source(wide)[399]
        assert len(asked_for(asked)) == 2
        assert rows(stream(url, cache, split="train[10%:20%]")) == whole(wide, "train[10%:20%]")
        assert len(asked_for(asked)) == 2  # another reader, with another bound, has it, too
    assert not [path for _, path, _ in asked if "my_datasets_keys" in path]


def test_the_bound_holds(store, wide, cache):
    one_in_turn = {"read_config": tfds.ReadConfig(interleave_cycle_length=1), "split": "train"}
    with Looking(cache) as looking:
        found = rows(stream(store, cache, room=2 * SHARD, **one_in_turn))
    assert found == whole(wide, **one_in_turn)
    assert SHARD * 0.9 < looking.most <= 2 * SHARD
    attached = my_datasets.attach("released", store, cache, cache_bytes=3 * SHARD)
    options = {"batch_size": 16, "shuffle_window": 1}
    with Looking(cache) as looking:
        found = [one["number"].tolist() for one in my_datasets.batches(attached, **options)]
        with_tensorflow = [
            one["number"].numpy().tolist() for one in my_datasets.pipeline(attached, **options)
        ]
    assert looking.most <= 3 * SHARD
    there = [one["number"].tolist() for one in my_datasets.batches(wide, **options)]
    assert found == with_tensorflow == there


def test_plans_and_positions_are_those_of_a_pull(store, wide, cache):
    attached = my_datasets.attach("released", store, cache)
    made_of = my_datasets.plan(attached, batch_size=32)
    assert f"up to 12 shards at {cache}/shards" in made_of.explain()
    assert my_datasets.Plan.from_json(made_of.to_json()) == made_of
    here = my_datasets.plan(wide, batch_size=32, shuffle_window=4)
    assert made_of.beginning == here.beginning
    batches = my_datasets.batches(here)
    first = [one["number"].tolist() for one, _ in zip(batches, range(5), strict=False)]
    rest = my_datasets.batches(made_of, state=my_datasets.pipeline(here).state_after(5))
    there = [one["number"].tolist() for one in my_datasets.batches(here)]
    assert first + [one["number"].tolist() for one in rest] == there
    loader = my_datasets.torch_loader(made_of, workers=2)
    assert [one["number"].tolist() for one in loader] == there


def test_the_copy_that_is_here_is_taken(store, tmp_path, cache):
    options = {"data_dir": tmp_path, "cache_dir": cache, "split": "test", "stream": True}
    with serving(store) as (url, asked):
        my_datasets.pull("released", url, tmp_path)
        asked.clear()
        assert len(my_datasets.load("released", store=url, **options)) == 10
        assert asked_for(asked) == []
    assert not cache.exists()
    # Other data under that version are in nobody's way.
    made.make(tmp_path / "other", salt="other")
    options["data_dir"] = tmp_path / "other"
    assert len(my_datasets.load("released", store=store, **options)) == 10
    assert cache.exists()


def test_without_room_for_all_of_it_it_is_streamed(store, wide, tmpfs, cache, caplog):
    options = {"store": store, "split": "train", "data_dir": tmpfs("1m"), "cache_dir": cache}
    with pytest.raises(DiskFullError):
        my_datasets.load("released", **options, stream=False)
    found = my_datasets.load("released", **options, cache_bytes=SHARDS * SHARD)
    assert "Streaming released:1.0.0 from" in caplog.text
    assert "there is no room for it (There is not enough room" in caplog.text
    assert rows(found) == whole(wide)


def damage(store, number):
    """Changes a byte in a shard; its size and time stay."""
    path = store / "released/1.0.0" / f"released-train.tfrecord-0000{number}-of-00010"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_nothing_of_a_damaged_shard_is_given(own_store, wide, cache):
    damage(own_store, 4)
    attached = my_datasets.attach("released", own_store, cache)
    source, good = my_datasets.source(attached), my_datasets.source(wide)
    assert source[159] == good[159]
    for number in (160, 199):  # whichever byte it is
        with pytest.raises(CorruptReleaseError, match=r"00004-of-00010 in .* is not what was publ"):
            source[number]
    assert source[200] == good[200]
    with pytest.raises(CorruptReleaseError):
        list(my_datasets.batches(attached))
    seen = []
    one_in_turn = tfds.ReadConfig(interleave_cycle_length=1)
    found = stream(own_store, cache, split="train", read_config=one_in_turn)
    with pytest.raises(tf.errors.OpError, match="is not what was published"):
        seen.extend(int(one["number"]) for one in found)
    assert len(seen) <= 160
    assert seen == [number for number, _ in whole(wide, read_config=one_in_turn)][: len(seen)]
    assert not (attached.path / "released-train.tfrecord-00004-of-00010").exists()
    assert (attached.path / "released-train.tfrecord-00003-of-00010").exists()


def test_a_store_that_is_emptied_midway(own_store, cache):
    source = my_datasets.source(my_datasets.attach("released", own_store, cache))
    first = source[0]
    shutil.rmtree(own_store / "released")
    assert source[0] == first
    with pytest.raises(
        CorruptReleaseError, match=r"it is (not there|missing)(.|\n)*ask the publisher"
    ):
        source[399]


_READER = """
import sys
import my_datasets
attached = my_datasets.attach("released", sys.argv[1], sys.argv[2], cache_bytes=int(sys.argv[3]))
print("ready", flush=True)
sys.stdin.readline()
for batch in my_datasets.batches(attached, shuffle_window=2, seed=int(sys.argv[4])):
    print(*batch["number"], flush=True)
"""


def reader(url, cache, room, seed, root):
    process = subprocess.Popen(
        [sys.executable, "-c", _READER, url, cache, str(room), str(seed)], cwd=root, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n", process.communicate()[1]
    return process


def test_processes_share_a_cache(store, cache, root):
    with serving(store) as (url, asked):
        readers = [reader(url, cache, SHARDS * SHARD, seed, root) for seed in (1, 2)]
        for one in readers:
            one.stdin.write("\n")
            one.stdin.flush()
        for one in readers:
            out, error = one.communicate()
            assert sorted(map(int, out.split())) == list(range(ROWS)), error
    assert len(asked_for(asked)) == SHARDS  # each came once


def test_processes_share_too_little_room(store, cache, root):
    """Each has what it needs, and takes away from the other what that does not read just now."""
    readers = [reader(store, cache, 6 * SHARD, seed, root) for seed in (1, 2)]
    for one in readers:
        one.stdin.write("\n")
        one.stdin.flush()
    for one in readers:
        out, error = one.communicate()
        assert sorted(map(int, out.split())) == list(range(ROWS)), error
    my_datasets.source(my_datasets.attach("released", store, cache, cache_bytes=6 * SHARD))[0]


def test_a_reader_that_is_killed_while_a_shard_comes(store, wide, cache, root):
    halfway, go_on = threading.Event(), threading.Event()

    def stop_halfway(handler, path):
        if not path.endswith("-00010") or "train" not in path or go_on.is_set():
            return False
        data = (store / path).read_bytes()
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        with contextlib.suppress(OSError):
            handler.wfile.write(data[: len(data) // 2])
            handler.wfile.flush()
            halfway.set()
            go_on.wait()
        handler.close_connection = True
        return True

    with serving(store, answer=stop_halfway) as (url, _):
        process = reader(url, cache, SHARDS * SHARD, 1, root)
        process.stdin.write("\n")
        process.stdin.flush()
        assert halfway.wait(60)
        assert [name for name in shards_in(cache) if name.endswith(".partial")]
        process.send_signal(signal.SIGKILL)
        process.communicate()
        go_on.set()
        assert rows(stream(url, cache, split="train")) == whole(wide)
    assert len([name for name in shards_in(cache) if not name.startswith(".")]) == SHARDS


_LEAVER = """
import sys
import my_datasets
attached = my_datasets.attach("released", sys.argv[1], sys.argv[2])
records = my_datasets.source(attached).records
records.fetch.prefetch(path for path, _ in records.runs())
sys.stdin.readline()
"""


def test_what_is_on_its_way_keeps_no_process_from_ending(store, cache, root):
    asked_for_one, go_on = threading.Event(), threading.Event()

    def stall(_, path):
        if path.endswith("-00010"):
            asked_for_one.set()
            go_on.wait()
        return False

    with serving(store, answer=stall) as (url, _):
        process = subprocess.Popen(
            [sys.executable, "-c", _LEAVER, url, cache], cwd=root, stdin=subprocess.PIPE
        )
        assert asked_for_one.wait(LONGEST_SECONDS)
        process.communicate(b"\n", timeout=LONGEST_SECONDS)
        go_on.set()
    assert process.returncode == 0


def test_attaching_that_was_killed_is_begun_again(store, cache, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "symlink_to", killed)
    with pytest.raises(KeyboardInterrupt):
        my_datasets.attach("released", store, cache)
    monkeypatch.undo()
    assert not list(cache.rglob(attachments.FILE_NAME))
    attached = my_datasets.attach("released", store, cache)
    assert len(my_datasets.source(attached, split="test")) == 10
    assert my_datasets.attach("released:1.0.0", store, cache) == attached


def test_what_pull_refuses_is_refused(store, own_store, cache, tmp_path, monkeypatch):
    ledger = CatalogClient(RetryingStore(open_store(own_store)))
    with pytest.raises(ReleaseNotFoundError):
        my_datasets.attach("released:3.*.*", own_store, cache)
    admin.yank(ledger, "released:1.0.0", "labels are wrong")
    for attempt in (my_datasets.attach, lambda name, store, cache: stream(store, cache, name)):
        with pytest.raises(YankedError, match="labels are wrong"):
            attempt("released:1.0.0", own_store, cache)
    monkeypatch.setenv("MY_DATASETS_LOCK", str(tmp_path / "lock"))
    Lock(tmp_path / "lock", {"released": Locked(None, VersionNumber(1, 0, 0), "0" * 64)}).write()
    with pytest.raises(LockError):
        my_datasets.attach("released", store, cache)


def test_signatures(built, tmp_path, cache):
    """Unsigned, signed by others, altered, and an older state than was seen."""
    alice, mallory = (Signer.read(keygen(tmp_path / name)) for name in ("alice", "mallory"))
    trusted = TrustedKeys.read((tmp_path / "alice").with_suffix(".pub"))
    memory = RollbackState(tmp_path / "memory")
    options = {"keys": trusted, "memory": memory}
    publish(str(built("1.0.0")), tmp_path / "unsigned")
    publish(str(built("1.0.0")), tmp_path / "others", signer=mallory)
    for name in ("unsigned", "others"):
        with pytest.raises(SignatureError):
            my_datasets.attach("released", tmp_path / name, cache, **options)
    store = tmp_path / "store"
    publish(str(built("1.0.0")), store, signer=alice)
    assert my_datasets.attach("released", store, cache, **options).name == "released:1.0.0"
    old = shutil.copytree(store, tmp_path / "old")
    publish(str(built("1.1.0")), store, signer=alice)
    assert my_datasets.attach("released", store, cache, **options).name == "released:1.1.0"
    shutil.rmtree(store)
    shutil.copytree(old, store)
    with pytest.raises(SignatureError, match="older state"):
        my_datasets.attach("released", store, cache, **options)
    record = store / "released/1.0.0/my_datasets_release.json"
    record.write_bytes(record.read_bytes().replace(b"features.json", b"feature5.json"))
    with pytest.raises(CorruptReleaseError):
        my_datasets.attach(
            "released", store, cache, keys=trusted, memory=RollbackState(tmp_path / "new")
        )


def test_metadata_are_verified(own_store, cache):
    path = own_store / "released/1.0.0/features.json"
    path.write_bytes(path.read_bytes().replace(b"noise", b"n0ise"))
    with pytest.raises(CorruptReleaseError, match=r"features\.json in .* is not what was publ"):
        my_datasets.attach("released", own_store, cache)
    assert not list(cache.rglob(attachments.FILE_NAME))


def test_too_little_room_is_reported_at_once(store, cache):
    with pytest.raises(InvalidOptionError, match=r"A shard of .* has 15(.|\n)*cache_bytes=16"):
        my_datasets.attach("released", store, cache, cache_bytes="100K")
    with pytest.raises(InvalidOptionError, match=r"10 shards(.|\n)*interleave_cycle_length"):
        stream(store, cache, split="train", room=5 * SHARD)
    attached = my_datasets.attach("released", store, cache, cache_bytes=5 * SHARD)
    with pytest.raises(InvalidOptionError, match=r"10 shards(.|\n)*shuffle_window"):
        my_datasets.batches(attached)
    with pytest.raises(InvalidOptionError, match="not a size"):
        my_datasets.attach("released", store, cache, cache_bytes="much")
    # One after the other they have room all the same.
    assert len(list(my_datasets.source(attached))) == ROWS


def test_examples_that_have_an_order_keep_it(tmp_path, cache):
    class Ordered(made.Released, skip_registration=True):
        name = made.NAME

        def _info(self):
            features = {"number": np.int64, "noise": tfds.features.Text()}
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features), disable_shuffling=True
            )

    version = made.make(tmp_path / "built", base=Ordered, shards=3)
    publish(str(version), tmp_path / "store")
    assert [number for number, _ in rows(stream(tmp_path / "store", cache, split="train"))] == [
        *range(made.ROWS)
    ]
    with pytest.raises(InvalidOptionError, match="have an order, which would be lost"):
        stream(tmp_path / "store", cache, split="train", shuffle_files=True)
    several = tf.distribute.InputContext(num_input_pipelines=9)
    with pytest.raises(InvalidOptionError, match="3 files are not enough for 9 readers"):
        stream(
            tmp_path / "store", cache, split="train",
            read_config=tfds.ReadConfig(input_context=several),
        )  # fmt: skip


def test_other_formats_are_not_streamed(tmp_path, cache):
    config = tfds.download.DownloadConfig(num_shards=1)
    builder = made.Released(data_dir=tmp_path / "built", file_format="array_record")
    builder.download_and_prepare(download_config=config)
    publish(str(builder.data_dir), tmp_path / "store")
    with pytest.raises(DataDirError, match="has array_record files"):
        my_datasets.attach("released", tmp_path / "store", cache)


def test_what_cannot_be_done_is_reported(store, cache):
    attached = my_datasets.attach("released", store, cache)
    with pytest.raises(InvalidOptionError, match="cannot be mixed"):
        my_datasets.mix([attached, attached])
    with pytest.raises(InvalidOptionError, match="for their lengths"):
        my_datasets.plan(attached, bucket_by="noise")
    with pytest.raises(InvalidOptionError, match="has no examples"):
        stream(store, cache, split="train[:0]")
    moved = attached.path.rename(cache / "moved")
    with pytest.raises(NotPreparedError, match="attach the release again"):
        my_datasets.source(moved)
