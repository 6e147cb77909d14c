"""A store that fails now and then: asked again, not for ever, and never twice for one thing."""

import hashlib
import random
import time

import pytest

from my_datasets.errors import (
    AlreadyInStoreError,
    ChangedInStoreError,
    NotInStoreError,
    StoreError,
    StoreUnavailableError,
)
from my_datasets.publishing.catalog_client import CatalogClient
from my_datasets.storage.backends.local import LocalStore
from my_datasets.storage.retry import RetryingStore, RetryPolicy

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


def test_it_does_not_go_on_where_others_change_it_all_the_time(tmp_path, monkeypatch):
    monkeypatch.setattr("my_datasets.publishing.catalog_client._TURNS", 3)

    class Crowded(LocalStore):
        def replace(self, path, data, tag):
            raise ChangedInStoreError("by others")

    with pytest.raises(StoreError, match="Other publishers keep changing"):
        CatalogClient(RetryingStore(Crowded(tmp_path))).set()
