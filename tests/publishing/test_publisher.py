"""Publishing: whole, once, for good; and nothing else under that version ever."""

import hashlib
import json
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tensorflow_datasets as tfds

from my_datasets.catalog.releases import collect
from my_datasets.catalog.site import write
from my_datasets.errors import (
    AlreadyInStoreError,
    CorruptReleaseError,
    PublishError,
    ReleaseConflictError,
    StoreError,
    StoreUnavailableError,
    VersionGateError,
)
from my_datasets.exporting.parquet import export
from my_datasets.input_pipeline.read import prepared
from my_datasets.metadata import manifest
from my_datasets.metadata.manifest import Manifest
from my_datasets.publishing import publisher
from my_datasets.publishing.catalog_client import CatalogClient
from my_datasets.publishing.model import record, store_layout
from my_datasets.publishing.model.record import Record
from my_datasets.publishing.model.store_layout import ReleaseState
from my_datasets.publishing.publisher import publish
from my_datasets.publishing.puller import pull
from my_datasets.publishing.upload import Outcome
from my_datasets.storage.backends import open_store
from my_datasets.storage.backends.local import LocalStore
from my_datasets.storage.retry import RetryingStore
from my_datasets.verification.adopt import adopt
from my_datasets.verification.verifier import Level, verify
from tests.publishing import made
from tests.publishing.web import serving


def ledger(store):
    return CatalogClient(RetryingStore(store))


def release(store, key="1.0.0"):
    return ledger(store).index(made.NAME).releases.get(key)


def files(store, folder):
    return {
        one.path.rpartition("/")[2]: b"".join(store.read(one.path)) for one in store.list(folder)
    }


def other(built, tmp_path, version="1.0.0"):
    """Other data under the same version."""
    return made.make(tmp_path / "other", version, salt="others", shards=2)


def test_a_version_becomes_a_release(store, built):
    told = []
    done = publish(str(built()), store, report=told.append, note="the first")
    assert (done.outcome, done.name) == (Outcome.PUBLISHED, "released:1.0.0")
    assert done.digest == Manifest.read(built()).content.digest
    assert done.uploaded == done.bytes == sum(map(len, made.contents(built()).values()))
    there = files(store, "released/1.0.0")
    written = there.pop(record.FILE_NAME)
    assert there == made.contents(built())
    assert written == Record.of(built()).data
    assert release(store).state is ReleaseState.PUBLISHED
    assert not list(store.list(store_layout.UPLOADS))
    assert {one.stage for one in told} == {"uploading"}
    assert told[-1].done == told[-1].total == done.bytes
    log = ledger(store).index(made.NAME).log
    assert [(one.serial, one.action, one.note) for one in log] == [
        (1, "publish", "the first"), (2, "placed", "")
    ]  # fmt: skip
    assert ledger(store).settings().datasets == ("released",)


class Standing:
    """Stands for a directory, as what `pull` returns does."""

    def __init__(self, path):
        self._path = path

    def __fspath__(self):
        return str(self._path)


@pytest.mark.parametrize("given", [str, Path, Standing])
def test_a_directory_is_a_text_or_a_path(tmp_path, built, given):
    """In each public function that takes a directory."""
    version, store = built(), given(tmp_path / "store")
    published = publish(given(version), store)
    assert published.outcome is Outcome.PUBLISHED
    pulled = pull("released:1.0.0", store, given(tmp_path / "here"))
    assert verify(given(pulled.path)).is_good
    (pulled.path / manifest.FILE_NAME).unlink()
    assert adopt(given(pulled.path)).content == Manifest.read(version).content
    exported = export(prepared.find(given(version)), given(tmp_path / "parquet"))
    assert exported.path == tmp_path / "parquet"
    # A store elsewhere is one whose metadata are kept here.
    with serving(tmp_path / "store") as (url, _):
        found = collect(url, cache=given(tmp_path / "cache"))
    assert list((tmp_path / "cache").iterdir())
    assert write(found, given(tmp_path / "site"), with_samples=False).problems == {}


def test_the_same_again(store, built, tmp_path):
    publish(str(built()), store)
    again = publish(str(built()), store)
    assert (again.outcome, again.uploaded, again.note) == (Outcome.ALREADY, 0, "the same bytes")
    # Made elsewhere, with another release of some software.
    copy = tmp_path / "released" / "1.0.0"
    shutil.copytree(built(), copy)
    manifest = Manifest.read(copy)
    manifest.provenance["software"]["zlib"] = "0"
    manifest.write(copy)
    same = publish(str(copy), store)
    assert same.outcome is Outcome.ALREADY
    assert "the same data" in same.note


def test_other_bytes_are_refused_always(store, built, tmp_path):
    publish(str(built()), store)
    before = files(store, "")
    with pytest.raises(ReleaseConflictError, match="is published with other bytes"):
        publish(str(other(built, tmp_path)), store, version_gate=False)
    assert files(store, "") == before


def test_a_dry_run_writes_nothing(store, built):
    done = publish(str(built()), store, dry_run=True)
    assert (done.outcome, done.uploaded) == (Outcome.WOULD, done.bytes)
    assert list(store.list("")) == []


def test_what_is_not_fit_is_refused(store, built, tmp_path):
    version = tmp_path / "released" / "1.0.0"

    def refused(match, level=publisher.Level.BYTES):
        with pytest.raises(PublishError, match=match):
            publish(str(version), store, level=level)
        shutil.rmtree(version)

    shutil.copytree(built(), version)
    (version / "my_datasets_manifest.json").unlink()
    refused("no manifest")
    shutil.copytree(built(), version)
    (version / "features.json").rename(version / "moved")
    (version / "features.json").symlink_to("moved")
    refused("not a regular file")
    shutil.copytree(built(), version)
    manifest = Manifest.read(version)
    manifest.options["max_examples_per_split"] = 3
    manifest.write(version)
    refused("not the whole dataset")
    shutil.copytree(built(), version)
    (version / "a:b.txt").write_text("")
    refused(r"no reader accepts it\. Found: ValueError: not a file name: 'a:b\.txt'")
    shutil.copytree(built(), version)
    info = json.loads((version / "dataset_info.json").read_text())
    (version / "dataset_info.json").write_text(json.dumps({**info, "isBlocked": "Wrong."}))
    refused(r"must not be used: Wrong\.")
    assert list(store.list("")) == []


@pytest.mark.parametrize("dry_run", [False, True])
def test_what_is_damaged_is_reported_and_comes_to_no_store(store, built, tmp_path, dry_run):
    version = tmp_path / "released" / "1.0.0"
    shutil.copytree(built(), version)
    shard = next(version.glob("*train*-00002-of-?????"))
    data = bytearray(shard.read_bytes())
    data[1000] ^= 1
    shard.write_bytes(data)
    with pytest.raises(PublishError, match=r"does not pass verification(.|\n)*00002-of"):
        publish(str(version), store, dry_run=dry_run)
    assert release(store) is None
    # Where nobody looks lie files of it that are right, which need not be uploaded again.
    right = made.contents(built())
    uploaded = [one.path for one in store.list("")]
    assert all(path.startswith(f"{store_layout.UPLOADS}/") for path in uploaded)
    assert not (dry_run and uploaded)
    for path in uploaded:
        assert b"".join(store.read(path)) == right[path.rpartition("/")[2]]
    data[1000] ^= 1
    shard.write_bytes(data)
    left = sum(map(len, right.values())) - sum(
        len(right[path.rpartition("/")[2]]) for path in uploaded
    )
    assert publish(str(version), store).uploaded == left
    assert not list(store.list(store_layout.UPLOADS))


def overwritten(version):
    """Overwrites four bytes of each shard and sidecar; returns their names."""
    names = []
    for path in sorted(version.iterdir()):
        if not path.name.endswith((".json", ".txt")):
            with path.open("r+b") as file:
                file.seek(path.stat().st_size // 2)
                before = file.read(4)
                file.seek(-4, os.SEEK_CUR)
                file.write(bytes(byte ^ 0xFF for byte in before))
            names.append(path.name)
    return names


@pytest.mark.parametrize("options", [{}, {"level": Level.DEEP}, {"dry_run": True}], ids=str)
def test_a_damaged_copy_of_a_release_is_not_called_the_same(store, built, tmp_path, options):
    publish(str(built()), store)
    for name in ("*train*-00001-of-?????", "my_datasets_offsets_*", "my_datasets_keys_*"):
        version = Path(shutil.copytree(built(), tmp_path / name.strip("*") / "released" / "1.0.0"))
        keep = next(version.glob(name))
        good = {path.name: path.read_bytes() for path in version.iterdir() if path != keep}
        overwritten(version)
        for other, data in good.items():
            (version / other).write_bytes(data)
        with pytest.raises(
            PublishError, match=f"{keep.name}: changed since it was built"
        ) as raised:
            publish(str(version), store, **options)
        assert str(raised.value).count("changed since it was built") == 1
    assert publish(str(built()), store, **options).outcome is Outcome.ALREADY


def test_each_file_of_a_damaged_copy_is_named(store, built, tmp_path):
    publish(str(built()), store)
    version = Path(shutil.copytree(built(), tmp_path / "released" / "1.0.0"))
    names = overwritten(version)
    with pytest.raises(PublishError) as raised:
        publish(str(version), store)
    told = [name for name in names if f"{name}: changed since it was built" in str(raised.value)]
    assert len(told) == 5
    assert f"and {len(names) - 5} more" in str(raised.value)


def test_a_damaged_copy_of_which_all_is_uploaded_is_not_published(store, built, tmp_path):
    """Killed before the step that decides, and damaged before the next call: nothing is read then
    on its way into the store."""
    version = Path(shutil.copytree(built(), tmp_path / "released" / "1.0.0"))
    wanted = Record.of(version)
    folder = store_layout.upload_of(wanted.name, wanted.key, wanted.identity)
    for one in wanted.files:
        store.create(f"{folder}/{one.name}", version / one.name, one.sha256)
    (damaged, *_) = (name for name in overwritten(version) if "-train" in name)
    for path in built().iterdir():
        if path.name != damaged:
            shutil.copy(path, version / path.name)
    with pytest.raises(PublishError, match=f"{damaged}: changed since it was built"):
        publish(str(version), store)
    assert release(store) is None


def test_what_lies_there_and_is_no_release(store, built):
    data = b"by somebody else"
    store.create("released/1.0.0/notes.txt", data, hashlib.sha256(data).hexdigest())
    with pytest.raises(ReleaseConflictError, match="is not a release"):
        publish(str(built()), store)
    assert files(store, "released") == {"notes.txt": data}


def test_the_number_must_say_what_changed(store, built, tmp_path):
    publish(str(built()), store)
    with pytest.raises(VersionGateError, match=r"Expected: version 2\.0\.0 or higher"):
        publish(str(other(built, tmp_path, "1.0.1")), store)
    with pytest.raises(VersionGateError):
        publish(str(other(built, tmp_path, "1.0.1")), store, dry_run=True)
    # A feature more is a minor change: the release is read to prove it.
    lonely = tmp_path / "lonely" / "released" / "1.1.0"
    shutil.copytree(built("1.1.0"), lonely)
    assert publish(str(lonely), store).outcome is Outcome.PUBLISHED
    assert publish(str(built("2.0.0")), store).outcome is Outcome.PUBLISHED
    with pytest.raises(VersionGateError):
        publish(str(other(built, tmp_path, "2.0.1")), store)
    publish(str(other(built, tmp_path, "2.0.1")), store, version_gate=False)
    assert sorted(path.name for path in lonely.parent.iterdir()) == ["1.1.0"]


@pytest.mark.parametrize("change", ["shards", "feature", "major"])
def test_no_more_is_downloaded_for_the_gate_than_proves_it(
    s3_bucket, built, tmp_path, impatient, change
):
    address = f"{s3_bucket}/gate_{change}"
    publish(str(built()), address)
    how = {
        "shards": ("1.0.1", {"shards": 2}), "feature": ("1.1.0", {"more": {"again": np.int64}}),
        "major": ("2.0.0", {"salt": "others"}),
    }  # fmt: skip
    version, changed = how[change]
    path = made.make(tmp_path, version, **changed)
    store, came = open_store(address), []

    class Counts:
        def __getattr__(self, name):
            return getattr(store, name)

        def read(self, path, *part):
            came.append(path.rpartition("/")[2])
            return store.read(path, *part)

    assert publish(str(path), Counts()).outcome is Outcome.PUBLISHED
    shards = [name for name in came if "-of-" in name]
    assert bool(shards) == (change == "feature")
    assert bool(came) == (change != "major")


def test_plain_tfds_reads_a_directory(tmp_path, built):
    for version in ("1.0.0", "2.0.0"):
        publish(str(built(version)), tmp_path)
    data, info = tfds.load("released", split="train", data_dir=tmp_path, with_info=True)
    assert str(info.version) == "2.0.0"
    assert len(list(data)) == made.ROWS
    assert made.numbers(tmp_path / "released" / "1.0.0") == list(range(made.ROWS))


def test_configs(store, tmp_path):
    for config in ("small", "large"):
        version = made.make(tmp_path, base=made.InConfigs, config=config)
        assert publish(str(version), store).name == f"released_in_configs/{config}:1.0.0"
    index = ledger(store).index(made.CONFIGURED)
    assert sorted(index.releases) == ["large/1.0.0", "small/1.0.0"]
    assert index.default_config == "small"
    path = f"{made.CONFIGURED}/.config/metadata.json"
    assert json.loads(store.state(path, 1000)[0]) == {"default_config_name": "small"}


def test_what_was_uploaded_is_not_uploaded_again(store, built, impatient):
    class Fails:
        """Loses its connection for good after some files."""

        left = 5

        def __getattr__(self, name):
            return getattr(store, name)

        def create(self, *arguments):
            type(self).left -= 1
            if self.left < 0:
                raise StoreUnavailableError("cut")
            store.create(*arguments)

    with pytest.raises(StoreUnavailableError, match="cut"):
        publish(str(built()), Fails(), patience=impatient, workers=1)
    assert release(store) is None
    assert not list(store.list("released"))
    done = publish(str(built()), store)
    sizes = sorted((one.bytes for one in Record.of(built()).files), reverse=True)
    assert done.outcome is Outcome.PUBLISHED
    assert done.uploaded == sum(sizes[5:])


@pytest.mark.parametrize("stop", ["move", "after move"])
def test_whoever_comes_next_completes_a_release(store, built, tmp_path, stop):
    class Dies:
        def __getattr__(self, name):
            return getattr(store, name)

        def move(self, *arguments):
            if stop == "after move":
                store.move(*arguments)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publish(str(built()), Dies())
    assert release(store).state is ReleaseState.PLACING
    # Also if that is somebody who wants to publish something else, and must not.
    with pytest.raises(ReleaseConflictError):
        publish(str(other(built, tmp_path)), store, version_gate=False)
    assert release(store).state is ReleaseState.PUBLISHED
    assert publish(str(built()), store).outcome is Outcome.ALREADY
    there = files(store, "released/1.0.0")
    del there[record.FILE_NAME]
    assert there == made.contents(built())


def test_what_gets_in_the_way_while_it_is_placed(address, store, built):
    """A file of the same name and size, that is another one, never becomes part of a release."""
    shard = next(built().glob("*train*-00001-of-?????"))
    wrong = bytes(shard.stat().st_size)

    class Crossed:
        def __getattr__(self, name):
            return getattr(store, name)

        def replace(self, path, data, tag):
            found = store.replace(path, data, tag)
            if path.startswith("my-datasets/index"):
                path = f"released/1.0.0/{shard.name}"
                store.create(path, wrong, hashlib.sha256(wrong).hexdigest())
            return found

    with pytest.raises(CorruptReleaseError, match="does not belong to the release"):
        publish(str(built()), Crossed())
    assert release(store).state is ReleaseState.PLACING
    store.delete(f"released/1.0.0/{shard.name}")
    assert publish(str(built()), store).outcome is Outcome.PUBLISHED
    there = files(store, "released/1.0.0")
    del there[record.FILE_NAME]
    assert there == made.contents(built())


def test_what_was_lost_is_put_back(store, built):
    publish(str(built()), store)
    lost = [one.path for one in store.list("released/1.0.0") if "train" in one.path][:2]
    for path in [*lost, "released/1.0.0/features.json"]:
        store.delete(path)
    done = publish(str(built()), store)
    assert (done.outcome, done.note) == (Outcome.ALREADY, "files were restored")
    there = files(store, "released/1.0.0")
    del there[record.FILE_NAME]
    assert there == made.contents(built())
    assert not list(store.list(store_layout.UPLOADS))


def test_what_was_damaged_is_put_back(address, store, built):
    publish(str(built()), store, read_back=True)
    path = f"released/1.0.0/{next(built().glob('*train*-00001-of-?????')).name}"
    data = bytearray(b"".join(store.read(path)))
    data[100] ^= 1
    known = store.stat(path).sha256

    class Lies:
        """Damages a file behind the back of what it says of it."""

        def __getattr__(self, name):
            return getattr(store, name)

        def read(self, wanted, begin=0, end=None):
            given = bytes(data) if wanted == path and path in damaged else None
            yield from [given[begin:end]] if given else store.read(wanted, begin, end)

        def delete(self, wanted):
            damaged.discard(wanted)
            store.delete(wanted)

    damaged = {path}
    if known is not None:  # a directory is always read
        assert publish(str(built()), Lies()).note == "the same bytes"
    told = []
    done = publish(str(built()), Lies(), read_back=True, report=told.append)
    assert (done.note, done.uploaded) == ("files were restored", len(data))
    assert not damaged
    assert "reading back" in {one.stage for one in told}
    assert publish(str(built()), store, read_back=True).note == "the same bytes"
    damaged = {path}
    store.delete(path)  # and what is written again is damaged, too
    with pytest.raises(CorruptReleaseError, match="does not return what was written"):
        publish(str(built()), Lies(), read_back=True)


def test_who_publishes_the_same_may_be_quicker_at_any_moment(built, tmp_path):
    class Crowded(LocalStore):
        """In which another publisher begins and ends between two requests of this one."""

        def create(self, path, source, sha256, on_bytes=None):
            if "test.tfrecord-00001" in path and not list(store.list("released/1.0.0")):
                publish(str(built()), store)
                raise AlreadyInStoreError("a moment ago")
            super().create(path, source, sha256, on_bytes)

    store = LocalStore(tmp_path)
    done = publish(str(built()), Crowded(tmp_path))
    assert done.outcome is Outcome.ALREADY
    assert [one.action for one in ledger(store).index(made.NAME).log] == ["publish", "placed"]
    there = files(store, "released/1.0.0")
    del there[record.FILE_NAME]
    assert there == made.contents(built())
    assert not list(store.list(store_layout.UPLOADS))


def test_one_that_fails_stops_the_others(built, tmp_path):
    slow = threading.Event()

    class Fails(LocalStore):
        went = 0

        def create(self, path, source, sha256, on_bytes=None):
            if "train" not in path:
                raise StoreError("no room")
            while on_bytes is not None:  # as a large file, piece by piece
                slow.wait(0.01)
                on_bytes(1)
                self.went += 1

    store = Fails(tmp_path)
    with pytest.raises(StoreError, match="no room"):
        publish(str(built()), store)
    assert store.went < 10_000


def together(*works):
    barrier = threading.Barrier(len(works))

    def run(work):
        barrier.wait()
        try:
            return work()
        except StoreError:
            raise
        except PublishError as error:
            return error

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(run, works))


def test_of_several_with_other_bytes_exactly_one_wins(address, store, built, tmp_path):
    mine = [built(), *(made.make(tmp_path / str(i), salt=str(i)) for i in range(3))]
    outcomes = together(*(
        lambda path=path: publish(str(path), address, version_gate=False) for path in mine
    ))  # fmt: skip
    won = [i for i, one in enumerate(outcomes) if not isinstance(one, Exception)]
    assert len(won) == 1, outcomes
    assert outcomes[won[0]].outcome is Outcome.PUBLISHED
    assert all(
        isinstance(one, ReleaseConflictError) for i, one in enumerate(outcomes) if i not in won
    )
    there = files(store, "released/1.0.0")
    del there[record.FILE_NAME]
    assert there == made.contents(mine[won[0]])
    assert not list(store.list(store_layout.UPLOADS))


def test_of_several_with_the_same_bytes_one_publishes(address, store, built):
    outcomes = together(*[lambda: publish(str(built()), address)] * 4)
    assert {one.outcome for one in outcomes} <= {Outcome.PUBLISHED, Outcome.ALREADY}
    log = ledger(store).index(made.NAME).log
    assert [one.action for one in log] == ["publish", "placed"]
    there = files(store, "released/1.0.0")
    del there[record.FILE_NAME]
    assert there == made.contents(built())


def test_a_release_that_was_pulled_is_the_same_elsewhere(built, tmp_path):
    first = publish(str(built()), tmp_path / "store")
    pulled = pull("released", tmp_path / "store", tmp_path / "here")
    mirrored = publish(str(pulled.path), tmp_path / "mirror")
    assert (mirrored.outcome, mirrored.identity) == (Outcome.PUBLISHED, first.identity)
    some = pull("released", tmp_path / "store", tmp_path / "some", splits=["test"])
    with pytest.raises(PublishError, match="not the whole dataset"):
        publish(str(some.path), tmp_path / "mirror")


def test_nobody_may_write(tmp_path, built):
    with serving(tmp_path) as (url, _), pytest.raises(StoreError, match="can only be read"):
        publish(str(built()), url)
