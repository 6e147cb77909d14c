"""Builds that are killed, hang, fail, or meet others: nothing is lost, nothing is done twice."""

import logging
import os
import random
import signal
import subprocess
import time
from functools import partial

import pytest
import tensorflow_datasets as tfds

from my_datasets import errors
from my_datasets.building.engines import local
from tests.building.engines import toys
from tests.building.engines.builds import build, hashes, kill, records, run_apart
from tests.waiting import until

pytestmark = pytest.mark.faults


def test_a_killed_build_resumes_where_it_was(reference, tmp_path, steer, monkeypatch, caplog):
    marker = tmp_path / "killed"
    steer(partial(toys.stop_here, file=marker, how="kill"))

    # Runs of a few kilobytes: what was finished is kept, whichever worker finished it.
    monkeypatch.setattr(local, "_BUFFER_SHARE", 1e-6)
    with pytest.raises(errors.BuildInterruptedError, match=r"by signal 9\.\n  It was at unit 3"):
        build(toys.InUnits, tmp_path, workers=2)
    assert not (tmp_path / "toy_engine/1.0.0").exists()
    assert not list((tmp_path / "toy_engine").glob("incomplete*"))

    done_again = tmp_path / "done_again"

    def note(unit, i):
        if i == 0:
            with done_again.open("a") as file:
                file.write(f"{unit} ")

    steer(note)
    with caplog.at_level(logging.WARNING):
        version_dir = build(toys.InUnits, tmp_path, workers=2)
    assert "Resuming the build" in caplog.text
    units = done_again.read_text().split()
    assert "3" in units
    assert len(units) < toys.UNITS + 1
    assert hashes(version_dir) == reference
    assert sorted(path.name for path in (tmp_path / "toy_engine").iterdir()) == [
        ".1.0.0.lock",
        "1.0.0",
    ]


@pytest.mark.parametrize("moments", [4, pytest.param(30, marks=pytest.mark.slow)])
def test_kills_at_any_moment_end_in_the_same_bytes(reference, tmp_path, moments):
    """SIGKILL of all processes, again and again, until a build comes through."""
    rng = random.Random(moments)
    begin = time.monotonic()
    run_apart(tmp_path / "whole", workers=2).join()
    whole = time.monotonic() - begin
    for _ in range(moments):
        process = run_apart(tmp_path / "killed", workers=2)
        process.join(rng.uniform(0.0, 1.0) * whole)
        kill(process)
        version_dir = tmp_path / "killed/toy_engine/1.0.0"
        if version_dir.exists():
            assert hashes(version_dir) == reference
    assert hashes(build(toys.InUnits, tmp_path / "killed", workers=2)) == reference


def test_a_hanging_worker_is_stopped(tmp_path, steer):
    steer(partial(toys.stop_here, file=tmp_path / "hung", how="hang"))
    with pytest.raises(errors.BuildInterruptedError, match="did not answer for"):
        build(toys.InUnits, tmp_path, workers=2, unit_timeout=4.0)


def test_a_worker_that_is_killed_while_it_draws_a_bar_stops_nobody_elses(
    tmp_path, steer, monkeypatch
):
    from tensorflow_datasets.core.utils import tqdm_utils

    # Other tests turn bars off, for the whole process.
    monkeypatch.setattr(tqdm_utils, "_active", True)

    def before(unit, i):
        if (unit, i) == (3, 200):
            with tqdm_utils.tqdm().get_lock():
                os.kill(os.getpid(), signal.SIGKILL)

    tqdm_utils.tqdm().close()  # makes the lock
    steer(before)
    with pytest.raises(errors.BuildInterruptedError, match="by signal 9"):
        build(toys.InUnits, tmp_path, workers=2)
    tqdm_utils.tqdm().close()


def test_in_one_process_too_the_units_before_a_failure_are_kept(reference, tmp_path, steer):
    steer(toys.failing_at(5))
    with pytest.raises(errors.UnitError):
        build(toys.InUnits, tmp_path, workers=1)

    def before(unit, i):
        if unit < 5:
            raise RuntimeError("done before")

    steer(before)
    assert hashes(build(toys.InUnits, tmp_path, workers=1)) == reference


def test_a_unit_that_raises_is_named_and_the_others_are_kept(reference, tmp_path, steer):
    def before(unit, i):
        if (unit, i) == (4, 7):
            raise RuntimeError("no such column")

    steer(before)
    with pytest.raises(errors.UnitError) as caught:
        build(toys.InUnits, tmp_path, workers=2)
    text = str(caught.value)
    assert "Unit: 4 (4), after it had yielded 7 times" in text
    assert "RuntimeError: no such column" in text
    assert "in before" in str(caught.value.__cause__)
    assert list((tmp_path / "toy_engine/.1.0.0.work").glob("*.run"))
    steer(lambda unit, i: None)
    assert hashes(build(toys.InUnits, tmp_path, workers=2)) == reference


def test_other_work_is_discarded(reference, tmp_path, steer, caplog):
    steer(toys.failing_at(5))
    limited = tfds.download.DownloadConfig(max_examples_per_split=2200, num_shards=3)
    with pytest.raises(errors.UnitError):
        build(toys.InUnits, tmp_path, config=limited, workers=2)
    steer(lambda unit, i: None)
    with caplog.at_level(logging.WARNING):
        found = build(toys.InUnits, tmp_path, workers=2)
    assert "Discarding the unfinished work" in caplog.text
    assert "changed since: options" in caplog.text
    assert hashes(found) == reference


def test_restart_begins_anew(reference, tmp_path, steer, caplog):
    steer(toys.failing_at(5))
    with pytest.raises(errors.UnitError):
        build(toys.InUnits, tmp_path, workers=2)
    steer(lambda unit, i: None)
    with caplog.at_level(logging.WARNING):
        assert hashes(build(toys.InUnits, tmp_path, workers=2, resume=False)) == reference
    assert "Resuming" not in caplog.text


def test_a_run_that_did_not_reach_the_disk_is_done_again(reference, tmp_path, steer, caplog):
    steer(toys.failing_at(99))
    with pytest.raises(errors.UnitError):
        build(toys.InUnits, tmp_path, workers=2)
    work = tmp_path / "toy_engine/.1.0.0.work"
    torn = sorted(work.glob("*.run"))[0]
    torn.write_bytes(torn.read_bytes()[:-100] + bytes(100))
    with (work / "journal.jsonl").open("a") as file:
        file.write('{"split": "tr')  # as a power loss in the middle of a line leaves it
    steer(lambda unit, i: None)
    with caplog.at_level(logging.WARNING):
        assert hashes(build(toys.InUnits, tmp_path, workers=2)) == reference
    assert "is damaged" in caplog.text


def test_a_lost_run_is_lost_once(tmp_path, steer, caplog):
    steer(toys.failing_at(99))
    for damage in (True, False, False):
        caplog.clear()
        with caplog.at_level(logging.WARNING), pytest.raises(errors.UnitError):
            build(toys.InUnits, tmp_path, workers=2)
        if damage:
            next((tmp_path / "toy_engine/.1.0.0.work").glob("*.run")).write_bytes(b"")
    assert "is damaged" not in caplog.text
    assert "Resuming the build" in caplog.text


def test_slow_examples_are_no_hanging_worker(tmp_path, steer, monkeypatch):
    """The unit takes longer than the timeout, no example does, even on a machine that stalls."""
    monkeypatch.setattr(toys._Toy, "rows", 24)
    steer(lambda unit, i: time.sleep(1.0))
    build(toys.InUnits, tmp_path, config=None, splits=("test",), workers=2, unit_timeout=20.0)


def test_a_full_disk_loses_nothing(tmpfs, monkeypatch):
    disk = tmpfs("1m")
    monkeypatch.setattr(toys._Toy, "rows", 1500)
    with pytest.raises(errors.DiskFullError):
        build(toys.InUnits, disk, workers=2)
    assert not (disk / "toy_engine/1.0.0").exists()
    assert not list((disk / "toy_engine").glob("incomplete*"))
    subprocess.run(["mount", "-o", "remount,size=60m", str(disk)], check=True)
    version_dir = build(toys.InUnits, disk, workers=2)
    assert len(records(version_dir)) == 1500 * toys.UNITS


@pytest.mark.parametrize("builds", [2, 8])
def test_builds_at_once_end_in_one_good_result(reference, tmp_path, builds):
    """One of them is killed in the middle; another takes over what it finished."""
    running = [run_apart(tmp_path, workers=1) for _ in range(builds)]
    work = tmp_path / "toy_engine/.1.0.0.work"
    until(lambda: list(work.glob("*")))
    if builds == 8:
        kill(running[0])
    for process in running:
        process.join()
    assert [process.exitcode for process in running[1:]] == [0] * (builds - 1)
    assert hashes(tmp_path / "toy_engine/1.0.0") == reference
    assert sorted(path.name for path in (tmp_path / "toy_engine").iterdir()) == [
        ".1.0.0.lock",
        "1.0.0",
    ]
