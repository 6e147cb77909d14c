"""Releases afterwards: listed, withdrawn, collected."""

import hashlib
import os
import time

import pytest

from my_datasets.core.version import VersionNumber
from my_datasets.errors import (
    InvalidReferenceError,
    PublishError,
    ReleaseConflictError,
    ReleaseNotFoundError,
    StoreError,
    YankedError,
)
from my_datasets.metadata.manifest import Manifest
from my_datasets.publishing import admin
from my_datasets.publishing.admin import collect_garbage
from my_datasets.publishing.catalog_client import CatalogClient
from my_datasets.publishing.model import store_layout
from my_datasets.publishing.model.store_layout import ReleaseState
from my_datasets.publishing.publisher import publish
from my_datasets.publishing.puller import pull
from my_datasets.resolving.lock import Lock, Locked
from my_datasets.storage.backends import open_store
from my_datasets.storage.retry import RetryingStore
from tests.publishing import made
from tests.publishing.web import serving

MESSAGE = "labels of class 3 are wrong; use 1.1.0"


@pytest.fixture
def ledger(store, built):
    for version in ("1.0.0", "1.1.0"):
        publish(str(built(version)), store)
    return CatalogClient(RetryingStore(store))


def test_a_list(ledger, tmp_path):
    version = made.make(tmp_path / "built", base=made.InConfigs, config="small")
    publish(str(version), ledger.store)
    assert [one.name for one in admin.releases(ledger)] == [
        "released:1.0.0", "released:1.1.0", "released_in_configs/small:1.0.0"
    ]  # fmt: skip
    assert [one.key for one in admin.releases(ledger, "released")] == ["1.0.0", "1.1.0"]
    for read in (admin.releases, admin.history):
        with pytest.raises(ReleaseNotFoundError, match="Found: released, released_in_configs"):
            read(ledger, "other")


def test_it_is_listed_where_nothing_can_be_listed(tmp_path, built):
    publish(str(built()), tmp_path)
    with serving(tmp_path) as (url, _):
        (one,) = admin.releases(CatalogClient(RetryingStore(open_store(url))))
    assert (one.name, one.release.state) == ("released:1.0.0", ReleaseState.PUBLISHED)
    assert one.to_json()["state"] == "published"


def test_a_store_that_is_none(tmp_path):
    ledger = CatalogClient(RetryingStore(open_store(tmp_path)))
    for read in (admin.releases, lambda one: admin.history(one, "a"), collect_garbage,
                 lambda one: admin.yank(one, "a:1.0.0", "why")):  # fmt: skip
        with pytest.raises(StoreError, match="There is no store at"):
            read(ledger)
    assert list(tmp_path.iterdir()) == []


def test_what_is_withdrawn(ledger, tmp_path, built):
    admin.yank(ledger, "released:1.1.0", MESSAGE)
    assert pull("released:1.*.*", ledger.store, tmp_path).path.name == "1.0.0"
    assert pull("released", ledger.store, tmp_path).path.name == "1.0.0"
    with pytest.raises(YankedError, match=MESSAGE):
        pull("released:1.1.0", ledger.store, tmp_path)
    with pytest.raises(YankedError, match=MESSAGE):
        pull("released:*.1.*", ledger.store, tmp_path)
    with pytest.raises(ReleaseConflictError, match="published and yanked"):
        publish(str(built("1.1.0")), ledger.store)
    assert list(ledger.store.list("released/1.1.0"))  # the bytes stay
    admin.yank(ledger, "released:1.1.0", MESSAGE)  # a second time nothing happens
    admin.unyank(ledger, "released:1.1.0")
    assert pull("released", ledger.store, tmp_path).path.name == "1.1.0"
    assert [one.action for one in admin.history(ledger, "released")[4:]] == ["yank", "unyank"]
    assert admin.history(ledger, "released")[4].note == MESSAGE


def test_what_cannot_be_withdrawn(ledger):
    for wrong in ("released", "released:1.*.*"):
        with pytest.raises(InvalidReferenceError, match="does not name an exact version"):
            admin.yank(ledger, wrong, MESSAGE)
    for wrong in ("released:9.9.9", "other:1.0.0"):
        with pytest.raises(ReleaseNotFoundError):
            admin.yank(ledger, wrong, MESSAGE)
    with pytest.raises(PublishError, match="requires a reason"):
        admin.yank(ledger, "released:1.0.0", " ")
    assert ledger.settings().datasets == ("released",)


def everything(store):
    return {one.path: one.bytes for one in store.list("")}


def test_uploads_that_were_never_finished(ledger):
    store = ledger.store
    upload = store_layout.upload_of("released", "3.0.0", "a" * 64)
    before = everything(store)
    store.create(f"{upload}/shard", b"12345", hashlib.sha256(b"12345").hexdigest())
    assert collect_garbage(ledger) == []  # somebody may be at it
    (found,) = collect_garbage(ledger, older_than=-5)
    assert (found.folder, found.files, found.bytes) == (upload, 1, 5)
    assert everything(store) != before
    collect_garbage(ledger, older_than=-5, delete=True)
    assert everything(store) == before


def test_an_upload_that_is_being_placed_is_kept(ledger, built):
    class Dies:
        def __getattr__(self, name):
            return getattr(ledger.store.origin, name)

        def move(self, *_):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publish(str(built("2.0.0")), Dies())
    assert collect_garbage(ledger, older_than=-5, delete=True) == []
    publish(str(built("2.0.0")), ledger.store)


def test_what_a_killed_writer_left_in_a_directory(tmp_path, built):
    publish(str(built()), tmp_path)
    ledger = CatalogClient(RetryingStore(open_store(tmp_path)))
    left = tmp_path / "my-datasets" / "half-written" / "abc"
    left.write_bytes(b"1234")
    assert collect_garbage(ledger, delete=True) == []
    long_ago = time.time() - 8 * 24 * 3600
    os.utime(left, (long_ago, long_ago))
    assert [one.bytes for one in collect_garbage(ledger, delete=True)] == [4]
    assert not left.exists()
    # A clock that is wrong deletes nothing.
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(b"1234")
    os.utime(left, (time.time() + 1e6,) * 2)
    assert collect_garbage(ledger, delete=True) == []


def test_withdrawn_releases_go_if_no_lock_holds_them(ledger, tmp_path, built):
    admin.yank(ledger, "released:1.0.0", MESSAGE)
    digest = Manifest.read(built()).content.digest
    lock = Lock(tmp_path / "lock", {"released": Locked(None, VersionNumber(1, 0, 0), digest)})
    before = everything(ledger.store)
    assert collect_garbage(ledger, delete=True) == []
    assert collect_garbage(ledger, delete=True, yanked=True, locks=[lock]) == []
    (found,) = collect_garbage(ledger, yanked=True)
    assert (found.folder, found.reason) == ("released/1.0.0", f"yanked: {MESSAGE}")
    assert everything(ledger.store) == before
    collect_garbage(ledger, yanked=True, delete=True)
    assert not list(ledger.store.list("released/1.0.0"))
    assert {*before} - {*everything(ledger.store)} == {
        path for path in before if path.startswith("released/1.0.0/")
    }  # fmt: skip
    with pytest.raises(ReleaseConflictError, match="was published and deleted"):
        publish(str(built()), ledger.store)
    with pytest.raises(ReleaseNotFoundError):
        pull("released:1.0.0", ledger.store, tmp_path)
    assert pull("released", ledger.store, tmp_path).path.name == "1.1.0"


def test_a_deletion_that_was_killed_is_completed(ledger):
    admin.yank(ledger, "released:1.0.0", MESSAGE)
    store, left = ledger.store, 3

    class Dies:
        def __getattr__(self, name):
            return getattr(store, name)

        def delete(self, path):
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
            store.delete(path)

    with pytest.raises(KeyboardInterrupt):
        collect_garbage(CatalogClient(RetryingStore(Dies())), yanked=True, delete=True)
    assert "released/1.0.0/features.json" not in everything(store)  # no reader finds the rest
    (found,) = collect_garbage(ledger, delete=True)
    assert found.reason == "the remains of a deletion"
    assert not list(store.list("released/1.0.0"))
    assert collect_garbage(ledger) == []
