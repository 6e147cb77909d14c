"""Each entry point reads `dataset_info.json`, `features.json` and the manifest at most once."""

import os
import shutil
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest
import tensorflow_datasets as tfds

import my_datasets
from my_datasets.errors import PlanError
from my_datasets.metadata import dataset_info, feature_classes, manifest
from my_datasets.verification.verifier import Level, verify

INFO, FEATURES, MANIFEST = dataset_info.FILE_NAME, feature_classes.FILE_NAME, manifest.FILE_NAME
FILES = frozenset({INFO, FEATURES, MANIFEST})
ONCE = dict.fromkeys(FILES, 1)
# To find the version that a name means, `metadata.layout` opens the metadata of each version once,
# without reading it, to see whether this user may.
PROBED = {INFO: 2, FEATURES: 2, MANIFEST: 1}
# The check before TFDS reads them; it may be long after they were opened.
CHECKED = {INFO: 3, FEATURES: 2, MANIFEST: 0}
# `load` also asks the data that TFDS found whether it is blocked.
LOADED = {INFO: 4, FEATURES: 2, MANIFEST: 0}
# `verify` also hashes the files, to recognise an interrupted run over the same metadata.
HASHED = dict.fromkeys(FILES, 2)
# Both sides of a comparison.
TWICE = dict.fromkeys(FILES, 2)
# `publish` verifies, hashes each file for the release's record, and uploads it.
PUBLISHED = dict.fromkeys(FILES, 4)

_opened: Counter[str] | None = None


def _count(event: str, args: tuple[object, ...]) -> None:
    if event == "open" and _opened is not None and isinstance(args[0], str | bytes | os.PathLike):
        name = Path(os.fsdecode(args[0])).name
        if name in FILES and _is_ours():
            _opened[name] += 1


def _is_ours() -> bool:
    """Returns whether this package opens a file, not TFDS, which it may have called."""
    frame = sys._getframe(2)
    while frame is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package in ("my_datasets", "tensorflow_datasets"):
            return package == "my_datasets"
        frame = frame.f_back
    return False


sys.addaudithook(_count)  # cannot be removed: outside of `counted` it does nothing


@contextmanager
def counted():
    """Counts how often this package opens each file of metadata."""
    global _opened
    _opened = found = Counter()
    try:
        yield found
    finally:
        _opened = None


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    directory = tmp_path_factory.mktemp("data")
    tfds.builder("digits", data_dir=directory).download_and_prepare()
    return directory


@pytest.fixture
def version(data_dir):
    return data_dir / "digits" / "1.0.0"


@pytest.fixture(autouse=True)
def _no_lock(monkeypatch):
    monkeypatch.setenv("MY_DATASETS_LOCK", "")


def _used(version):
    return version.name, version.splits, version.schema, version.manifest, version.stats()


# What is called with a reference or a directory, and its data directory; and the most that it may
# open if it is given a reference, and a directory.
BY_REFERENCE = {
    "batches": (lambda one, **at: list(my_datasets.batches(one, **at)), PROBED, ONCE),
    "pipeline": (lambda one, **at: next(iter(my_datasets.pipeline(one, **at))), PROBED, ONCE),
    "source": (lambda one, **at: my_datasets.source(one, **at)[0], PROBED, ONCE),
    "plan": (lambda one, **at: my_datasets.plan(one, **at), PROBED, ONCE),
    "open": (lambda one, **at: _used(my_datasets.open(one, **at)), PROBED, ONCE),
    # Before TFDS reads the files, they are checked as they are then.
    "info": (lambda one, **at: my_datasets.open(one, **at).info.features, CHECKED, ONCE),
}


@pytest.mark.parametrize("name", BY_REFERENCE)
def test_an_entry_point_reads_each_file_once(name, data_dir, version):
    call, most, most_of_directory = BY_REFERENCE[name]
    for given, allowed in (
        ({"one": "digits:1.*.*", "data_dir": data_dir}, most),
        ({"one": version}, most_of_directory),
    ):
        with counted() as found:
            call(**given)
        assert found[INFO], "nothing was counted"
        assert all(found[file] <= allowed[file] for file in FILES), found


ON_A_DIRECTORY = {
    "verify": (lambda path: verify(path, level=Level.FAST), ONCE),
    "verify bytes": (lambda path: verify(path, level=Level.BYTES, workers=1), HASHED),
    "diff": (lambda path: my_datasets.open(path).diff(path), TWICE),
}


@pytest.mark.parametrize("name", ON_A_DIRECTORY)
def test_checking_a_version_reads_each_file_once(name, version):
    call, most = ON_A_DIRECTORY[name]
    with counted() as found:
        call(version)
    assert found[INFO]
    assert all(found[file] <= most[file] for file in FILES), found


def test_exporting_and_publishing_read_each_file_once(version, tmp_path):
    with counted() as found:
        my_datasets.open(version).export(tmp_path / "parquet")
    assert all(found[file] <= ONCE[file] for file in FILES), found
    with counted() as found:
        my_datasets.open(version).publish(tmp_path / "store")
    assert all(found[file] <= PUBLISHED[file] for file in FILES), found


def test_loading_a_prepared_version_checks_each_file_once_for_tfds(data_dir):
    with counted() as found:
        my_datasets.load("digits:1.*.*", data_dir=data_dir, split="train")
    assert found[INFO]
    assert all(found[file] <= LOADED[file] for file in FILES), found


def test_a_version_that_changes_between_two_calls_is_read_again(version, tmp_path):
    """Nothing outlives the call that read it; a version that is held says what it read."""
    copy = tmp_path / "digits" / "1.0.0"
    shutil.copytree(version, copy)
    held, made = my_datasets.open(copy), my_datasets.plan(copy)
    assert held.manifest.fingerprint
    info = (copy / INFO).read_text()
    (copy / INFO).write_text(info.replace('"1.0.0"', '"1.0.1"'))
    assert my_datasets.open(copy).name == "digits:1.0.1"
    assert my_datasets.source(copy).name == held.source().name == "digits:1.0.1"
    with pytest.raises(PlanError):
        my_datasets.batches(made)
    assert not held.verify().is_good
    (copy / INFO).write_text(info)
    assert len(my_datasets.batches(made)) == len(my_datasets.batches(copy))
