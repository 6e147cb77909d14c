"""Versions that are made in an object store: the same bytes, whole there, or not to be seen."""

import contextlib
import functools
import hashlib
import json
import multiprocessing
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import tensorflow_datasets as tfds
from click.testing import CliRunner

import my_datasets
from my_datasets import errors
from my_datasets.builders import remote_build
from my_datasets.builders.remote_build import Destination
from my_datasets.building.engines.beam import buckets, run_files, runners
from my_datasets.building.engines.beam.workers import WorkerEnvironment
from my_datasets.building.engines.beam.workspace import BucketWorkspace
from my_datasets.building.options import BuildOptions
from my_datasets.cli.main import cli
from my_datasets.metadata.layout import METADATA_FILES
from my_datasets.storage import lease, store
from my_datasets.storage.backends import open_store
from tests.building.engines import toys
from tests.building.engines.builds import THREE_SHARDS, kill
from tests.building.engines.builds import build as build_here
from tests.building.engines.test_beam_faults import Slow
from tests.publishing.google import leading_to

pytestmark = pytest.mark.integration

FOLDER = "toy_engine/1.0.0"


@pytest.fixture(params=["s3", "gcs"])
def url(request, tmp_path, monkeypatch):
    """A folder of a bucket; what is prepared for it lies in a home of this test's own."""
    bucket = request.getfixturevalue(f"{request.param}_bucket")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MY_DATASETS_HOME", str(tmp_path / "home/.mine"))
    return f"{bucket}/{tmp_path.name}"


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The files of the version as it is built in a directory."""
    version_dir = build_here(toys.InUnits, tmp_path_factory.mktemp("expected"), workers=1)
    return {path.name: path.read_bytes() for path in version_dir.iterdir()}


def build(url, cls=toys.InUnits, config=THREE_SHARDS, **options):
    builder = cls(data_dir=Path.home() / "data")
    how = BuildOptions(destination=url, report=lambda _: None, **options)
    builder.download_and_prepare(download_config=config, build_options=how)
    return builder


def files(url, folder=FOLDER):
    """The files of a folder, whose contents are read."""
    there = open_store(url)
    return {
        one.path.removeprefix(f"{folder}/"): b"".join(there.read(one.path))
        for one in there.list(folder)
    }


def check_same(found, expected):
    assert found.keys() == expected.keys()
    for name, data in expected.items():
        if name == "my_datasets_manifest.json":
            one, other = json.loads(found[name]), json.loads(data)
            for member in ("content", "statistics", "fingerprint", "splits", "files"):
                assert one[member] == other[member]
        elif name != "dataset_info.json":  # where the numbers of splits and downloads stand
            assert found[name] == data, name


def everything(url):
    return {one.path for one in open_store(url).list("")}


def test_the_local_engine(url, expected):
    builder = build(url, workers=1)
    check_same(files(url), expected)
    assert builder.info.splits["train"].num_examples == toys.UNITS * toys._Toy.rows
    assert everything(url) == {f"{FOLDER}/{name}" for name in expected}
    left = [path for path in (Path.home() / ".mine").rglob("*") if path.is_file()]
    assert {path.name for path in left if path.stat().st_size} == {".mark"}
    assert not (Path.home() / "data" / FOLDER).exists()


def test_beam_without_workers(url, expected):
    build(url, engine="beam")
    check_same(files(url), expected)


def test_workers_write_and_read_in_the_store(url, expected, dask_in_process, monkeypatch):
    monkeypatch.setattr(run_files, "_BUFFER_SHARE", 2e-5)
    monkeypatch.setattr(buckets, "MOST_BYTES", 20_000)
    # Several pipelines, each of which reads a part of each run.
    monkeypatch.setattr(runners.Submission, "at_once", lambda self, memory: 70_000)
    brought = []
    original = BucketWorkspace.put

    def noted(self, path, name):
        brought.append(name)
        original(self, path, name)

    monkeypatch.setattr(BucketWorkspace, "put", noted)
    options = {"runner": "dask", "dask_client_address": dask_in_process}
    build(url, beam_options=options)
    check_same(files(url), expected)
    assert everything(url) == {f"{FOLDER}/{name}" for name in expected}
    for kind in ("generated/train/", "parts/train/", "shards/"):
        assert any(name.startswith(kind) for name in brought), kind


def test_collections_are_built_there_too(url, tmp_path, dask_in_process):
    version_dir = build_here(Slow, tmp_path / "here", engine="beam")
    options = {"runner": "dask", "dask_client_address": dask_in_process}
    build(url, Slow, beam_options=options)
    check_same(files(url), {path.name: path.read_bytes() for path in version_dir.iterdir()})


def test_what_is_there_is_read_where_it_is(url, expected):
    build(url, workers=1)
    batches = my_datasets.pipeline(
        "toy_engine:1.0.0", split="train", data_dir=url, batch_size=64, epochs=1
    )
    numbers = np.concatenate([batch["n"].numpy() for batch in batches])
    assert len(numbers) == toys.UNITS * toys._Toy.rows


def test_what_is_there_is_not_built_again(url, expected, monkeypatch):
    build(url, workers=1)
    before = {one.path: one.modified for one in open_store(url).list("")}
    monkeypatch.setattr(toys._Toy, "before", staticmethod(lambda *_: pytest.fail("built")))
    builder = build(url, workers=1)
    assert builder.info.splits["train"].num_examples == toys.UNITS * toys._Toy.rows
    assert {one.path: one.modified for one in open_store(url).list("")} == before


def test_it_is_not_overwritten(url, expected):
    build(url, workers=1)
    overwrite = tfds.download.DownloadConfig(
        download_mode=tfds.download.GenerateMode.REUSE_CACHE_IF_EXISTS
    )
    with pytest.raises(errors.OverwriteError, match="cannot be overwritten in place"):
        build(url, config=overwrite)
    check_same(files(url), expected)


def test_data_of_other_code_are_not_taken_for_these(url):
    build(url, workers=1)

    class Other(toys.InUnits, skip_registration=True):
        name = "toy_engine"
        rows = 5

    with pytest.raises(errors.StaleDataError):
        build(url, Other, workers=1)


def test_what_interrupted_builds_left_does_not_come_into_the_version(url, expected):
    """A shard of another number of shards, and one of the right name with other contents."""
    for name in ("toy_engine-train.tfrecord-00000-of-00007", next(iter(sorted(expected)))):
        left_behind(url, f"{FOLDER}/{name}")
    build(url, workers=1)
    check_same(files(url), expected)


def test_where_releases_are_nothing_is_built(url):
    there = open_store(url)
    there.replace(store.MARK, b"{}", None)
    with pytest.raises(errors.DataDirError, match="contains releases"):
        build(url)


def test_only_downloads(url):
    none = tfds.download.DownloadConfig(max_examples_per_split=0)
    build(url, config=none)
    assert everything(url) == set()


def test_addresses_that_are_none():
    with pytest.raises(errors.InvalidOptionError, match="s3://BUCKET/FOLDER or gs://"):
        BuildOptions(destination="/data")


def test_a_bucket_that_is_not_there(s3_bucket, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MY_DATASETS_HOME", str(tmp_path))
    with pytest.raises(errors.StoreError, match="There is no bucket"):
        build("s3://no-such-bucket-here/data", workers=1)


def test_a_worker_that_cannot_use_the_bucket_is_reported(s3_bucket):
    place = BucketWorkspace("s3://no-such-bucket-here/data", "a/w", "a/v")
    with pytest.raises(errors.BuildInterruptedError, match=r"A worker (cannot use|does not see) "):
        WorkerEnvironment(place).check()


def test_nobody_sees_a_part_of_it(url, expected):
    """Whenever TFDS would take the version for one, all of it is there."""
    over, seen = threading.Event(), []

    def look():
        there = open_store(url)
        is_last = False
        while not is_last:
            is_last = over.is_set()  # the last look begins when the build has ended
            names = {one.path.removeprefix(f"{FOLDER}/") for one in there.list(FOLDER)}
            seen.append((names.issuperset(METADATA_FILES), names == set(expected)))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        build(url, workers=1)
    finally:
        over.set()
        thread.join()
    assert all(is_whole for is_found, is_whole in seen if is_found)
    assert seen[-1] == (True, True)


def test_it_resumes_wherever_delivering_failed(url, expected, monkeypatch):
    original, calls = Destination._put, []

    def failing(self, there, path, source, at):
        calls.append(path)
        if len(calls) == at:
            raise errors.StoreUnavailableError("the network is gone")
        original(self, there, path, source)

    generated = []
    monkeypatch.setattr(toys._Toy, "before", staticmethod(lambda *_: generated.append(1)))
    for at in (1, 4, len(expected) - 1, len(expected)):
        calls.clear()
        monkeypatch.setattr(Destination, "_put", functools.partialmethod(failing, at=at))
        with pytest.raises(errors.StoreUnavailableError):
            build(url, workers=1)
        assert not Destination(url, FOLDER).is_prepared()
    monkeypatch.setattr(Destination, "_put", original)
    build(url, workers=1)
    check_same(files(url), expected)
    assert len(generated) == (toys.UNITS + 1) * toys._Toy.rows  # once


def left_behind(url, name, data=b"left behind"):
    open_store(url).create(name, data, hashlib.sha256(data).hexdigest())


def test_what_stays_of_a_build_that_was_killed_as_it_was_done_is_removed(url, expected):
    build(url, workers=1)
    left_behind(url, "toy_engine/.1.0.0.work/place")
    build(url, workers=1)
    assert everything(url) == {f"{FOLDER}/{name}" for name in expected}


def test_shards_from_here_are_never_taken_for_those_of_work_on_beam(url, monkeypatch):
    left_behind(url, "toy_engine/.1.0.0.work/beam.json")

    def failing(*_):
        raise errors.StoreUnavailableError("the network is gone")

    monkeypatch.setattr(Destination, "_put", failing)
    with pytest.raises(errors.StoreUnavailableError):
        build(url, workers=1)
    assert not any(".work" in path for path in everything(url))


@pytest.mark.parametrize("data", [None, b"left behind"])
def test_shards_that_have_gone_stop_it_and_it_can_be_restarted(url, expected, monkeypatch, data):
    """As after a build on Beam, whose shards are there already, and nowhere else."""
    here = remote_build.scratch_of(url) / FOLDER
    shards = [name for name in sorted(expected) if "-of-" in name]
    original = remote_build._deliver

    def without_one(*args):
        (here / shards[0]).unlink(missing_ok=True)
        return original(*args)

    monkeypatch.setattr(remote_build, "_deliver", without_one)
    if data is not None:
        left_behind(url, f"{FOLDER}/{shards[0]}", data)
    for _ in range(2):
        with pytest.raises(errors.BuildInterruptedError, match=f"such as {shards[0]}") as told:
            build(url, workers=1)
    assert "--restart" in str(told.value)
    assert not Destination(url, FOLDER).is_prepared()
    monkeypatch.setattr(remote_build, "_deliver", original)
    build(url, workers=1, resume=False)
    check_same(files(url), expected)


def test_what_was_not_delivered_counts_only_if_it_is_what_is_wanted(url, expected, monkeypatch):
    """The next build may ask for other shards."""

    def failing(*_):
        raise errors.StoreUnavailableError("the network is gone")

    with monkeypatch.context() as patched:
        patched.setattr(Destination, "_put", failing)
        with pytest.raises(errors.StoreUnavailableError):
            build(url, config=tfds.download.DownloadConfig(num_shards=2), workers=1)
    build(url, workers=1)
    check_same(files(url), expected)


def test_who_lost_its_lease_while_it_delivers_replaces_nothing(url, expected, monkeypatch):
    shard = next(name for name in sorted(expected) if "-of-" in name)
    answers = iter([None])

    def lost(self):
        if next(answers, "lost") is not None:
            raise errors.BuildInterruptedError("another process may have gone on")

    monkeypatch.setattr(lease.Lease, "check", lost)
    left_behind(url, f"{FOLDER}/{shard}", b"of another process")
    with pytest.raises(errors.BuildInterruptedError):
        build(url, workers=1)
    assert files(url) == {shard: b"of another process"}


@pytest.mark.parametrize("moment", ["before its work", "before its shards are handed over"])
def test_who_lost_its_lease_on_beam_changes_nothing(url, dask_in_process, monkeypatch, moment):
    answers = iter([None] if moment.endswith("handed over") else [])

    def lost(self):
        if next(answers, "lost") is not None:
            raise errors.BuildInterruptedError("another process may have gone on")

    monkeypatch.setattr(lease.Lease, "check", lost)
    if moment == "before its work":
        left_behind(url, f"{FOLDER}/a-shard", b"of another process")
    options = {"runner": "dask", "dask_client_address": dask_in_process}
    with pytest.raises(errors.BuildInterruptedError):
        build(url, beam_options=options)
    assert list(files(url).values()) == [b"of another process"] * (moment == "before its work")


def test_two_configs_may_be_delivered_at_the_same_time(url, tmp_path, monkeypatch):
    """Each puts TFDS's note of the default one; here another one does so in between."""
    destination = Destination(url, "several/one/1.0.0")
    note = tmp_path / "several" / ".config" / "metadata.json"
    note.parent.mkdir(parents=True)
    note.write_text("{}")
    there = open_store(url)
    replaced = []

    def replace(path, data, tag):
        if not replaced:
            there.replace(path, b"of another release of TFDS", None)
        replaced.append(path)
        return type(there).replace(there, path, data, tag)

    quick = open_store(url)
    monkeypatch.setattr(quick, "replace", replace)
    vars(destination)["_store"] = quick
    destination._put_default_config(tmp_path / "several" / "one" / "1.0.0")
    assert len(replaced) == 2
    assert there.state("several/.config/metadata.json", 100)[0] == b"{}"


def apart(url, home, cls=Slow, **options):
    """Starts a build in a process of its own, with a home of its own: as on another machine."""

    def work():
        os.setsid()
        os.environ |= {"HOME": str(home), "MY_DATASETS_HOME": str(home / ".mine")}
        tfds.disable_progress_bar()
        build(url, cls, **options)

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    return process


@pytest.mark.parametrize("moments", [1, pytest.param(30, marks=pytest.mark.slow)])
def test_kills_of_the_building_process(url, tmp_path, moments, dask_cluster_there):
    """Whose workers live on, and those that are started for the next one find what is done."""
    version_dir = build_here(Slow, tmp_path / "here", engine="beam")
    expected = {path.name: path.read_bytes() for path in version_dir.iterdir()}
    options = {"beam_options": dask_cluster_there.options}
    rng = random.Random(moments)
    for _ in range(moments):
        process = apart(url, tmp_path / "home", **options)
        process.join(rng.uniform(1.0, 12.0))
        kill(process)
        if Destination(url, FOLDER).is_prepared():
            check_same(files(url), expected)
    build(url, Slow, **options)
    check_same(files(url), expected)
    left = everything(url) - {f"{FOLDER}/{name}" for name in expected}
    # Of a worker of a killed process that came to an end after the build.
    assert all(path.startswith("toy_engine/.1.0.0.work/") for path in left)


@pytest.fixture
def dask_cluster_there(url, tmp_path):
    """Real workers, which know the servers of this test by their environment."""
    from tests.building.engines import dask_processes

    (tmp_path / "dask").mkdir()
    with dask_processes.started(tmp_path / "dask") as cluster:
        yield cluster


class Noting(Slow, skip_registration=True):
    """Notes each time that a unit is generated."""

    name = "toy_engine"

    def _slowly(self, unit):
        with open(os.environ["NOTES"], "a") as notes:
            notes.write(f"{unit}\n")
        yield from super()._slowly(unit)


def test_two_machines_build_one_version(url, tmp_path, monkeypatch):
    """The second one waits, and finds it made."""
    monkeypatch.setattr(lease, "RENEWAL_SECONDS", 0.5)
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    processes = [
        apart(url, tmp_path / f"home{number}", Noting, engine="beam") for number in range(2)
    ]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    generated = (tmp_path / "notes").read_text().split()
    assert len(generated) == len(set(generated)) == toys.UNITS + 1
    assert Destination(url, FOLDER).is_prepared()
    assert not any("lock" in path for path in everything(url))


def test_the_command(url, tmp_path, expected):
    with contextlib.chdir(tmp_path):
        for built in (True, False):
            done = CliRunner().invoke(cli, ["build", "digits", "--data-dir", url, "--json"])
            assert done.exit_code == 0, done.output
            (said,) = json.loads(done.stdout)
            assert said["path"] == f"{url}/digits/1.0.0"
            assert said["built"] is built
            assert said["splits"] == {"train": 1438, "test": 359}
        # TensorFlow would ask for gs:// at Google's addresses.
        more = (["info", "digits"], ["list"]) if url.startswith("s3") else ()
        for command in (["verify", "digits"], *more):
            done = CliRunner().invoke(cli, [*command, "--data-dir", url])
            assert done.exit_code == 2
            said = " ".join(done.output.replace("│", " ").split())
            assert "is an address" in said


BY_TFDS = """
import sys
import tensorflow_datasets as tfds
from my_datasets.datasets.digits.digits_dataset_builder import Builder
for _ in range(2):
    builder = Builder(data_dir=sys.argv[1])
    builder.download_and_prepare()
    assert builder.info.splits["train"].num_examples == 1438
print(sum(1 for _ in builder.as_dataset(split="train")))
found = tfds.builder_from_directory(sys.argv[1] + "/digits/1.0.0")
print(sum(1 for _ in found.as_dataset(split="test")))
"""


def test_a_builder_whose_data_directory_is_in_googles_store(gcs_bucket, tmp_path):
    """As `tfds build --data_dir=gs://...` makes it; TensorFlow's own file system reads it."""
    with leading_to(os.environ["STORAGE_EMULATOR_HOST"], tmp_path) as leading:
        done = subprocess.run(
            [sys.executable, "-c", BY_TFDS, f"gs://releases/{tmp_path.name}"],
            env={**os.environ, **leading, "HOME": str(tmp_path)}, capture_output=True, text=True,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-2:] == ["1438", "359"]


def test_a_builder_whose_data_directory_tensorflow_does_not_read_is_reported(s3_bucket):
    with pytest.raises(errors.DataDirError, match="BuildOptions\\(destination="):
        toys.InUnits(data_dir=f"{s3_bucket}/data")
