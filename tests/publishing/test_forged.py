"""The lock pins bytes: a forger who leaves every digest alone is refused wherever data are read."""

import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

import my_datasets
from my_datasets.cli.main import cli
from my_datasets.core.reference import DatasetReference
from my_datasets.errors import (
    CorruptReleaseError,
    CorruptShardError,
    LockError,
    MyDatasetsError,
    PublishError,
)
from my_datasets.metadata import recorded_files
from my_datasets.metadata.manifest import Manifest
from my_datasets.publishing.model.record import Record
from my_datasets.publishing.publisher import publish
from my_datasets.publishing.resolve_release import describe
from my_datasets.resolving.lock import Lock, Locked
from my_datasets.storage.verified_files import verified_files
from tests.publishing import forging

REFERENCE = "labelled:1.*.*"


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return forging.make(tmp_path_factory.mktemp("original"))


@pytest.fixture(scope="module")
def forged(original, tmp_path_factory):
    """A version with other labels under the digest of the original."""
    found = forging.forge(original, tmp_path_factory.mktemp("forged"))
    theirs, mine = Manifest.read(original).content, Manifest.read(found).content
    assert mine.digest == theirs.digest
    assert mine.splits["train"].shards != theirs.splits["train"].shards
    return found


@pytest.fixture(scope="module")
def store(forged, tmp_path_factory):
    directory = tmp_path_factory.mktemp("stores") / "store"
    publish(str(forged), directory)
    return directory


@pytest.fixture
def lock(original, tmp_path, monkeypatch):
    """A project's lock, in force, made from the original."""
    path = tmp_path / "datasets.lock"
    Lock(path, {REFERENCE: Locked.of(original)}).write()
    monkeypatch.setenv("MY_DATASETS_LOCK", str(path))
    return path


def run(*arguments):
    return CliRunner().invoke(cli, [str(one) for one in arguments])


@pytest.fixture
def local(forged, tmp_path):
    """A data directory of the forger's, to be read without a store."""
    return shutil.copytree(forged.parents[1], tmp_path / "local")


LOCAL = {
    "load": lambda d: my_datasets.load(REFERENCE, data_dir=d),
    "load from a store, without downloads": lambda d: my_datasets.load(
        REFERENCE, data_dir=d, store="/nowhere", download=False
    ),
    "source": lambda d: my_datasets.source(REFERENCE, data_dir=d),
    "plan": lambda d: my_datasets.plan(REFERENCE, data_dir=d),
    "pipeline": lambda d: my_datasets.pipeline(REFERENCE, data_dir=d),
    "batches": lambda d: my_datasets.batches(REFERENCE, data_dir=d, batch_size=4),
    "torch_loader": lambda d: my_datasets.torch_loader(REFERENCE, data_dir=d, batch_size=4),
}


@pytest.mark.parametrize("read", LOCAL.values(), ids=LOCAL)
def test_a_forged_directory_is_refused(read, local, lock):
    with pytest.raises(LockError, match=r"other shards of the split(.|\n)*is locked by"):
        read(local)


@pytest.mark.parametrize("read", LOCAL.values(), ids=LOCAL)
def test_forged_shards_under_the_true_manifest_are_refused(read, original, forged, lock, tmp_path):
    """Sizes and metadata are the original's: only the bytes of the shards tell."""
    read(original.parents[1])
    local = shutil.copytree(original.parents[1], tmp_path / "local")
    for shard in sorted(forged.glob("*.tfrecord-?????-of-?????")):
        target = local / "labelled" / "1.0.0" / shard.name
        assert target.stat().st_size == shard.stat().st_size
        shutil.copy(shard, target)
    with pytest.raises(LockError, match="is not the shard that was locked"):
        read(local)


def test_what_changes_after_it_was_compared_is_refused(original, lock, tmp_path):
    """What is known verified is not hashed again; what was written since is."""
    local = shutil.copytree(original.parents[1], tmp_path / "local")
    my_datasets.source(REFERENCE, data_dir=local)
    content = Manifest.read(original).content
    (first, _) = content.splits["train"].shards
    shard = local / "labelled" / "1.0.0" / first.name
    assert verified_files().knows(shard, first.sha256)
    state = shard.stat()
    shard.write_bytes(bytes(first.bytes))
    os.utime(shard, ns=(state.st_atime_ns, state.st_mtime_ns))
    with pytest.raises(LockError, match="is not the shard that was locked"):
        my_datasets.source(REFERENCE, data_dir=local)


def test_a_user_without_a_home_is_held_to_the_lock(original, lock, tmp_path, monkeypatch):
    for name in ("MY_DATASETS_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "nowhere")
    local = shutil.copytree(original.parents[1], tmp_path / "local")
    my_datasets.source(REFERENCE, data_dir=local)
    shard = next((local / "labelled" / "1.0.0").glob("*-train.tfrecord-00000-of-00002"))
    shard.write_bytes(bytes(shard.stat().st_size))
    with pytest.raises(LockError, match="is not the shard that was locked"):
        my_datasets.source(REFERENCE, data_dir=local)


COMMANDS = {
    "lock --check": ["lock", "--check", "--file", "{lock}"],
    "export": ["export", REFERENCE, "--to", "parquet", "--output", "{tmp}/exported"],
    "stats": ["stats", REFERENCE],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_commands_refuse_a_forged_directory(command, local, lock, tmp_path):
    done = run(*(one.format(lock=lock, tmp=tmp_path) for one in command), "--data-dir", local)
    assert isinstance(done.exception, LockError), done.output
    assert not (tmp_path / "exported").exists()


@pytest.mark.parametrize("target", [REFERENCE, "directory"])
def test_plain_verify_notices(target, local, lock, original):
    path = local / "labelled" / "1.0.0"
    assert run("verify", original).exit_code == 0
    done = run("verify", path if target == "directory" else target, "--data-dir", local, "--json")
    assert done.exit_code == 1
    (report,) = json.loads(done.stdout)
    assert [issue["code"] for issue in report["issues"]] == ["not-locked"]
    assert report["issues"][0]["node"] == str(lock)


STORED = {
    "pull": lambda s, d: my_datasets.pull(REFERENCE, s, d),
    "pull a split": lambda s, d: my_datasets.pull(REFERENCE, s, d, splits=["test"]),
    "load": lambda s, d: my_datasets.load(REFERENCE, store=s, data_dir=d),
    "stream": lambda s, d: my_datasets.load(
        REFERENCE, store=s, data_dir=d, stream=True, cache_dir=d / "cache"
    ),
    "attach": lambda s, d: my_datasets.attach(REFERENCE, s, d / "cache"),
}


@pytest.mark.parametrize("read", STORED.values(), ids=STORED)
def test_a_forged_release_is_refused(read, store, lock, tmp_path):
    for _ in range(2):  # what the first call left changes nothing
        with pytest.raises(LockError, match="other shards of the split"):
            read(store, tmp_path / "data")
    left = {path.name for path in tmp_path.rglob("*") if path.is_file() or path.is_symlink()}
    assert not [one for one in left if "tfrecord" in one or one == "features.json"]
    assert not (tmp_path / "data" / "labelled" / "1.0.0").exists()


def test_a_forged_release_that_is_here_is_refused(store, lock, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_DATASETS_LOCK", "")
    my_datasets.pull(REFERENCE, store, tmp_path / "data")
    monkeypatch.setenv("MY_DATASETS_LOCK", str(lock))
    for read in STORED.values():
        with pytest.raises(LockError, match="other shards of the split"):
            read(store, tmp_path / "data")


@pytest.mark.parametrize("forge", [forging.swap_names, forging.swap_input_and_label])
def test_what_decides_how_bytes_are_decoded_is_locked(forge, original, lock, tmp_path):
    version = forge(original, tmp_path / "local")
    with pytest.raises(LockError, match="features, labels or supervised keys"):
        my_datasets.load(REFERENCE, data_dir=tmp_path / "local")
    # The forger publishes by other software, which looks at nothing.
    store = tmp_path / "store"
    publish(str(original), store)
    placed = store / "labelled" / "1.0.0"
    forged = Record.of(version)
    for one in forged.files:
        shutil.copy(version / one.name, placed / one.name)
    (placed / "my_datasets_release.json").write_bytes(forged.data)
    index = store / "my-datasets" / "index" / "labelled.json"
    whole = json.loads(index.read_text())
    whole["releases"]["1.0.0"]["record"] = forged.identity
    index.write_text(json.dumps(whole))
    for read in STORED.values():
        with pytest.raises(LockError, match="features, labels or supervised keys"):
            read(store, tmp_path / "data")


def test_a_record_that_contradicts_the_manifest_is_refused(original, store, lock, tmp_path):
    """The metadata are the original's, the shards another's: the manifest alone says what fits."""
    mixed = tmp_path / "mixed"
    shutil.copytree(store, mixed)
    placed = mixed / "labelled" / "1.0.0"
    for name in ("my_datasets_manifest.json", "dataset_info.json"):
        shutil.copy(original / name, placed / name)
    record = json.loads((placed / "my_datasets_release.json").read_text())
    fresh = {one.name: one for one in Record.of(original).files}
    for one in record["files"]:
        if one["name"].endswith(".json"):
            one.update(sha256=fresh[one["name"]].sha256, bytes=fresh[one["name"]].bytes)
    made = Record.parse(json.dumps(record).encode(), "here")
    (placed / "my_datasets_release.json").write_bytes(made.data)
    index = mixed / "my-datasets" / "index" / "labelled.json"
    whole = json.loads(index.read_text())
    whole["releases"]["1.0.0"]["record"] = made.identity
    index.write_text(json.dumps(whole))
    for read in STORED.values():
        with pytest.raises(CorruptReleaseError, match="the manifest lists other shards"):
            read(mixed, tmp_path / "data")


def test_the_original_passes(original, lock, tmp_path):
    """By every way by which the forged one is refused; also a part of it."""
    publish(str(original), tmp_path / "store")
    for read in STORED.values():
        read(tmp_path / "store", tmp_path / "data")
    for read in LOCAL.values():
        read(tmp_path / "data")
    done = run("lock", "--check", "--file", lock, "--data-dir", tmp_path / "data")
    assert done.exit_code == 0, done.output
    assert run("verify", REFERENCE, "--data-dir", tmp_path / "data").exit_code == 0
    my_datasets.pull(REFERENCE, tmp_path / "store", tmp_path / "part", splits=["test"])
    assert len(my_datasets.source(REFERENCE, data_dir=tmp_path / "part", split="test")) == 40


def test_a_lock_of_format_1_holds_the_digest_and_says_how_to_renew_it(
    original, forged, tmp_path, monkeypatch, caplog
):
    path = tmp_path / "datasets.lock"
    entry = {"config": None, "version": "1.0.0", "digest": Locked.of(original).digest}
    path.write_text(json.dumps({"format": 1, "datasets": {REFERENCE: entry}}))
    monkeypatch.setenv("MY_DATASETS_LOCK", str(path))
    assert len(my_datasets.source(REFERENCE, data_dir=forged.parents[1])) == 40
    assert "my-datasets verify --deep" in caplog.text
    assert f"my-datasets lock {REFERENCE}" in caplog.text
    path.write_text(path.read_text().replace(entry["digest"], "0" * 64))
    with pytest.raises(LockError, match="holds other data"):
        my_datasets.source(REFERENCE, data_dir=forged.parents[1])
    assert run("lock", "--file", path, "--data-dir", original.parents[1]).exit_code == 0
    renewed = json.loads(path.read_text())
    assert renewed["format"] == 2
    assert set(renewed["datasets"][REFERENCE]["splits"]) == {"train", "test"}
    with pytest.raises(LockError, match="other shards"):
        my_datasets.source(REFERENCE, data_dir=forged.parents[1])


def test_a_lock_of_format_1_holds_shards_to_the_manifest(original, forged, tmp_path, monkeypatch):
    entry = {"config": None, "version": "1.0.0", "digest": Locked.of(original).digest}
    path = tmp_path / "datasets.lock"
    path.write_text(json.dumps({"format": 1, "datasets": {REFERENCE: entry}}))
    monkeypatch.setenv("MY_DATASETS_LOCK", str(path))
    local = shutil.copytree(original.parents[1], tmp_path / "local")
    version = local / "labelled" / "1.0.0"
    shard = next(version.glob("*-train.tfrecord-00000*"))
    shutil.copy(forged / shard.name, shard)
    with pytest.raises(LockError, match="is not the shard that was locked"):
        my_datasets.source(REFERENCE, data_dir=local)
    shutil.copy(original / shard.name, shard)
    with_other_indexes(version, shifted)
    with pytest.raises(CorruptShardError, match="record index"):
        my_datasets.source(REFERENCE, data_dir=local)


def test_a_split_that_is_left_out_without_saying_so_is_refused(original, lock, tmp_path):
    version = shutil.copytree(original, tmp_path / "data" / "labelled" / "1.0.0")
    made = Manifest.read(version)
    splits = {"train": made.content.splits["train"]}
    replace(made, content=replace(made.content, splits=splits)).write(version)
    with pytest.raises(LockError):
        my_datasets.source(REFERENCE, data_dir=tmp_path / "data")


def test_what_contradicts_itself_cannot_be_locked(original, tmp_path):
    version = shutil.copytree(original, tmp_path / "data" / "labelled" / "1.0.0")
    path = version / "dataset_info.json"
    path.write_text(path.read_text().replace('"train"', '"other"'))
    with pytest.raises(LockError, match="lists other shards than the manifest"):
        Locked.of(version)
    lock = Lock(tmp_path / "lock", {REFERENCE: Locked.of(original)})
    with pytest.raises(LockError, match="cannot be compared with the lock"):
        lock.check(DatasetReference.parse(REFERENCE), version, has_shards=True)
    with pytest.raises(PublishError):
        publish(str(version), tmp_path / "store")


def test_what_a_release_describes_is_its_own(store, lock):
    """`info --from` reads metadata only, and shows them for what they are: those of the store."""
    assert describe(REFERENCE, store).name == "labelled:1.0.0"


def test_an_error_about_a_class_shows_no_more_of_its_name_than_fits(original, tmp_path):
    version = shutil.copytree(original, tmp_path / "labelled" / "1.0.0")
    path = version / "features.json"
    name = "tensorflow_datasets.core.features.class_label_feature.ClassLabel"
    assert name in path.read_text()
    path.write_text(path.read_text().replace(name, "[" * 100_000))
    with pytest.raises(MyDatasetsError) as caught:
        my_datasets.load("labelled", data_dir=tmp_path)
    assert len(str(caught.value)) < 5000


def shifted(offsets):
    """From the second record on, each number gives the next record; the last one has no bytes."""
    return np.append(np.delete(offsets, 1), offsets[-1])


def with_other_indexes(version, other):
    for path in version.glob("my_datasets_offsets_*.npy"):
        np.save(path, other(np.load(path)))
    made = Manifest.read(version)
    shards = [one.name for split in made.content.splits.values() for one in split.shards]
    replace(made, files=recorded_files.of_files(version, shards)).write(version)


OTHER_INDEXES = {
    "shifted": shifted,
    "repeated": lambda offsets: np.append(np.zeros(len(offsets) - 1, "<u8"), offsets[-1]),
    "reversed": lambda offsets: np.append(offsets[:-1][::-1], offsets[-1]),
    "fewer": lambda offsets: np.delete(offsets, 1),
    "floats": lambda offsets: offsets.astype(float),
    "two dimensions": lambda offsets: offsets[None],
    "beyond": lambda offsets: np.append(offsets[:-1] + np.uint64(1 << 62), offsets[-1]),
}


@pytest.mark.parametrize("other", OTHER_INDEXES.values(), ids=OTHER_INDEXES)
def test_other_record_indexes_are_refused(other, original, lock, tmp_path):
    version = tmp_path / "labelled" / "1.0.0"
    shutil.copytree(original, version)
    assert len(my_datasets.source("labelled:1.*.*", data_dir=tmp_path, split="train")) > 0
    with_other_indexes(version, other)
    with pytest.raises(CorruptShardError, match=r"my-datasets index .* --overwrite"):
        my_datasets.source("labelled:1.*.*", data_dir=tmp_path, split="train")
    assert run("index", version, "--overwrite").exit_code == 0
    my_datasets.source("labelled:1.*.*", data_dir=tmp_path, split="train")


@pytest.fixture
def store_with_other_indexes(original, tmp_path):
    """A store in which the record indexes of a release are other ones; the rest is made to fit."""
    store, version = tmp_path / "store", tmp_path / "other" / "labelled" / "1.0.0"
    publish(str(original), store)
    shutil.copytree(original, version)
    with_other_indexes(version, shifted)
    found = Record.of(version)
    for one in found.files:
        shutil.copy(version / one.name, store / "labelled" / "1.0.0" / one.name)
    (store / "labelled" / "1.0.0" / "my_datasets_release.json").write_bytes(found.data)
    index = store / "my-datasets" / "index" / "labelled.json"
    whole = json.loads(index.read_text())
    whole["releases"]["1.0.0"]["record"] = found.identity
    index.write_text(json.dumps(whole))
    return store


def test_a_release_with_other_record_indexes_is_not_pulled(store_with_other_indexes, tmp_path):
    with pytest.raises(CorruptReleaseError, match="wrong record index"):
        my_datasets.pull("labelled", store_with_other_indexes, tmp_path / "here")
    assert not (tmp_path / "here" / "labelled" / "1.0.0").exists()


def test_a_release_with_other_record_indexes_is_not_streamed(store_with_other_indexes, tmp_path):
    found = my_datasets.attach("labelled", store_with_other_indexes, tmp_path / "cache")
    source = my_datasets.source(found, split="train")
    with pytest.raises(CorruptShardError, match="record index"):
        source[5]


def test_a_planted_record_index_is_refused(original, tmp_path):
    """Of a release without indexes; the files that were published are right."""
    version = tmp_path / "made" / "labelled" / "1.0.0"
    shutil.copytree(original, version)
    planted = {one.name: np.load(one) for one in version.glob("my_datasets_offsets_*.npy")}
    for name in planted:
        (version / name).unlink()
    made = Manifest.read(version)
    shards = [one.name for split in made.content.splits.values() for one in split.shards]
    replace(made, files=recorded_files.of_files(version, shards)).write(version)
    publish(str(version), tmp_path / "store")
    here = my_datasets.pull("labelled", tmp_path / "store", tmp_path / "here").path
    for name, offsets in planted.items():
        np.save(here / name, shifted(offsets))
    with pytest.raises(CorruptShardError, match="record index"):
        my_datasets.pull("labelled", tmp_path / "store", tmp_path / "here")
