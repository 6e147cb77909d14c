"""A store that fails now and then: asked again, not for ever, and never twice for one thing."""

import hashlib
import random
import time
from dataclasses import replace

import pytest

from my_datasets.errors import (
    AlreadyInStoreError,
    ChangedInStoreError,
    NotInStoreError,
    StoreError,
    StoreUnavailableError,
)
from my_datasets.publishing.catalog_client import CatalogClient
from my_datasets.publishing.model.store_layout import Event
from my_datasets.storage import lease
from my_datasets.storage.backends.local import LocalStore
from my_datasets.storage.retry import RetryingStore, RetryPolicy, compare_and_swap

QUICK = RetryPolicy(tries=4, first_wait=0.001, longest_wait=0.01)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Fails(LocalStore):
    """Each method fails so often before it works; if `late`, it works and loses the answer."""

    def __init__(self, directory, fails, late=False):
        super().__init__(directory)
        self.fails, self.late, self.asked = fails, late, 0

    def __getattribute__(self, name):
        found = super().__getattribute__(name)
        if name not in ("stat", "list", "state", "create", "replace", "move", "delete"):
            return found

        def method(*arguments):
            self.asked += 1
            if self.fails > 0:
                self.fails -= 1
                if self.late:
                    found(*arguments)
                raise StoreUnavailableError("no answer")
            return found(*arguments)

        return method


@pytest.mark.parametrize("fails", [0, 1, 3])
def test_each_is_asked_again(tmp_path, fails):
    def patient():
        return RetryingStore(Fails(tmp_path / "store", fails), QUICK)

    patient().create("a/file", b"1", sha256(b"1"))
    tag = patient().replace("state", b"1", None)
    assert patient().state("state", 10) == (b"1", tag)
    assert patient().stat("a/file").bytes == 1
    patient().move("a", "b", [])
    assert [one.path for one in patient().list("b")] == ["b/file"]
    patient().delete("b/file")
    assert list(patient().list("b")) == []


def test_not_for_ever(tmp_path):
    store = Fails(tmp_path, fails=4)
    with pytest.raises(StoreUnavailableError, match="no answer"):
        RetryingStore(store, QUICK).stat("a")
    assert store.asked == 4


def test_what_no_repetition_mends_is_not_asked_again(tmp_path):
    store = Fails(tmp_path, fails=0)
    with pytest.raises(NotInStoreError):
        RetryingStore(store, QUICK).stat("a")
    assert store.asked == 1


def test_the_pauses_grow_and_are_bounded(tmp_path, monkeypatch):
    pauses = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    monkeypatch.setattr(random, "uniform", lambda least, most: most)
    with pytest.raises(StoreUnavailableError):
        RetryingStore(Fails(tmp_path, 100), RetryPolicy(9, 1.0, 10.0)).stat("a")
    assert pauses == [1, 2, 4, 8, 10, 10, 10, 10]


def test_a_file_that_was_written_though_the_answer_was_lost(tmp_path):
    """It is ours, if the store knows that its contents are; otherwise somebody else's."""

    class Knows(Fails):
        def stat(self, path):
            found = LocalStore.stat(self, path)
            data = b"".join(LocalStore.read(self, path))
            return type(found)(path, found.bytes, found.modified, sha256(data))

    RetryingStore(Knows(tmp_path, 1, late=True), QUICK).create("a", b"1", sha256(b"1"))
    with pytest.raises(AlreadyInStoreError):
        RetryingStore(Knows(tmp_path, 1), QUICK).create("a", b"2", sha256(b"2"))
    with pytest.raises(AlreadyInStoreError):
        RetryingStore(Knows(tmp_path, 0), QUICK).create("a", b"1", sha256(b"1"))


def test_a_change_whose_answer_was_lost_is_made_once(tmp_path):
    store = RetryingStore(LocalStore(tmp_path))
    CatalogClient(store).set()

    class LosesOne(LocalStore):
        lost = False

        def replace(self, path, data, tag):
            found = super().replace(path, data, tag)
            if not self.lost:
                self.lost = True
                raise StoreUnavailableError("no answer")
            return found

    before = CatalogClient(store).settings().serial
    after = CatalogClient(RetryingStore(LosesOne(tmp_path), QUICK)).set(requires_signatures=False)
    assert after.serial == before + 1 == CatalogClient(store).settings().serial


def test_publishers_give_up_where_others_change_it_all_the_time(tmp_path, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda _: None)

    class Crowded(LocalStore):
        replaced = 0

        def replace(self, path, data, tag):
            self.replaced += 1
            raise ChangedInStoreError("by others")

    store = Crowded(tmp_path)
    with pytest.raises(StoreError, match="Other writers keep changing"):
        CatalogClient(RetryingStore(store)).set()
    assert store.replaced == 100


class Raced(LocalStore):
    """Other writers are faster `times` times."""

    def __init__(self, directory, write, times=1):
        super().__init__(directory)
        self.write, self.times = write, times

    def replace(self, path, data, tag):
        if self.times:
            self.times -= 1
            self.write(LocalStore(self.path_of("")))
        return super().replace(path, data, tag)


def add(store, name):
    """Adds a name to the list in a file."""

    def read():
        try:
            data, tag = store.state("names", 1000)
        except NotInStoreError:
            return [], None
        return data.decode().split(), tag

    return compare_and_swap(
        store, "names", read, lambda names: [*names, name], lambda names: " ".join(names).encode()
    )


@pytest.mark.parametrize("existing", [[], ["first"]])
@pytest.mark.parametrize("times", [0, 1, 3])
def test_a_change_is_made_again_from_what_another_writer_left(tmp_path, existing, times):
    for name in existing:
        add(LocalStore(tmp_path), name)
    others = [f"other{number}" for number in range(times)]
    pending = list(others)
    store = Raced(tmp_path, lambda there: add(there, pending.pop(0)), times)
    names, data = add(store, "mine")
    assert names == [*existing, *others, "mine"]
    assert data.decode().split() == names
    assert LocalStore(tmp_path).state("names", 1000)[0] == data


def test_no_change_writes_nothing(tmp_path):
    store = LocalStore(tmp_path)
    add(store, "first")
    before = store.state("names", 100)
    found = compare_and_swap(
        store, "names", lambda: store.state("names", 100), lambda data: data, lambda data: data
    )
    assert found == (b"first", None)
    assert store.state("names", 100) == before


def test_both_of_two_publishers_of_one_moment_are_in_the_catalog(tmp_path):
    CatalogClient(RetryingStore(LocalStore(tmp_path))).set()

    def require(store):
        CatalogClient(RetryingStore(store)).set(valid_seconds=7)

    done = CatalogClient(RetryingStore(Raced(tmp_path, require))).set(names_store=False)
    assert (done.serial, done.valid_seconds, done.names_store) == (3, 7, False)


def test_both_changes_of_one_index_are_in_its_history(tmp_path):
    def noted(note):
        return lambda index: replace(
            index, serial=index.serial + 1,
            log=(*index.log, Event(index.serial + 1, "", "publish", "1.0.0", "", note)),
        )  # fmt: skip

    CatalogClient(RetryingStore(LocalStore(tmp_path))).change("digits", noted("first"))

    def other(store):
        CatalogClient(RetryingStore(store)).change("digits", noted("other"))

    raced = CatalogClient(RetryingStore(Raced(tmp_path, other)))
    index = raced.change("digits", noted("mine"))
    assert [one.note for one in index.log] == ["first", "other", "mine"]
    assert CatalogClient(RetryingStore(LocalStore(tmp_path))).index("digits") == index


def test_who_loses_the_race_for_a_lease_waits_for_the_winner(tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(lease, "EXPIRY_SECONDS", 0.5)
    begin = time.monotonic()

    def win(store):
        store.replace("lock", b'{"machine": "another", "place": "/", "mark": "0"}', None)

    with lease.hold(Raced(tmp_path, win), "lock", "/here") as found:
        assert time.monotonic() - begin >= lease.EXPIRY_SECONDS
        found.check()
