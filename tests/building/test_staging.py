"""One build at a time, and a version that is whole at any instant: with real processes."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from my_datasets.building import staging
from my_datasets.building.runs import SUFFIX


def version(tmp_path: Path) -> Path:
    return tmp_path / "data" / "1.0.0"


def fill(directory: Path, content: str) -> Path:
    directory.mkdir(parents=True)
    for name in ("one", "two"):
        (directory / name).write_text(content)
    return directory


def leftovers(version_dir: Path) -> list[str]:
    return sorted(p.name for p in version_dir.parent.iterdir() if not p.name.endswith(".lock"))


def _add_one(version_dir: str, times: int) -> None:
    counter = Path(version_dir).parent / "counter"
    for _ in range(times):
        with staging.exclusive(Path(version_dir)):
            # Read, then write: two processes at once would lose additions.
            counter.write_text(str(int(counter.read_text()) + 1))


def test_processes_take_turns(tmp_path):
    version(tmp_path).parent.mkdir()
    (version(tmp_path).parent / "counter").write_text("0")
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=_add_one, args=(str(version(tmp_path)), 20)) for _ in range(4)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert (version(tmp_path).parent / "counter").read_text() == "80"


def test_waiting_is_said(tmp_path, caplog):
    inside = threading.Event()
    done = threading.Event()

    def hold() -> None:
        with staging.exclusive(version(tmp_path)):
            inside.set()
            done.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait(60)
    waiter = threading.Thread(target=_enter, args=(version(tmp_path),))
    waiter.start()
    waiter.join(1)
    assert waiter.is_alive()
    done.set()
    waiter.join(60)
    holder.join(60)
    assert not waiter.is_alive()
    assert "Another process is building" in caplog.text


def _enter(version_dir: Path) -> None:
    with staging.exclusive(version_dir):
        pass


def test_a_killed_process_frees_the_lock_and_its_remains_are_removed(tmp_path):
    script = textwrap.dedent(f"""
        import os, pathlib, signal
        from my_datasets.building import staging
        target = pathlib.Path({str(version(tmp_path))!r})
        with staging.exclusive(target), staging.beside(target) as directory:
            (directory / "half").write_text("made")
            os.kill(os.getpid(), signal.SIGKILL)
    """)
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == -signal.SIGKILL
    assert len(leftovers(version(tmp_path))) == 1
    other = fill(version(tmp_path).parent / "incomplete.ABC123_2.0.0", "of another version")
    with staging.exclusive(version(tmp_path)):
        assert leftovers(version(tmp_path)) == [other.name]


@pytest.mark.parametrize("atomic", [True, False])
def test_swap_replaces_whole_directories(tmp_path, monkeypatch, atomic):
    if not atomic:
        monkeypatch.setattr(staging, "_exchange", lambda one, other: False)
    old, new = fill(version(tmp_path), "old"), fill(tmp_path / "data/incomplete.X_1.0.0", "new")
    staging.swap(new, old)
    assert {p.read_text() for p in old.iterdir()} == {"new"}
    assert {p.read_text() for p in new.iterdir()} == {"old"}


def test_linux_swaps_in_one_step(tmp_path):
    old, new = fill(version(tmp_path), "old"), fill(tmp_path / "data/x", "new")
    assert staging._exchange(new, old)
    assert (old / "one").read_text() == "new"


def test_a_reader_always_finds_the_version(tmp_path):
    old, new = fill(version(tmp_path), "old"), fill(tmp_path / "data/x", "new")
    missing = []
    polls = []
    stop = threading.Event()

    def poll() -> None:
        while not stop.is_set():
            try:
                (old / "one").stat()
                polls.append(None)
            except FileNotFoundError as error:
                missing.append(error)

    reader = threading.Thread(target=poll)
    reader.start()
    for _ in range(2000):
        staging.swap(new, old)
    stop.set()
    reader.join(60)
    assert missing == []
    assert len(polls) > 100


def test_a_failed_swap_puts_the_old_directory_back(tmp_path, monkeypatch):
    monkeypatch.setattr(staging, "_exchange", lambda one, other: False)
    old = fill(version(tmp_path), "old")
    with pytest.raises(FileNotFoundError):
        staging.swap(tmp_path / "data/none", old)
    assert (old / "one").read_text() == "old"


def test_an_overwrite_killed_between_its_renames_is_undone(tmp_path):
    aside = fill(tmp_path / "data" / ".1.0.0.replaced", "old")
    with staging.exclusive(version(tmp_path)):
        assert not aside.exists()
        assert (version(tmp_path) / "one").read_text() == "old"


def test_an_overwrite_killed_after_its_renames_stands(tmp_path):
    aside = fill(tmp_path / "data" / ".1.0.0.replaced", "old")
    fill(version(tmp_path), "new")
    with staging.exclusive(version(tmp_path)):
        assert not aside.exists()
        assert (version(tmp_path) / "one").read_text() == "new"


@pytest.mark.parametrize("name", ["incomplete.ABC123_1.0.0", ".1.0.0.replaced"])
@pytest.mark.parametrize("exists", [True, False])
def test_a_planted_link_is_removed_and_never_followed(tmp_path, name, exists):
    mine = fill(tmp_path / "mine", "mine")
    version(tmp_path).parent.mkdir()
    if exists:
        fill(version(tmp_path), "whole")
    links = [version(tmp_path).parent / name, version(tmp_path).parent / "incomplete.FED_1.0.0"]
    links[0].symlink_to(mine)
    links[1].symlink_to(mine / "one")
    with staging.exclusive(version(tmp_path)):
        assert leftovers(version(tmp_path)) == (["1.0.0"] if exists else [])
    assert sorted(path.read_text() for path in mine.iterdir()) == ["mine", "mine"]


def planted_work(work, victim, kind):
    """What somebody puts where the work of a build lies."""
    if kind == "pipe":
        os.mkfifo(work)
    elif kind == "link":
        work.symlink_to(victim)
    else:
        runs = work / "drafts" / "one"
        runs.mkdir(parents=True)
        (work / f"0{SUFFIX}").write_bytes(b"finished")  # else it counts for nothing anyway
        if kind == "inner pipe":
            os.mkfifo(runs / "journal")
        else:
            (work / "shards").symlink_to(victim)


@pytest.mark.parametrize("kind", ["pipe", "link", "inner pipe", "inner link"])
def test_planted_work_is_removed_and_never_followed(tmp_path, kind):
    victim, version_dir = tmp_path / "victim", tmp_path / "data" / "1.0.0"
    (victim / "inner").mkdir(parents=True)
    (victim / "inner" / f"precious{SUFFIX}").write_text("precious")
    version_dir.parent.mkdir()
    work, other = staging.work_dir(version_dir), staging.work_dir(version_dir.with_name("2.0.0"))
    planted_work(work, victim, kind)
    planted_work(other, victim, kind)
    signal.alarm(20)  # what waits for a pipe, waits for ever
    try:
        with staging.exclusive(version_dir):
            assert not os.path.lexists(work)
            assert os.path.lexists(other)  # of another version, which may be as it should
    finally:
        signal.alarm(0)
    assert (victim / "inner" / f"precious{SUFFIX}").read_text() == "precious"
    assert sorted(path.name for path in version_dir.parent.iterdir()) == [".1.0.0.lock", other.name]


def test_tidying_removes_remains_but_no_living_work(tmp_path):
    fill(version(tmp_path), "whole")
    remains = fill(tmp_path / "data/incomplete.ABC123_1.0.0", "half")
    with staging.exclusive(version(tmp_path)):
        living = fill(tmp_path / "data/incomplete.DEF456_1.0.0", "half")
        assert not remains.exists()
        thread = threading.Thread(target=staging.remove_leftovers, args=(version(tmp_path),))
        thread.start()
        thread.join(60)
        assert living.exists()
    staging.remove_leftovers(version(tmp_path))
    assert not living.exists()
    assert (version(tmp_path) / "one").read_text() == "whole"


@pytest.mark.parametrize(
    ("touched", "is_kept"),
    [("journal.jsonl", True), ("5f0e/drafts", True), ("5f0e/generated/train", False)],
)
def test_unfinished_work_of_any_engine_is_kept_for_a_week(tmp_path, touched, is_kept):
    """That on Beam has a folder of its own, in which each file begins among the drafts."""
    work = staging.work_dir(version(tmp_path))
    for name in ("journal.jsonl", "one.run", "5f0e/generated/train/one.run"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).touch()
    (work / "5f0e" / "drafts").mkdir()
    long_ago = time.time() - 8 * 24 * 3600
    for path in (work, *work.rglob("*")):
        os.utime(path, (long_ago, long_ago))
    os.utime(work / touched)
    with staging.exclusive(version(tmp_path)):
        assert work.exists() is is_kept
