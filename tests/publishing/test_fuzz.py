"""Indexes, records and metadata that anybody may have written: an error that is told, or a release.

Never a crash, a hang, or a file elsewhere.
"""

import hashlib
import json
import random
import shutil
import time

import pytest

from my_datasets.errors import MyDatasetsError
from my_datasets.publishing import admin
from my_datasets.publishing.catalog_client import CatalogClient
from my_datasets.publishing.model import record
from my_datasets.publishing.publisher import publish
from my_datasets.publishing.puller import pull
from my_datasets.storage.backends import open_store
from my_datasets.storage.backends.local import LocalStore
from my_datasets.storage.retry import RetryingStore, RetryPolicy
from tests.publishing import made

LONGEST_SECONDS = 60
FOLDER = "released/1.0.0"
INDEX = "my-datasets/index/released.json"
STORE = "my-datasets/store.json"
METADATA = ("dataset_info.json", "features.json", "my_datasets_manifest.json")
HOSTILE = [
    None, True, False, 0, -1, 1, 1 << 63, 10**400, 1.5, 1e308, float("nan"), float("inf"), "", "..",
    "../../evil", "/tmp/evil", "a/b", "\0", "\ud800", "x" * 5000, "1.0.0", "9.9.9", "*.*.*",
    "config/1.0.0", "0" * 64, [], {}, [None], {"": None}, [[[[[[]]]]]], {"bytes": -1}, "é" * 300,
    "{0.__class__}", "${jndi:x}", "released:1.0.0", b"bytes".hex(), "placing", "deleted",
]  # fmt: skip


class Given(LocalStore):
    """A store of which some files are others than those on the disk."""

    def __init__(self, directory, files):
        super().__init__(directory)
        self._files = files

    def state(self, path, most):
        if path in self._files:
            return self._files[path], "tag"
        return super().state(path, most)

    def read(self, path, begin=0, end=None):
        if path in self._files:
            yield self._files[path][begin:end]
        else:
            yield from super().read(path, begin, end)


@pytest.fixture(scope="module")
def directory(tmp_path_factory, data_dir):
    where = tmp_path_factory.mktemp("fuzzed")
    for version in ("1.0.0", "1.1.0"):
        publish(str(data_dir / made.NAME / version), where)
    return where


def places(value, path=()):
    """Yields the path of each value in a document."""
    yield path
    if not isinstance(value, (dict, list)):
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield from places(inner, (*path, key))


def mutated_value(rng, value):
    """A document with some values replaced, removed, doubled or exchanged."""
    whole = json.loads(json.dumps(value))
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        path = rng.choice(list(places(whole)))
        if not path:
            continue
        inner = whole
        for key in path[:-1]:
            inner = inner[key]
        how = rng.randrange(5)
        if how == 0:
            del inner[path[-1]]
        elif how == 1 and isinstance(inner, list):
            inner.insert(path[-1], inner[path[-1]])
        elif how == 2 and isinstance(inner, dict):
            inner[str(rng.choice(HOSTILE))] = inner[path[-1]]
        elif how == 3 and isinstance(inner[path[-1]], str):
            text = inner[path[-1]]
            at = rng.randrange(len(text) + 1)
            inner[path[-1]] = text[:at] + rng.choice(["/", "..", "\0", "A", "é", " "]) + text[at:]
        else:
            inner[path[-1]] = rng.choice(HOSTILE)
    return whole


def mutated_bytes(rng, data):
    """Bytes with some flipped, cut out, doubled, or nested without end."""
    found = bytearray(data)
    for _ in range(rng.choice([1, 1, 3, 20])):
        at, to = sorted(rng.randrange(len(found) + 1) for _ in range(2))
        how = rng.randrange(6)
        if how == 0 and at < len(found):
            found[at] = rng.randrange(256)
        elif how == 1:
            del found[at : min(to, at + 50)]
        elif how == 2:
            found[at:at] = found[at : min(to, at + 50)]
        elif how == 3:
            found[at:at] = rng.choice(
                [b"[" * 100_000, b'{"a":' * 50_000, b"9" * 10_000, b"\xff\xfe"]
            )
        elif how == 4:
            del found[at:]
        else:
            found[at:at] = rng.choice([b'"', b"}", b"null", b"1e999", b"\\u0000", b"-"])
    return bytes(found)


def text_of(value):
    return (json.dumps(value, sort_keys=True, indent=1) + "\n").encode("ascii", "surrogatepass")


def mutated(rng, data):
    if rng.random() < 0.4:
        return mutated_bytes(rng, data)
    return text_of(mutated_value(rng, json.loads(data)))


def with_record(files, directory, data):
    """The files of a store whose index names another record, as who owns the store may write it."""
    whole = json.loads((directory / INDEX).read_bytes())
    whole["releases"]["1.0.0"]["record"] = hashlib.sha256(data).hexdigest()
    return {**files, INDEX: text_of(whole), f"{FOLDER}/{record.FILE_NAME}": data}


def forged(rng, directory):
    """The files of a store that somebody forged, in one of some ways."""
    how = rng.randrange(4)
    if how == 0:
        path = rng.choice([INDEX, STORE])
        return {path: mutated(rng, (directory / path).read_bytes())}
    old = (directory / FOLDER / record.FILE_NAME).read_bytes()
    if how == 1:
        return {f"{FOLDER}/{record.FILE_NAME}": mutated(rng, old)}
    if how == 2:
        return with_record({}, directory, mutated(rng, old))
    name = rng.choice(METADATA)
    data = mutated(rng, (directory / FOLDER / name).read_bytes())
    whole = json.loads(old)
    for one in whole["files"]:
        if one["name"] == name:
            one |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return with_record({f"{FOLDER}/{name}": data}, directory, text_of(whole))


def seen(directory):
    return {
        path.relative_to(directory).as_posix(): path.lstat().st_mtime_ns
        for path in directory.rglob("*")
        if path.is_file()
    }


def told(work):
    """What some work gives; None if it fails with an error of ours, that says what to do."""
    problem = ""
    try:
        return work()
    except MyDatasetsError as error:
        problem = str(error)
    assert "Fix: " in problem
    assert len(problem) < 5000
    return None


@pytest.mark.parametrize("count", [200, pytest.param(10_000, marks=pytest.mark.slow)])
def test_whatever_a_store_says(directory, tmp_path, count, built):
    rng = random.Random(count)
    outer = tmp_path / "outer"
    (outer / "canary").mkdir(parents=True)
    (outer / "canary" / "file").write_text("mine")
    before_store, before_outer = seen(directory), seen(outer / "canary")
    good = made.contents(built())
    outcomes = {"refused": 0, "pulled": 0}
    here = outer / "here"
    for number in range(count):
        files = forged(rng, directory)
        ledger = CatalogClient(RetryingStore(Given(directory, files), RetryPolicy(tries=1)))
        begin = time.monotonic()
        splits = rng.choice([None, None, ["test"]])
        done = told(lambda one=ledger, some=splits: pull(
            "released:1.0.0", one.store.origin, here, patience=RetryPolicy(tries=1), splits=some
        ))  # fmt: skip
        if done is None:
            outcomes["refused"] += 1
            assert not (here / "released" / "1.0.0").exists(), number
        else:
            outcomes["pulled"] += 1
            assert done.path == here / "released" / "1.0.0"
            for name, data in made.contents(done.path).items():
                if "-of-" in name:
                    assert data == good[name], (number, name)
        told(lambda one=ledger: admin.releases(one))
        told(lambda one=ledger: admin.history(one, "released"))
        assert time.monotonic() - begin < LONGEST_SECONDS, number
        assert seen(outer / "canary") == before_outer, number
        assert {path.name for path in outer.iterdir()} <= {"canary", "here"}, number
        assert {path.name for path in here.iterdir()} <= {"released"} if here.exists() else True
        shutil.rmtree(here, ignore_errors=True)
    assert seen(directory) == before_store
    assert outcomes["refused"] > count / 4
    assert outcomes["pulled"] > count / 20, outcomes


def test_the_same_without_a_change_is_pulled(directory, tmp_path):
    """What the others are mutations of is right, so that what refuses them is the mutation."""
    old = (directory / FOLDER / record.FILE_NAME).read_bytes()
    files = with_record({}, directory, old)
    assert pull("released:1.0.0", Given(directory, files), tmp_path).path.is_dir()
    assert open_store(directory).url == str(directory)
