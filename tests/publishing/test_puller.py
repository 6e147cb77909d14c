"""Pulling: the bytes that were published, whole, verified, or nothing."""

import hashlib
import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tensorflow_datasets as tfds

from my_datasets.core.version import VersionNumber
from my_datasets.errors import (
    CorruptReleaseError,
    DiskFullError,
    InvalidOptionError,
    LockError,
    OverwriteError,
    ReleaseNotFoundError,
    SplitNotFoundError,
    StoreError,
    StoreUnavailableError,
)
from my_datasets.metadata.manifest import Manifest
from my_datasets.publishing.model import record
from my_datasets.publishing.publisher import publish
from my_datasets.publishing.puller import pull
from my_datasets.resolving.lock import Lock, Locked
from my_datasets.storage.backends import open_store
from my_datasets.storage.backends.local import LocalStore
from my_datasets.verification.verifier import Level, verify
from tests.publishing import made
from tests.publishing.web import serving


@pytest.fixture
def published(store, built):
    publish(str(built()), store)
    return store


@pytest.fixture(scope="module")
def directory(tmp_path_factory, data_dir):
    """A store in a directory, with three releases; nobody changes it."""
    where = tmp_path_factory.mktemp("store")
    for version in ("1.0.0", "1.1.0", "2.0.0"):
        publish(str(data_dir / made.NAME / version), where)
    return where


class Counting(LocalStore):
    """Counts what is read of shards."""

    def __init__(self, directory):
        super().__init__(directory)
        self.came = 0

    def read(self, path, begin=0, end=None):
        for data in super().read(path, begin, end):
            self.came += len(data)
            yield data


def same_as_built(path, built):
    there = made.contents(path)
    there.pop(record.FILE_NAME, None)
    assert there == made.contents(built)


def test_a_release_becomes_a_version(published, built, tmp_path):
    told = []
    done = pull("released:1.*.*", published, tmp_path, report=told.append)
    assert (done.name, done.path, done.was_there) == (
        "released:1.0.0", tmp_path / "released" / "1.0.0", False
    )  # fmt: skip
    same_as_built(done.path, built())
    assert verify(done.path, level=Level.DEEP).issues == ()
    assert made.numbers(done.path) == list(range(made.ROWS))
    assert len(tfds.load("released", split="test", data_dir=tmp_path)) == 10
    assert sorted(path.name for path in done.path.parent.iterdir()) == [".1.0.0.lock", "1.0.0"]
    assert told[-1].done == told[-1].total
    again = pull("released", published, tmp_path)
    assert (again.was_there, again.downloaded) == (True, 0)


def test_from_any_web_server(directory, built, tmp_path):
    for ranges in (True, False):
        with serving(directory, ranges=ranges) as (url, _):
            done = pull("released:1.0.0", url, tmp_path / str(ranges))
        same_as_built(done.path, built())


def test_wildcards(directory, tmp_path):
    for wanted, version in {
        "released": "2.0.0", "released:1.*.*": "1.1.0", "released:*.0.*": "2.0.0",
        "released:1.0.0": "1.0.0",
    }.items():  # fmt: skip
        assert pull(wanted, directory, tmp_path).path.name == version
    with pytest.raises(ReleaseNotFoundError, match=r"Versions: 1\.0\.0, 1\.1\.0, 2\.0\.0"):
        pull("released:3.*.*", directory, tmp_path)
    with pytest.raises(ReleaseNotFoundError, match="Versions: none"):
        pull("releases", directory, tmp_path)
    with pytest.raises(StoreError, match="There is no store at"):
        pull("released", tmp_path / "nothing", tmp_path)
    with pytest.raises(InvalidOptionError, match="must be on this machine"):
        pull("released", directory, "gs://bucket/data")


def test_configs(tmp_path):
    for config in ("small", "large"):
        version = made.make(tmp_path / "built", base=made.InConfigs, config=config)
        publish(str(version), tmp_path / "store")
    done = pull(made.CONFIGURED, tmp_path / "store", tmp_path / "here")
    assert done.path == tmp_path / "here" / made.CONFIGURED / "small" / "1.0.0"
    pull(f"{made.CONFIGURED}/large:1.*.*", tmp_path / "store", tmp_path / "here")
    _, info = tfds.load(made.CONFIGURED, data_dir=tmp_path / "here", with_info=True)
    assert info.config_name == "small"
    with pytest.raises(ReleaseNotFoundError, match="Configs: large, small"):
        pull(f"{made.CONFIGURED}/other", tmp_path / "store", tmp_path / "here")


def test_some_splits_and_then_all(directory, tmp_path, built):
    done = pull("released:1.0.0", directory, tmp_path, splits=["test"])
    assert done.splits == ("test",)
    assert len(tfds.load("released", split="test", data_dir=tmp_path)) == 10
    assert set(tfds.builder_from_directory(done.path).info.splits) == {"test"}
    assert not list(done.path.glob("*-train*"))
    assert verify(done.path, level=Level.DEEP).issues == ()
    assert Manifest.read(done.path).options == {"splits": ["test"]}
    assert pull("released:1.0.0", directory, tmp_path, splits=["test"]).was_there
    with pytest.raises(SplitNotFoundError, match=r"no split 'valid'.(.|\n)*splits: train, test"):
        pull("released:1.0.0", directory, tmp_path, splits=["test", "valid"])
    more = pull("released:1.0.0", directory, tmp_path, splits=["train"])
    assert more.splits is None
    assert more.linked == sum(len(b) for name, b in made.contents(built()).items()
                              if "test" in name and not name.endswith(".npy"))  # fmt: skip
    same_as_built(more.path, built())
    assert pull("released:1.0.0", directory, tmp_path, splits=["test"]).was_there


def test_all_after_some_splits(directory, tmp_path, built):
    pull("released:1.0.0", directory, tmp_path, splits=["test"])
    done = pull("released:1.0.0", directory, tmp_path)
    same_as_built(done.path, built())
    assert sorted(path.name for path in done.path.parent.iterdir()) == [".1.0.0.lock", "1.0.0"]


def test_shards_that_are_here_are_not_downloaded(tmp_path, built, data_dir):
    # The same examples and shards, and a patch of what is said of them.
    again = tmp_path / "built" / "released" / "1.0.1"
    made.make(tmp_path / "built", "1.0.1")
    publish(str(built()), tmp_path / "store")
    publish(str(again), tmp_path / "store")
    pull("released:1.0.0", tmp_path / "store", tmp_path / "here")
    done = pull("released:1.0.1", tmp_path / "store", tmp_path / "here")
    shards = [path for path in again.iterdir() if path.name.endswith("-of-00004")]
    assert done.linked == sum(path.stat().st_size for path in shards) > 250_000
    assert done.downloaded < 100_000
    same_as_built(done.path, again)
    # One that was damaged since is not taken.
    shutil.rmtree(done.path)
    shard = done.path.parent / "1.0.0" / shards[0].name
    shard.write_bytes(bytes(shard.stat().st_size))
    done = pull("released:1.0.1", tmp_path / "store", tmp_path / "here")
    same_as_built(done.path, again)


def test_other_data_here_are_not_replaced_unasked(directory, tmp_path, built):
    mine = made.make(tmp_path, salt="mine")
    before = made.contents(mine)
    with pytest.raises(OverwriteError, match="has other data than the release"):
        pull("released:1.0.0", directory, tmp_path)
    assert made.contents(mine) == before
    done = pull("released:1.0.0", directory, tmp_path, overwrite=True)
    same_as_built(done.path, built())


def test_what_was_built_here_alike_is_taken(directory, tmp_path):
    made.make(tmp_path)
    assert pull("released:1.0.0", directory, tmp_path).was_there


def test_the_lock_holds(directory, tmp_path, built, monkeypatch):
    monkeypatch.setenv("MY_DATASETS_LOCK", str(tmp_path / "lock"))

    def lock(digest):
        locked = {"released:1.*.*": Locked(None, VersionNumber(1, 0, 0), digest)}
        Lock(tmp_path / "lock", locked).write()

    lock(Manifest.read(built("1.1.0")).content.digest)
    with pytest.raises(LockError, match="other data under the version that is locked"):
        pull("released:1.*.*", directory, tmp_path)
    assert pull("released:1.*.*", directory, tmp_path, use_lock=False).path.name == "1.1.0"
    lock(Manifest.read(built()).content.digest)
    assert pull("released:1.*.*", directory, tmp_path).path.name == "1.0.0"


class Cuts(LocalStore):
    """Loses each connection after some bytes; for good, after so many connections."""

    def __init__(self, directory, after, connections=10**9):
        super().__init__(directory)
        self.after, self.connections, self.came = after, connections, 0

    def read(self, path, begin=0, end=None):
        self.connections -= 1
        if self.connections < 0:
            raise StoreUnavailableError("no connection")
        left = self.after
        for block in super().read(path, begin, end):
            for i in range(0, len(block), 5000):
                self.came += len(block[i : i + 5000])
                yield block[i : i + 5000]
                left -= 5000
                if left <= 0:
                    raise StoreUnavailableError("cut")


def test_connections_that_drop(directory, tmp_path, built, impatient):
    store = Cuts(directory, after=20_000)
    done = pull("released:1.0.0", store, tmp_path, patience=impatient)
    same_as_built(done.path, built())
    assert store.came == done.downloaded  # nothing came twice


def test_it_resumes_where_it_was(directory, tmp_path, built, impatient):
    cut = Cuts(directory, after=20_000, connections=12)
    with pytest.raises(StoreUnavailableError, match="no connection"):
        pull("released:1.0.0", cut, tmp_path, patience=impatient)
    assert not (tmp_path / "released" / "1.0.0").exists()
    store = Counting(directory)
    done = pull("released:1.0.0", store, tmp_path)
    same_as_built(done.path, built())
    total = sum(map(len, made.contents(built()).values()))
    assert store.came == done.downloaded == total - cut.came
    assert cut.came > 100_000


def test_a_beginning_of_something_else_is_given_up(directory, tmp_path, built, impatient):
    with pytest.raises(StoreUnavailableError):
        pull("released:1.0.0", Cuts(directory, 20_000, 12), tmp_path, patience=impatient)
    for partial in (tmp_path / "released" / ".1.0.0.pull").glob("*.partial"):
        partial.write_bytes(b"x" * partial.stat().st_size)
    same_as_built(pull("released:1.0.0", directory, tmp_path).path, built())


@pytest.mark.parametrize("damage", ["bit", "short", "long", "gone", "swapped"])
@pytest.mark.parametrize("file", ["features.json", "released-train.tfrecord-00001-of-00004"])
def test_damaged_bytes_never_become_visible(tmp_path, built, damage, file):
    publish(str(built()), tmp_path / "store")
    path = tmp_path / "store" / "released" / "1.0.0" / file
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    other = path.with_name("released-train.tfrecord-00002-of-00004").read_bytes()
    path.unlink()
    if damage != "gone":
        path.write_bytes({
            "bit": bytes(data), "short": bytes(data[:-1]), "long": bytes(data) + b"1",
            "swapped": other,
        }[damage])  # fmt: skip
    with pytest.raises(CorruptReleaseError, match=f"{file} in .* is not what was published"):
        pull("released:1.0.0", tmp_path / "store", tmp_path / "here")
    assert not (tmp_path / "here" / "released" / "1.0.0").exists()
    # Put right, the same call goes on.
    path.unlink(missing_ok=True)
    publish(str(built()), tmp_path / "store")
    same_as_built(pull("released:1.0.0", tmp_path / "store", tmp_path / "here").path, built())


def test_no_room(directory, tmp_path, tmpfs):
    small = tmpfs("150k")
    with pytest.raises(DiskFullError, match="not enough room"):
        pull("released:1.0.0", directory, small)
    assert not (small / "released" / "1.0.0").exists()


def test_a_disk_that_fills_up(directory, tmpfs, built, monkeypatch):
    """Somebody else writes there meanwhile: what came is kept, and nothing is visible."""
    monkeypatch.setattr("my_datasets.storage.disk_space.require", lambda *_: None)
    small = tmpfs("200k")
    with pytest.raises(DiskFullError, match="disk is full"):
        pull("released:1.0.0", directory, small)
    assert not (small / "released" / "1.0.0").exists()


def test_several_share_the_work(directory, tmp_path, built):
    store = Counting(directory)
    barrier = threading.Barrier(8)

    def go(_):
        barrier.wait()
        return pull("released:1.0.0", store, tmp_path)

    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(go, range(8)))
    assert sum(not one.was_there for one in done) == 1
    assert store.came == sum(map(len, made.contents(built()).values()))
    same_as_built(done[0].path, built())


def forged(store, change, data=None):
    """Publishes another record under a release, as an attacker would who owns the store."""
    path = store / "released" / "1.0.0" / record.FILE_NAME
    whole = json.loads(path.read_bytes())
    change(whole)
    text = (json.dumps(whole, sort_keys=True, indent=1) + "\n").encode("ascii")
    path.write_bytes(text)
    index = store / "my-datasets" / "index" / "released.json"
    entries = json.loads(index.read_bytes())
    entries["releases"]["1.0.0"]["record"] = hashlib.sha256(text).hexdigest()
    index.write_text(json.dumps(entries))


@pytest.mark.parametrize(
    "name",
    ["../evil", "/etc/evil", "a/../../evil", "..", ".", "", "sub/evil", "evil\0", ".hidden",
     "C:\\evil", "..\\evil", "x" * 300, "line\nbreak", 5, None, "features.json", "FEATURES.JSON"],
    ids=repr,
)  # fmt: skip
def test_no_name_leads_elsewhere(tmp_path, built, name):
    publish(str(built()), tmp_path / "store")
    evil = {"name": name, "bytes": 4, "sha256": hashlib.sha256(b"evil").hexdigest()}
    forged(tmp_path / "store", lambda whole: whole["files"].append(evil))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(CorruptReleaseError, match=r"release record at .* is invalid"):
        pull("released:1.0.0", tmp_path / "store", tmp_path / "here")
    assert sorted(tmp_path.rglob("*")) == before


def test_links_that_lie_in_wait_are_not_followed(directory, tmp_path, built):
    target = tmp_path / "precious"
    target.write_text("mine")
    work = tmp_path / "here" / "released" / ".1.0.0.pull"
    work.mkdir(parents=True)
    shutil.copy(directory / "released" / "1.0.0" / record.FILE_NAME, work)
    for name in made.contents(built()):
        (work / name).symlink_to(target)
        (work / f"{name}.partial").symlink_to(target)
    done = pull("released:1.0.0", directory, tmp_path / "here")
    same_as_built(done.path, built())
    assert not any(path.is_symlink() for path in done.path.iterdir())
    assert target.read_text() == "mine"


def test_more_bytes_than_were_said_are_not_taken(tmp_path, built):
    publish(str(built()), tmp_path / "store")

    class Endless(LocalStore):
        given = 0

        def read(self, path, begin=0, end=None):
            while True:
                self.given += 1000
                yield bytes(1000)

    store = Endless(tmp_path / "store")
    with pytest.raises(CorruptReleaseError, match="more than"):
        pull("released:1.0.0", store, tmp_path / "here", workers=1)
    assert store.given < 100_000


def test_metadata_that_do_not_fit_together(tmp_path, built):
    publish(str(built()), tmp_path / "store")
    info = tmp_path / "store" / "released" / "1.0.0" / "dataset_info.json"
    whole = json.loads(info.read_bytes())
    for change in (
        {"name": "other"}, {"version": "9.9.9"}, {"splits": "none"},
        {"splits": [{**whole["splits"][0], "filepathTemplate": "../../{SHARD_INDEX}"}]},
        {"splits": [{**whole["splits"][0], "name": "hidden"}]},
    ):  # fmt: skip
        text = json.dumps({**whole, **change}).encode()
        info.write_bytes(text)
        described = {
            "name": "dataset_info.json", "bytes": len(text),
            "sha256": hashlib.sha256(text).hexdigest(),
        }  # fmt: skip
        forged(
            tmp_path / "store",
            lambda record, mine=described: record.update(
                files=[mine if one["name"] == mine["name"] else one for one in record["files"]]
            ),
        )
        with pytest.raises(CorruptReleaseError, match="is inconsistent"):
            pull("released:1.0.0", tmp_path / "store", tmp_path / "here")
        assert not (tmp_path / "here" / "released" / "1.0.0").exists()


def test_a_store_behind_a_slow_and_failing_server(directory, tmp_path, built, impatient):
    fails = {}

    def answer(handler, path):
        fails[path] = fails.get(path, 0) + 1
        if fails[path] > 2:
            return False
        handler.send_response(503)
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return True

    with serving(directory, answer=answer) as (url, _):
        store = open_store(url)
        done = pull("released:1.0.0", store, tmp_path, patience=impatient)
    same_as_built(done.path, built())
    assert Path(done.path).is_dir()
