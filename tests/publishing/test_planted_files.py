"""What a stranger made: it deletes nothing, fetches nothing, and is not believed."""

import contextlib
import hashlib
import json
import os
import pickle
import shutil
import socketserver
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import my_datasets
from my_datasets.errors import (
    CorruptReleaseError,
    DataDirError,
    NotPreparedError,
    OverwriteError,
    StoreError,
)
from my_datasets.input_pipeline.service.work_graph import ServiceRequest
from my_datasets.metadata import manifest, sidecars
from my_datasets.metadata.dataset_info import Declared
from my_datasets.metadata.manifest import Manifest
from my_datasets.metadata.sidecars import Sidecar
from my_datasets.publishing.admin import collect_garbage
from my_datasets.publishing.catalog_client import CatalogClient
from my_datasets.publishing.model import record
from my_datasets.publishing.model.record import Record
from my_datasets.publishing.model.signing import TrustedKeys
from my_datasets.publishing.model.trust import check_signed
from my_datasets.publishing.publisher import publish
from my_datasets.publishing.puller import pull
from my_datasets.records import attachments, index
from my_datasets.resolving.lock import Lock
from my_datasets.storage.backends.local import LocalStore
from my_datasets.storage.json_files import MOST_BYTES, MOST_MANIFEST_BYTES
from my_datasets.storage.regular_files import replaced, write_whole
from my_datasets.storage.retry import RetryingStore
from my_datasets.storage.shard_cache import RemoteFile, ShardCache
from my_datasets.verification.adopt import adopt
from my_datasets.verification.verifier import Level, verify
from tests.publishing import made
from tests.publishing.test_puller import Counting, forged, same_as_built

ATTACHED = "my_datasets_attached.json"
# Bytes: the shards of a version have room for themselves, and not for a victim's file beside them.
LARGE = 400_000


@pytest.fixture
def victim(tmp_path):
    """A folder with a user's files, of all kinds of names; after the test it is as it was."""
    folder = tmp_path / "victim"
    folder.mkdir()
    for name in ("thesis.txt", "a" * 64, f"{'b' * 64}.partial", ".bashrc"):
        (folder / name).write_text(name * 100)
    (folder / "thesis.txt").write_bytes(bytes(LARGE))
    (folder / "photos").mkdir()
    before = made.contents(folder), (folder / ".bashrc").read_text()
    yield folder
    assert (made.contents(folder), (folder / ".bashrc").read_text()) == before
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["thesis.txt", "a" * 64, f"{'b' * 64}.partial", ".bashrc", "photos"]
    )


@pytest.fixture
def asked_server():
    """The address of a server that nobody may ask anything."""
    asked = []

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            asked.append(self.client_address)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/store"
        finally:
            server.shutdown()
            thread.join()
    assert asked == []


@pytest.fixture
def store(tmp_path, built):
    publish(str(built()), tmp_path / "store")
    return tmp_path / "store"


def attachment(shelf, store):
    """The file by which earlier releases of this package knew where shards come from."""
    return json.dumps({"format": 1, "store": store, "shelf": str(shelf), "most": LARGE}).encode()


def with_file(store, name, data):
    """Forges a release so that it has another file."""
    one = {"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    def change(whole):
        whole["files"] = sorted([*whole["files"], one], key=lambda file: file["name"])

    forged(store, change)
    (store / "released" / "1.0.0" / name).write_bytes(data)


@pytest.mark.parametrize("is_relative", [False, True])
@pytest.mark.parametrize("call", ["pull", "attach", "load", "stream"])
def test_a_release_that_says_where_its_shards_are(
    store, victim, asked_server, tmp_path, call, is_relative
):
    here = tmp_path / "here"
    shelf = os.path.relpath(victim, here / "released" / "1.0.0") if is_relative else victim
    with_file(store, ATTACHED, attachment(shelf, asked_server))

    def read():
        if call == "attach":
            attached = my_datasets.attach("released", store, tmp_path / "cache")
            list(my_datasets.batches(attached, split="test"))
        elif call == "pull":
            version = pull("released", store, here)
            assert verify(version.path, level=Level.DEEP).issues
            list(my_datasets.batches(version, split="test"))
        else:
            options = {"cache_dir": tmp_path / "cache", "stream": call == "stream"}
            list(my_datasets.load("released", split="test", store=store, data_dir=here, **options))

    with pytest.raises(CorruptReleaseError, match=rf"reserved file name: {ATTACHED}"):
        read()
    assert not (here / "released" / "1.0.0").exists()


def mailed(tmp_path, built, shelf, store):
    """A version's directory as somebody else sends it: shards are links to nothing."""
    version = shutil.copytree(built(), tmp_path / "mailed" / "released" / "1.0.0")
    for path in version.glob("*tfrecord-0000?-of-0000?"):
        path.unlink()
        path.symlink_to(Path(shelf, hashlib.sha256(path.name.encode()).hexdigest()))
    mine = Record.of(built())
    (version / record.FILE_NAME).write_bytes(mine.data)
    (version / ATTACHED).write_bytes(attachment(shelf, store))
    return version


READERS = {
    "source": lambda path: my_datasets.source(path, split="test")[0],
    "batches": lambda path: list(my_datasets.batches(path, split="test")),
    "pipeline": lambda path: list(my_datasets.pipeline(path, split="test")),
    "plan": lambda path: my_datasets.plan(path, split="test"),
    "grain": lambda path: my_datasets.grain_dataset(path, split="test"),
    "torch": lambda path: list(my_datasets.torch_loader(path, split="test", workers=1)),
    "by name": lambda path: list(
        my_datasets.batches("released", split="test", data_dir=path.parents[1])
    ),
    "load": lambda path: list(
        my_datasets.load(
            "released", split="test", store="unused", data_dir=path.parents[1], download=False
        )
    ),
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_a_mailed_directory_that_says_where_its_shards_are(
    built, victim, asked_server, tmp_path, reader
):
    for shelf in (victim, os.path.relpath(victim, tmp_path / "mailed" / "released" / "1.0.0")):
        version = mailed(tmp_path, built, shelf, asked_server)
        with pytest.raises(NotPreparedError, match=r"(?s)did not attach it.*attach the release ag"):
            reader(version)
        shutil.rmtree(version)


def test_verify_does_not_call_a_mailed_directory_good(built, victim, asked_server, tmp_path):
    version = mailed(tmp_path, built, victim, asked_server)
    for path in built().iterdir():  # with shards, too
        (version / path.name).unlink()
        shutil.copy(path, version)
    for level in Level:
        codes = {issue.code: issue for issue in verify(version, level=level).issues}
        assert codes["attached"].node == ATTACHED


def test_a_copy_of_an_attached_directory_is_not_attached(store, tmp_path):
    attached = my_datasets.attach("released", store, tmp_path / "cache")
    assert len(list(my_datasets.source(attached, split="test"))) == 10
    copy = shutil.copytree(attached.path, tmp_path / "copy" / "1.0.0", symlinks=True)
    with pytest.raises(NotPreparedError, match="did not attach it"):
        my_datasets.source(copy)


def test_another_user_attaches_for_himself(store, tmp_path, monkeypatch):
    attached = my_datasets.attach("released", store, tmp_path / "cache")
    monkeypatch.setenv("MY_DATASETS_HOME", str(tmp_path / "home"))
    with pytest.raises(NotPreparedError, match="did not attach it"):
        my_datasets.source(attached)
    before = (attached.path / "features.json").stat()
    assert my_datasets.attach("released", store, tmp_path / "cache") == attached
    assert (attached.path / "features.json").stat() == before  # what is right is left as it is
    assert len(list(my_datasets.source(attached, split="test"))) == 10


CHANGES = {
    "features": lambda path: (path / "features.json").write_bytes(
        (path / "features.json").read_bytes().replace(b"noise", b"n0ise")
    ),
    "record": lambda path: (path / record.FILE_NAME).write_bytes(
        (path / record.FILE_NAME).read_bytes() + b" "
    ),
    "index": lambda path: os.truncate(next(path.glob("my_datasets_offsets_*.npy")), 8),
    "info": lambda path: (path / "dataset_info.json").write_bytes(
        (path / "dataset_info.json").read_bytes() + b" "
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_was_changed_in_an_attached_directory_is_found(store, tmp_path, built, change):
    attached = my_datasets.attach("released", store, tmp_path / "cache")
    change(attached.path)
    with pytest.raises(NotPreparedError):
        my_datasets.source(attached.path)
    again = my_datasets.attach("released", store, tmp_path / "cache")
    assert my_datasets.source(again)[5] == my_datasets.source(built())[5]


def test_a_link_in_an_attached_directory_that_leads_elsewhere(store, tmp_path, built):
    attached = my_datasets.attach("released", store, tmp_path / "cache")
    evil = tmp_path / "evil"
    for path in attached.path.glob("*tfrecord-0000?-of-0000?"):
        shutil.copy(built("2.0.0") / path.name, evil)
        path.unlink()
        path.symlink_to(evil)
    with pytest.raises(my_datasets.errors.CorruptShardError, match="does not lead to"):
        my_datasets.source(attached)[0]
    again = my_datasets.attach("released", store, tmp_path / "cache")
    assert my_datasets.source(again)[5] == my_datasets.source(built())[5]


_OTHER_MACHINE = """
import pickle
import sys
import my_datasets
from my_datasets.input_pipeline.engine import Engine
from my_datasets.input_pipeline.service.work_graph import ServiceRequest

kind, data = sys.argv[1], sys.stdin.buffer.read()
if kind == "request":
    asked = ServiceRequest.from_json(data.decode())
    batches = Engine(asked.plan, asked.start, single=asked.single).batches(asked.start)
elif kind == "plan":
    batches = my_datasets.batches(pickle.loads(data))
else:
    batches = [{"number": [one["number"]]} for one in pickle.loads(data)]
for batch in batches:
    print(*batch["number"])
"""


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["request", "plan", "source"])
def test_processes_of_other_machines_are_reported_where_shards_come_from(
    store, tmp_path, kind, root
):
    """Workers of a tf.data service, and of others who send plans: they see the cache's folder."""
    attached = my_datasets.attach("released", store, tmp_path / "cache")
    plan = my_datasets.plan(attached, split="test", batch_size=4)
    data = {
        "request": ServiceRequest(plan, plan.beginning, False, None).to_json().encode(),
        "plan": pickle.dumps(plan),
        "source": pickle.dumps(my_datasets.source(attached, split="test")),
    }[kind]
    environment = {**os.environ, "MY_DATASETS_HOME": str(tmp_path / "other_home")}
    done = subprocess.run(
        [sys.executable, "-c", _OTHER_MACHINE, kind], input=data, env=environment, cwd=root,
        capture_output=True, check=False,
    )  # fmt: skip
    assert sorted(map(int, done.stdout.split())) == list(range(60, 70)), done.stderr.decode()


@pytest.mark.parametrize("name", [
    ATTACHED, record.FILE_NAME, "my_datasets_attached.JSON", "my_datasets_state.json",
    "features.json.partial", ".my_datasets_cache", ".hidden", "a/b", "a\\b", "..",
])  # fmt: skip
def test_names_that_no_release_may_have(built, name):
    whole = json.loads(Record.of(built()).data)
    one = {"name": name, "bytes": 1, "sha256": "0" * 64}
    whole["files"] = sorted([*whole["files"], one], key=lambda file: file["name"])
    with pytest.raises(CorruptReleaseError, match=r"release record at .* is invalid"):
        Record.parse(json.dumps(whole).encode(), "somewhere")


@pytest.mark.parametrize("other", ["Straße", "STRASSE", "caf\u00e9", "CAFE\u0301"])
def test_no_two_files_have_one_name_on_any_system(built, other):
    whole = json.loads(Record.of(built()).data)
    for name in ("strasse", "cafe\u0301", other):
        one = {"name": name, "bytes": 1, "sha256": "0" * 64}
        whole["files"] = [file for file in whole["files"] if file["name"] != name] + [one]
    whole["files"].sort(key=lambda file: file["name"])
    with pytest.raises(CorruptReleaseError, match="have the same name"):
        Record.parse(json.dumps(whole).encode(), "somewhere")


@pytest.mark.parametrize("name", record.FIRST)
def test_no_record_names_metadata_that_nobody_reads(built, name):
    """Each file may be as large as its reader takes it, and no larger."""
    whole = json.loads(Record.of(built()).data)
    (one,) = [file for file in whole["files"] if file["name"] == name]
    one["bytes"] = MOST_MANIFEST_BYTES if name == manifest.FILE_NAME else MOST_BYTES
    Record.parse(json.dumps(whole).encode(), AssertionError)
    one["bytes"] += 1
    with pytest.raises(CorruptReleaseError, match=f"{name} is larger than"):
        Record.parse(json.dumps(whole).encode(), AssertionError)


def test_a_record_of_any_size_is_not_read_into_memory(store, built, tmp_path):
    """A file without blocks takes no room on the disk, and all of the memory."""
    work = tmp_path / "here" / "released" / ".1.0.0.pull"
    work.mkdir(parents=True)
    for folder in (work, shutil.copytree(built(), tmp_path / "signed" / "1.0.0")):
        with open(folder / record.FILE_NAME, "wb") as file:
            file.truncate(1 << 40)
    same_as_built(pull("released", store, tmp_path / "here").path, built())
    found = check_signed(folder, TrustedKeys(()))
    assert "larger than" in found.issues[0].found


def test_such_files_are_not_published(built, tmp_path):
    version = shutil.copytree(built(), tmp_path / "released" / "1.0.0")
    (version / ATTACHED).write_text("{}")
    with pytest.raises(my_datasets.errors.PublishError, match=ATTACHED):
        publish(str(version), tmp_path / "store")


def shelf_file(number, size=1000):
    data = bytes([number]) * size
    name = hashlib.sha256(data).hexdigest()
    return RemoteFile.of(name, size), data


def test_a_cache_is_made_in_no_folder_that_has_files(victim):
    with pytest.raises(DataDirError, match=r"(?s)files, and was not created as a cache.*another"):
        ShardCache(victim, 1)


def test_a_cache_removes_only_what_it_made(tmp_path):
    shelf, target = ShardCache(tmp_path / "cache", 2500), tmp_path / "target"
    target.write_text("precious")
    names = ("thesis.txt", "a" * 63, "A" * 64, f"{'a' * 64}.txt", f"{'a' * 64}.partial.txt")
    for name in names:
        (shelf.directory / name).write_text("mine")
    (shelf.directory / ("c" * 64)).symlink_to(target)
    (shelf.directory / ("d" * 64)).mkdir()
    for number in range(5):
        wanted, data = shelf_file(number)
        shelf.fetch(wanted, lambda data=data: [data], AssertionError)
    assert all((shelf.directory / name).read_text() == "mine" for name in names)
    assert target.read_text() == "precious"
    assert (shelf.directory / ("d" * 64)).is_dir()
    ours = [path for path in shelf.directory.glob("[0-9a-f]" * 64) if not path.is_symlink()]
    assert len([path for path in ours if path.is_file()]) == 2


def test_a_cache_writes_and_removes_nothing_through_links(tmp_path, victim):
    shelf = ShardCache(tmp_path / "cache", 1500)
    wanted, data = shelf_file(1)
    partial = shelf.path_of(wanted.key + ".partial")
    partial.hardlink_to(victim / "thesis.txt")
    (shelf.directory / ".used" / wanted.key).symlink_to(victim / "new")
    shelf.fetch(wanted, lambda: [data], AssertionError)
    assert shelf.path_of(wanted.key).read_bytes() == data
    shutil.rmtree(shelf.directory / ".used")
    (shelf.directory / ".used").symlink_to(victim)
    with pytest.raises(DataDirError, match="is not a link"):
        ShardCache(shelf.directory, 1500)


@pytest.mark.parametrize("kind", ["other bytes", "link", "link to the right file"])
def test_a_planted_file_in_a_cache_is_not_given(tmp_path, kind):
    shelf = ShardCache(tmp_path / "cache", 10_000)
    wanted, data = shelf_file(1)
    path, elsewhere = shelf.path_of(wanted.key), tmp_path / "elsewhere"
    elsewhere.write_bytes(data if "right" in kind else bytes(1000))
    if kind == "other bytes":
        shutil.copy(elsewhere, path)
    else:
        path.symlink_to(elsewhere)
    shelf.fetch(wanted, lambda: [data], AssertionError)
    assert path.read_bytes() == data
    assert not path.is_symlink()


def test_a_cached_file_that_was_changed_is_not_given(tmp_path):
    shelf = ShardCache(tmp_path / "cache", 10_000)
    wanted, data = shelf_file(1)
    shelf.fetch(wanted, lambda: [data], AssertionError)
    path = shelf.path_of(wanted.key)
    before = path.stat()
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # its clock stands still for a while
        path.write_bytes(bytes(1000))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    shelf.fetch(wanted, lambda: [data], AssertionError)
    assert path.read_bytes() == data


@contextlib.contextmanager
def no_hashing(monkeypatch):
    """Hashing a file again fails."""

    def fail(*_):
        raise AssertionError("a file was hashed")

    with monkeypatch.context() as patch:
        patch.setattr(hashlib, "file_digest", fail)
        yield


def test_a_cached_file_is_hashed_once_by_each_machine(tmp_path, monkeypatch):
    shelf = ShardCache(tmp_path / "cache", 10_000)
    wanted, data = shelf_file(1)
    shelf.fetch(wanted, lambda: [data], AssertionError)

    def unwanted():
        raise AssertionError("it was fetched")

    with no_hashing(monkeypatch):
        for _ in range(3):
            shelf.fetch(wanted, unwanted, AssertionError)
    monkeypatch.setenv("MY_DATASETS_HOME", str(tmp_path / "other"))
    with no_hashing(monkeypatch), pytest.raises(AssertionError, match="hashed"):
        shelf.fetch(wanted, unwanted, AssertionError)
    shelf.fetch(wanted, unwanted, AssertionError)
    with no_hashing(monkeypatch):
        shelf.fetch(wanted, unwanted, AssertionError)


# Pulled versions.


def test_pulling_again_hashes_nothing(store, tmp_path, monkeypatch):
    pull("released", store, tmp_path / "here")
    pull("released", store, tmp_path / "part", splits=["test"])
    with no_hashing(monkeypatch):
        assert pull("released", store, tmp_path / "here").was_there
        assert pull("released", store, tmp_path / "part", splits=["test"]).was_there
        my_datasets.load("released", store=store, data_dir=tmp_path / "here", stream=True)


def test_another_machine_hashes_once(store, tmp_path, monkeypatch):
    pull("released", store, tmp_path / "here")
    monkeypatch.setenv("MY_DATASETS_HOME", str(tmp_path / "home"))
    told = []
    assert pull("released", store, tmp_path / "here", report=told.append).was_there
    assert told[-1].stage == "verifying"
    assert told[-1].done == told[-1].total > 0
    with no_hashing(monkeypatch):
        assert pull("released", store, tmp_path / "here").was_there


def planted(tmp_path, built, change):
    """A version's directory with everything that the release's manifest declares, but one thing."""
    version = shutil.copytree(built(), tmp_path / "here" / "released" / "1.0.0")
    change(version)
    return version


def alter(path):
    """Changes one byte; size and time stay."""
    before, data = path.stat(), bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


SHARD = "released-train.tfrecord-00002-of-00004"
INDEX = sidecars.name_of(SHARD, Sidecar.OFFSETS)


def test_a_planted_version_with_other_shards_is_not_the_release(store, tmp_path, built):
    version = planted(tmp_path, built, lambda path: alter(path / SHARD))
    before = made.contents(version)
    for _ in range(2):  # what is wrong is not remembered as right
        with pytest.raises(OverwriteError, match="has other data than the release"):
            pull("released", store, tmp_path / "here")
    assert made.contents(version) == before
    assert sorted(path.name for path in version.parent.iterdir()) == [".1.0.0.lock", "1.0.0"]
    with pytest.raises(OverwriteError):
        my_datasets.load("released", store=store, data_dir=tmp_path / "here")
    done = pull("released", store, tmp_path / "here", overwrite=True)
    same_as_built(done.path, built())


def without_seal(version):
    """Edits a manifest as its author would: its seal is right, its digest the release's."""
    made_of = Manifest.read(version)
    made_of.provenance["from"] = "mallory"
    made_of.write(version)


@pytest.mark.parametrize("change", [
    lambda path: alter(path / INDEX),
    lambda path: (path / INDEX).unlink(),
    lambda path: alter(path / "features.json"),
    lambda path: alter(path / "dataset_info.json"),
    without_seal,
], ids=["index", "no index", "features", "info", "manifest"])  # fmt: skip
def test_planted_metadata_are_replaced_by_the_published_ones(store, tmp_path, built, change):
    planted(tmp_path, built, change)
    counting = Counting(store)
    done = pull("released", counting, tmp_path / "here")
    same_as_built(done.path, built())
    shards = {one.name for some in Declared.read(built()).splits.values() for one in some}
    assert done.linked == sum((built() / name).stat().st_size for name in shards)
    assert not done.was_there
    assert counting.came < done.linked  # of the shards nothing came


@pytest.mark.parametrize("change", ["shard", "features.json", "dataset_info.json", "manifest"])
def test_planted_parts_of_a_release(store, tmp_path, built, change, monkeypatch):
    done = pull("released", store, tmp_path / "here", splits=["test"])
    good = made.contents(done.path)
    if change == "manifest":
        without_seal(done.path)
    else:
        shard = "released-test.tfrecord-00001-of-00004"
        alter(done.path / (shard if change == "shard" else change))
    if change == "shard":
        with pytest.raises(OverwriteError):
            pull("released", store, tmp_path / "here", splits=["test"])
        return
    again = pull("released", store, tmp_path / "here", splits=["test"])
    assert not again.was_there
    assert made.contents(again.path) == good
    whole = pull("released", store, tmp_path / "whole").path
    alter(whole / "features.json")
    assert pull("released", store, tmp_path / "whole", splits=["test"]).splits is None
    # What another machine pulled is pulled again, but no shard comes.
    monkeypatch.setenv("MY_DATASETS_HOME", str(tmp_path / "home"))
    again = pull("released", store, tmp_path / "here", splits=["test"])
    assert made.contents(again.path) == good
    assert again.linked > 0
    assert pull("released", store, tmp_path / "here", splits=["test"]).was_there


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A version with shards of more than 16 MiB."""
    return made.make(tmp_path_factory.mktemp("large"), shards=1, size=350_000)


def work_of(store, tmp_path):
    """The folder of a pull of a release that was interrupted."""
    work = tmp_path / "here" / "released" / ".1.0.0.pull"
    work.mkdir(parents=True)
    shutil.copy(store / "released" / "1.0.0" / record.FILE_NAME, work)
    return work


def test_planted_parts_of_a_pull_are_hashed(large, tmp_path):
    publish(str(large), tmp_path / "store")
    work = work_of(tmp_path / "store", tmp_path)
    (shard,) = large.glob("*train.tfrecord-00000-of-00001")
    assert shard.stat().st_size > 16 << 20
    for path in large.iterdir():
        if path.is_file():
            shutil.copy2(path, work)
    alter(work / shard.name)
    done = pull("released", tmp_path / "store", tmp_path / "here")
    same_as_built(done.path, large)
    assert done.downloaded == shard.stat().st_size


def test_what_a_pull_has_left_is_not_hashed_again(large, tmp_path, monkeypatch):
    publish(str(large), tmp_path / "store")
    done = pull("released", tmp_path / "store", tmp_path / "here")
    done.path.rename(done.path.with_name(".1.0.0.pull"))
    with no_hashing(monkeypatch):
        assert pull("released", tmp_path / "store", tmp_path / "here").downloaded == 0
    same_as_built(done.path, large)


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "directory"])
def test_nothing_is_written_through_what_lies_in_a_work_folder(store, tmp_path, built, kind):
    target = tmp_path / "precious"
    target.write_text("mine")
    work = work_of(store, tmp_path)
    names = {*made.contents(built()), record.FILE_NAME, "dataset_info.json", "else"}
    for name in (*names, *(f"{name}.partial" for name in names)):
        path = work / name
        path.unlink(missing_ok=True)
        if kind == "link":
            path.symlink_to(target)
        elif kind == "hard link":
            path.hardlink_to(target)
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            (path / "inside").mkdir(parents=True)
    shutil.copy(store / "released" / "1.0.0" / record.FILE_NAME, tmp_path / "copy")
    for path in (work / record.FILE_NAME,):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        shutil.copy(tmp_path / "copy", path)
    done = pull("released", store, tmp_path / "here")
    same_as_built(done.path, built())
    part = work_of(store, tmp_path / "part")
    (part / "my_datasets_manifest.json.partial").symlink_to(target)
    (part / "dataset_info.json.partial").symlink_to(target)
    pull("released", store, tmp_path / "part" / "here", splits=["test"])
    assert target.read_text() == "mine"
    cache = tmp_path / "cache"
    attached = my_datasets.attach("released", store, cache)
    key = attached.path.relative_to(cache)
    shutil.rmtree(cache)
    (cache / key.parent).mkdir(parents=True)
    (cache / key.parent / ".1.0.0.attach").symlink_to(tmp_path)
    (cache / key).symlink_to(tmp_path)
    again = my_datasets.attach("released", store, cache)
    assert len(list(my_datasets.source(again, split="test"))) == 10
    assert target.read_text() == "mine"


def test_planted_shards_of_other_versions_are_not_linked(store, tmp_path, built):
    other = shutil.copytree(built(), tmp_path / "here" / "released" / "0.0.1")
    alter(other / SHARD)
    done = pull("released", store, tmp_path / "here")
    same_as_built(done.path, built())
    assert done.downloaded >= (built() / SHARD).stat().st_size
    assert done.linked > 0


def test_the_file_that_says_attached_leads_nowhere_itself(store, tmp_path):
    """What is in it does not matter: only this machine's state does."""
    attached = my_datasets.attach("released", store, tmp_path / "cache")
    text = (attached.path / attachments.FILE_NAME).read_text()
    assert str(store) not in text
    (attached.path / attachments.FILE_NAME).write_bytes(attachment("/", "http://127.0.0.1:9/"))
    assert len(list(my_datasets.source(attached, split="test"))) == 10


@pytest.mark.parametrize("call", ["delete", "gc"])
def test_nothing_is_deleted_where_links_lead(store, victim, call):
    """A stranger's store in a directory, which somebody cleans up."""
    for path in victim.iterdir():
        os.utime(path, (0, 0))
    uploads = store / "my-datasets" / "uploads"
    shutil.rmtree(uploads, ignore_errors=True)
    uploads.symlink_to(victim)
    strange = LocalStore(store)
    with pytest.raises(StoreError, match="a folder on the way is a link that leads out"):
        {
            "delete": lambda: strange.delete("my-datasets/uploads/thesis.txt"),
            "gc": lambda: collect_garbage(CatalogClient(RetryingStore(strange)), delete=True),
        }[call]()


@pytest.mark.parametrize("is_linked", [False, True], ids=["folder", "through a link"])
def test_pull_replaces_nothing_that_is_no_version(store, tmp_path, is_linked):
    folder = tmp_path / "home" if is_linked else tmp_path / "here" / "released"
    (folder / "1.0.0").mkdir(parents=True)
    (folder / "1.0.0" / "notes.txt").write_text("mine")
    if is_linked:
        (tmp_path / "here").mkdir()
        (tmp_path / "here" / "released").symlink_to(folder)
    before = sorted(folder.rglob("*"))
    with pytest.raises(OverwriteError):
        pull("released", store, tmp_path / "here")
    with pytest.raises(OverwriteError):
        my_datasets.load("released", store=store, data_dir=tmp_path / "here")
    if is_linked:
        with pytest.raises(OverwriteError, match="is a link that leads out of the data directory"):
            pull("released", store, tmp_path / "here", overwrite=True)
        assert sorted(folder.rglob("*")) == before
    else:
        assert (folder / "1.0.0" / "notes.txt").read_text() == "mine"
        pull("released", store, tmp_path / "here", overwrite=True)
        assert not (folder / "1.0.0" / "notes.txt").exists()


@pytest.mark.parametrize("kind", ["file", "link", "dangling link", "empty directory"])
def test_what_pull_finds_in_place_of_a_version(store, tmp_path, built, victim, kind):
    path = tmp_path / "here" / "released" / "1.0.0"
    path.parent.mkdir(parents=True)
    if kind == "file":
        path.write_text("mine")
    elif kind == "empty directory":
        path.mkdir()
    else:
        path.symlink_to(victim if kind == "link" else tmp_path / "nowhere")
    if kind != "empty directory":
        with pytest.raises(OverwriteError):
            pull("released", store, tmp_path / "here")
    done = pull("released", store, tmp_path / "here", overwrite=kind != "empty directory")
    same_as_built(done.path, built())


def test_pull_writes_nothing_through_the_folder_of_a_dataset(store, tmp_path, victim):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "released").symlink_to(victim)
    with pytest.raises(OverwriteError, match=r"(?s)leads out.*as --data-dir"):
        pull("released", store, tmp_path / "here")
    (tmp_path / "there").symlink_to(tmp_path / "disk")  # a data directory may be a link itself
    (tmp_path / "disk" / "other").mkdir(parents=True)
    (tmp_path / "there" / "released").symlink_to(tmp_path / "disk" / "other")
    assert pull("released", store, tmp_path / "there").path.is_dir()


def test_what_is_behind_the_link_of_a_dataset_is_read(store, tmp_path):
    done = pull("released", store, tmp_path / "disk")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "released").symlink_to(done.path.parent)
    assert pull("released", store, tmp_path / "here").was_there


def test_a_lock_that_is_a_link(store, tmp_path, victim):
    folder = tmp_path / "here" / "released"
    folder.mkdir(parents=True)
    (folder / ".1.0.0.lock").symlink_to(victim / "thesis.txt")
    with pytest.raises(DataDirError, match=r"\.1\.0\.0\.lock is a symbolic link"):
        pull("released", store, tmp_path / "here")


def test_nothing_is_written_through_links_beside_what_is_written(tmp_path, built, victim):
    """`adopt` and `index` in a mailed directory, and `lock` in a project that was cloned."""
    version = shutil.copytree(built(), tmp_path / "mailed" / "released" / "1.0.0")
    for path in sorted(version.glob("my_datasets_*")):
        path.unlink()
        path.with_name(f"{path.name}.partial").symlink_to(victim / "thesis.txt")
    for shard in sorted(version.glob("*tfrecord-0000?-of-0000?")):
        index.write(shard, index.scan(shard))
    adopt(version)
    assert Manifest.read(version) is not None
    assert len(my_datasets.source(version, split="test")) == 10
    (tmp_path / "datasets.lock.partial").symlink_to(victim / "thesis.txt")
    Lock(tmp_path / "datasets.lock").write()
    assert Lock.read(tmp_path / "datasets.lock").datasets == {}


def test_a_file_takes_its_name_when_it_is_whole(tmp_path, victim):
    path = tmp_path / "file"
    path.symlink_to(victim / "thesis.txt")
    write_whole(path, "first")
    assert not path.is_symlink()
    with contextlib.suppress(ZeroDivisionError), replaced(path) as file:
        file.write(bytes(1 << 20))
        assert path.read_text() == "first"
        _ = 1 / 0
    assert path.read_text() == "first"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "victim"]
    write_whole(tmp_path / ("\u00e4" * 127), "long")
