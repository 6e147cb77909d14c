"""Bounded memory and open files, a clock that runs backwards, progress."""

import contextlib
import multiprocessing
import re
import resource
import shutil
import time
from pathlib import Path

import pytest

from my_datasets import errors
from my_datasets.building import options
from my_datasets.building.engines import local
from my_datasets.comparison import examine
from tests.building.engines import toys
from tests.building.engines.builds import build, hashes, shards
from tests.waiting import until

pytestmark = pytest.mark.faults


def _build_large(data_dir, cap, units, engine, is_warm, go):
    """Builds in a process of its own, that has loaded all it needs by a small build."""
    options.LEAST_MEMORY = cap
    toys.LargeInUnits.units_of_it = units
    build(toys.InUnits, data_dir / "small", workers=2, engine=engine)
    is_warm.set()
    go.wait()
    build(toys.LargeInUnits, data_dir, config=None, workers=2, max_memory=cap, engine=engine)


@pytest.mark.parametrize("engine", ["local", pytest.param("beam", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("cap", "units", "beside"),
    [(4 << 20, 5, 150 << 20), pytest.param(64 << 20, 70, 300 << 20, marks=pytest.mark.slow)],
)
def test_memory_stays_within_its_cap(tmp_path, cap, units, beside, engine):
    """Ten times the cap, in units of two processes; `beside` is for all that is no record.

    The process is not forked from this one, whose memory would count as it is copied on write.
    """
    clean = multiprocessing.get_context("spawn")
    is_warm, go = clean.Event(), clean.Event()
    process = clean.Process(target=_build_large, args=(tmp_path, cap, units, engine, is_warm, go))
    process.start()
    until(lambda: is_warm.is_set() or not process.is_alive())
    before = peak = anonymous_memory(process.pid)
    go.set()
    while process.is_alive():
        peak = max(peak, anonymous_memory(process.pid))
        time.sleep(0.25)
    assert process.exitcode == 0
    version_dir = tmp_path / "toy_large/1.0.0"
    assert sum(path.stat().st_size for path in shards(version_dir)) > 10 * cap
    assert peak - before < cap + beside


def anonymous_memory(root):
    """Returns the memory of a process and those below it, what they share counted once."""
    processes, before, total = family(root), [], 0
    while processes != before:  # else what a fork has made shared would count twice
        before, total = processes, 0
        for process in processes:
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{process}/smaps_rollup").read_text()
                sizes = re.findall(r"^Pss_(?:Anon|Shmem): +(\d+) kB", text, re.MULTILINE)
                total += 1024 * sum(map(int, sizes))
        processes = family(root)
    return total


def family(root):
    """Returns a process and those below it."""
    waiting, found = [root], []
    while waiting:
        process = waiting.pop()
        found.append(process)
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{process}/task").iterdir():
                waiting += map(int, (thread / "children").read_text().split())
    return found


def _build_with_few_files(data_dir):
    """Builds in a process of its own, which may open few files."""
    local._BUFFER_SHARE = 0.0001
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
    build(toys.InUnits, data_dir, workers=2, max_memory=64 << 20)


def test_few_open_files_are_enough(reference, tmp_path):
    """Hundreds of runs, under a limit that the process itself nearly exhausts.

    The process is not forked from this one, which has files of other tests open.
    """
    clean = multiprocessing.get_context("spawn")
    process = clean.Process(target=_build_with_few_files, args=(tmp_path,))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert hashes(tmp_path / "toy_engine/1.0.0") == reference


def test_progress_is_reported(tmp_path):
    told = []
    build(toys.InUnits, tmp_path, workers=2, report=lambda p: told.append((p.stage, str(p))))
    assert next(stage for stage, _ in told) == "generating"
    assert {stage for stage, _ in told} >= {"generating", "sorting", "writing"}


def test_a_clock_that_goes_backwards_does_not_matter(reference, tmp_path, monkeypatch):
    now = iter(range(10**9, 0, -1000))
    monkeypatch.setattr(time, "time", lambda: float(next(now)))
    assert hashes(build(toys.InUnits, tmp_path, workers=2)) == reference


def test_without_a_report_there_is_the_bar_of_tfds(tmp_path, capsys, monkeypatch):
    from tensorflow_datasets.core.utils import tqdm_utils

    monkeypatch.setattr(tqdm_utils, "_active", True)
    build(toys.InUnits, tmp_path / "shown", workers=2)
    assert "Generating examples" in capsys.readouterr().err
    monkeypatch.setattr(tqdm_utils, "_active", False)
    build(toys.InUnits, tmp_path / "silent", workers=2)
    assert "Generating examples" not in capsys.readouterr().err


@pytest.mark.parametrize("workers", [1, 2])
def test_a_disk_that_fills_up_while_examining(tmpfs, monkeypatch, reference, workers):
    disk = tmpfs("60m")
    parts_of = examine.parts_of

    def fill_up(*arguments, **options):
        (disk / "filler").write_bytes(bytes(shutil.disk_usage(disk).free))
        return parts_of(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(examine, "parts_of", fill_up)
        with pytest.raises(errors.DiskFullError, match="The disk is full"):
            build(toys.InUnits, disk, workers=workers)
    assert not (disk / "toy_engine/1.0.0").exists()
    (disk / "filler").unlink()
    assert hashes(build(toys.InUnits, disk, workers=workers)) == reference


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("what", [".", "toy_engine", "toy_engine/.1.0.0.work"])
def test_a_directory_that_is_removed_during_a_build(tmp_path, steer, reference, workers, what):
    data_dir = tmp_path / "data"

    def remove(unit, i):
        if (unit, i) == (5, 100):
            shutil.rmtree(data_dir / what, ignore_errors=True)

    steer(remove)
    with pytest.raises(errors.DataDirError, match=r"is gone: something removed it|does not exist"):
        build(toys.InUnits, data_dir, workers=workers)
    steer(lambda unit, i: None)
    assert hashes(build(toys.InUnits, data_dir, workers=workers)) == reference


def _build_with_no_room(data_dir, workers, said):
    """Builds in a process of its own, whose address space may then grow by 20 MB."""
    toys.InUnits(data_dir=data_dir)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (20 << 20),) * 2)
    try:
        build(toys.InUnits, data_dir, workers=workers)
    except errors.MyDatasetsError as error:
        said.write_text(f"{type(error).__name__}: {error}")


@pytest.mark.parametrize("workers", [1, 2])
def test_an_address_space_with_no_room(tmp_path, workers):
    """The process is not forked from this one, which has room in what it has freed."""
    said = tmp_path / "said"
    process = multiprocessing.get_context("spawn").Process(
        target=_build_with_no_room, args=(tmp_path / "data", workers, said)
    )
    process.start()
    process.join()
    assert said.read_text().startswith("OutOfMemoryError: The system gives this process no more")
    assert not (tmp_path / "data/toy_engine/1.0.0").exists()
