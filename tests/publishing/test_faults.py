"""Kills, networks, disks and clocks: nothing partial is seen, and the next run completes it."""

import os
import random
import shutil
import time
import urllib.parse

import pytest

from my_datasets.errors import CorruptReleaseError, DiskFullError, ReleaseConflictError, StoreError
from my_datasets.publishing.admin import collect_garbage
from my_datasets.publishing.catalog_client import CatalogClient
from my_datasets.publishing.model import record
from my_datasets.publishing.model import store_layout as indexes
from my_datasets.publishing.publisher import publish
from my_datasets.publishing.puller import pull
from my_datasets.publishing.upload import Outcome
from my_datasets.storage.backends import open_store
from my_datasets.storage.retry import RetryingStore, RetryPolicy
from my_datasets.verification.verifier import Level, verify
from tests.publishing import made
from tests.publishing.apart import Apart, Looking, LookingHere, seconds_of
from tests.publishing.faulty import Proxy
from tests.publishing.test_puller import same_as_built
from tests.publishing.web import serving

pytestmark = pytest.mark.faults

KILLS = [2, pytest.param(20, marks=pytest.mark.slow)]


def contents(store, folder):
    return {
        one.path.rpartition("/")[2]: b"".join(store.read(one.path)) for one in store.list(folder)
    }


def is_published(store, built):
    there = contents(store, "released/1.0.0")
    there.pop(record.FILE_NAME)
    assert there == made.contents(built)
    assert (
        CatalogClient(RetryingStore(store)).index("released").releases["1.0.0"].state == "published"
    )


@pytest.mark.parametrize("kills", KILLS)
def test_publishers_that_are_killed(address, store, built, kills):
    rng = random.Random(kills)
    whole = seconds_of(Apart("publish", f"{address}_whole", built()))
    survived = 0
    with Looking(address, built()) as looking:
        for _ in range(kills):
            publisher = Apart("publish", address, built())
            publisher.begin()
            time.sleep(rng.uniform(0, 0.9) * whole)
            publisher.kill()
        survived += looking.seen > 0
        found = CatalogClient(RetryingStore(store)).index("released").releases.get("1.0.0")
        is_there = found is not None and found.state is indexes.ReleaseState.PUBLISHED
        done = publish(str(built()), store, version_gate=False)
        assert done.outcome is (Outcome.ALREADY if is_there else Outcome.PUBLISHED)
    is_published(store, built())
    ledger = CatalogClient(RetryingStore(store))
    collect_garbage(ledger, older_than=-5, delete=True)
    is_published(store, built())
    others = {one.path.split("/")[1] for one in store.list("my-datasets")}
    assert others == {"index", "store.json"}


@pytest.mark.parametrize("kills", KILLS)
def test_pullers_that_are_killed(address, store, built, tmp_path, kills):
    publish(str(built()), store)
    rng = random.Random(kills)
    whole = seconds_of(Apart("pull", address, tmp_path / "whole"))
    with LookingHere(tmp_path / "here" / "released" / "1.0.0", built()):
        for _ in range(kills):
            puller = Apart("pull", address, tmp_path / "here")
            puller.begin()
            time.sleep(rng.uniform(0, 0.9) * whole)
            puller.kill()
        done = pull("released:1.0.0", store, tmp_path / "here")
    same_as_built(done.path, built())
    assert verify(done.path, level=Level.BYTES).issues == ()
    assert [one.name for one in done.path.parent.iterdir() if one.name != ".1.0.0.lock"] == [
        "1.0.0"
    ]


def test_pullers_of_a_web_server_that_are_killed(built, tmp_path):
    publish(str(built()), tmp_path / "store")
    with serving(tmp_path / "store") as (url, _):
        whole = seconds_of(Apart("pull", url, tmp_path / "whole"))
        with LookingHere(tmp_path / "here" / "released" / "1.0.0", built()):
            for part in (0.3, 0.7):
                puller = Apart("pull", url, tmp_path / "here")
                puller.begin()
                time.sleep(part * whole)
                puller.kill()
            done = pull("released:1.0.0", url, tmp_path / "here")
    same_as_built(done.path, built())


@pytest.mark.parametrize("publishers", [4])
def test_publishers_in_processes_of_their_own(address, store, built, tmp_path, publishers):
    mine = [built(), *(made.make(tmp_path / str(i), salt=str(i)) for i in range(publishers - 1))]
    apart = [Apart("publish", address, path) for path in mine]
    for one in apart:
        one.begin()
    errors = [one.end() for one in apart]
    won = [i for i, error in enumerate(errors) if not error]
    assert len(won) == 1, errors
    assert all("ReleaseConflictError" in error for error in errors if error), errors
    is_published(store, mine[won[0]])


def test_pullers_in_processes_of_their_own(built, tmp_path):
    publish(str(built()), tmp_path / "store")
    with serving(tmp_path / "store") as (url, asked):
        apart = [Apart("pull", url, tmp_path / "here") for _ in range(8)]
        with LookingHere(tmp_path / "here" / "released" / "1.0.0", built()):
            for one in apart:
                one.begin()
            assert [one.end() for one in apart] == [""] * 8
        names = [path for method, path, _ in asked if "train" in path]
    assert len(names) == len(set(names))  # each was fetched once
    same_as_built(tmp_path / "here" / "released" / "1.0.0", built())


def through(monkeypatch, variable, seed):
    """Puts a proxy before the server that an environment variable names."""
    parts = urllib.parse.urlsplit(os.environ[variable])
    proxy = Proxy((parts.hostname, parts.port), seed)
    monkeypatch.setenv(variable, f"http://{proxy.address}")
    return proxy


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(i, marks=pytest.mark.slow) for i in range(2, 12))]
)
@pytest.mark.parametrize("kind", ["s3", "gcs"])
def test_networks_and_servers_that_fail(
    request, kind, seed, built, tmp_path, monkeypatch, caplog, capfd
):
    bucket = request.getfixturevalue(f"{kind}_bucket")
    address = f"{bucket}/faulty{seed}"
    variable = {"s3": "AWS_ENDPOINT_URL", "gcs": "STORAGE_EMULATOR_HOST"}[kind]
    patience = RetryPolicy(tries=12, first_wait=0.01, longest_wait=0.05)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    caplog.set_level("DEBUG")
    direct = open_store(address)
    with through(monkeypatch, variable, seed) as proxy:
        publish(str(built()), address, patience=patience)
        done = pull("released:1.0.0", address, tmp_path, patience=patience)
    assert sum(proxy.faults.values()) > 1, proxy.faults
    is_published(direct, built())
    same_as_built(done.path, built())
    assert "hunter2" not in caplog.text + "".join(capfd.readouterr())
    assert all(b"hunter2" not in data for data in contents(direct, "").values())


def test_a_web_server_behind_a_bad_network(built, tmp_path):
    publish(str(built()), tmp_path / "store")
    patience = RetryPolicy(tries=12, first_wait=0.01, longest_wait=0.05)
    with serving(tmp_path / "store") as (url, _):
        parts = urllib.parse.urlsplit(url)
        with Proxy((parts.hostname, parts.port), seed=3, share=0.6) as proxy:
            done = pull("released:1.0.0", f"http://{proxy.address}", tmp_path, patience=patience)
    assert sum(proxy.faults.values()) > 3, proxy.faults
    same_as_built(done.path, built())


def test_a_full_disk_while_publishing(built, tmpfs):
    disk = tmpfs("500k")
    filler = disk / "filler"
    filler.write_bytes(bytes(300 << 10))
    with Looking(str(disk / "store"), built()), pytest.raises(DiskFullError, match="is full"):
        publish(str(built()), disk / "store")
    filler.unlink()
    done = publish(str(built()), disk / "store")
    assert 0 < done.uploaded < done.bytes
    is_published(open_store(disk / "store"), built())


def test_where_nothing_may_be_written(built, tmpfs, tmp_path):
    disk = tmpfs("1m", "ro")
    with pytest.raises(StoreError, match="Read-only file system"):
        publish(str(built()), disk / "store")
    publish(str(built()), tmp_path / "store")
    with pytest.raises(OSError, match=r"cannot be written|Read-only"):
        pull("released", tmp_path / "store", disk)


def test_a_store_that_is_emptied_midway(address, store, built):
    class Emptied:
        """Everything is gone when the release is to be placed."""

        def __getattr__(self, name):
            return getattr(store, name)

        def move(self, *arguments):
            for one in store.list("my-datasets/uploads"):
                store.delete(one.path)
            store.move(*arguments)

    with pytest.raises((CorruptReleaseError, StoreError)), Looking(address, built()):
        publish(str(built()), Emptied())
    publish(str(built()), store)
    is_published(store, built())


def test_clocks_that_are_wrong(address, store, built, tmp_path, monkeypatch):
    for version, time_there in [
        ("1.0.0", "1970-01-01T00:00:00Z"),
        ("2.0.0", "2200-01-01T00:00:00Z"),
    ]:
        monkeypatch.setattr(indexes, "now", lambda said=time_there: said)
        publish(str(built(version)), store)
    monkeypatch.undo()
    assert collect_garbage(CatalogClient(RetryingStore(store))) == []
    assert pull("released", store, tmp_path).path.name == "2.0.0"
    with pytest.raises(ReleaseConflictError):
        publish(str(made.make(tmp_path / "other", salt="o")), store, version_gate=False)
    shutil.rmtree(tmp_path / "other")
