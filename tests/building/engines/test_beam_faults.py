"""Kills of workers and of the building process on Beam: the same bytes, and nothing partial."""

import contextlib
import errno
import functools
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import apache_beam as beam
import distributed
import pytest

from my_datasets import errors
from my_datasets.building.engines import shard_writing
from my_datasets.building.engines.beam import buckets, run_files, runners, sorting, writing
from my_datasets.building.engines.beam.dask_runner import Cluster
from tests.building.engines import toys
from tests.building.engines.builds import build, hashes, kill, records, run_apart, shards
from tests.building.engines.dask_processes import wait_for_files
from tests.waiting import until

pytestmark = pytest.mark.faults


class Slow(toys._Toy, skip_registration=True):
    """Units that take a while, in whichever process; with a collection beside them."""

    name = "toy_engine"
    pause: ClassVar[float] = 0.03

    def _split_generators(self, dl_manager: Any) -> Any:
        return {
            "train": self.units(self._slowly, range(toys.UNITS)),
            "test": beam.Create([99]) | beam.FlatMap(self._slowly),
        }

    def _slowly(self, unit: int) -> Any:
        for i in range(self.rows):
            if i % 50 == 0:
                time.sleep(self.pause)
            yield f"{unit}-{i}", toys.row(unit, i)


@pytest.fixture
def small(monkeypatch):
    """Many files, so that a kill hits the one or the other."""
    monkeypatch.setattr(run_files, "_BUFFER_SHARE", 2e-5)
    monkeypatch.setattr(buckets, "MOST_BYTES", 20_000)
    monkeypatch.setattr(runners.Submission, "at_once", lambda self, memory: 70_000)


def only_whole(data_dir, reference):
    """Sees that a version is there whole, or not at all."""
    version_dir = data_dir / "toy_engine/1.0.0"
    if version_dir.exists():
        assert hashes(version_dir) == reference


@pytest.mark.parametrize("moments", [4, pytest.param(40, marks=pytest.mark.slow)])
def test_kills_of_the_building_process_end_in_the_same_bytes(reference, tmp_path, small, moments):
    rng = random.Random(moments)
    begin = time.monotonic()
    run_apart(tmp_path / "whole", Slow).join()
    whole = time.monotonic() - begin
    for _ in range(moments):
        process = run_apart(tmp_path / "killed", Slow)
        process.join(rng.uniform(0.0, 1.0) * whole)
        kill(process)
        only_whole(tmp_path / "killed", reference)
    version_dir = build(Slow, tmp_path / "killed")
    assert hashes(version_dir) == reference
    assert sorted(path.name for path in version_dir.parent.iterdir()) == [".1.0.0.lock", "1.0.0"]


def test_what_was_finished_before_a_kill_is_not_done_again(reference, tmp_path, small):
    process = run_apart(tmp_path, toys.InUnits, engine="beam")
    work = tmp_path / "toy_engine/.1.0.0.work"
    wait_for_files(work, "*/generated/train/[!.]*-*.json", 3)
    kill(process)
    before = {path.name for path in work.glob("*/generated/train/*.run")}
    assert before
    done_again = []
    original = run_files.BundleEncoder.begins

    def noted(bundle_encoder, unit):
        done_again.append(unit)
        return original(bundle_encoder, unit)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_files.BundleEncoder, "begins", noted)
        assert hashes(build(toys.InUnits, tmp_path, engine="beam")) == reference
    assert len(done_again) < toys.UNITS + 1


@pytest.mark.parametrize("stage", ["sorting", "writing"])
def test_a_later_stage_resumes_where_it_failed(reference, tmp_path, small, monkeypatch, stage):
    kind = sorting.SortBucket if stage == "sorting" else writing.WriteShards
    original, done = kind.process, []

    def failing(self, element):
        done.append(element)
        if len(done) == 4:
            raise RuntimeError("the machine is on fire")
        return original(self, element)

    monkeypatch.setattr(kind, "process", failing)
    said = rf"The runner failed while {stage}\.\n.*the machine is on fire"
    with pytest.raises(errors.BuildInterruptedError, match=said):
        build(toys.InUnits, tmp_path, engine="beam")
    assert not (tmp_path / "toy_engine/1.0.0").exists()
    generated = []
    monkeypatch.setattr(toys._Toy, "before", staticmethod(lambda unit, i: generated.append(unit)))
    first = len(done)
    assert hashes(build(toys.InUnits, tmp_path, engine="beam")) == reference
    assert not generated
    monkeypatch.undo()
    whole = len(done) - first
    assert whole < 40


def test_a_full_disk_on_a_worker_is_reported_as_one(tmp_path, monkeypatch):
    """Beam passes on only the text of an error; the worker's file says which one it was."""

    def full(path, *_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(shard_writing, "write_shard", full)
    with pytest.raises(errors.DiskFullError, match="The disk is full"):
        build(toys.InUnits, tmp_path, engine="beam")


class KillingItself(Slow, skip_registration=True):
    """The first process that comes half-way through unit 3 is killed."""

    name = "toy_engine"

    def _slowly(self, unit: int) -> Any:
        marker = Path(self._data_dir_root, "killed")
        for i, pair in enumerate(super()._slowly(unit)):
            if (unit, i) == (3, 200) and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield pair


def test_dask_does_the_work_of_a_worker_that_is_killed(reference, tmp_path, dask_cluster):
    version_dir = build(KillingItself, tmp_path, beam_options=dask_cluster.options)
    assert (tmp_path / "killed").exists()
    assert hashes(version_dir) == reference


def _die_once(marker: Path) -> None:
    with contextlib.suppress(FileExistsError):
        marker.touch(exist_ok=False)
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_dies_when_it_is_asked_is_asked_again(tmp_path, dask_cluster):
    cluster = Cluster(dask_cluster.options)
    try:
        cluster.ask(functools.partial(_die_once, tmp_path / "died"))
    finally:
        cluster.close()
    assert (tmp_path / "died").exists()


def _no_disk() -> None:
    raise OSError("no disk")


def test_workers_that_never_answer_are_reported(dask_cluster):
    cluster = Cluster(dask_cluster.options)
    try:
        with pytest.raises(errors.BuildInterruptedError, match=r"tcp://.*OSError: no disk"):
            cluster.ask(_no_disk, patience=0)
    finally:
        cluster.close()


def test_a_cluster_whose_workers_have_all_gone_is_reported():
    with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=None) as local:
        cluster = Cluster({"dask_client_address": local.scheduler_address})
        try:
            local.scale(0)
            until(lambda: not cluster.workers)
            with pytest.raises(errors.BuildInterruptedError, match="has no workers left"):
                cluster.ask(os.getpid, patience=0)
        finally:
            cluster.close()


@pytest.mark.parametrize("kills", [1, pytest.param(8, marks=pytest.mark.slow)])
def test_kills_of_workers_at_any_moment_end_in_the_same_bytes(
    reference, tmp_path, dask_cluster, kills
):
    rng = random.Random(kills)
    for number in range(kills):
        timer = threading.Timer(
            rng.uniform(0.1, 4.0), dask_cluster.kill_a_worker, [rng.randrange(2)]
        )
        timer.start()
        place = tmp_path / str(number)
        try:
            version_dir = build(Slow, place, beam_options=dask_cluster.options)
        except errors.BuildInterruptedError:
            only_whole(place, reference)
            timer.join()
            version_dir = build(Slow, place, beam_options=dask_cluster.options)
        timer.join()
        assert hashes(version_dir) == reference


def test_workers_whose_building_process_was_killed_do_no_harm_to_the_next(
    reference, tmp_path, dask_cluster
):
    process = run_apart(tmp_path, Slow, beam_options=dask_cluster.options)
    work = tmp_path / "toy_engine/.1.0.0.work"
    wait_for_files(work, "*/tasks/*", 1)
    time.sleep(0.5)
    kill(process)
    version_dir = build(Slow, tmp_path, beam_options=dask_cluster.options)
    assert hashes(version_dir) == reference
    time.sleep(1.0)  # what the workers of the killed process still do
    assert hashes(version_dir) == reference
    assert len(records(version_dir)) == toys.UNITS * toys._Toy.rows
    assert len(shards(version_dir)) == 6
