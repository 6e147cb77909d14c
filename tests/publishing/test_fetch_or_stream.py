"""Loading from a store: the copy that is here, else the release; no builder's code."""

import time

import numpy as np
import pytest

import my_datasets
from my_datasets.core.version import VersionNumber
from my_datasets.errors import (
    DataDirError,
    InvalidOptionError,
    LockError,
    NotPreparedError,
    ReleaseNotFoundError,
    SplitNotFoundError,
    StoreUnavailableError,
    YankedError,
)
from my_datasets.metadata.manifest import Manifest
from my_datasets.publishing import admin
from my_datasets.publishing.catalog_client import CatalogClient
from my_datasets.publishing.publisher import publish
from my_datasets.publishing.puller import fetch
from my_datasets.resolving.lock import Lock, Locked
from my_datasets.storage.backends import open_store
from my_datasets.storage.backends.local import LocalStore
from my_datasets.storage.retry import RetryingStore, RetryPolicy
from tests.publishing import made

NO_PATIENCE = RetryPolicy(tries=1)


@pytest.fixture
def store(tmp_path, built):
    for version in ("1.0.0", "1.1.0"):
        publish(str(built(version)), tmp_path / "store")
    return tmp_path / "store"


@pytest.fixture
def here(tmp_path):
    return tmp_path / "here"


class Silent(LocalStore):
    def state(self, path, most):
        raise StoreUnavailableError("silent")


def test_load(store, here):
    data, info = my_datasets.load(
        "released:1.0.*", split="train", store=store, data_dir=here, with_info=True
    )
    assert (str(info.version), len(data)) == ("1.0.0", made.ROWS)
    assert str(info.data_dir) == str(here / "released" / "1.0.0")
    assert set(my_datasets.load("released", store=store, data_dir=here)) == {"train", "test"}
    assert (here / "released" / "1.1.0").is_dir()
    with pytest.raises(SplitNotFoundError, match="no split 'valid'"):
        my_datasets.load("released", split="valid", store=store, data_dir=here)
    with pytest.raises(ReleaseNotFoundError):
        my_datasets.load("released:3.*.*", store=store, data_dir=here)


def test_nothing_is_said_of_building_what_is_not_built(store, here):
    with pytest.raises(InvalidOptionError, match="is not built"):
        my_datasets.load("released", store=store, data_dir=here, builder_kwargs={"x": 1})


def test_nothing_is_downloaded_unasked(store, here):
    here.mkdir()
    with pytest.raises(NotPreparedError):
        my_datasets.load("released:1.0.0", store=store, data_dir=here, download=False)
    my_datasets.load("released:1.0.0", store=store, data_dir=here)
    my_datasets.load("released:1.0.0", store=store, data_dir=here, download=False)


@pytest.mark.parametrize("stream", [None, False])
@pytest.mark.parametrize("download", [True, False])
def test_a_data_directory_in_an_object_store_is_refused_before_any_request(
    store, monkeypatch, stream, download
):
    def unwanted(*_):
        raise AssertionError

    monkeypatch.setattr("my_datasets.resolving.bucket_version.mirror", unwanted)
    monkeypatch.setattr("my_datasets.publishing.puller.pull", unwanted)
    with pytest.raises(DataDirError, match="s3://bucket/data is in an object store"):
        my_datasets.load(
            "released:1.0.0", store=store, data_dir="s3://bucket/data", stream=stream,
            download=download,
        )  # fmt: skip


def test_what_was_withdrawn_is_reported_also_if_it_is_here(store, here):
    my_datasets.load("released:1.1.0", store=store, data_dir=here)
    ledger = CatalogClient(RetryingStore(open_store(store)))
    admin.yank(ledger, "released:1.1.0", "labels are wrong")
    with pytest.raises(YankedError, match="labels are wrong"):
        my_datasets.load("released:1.1.0", store=store, data_dir=here)
    assert fetch("released", store, here).name == "1.0.0"


def test_a_store_that_does_not_answer(store, here, caplog, tmp_path, monkeypatch):
    silent = Silent(store)
    with pytest.raises(StoreUnavailableError):
        fetch("released:1.*.*", silent, here, patience=NO_PATIENCE)
    path = fetch("released:1.0.0", store, here)
    assert fetch("released:1.*.*", silent, here, patience=NO_PATIENCE) == path
    assert "does not respond; using the local copy" in caplog.text
    monkeypatch.setenv("MY_DATASETS_LOCK", str(tmp_path / "lock"))
    Lock(tmp_path / "lock", {"released": Locked(None, VersionNumber(1, 0, 0), "0" * 64)}).write()
    with pytest.raises(LockError):
        fetch("released", silent, here, patience=NO_PATIENCE)
    digest = Manifest.read(path).content.digest
    Lock(tmp_path / "lock", {"released": Locked(None, VersionNumber(1, 0, 0), digest)}).write()
    assert fetch("released", silent, here, patience=NO_PATIENCE) == path


def test_without_a_network_nobody_waits_for_long(store, here, monkeypatch):
    path = fetch("released:1.0.0", store, here)
    pauses = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    assert fetch("released:1.0.0", Silent(store), here) == path
    assert len(pauses) == 1
    assert sum(pauses) < 1


def test_what_was_pulled_feeds_training(store, here):
    pulled = my_datasets.pull("released:1.*.*", store, here)
    batches = list(my_datasets.batches(pulled, batch_size=20, columns=["number"], shuffle=False))
    assert np.sort(np.concatenate([one["number"] for one in batches])).tolist() == list(range(60))
    assert len(my_datasets.source(pulled.path, split="test")) == 10
    assert str(my_datasets.plan(pulled)) == str(my_datasets.plan("released", data_dir=here))
