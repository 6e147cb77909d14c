"""Verifying that was interrupted goes on where it ended: what was read is not read again."""

import json
import multiprocessing
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from my_datasets.comparison import examine
from my_datasets.errors import DiskFullError
from my_datasets.metadata.manifest import Manifest
from my_datasets.records import index
from my_datasets.verification import checkpoint, shard_reading, verifier
from my_datasets.verification.verifier import Level, verify
from tests.building.engines import toys
from tests.building.engines.builds import build
from tests.waiting import until

opened: set[str] | None = None


def audit(event, arguments):
    if event == "open" and opened is not None and isinstance(arguments[0], (str, os.PathLike)):
        opened.add(os.fspath(arguments[0]))


# What the interpreter itself tells of each file that is opened. A hook stays for good.
sys.addaudithook(audit)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return build(toys.InUnits, tmp_path_factory.mktemp("good"), workers=1)


@pytest.fixture
def version(good, tmp_path):
    copy = tmp_path / good.parent.name / good.name
    shutil.copytree(good, copy)
    return copy


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache" / "verify"


class Stop(Exception):
    pass


def interrupted(version, cache, level, *, after=3, workers=1, **options):
    """Verifies until some shards were looked at."""
    seen = []

    def tell(looked):
        seen.append(looked.stage)
        if len(seen) == after:
            raise Stop

    with pytest.raises(Stop):
        verify(version, level=level, workers=workers, report=tell, resume_dir=cache, **options)
    return seen


def read_by(version, cache, level, **options):
    """Verifies; returns the report, and the shards that were opened."""
    global opened
    opened = set()
    try:
        report = verify(version, level=level, workers=1, resume_dir=cache, **options)
        names = {Path(path).name for path in opened}
    finally:
        opened = None
    return report, names & shards_of(version)


def shards_of(version):
    content = Manifest.read(version).content
    return {one.name for split in content.splits.values() for one in split.shards}


def assert_same(report, expected):
    given, wanted = report.to_json(), expected.to_json()
    for member in ("seconds", "resumed"):
        del given[member], wanted[member]
    assert given == wanted


@pytest.mark.parametrize("level", [Level.BYTES, Level.DEEP])
@pytest.mark.parametrize("workers", [1, 2])
def test_shards_that_were_looked_at_are_not_read_again(version, cache, level, workers, monkeypatch):
    monkeypatch.setattr(examine, "FEW_BYTES", 0)
    expected = verify(version, level=level, workers=1)
    seen = interrupted(version, cache, level, workers=workers)
    report, read = read_by(version, cache, level)
    assert read == shards_of(version) - set(seen)
    assert report.resumed == len(seen) == 3
    assert_same(report, expected)
    # All that was kept is gone: the next one reads everything.
    assert [path.suffix for path in cache.iterdir()] == [".lock"]
    again, read = read_by(version, cache, level)
    assert (again.resumed, read) == (0, shards_of(version))


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_run(version, cache, tmp_path, sent, workers, monkeypatch):
    told = tmp_path / "told"
    monkeypatch.setattr(examine, "FEW_BYTES", 0)

    def work():
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # as of a command in a terminal

        def tell(looked):
            with told.open("a") as file:
                file.write(looked.stage + "\n")
            # Whatever the load of the machine, the signal comes before the work is done.
            if len(told.read_text().splitlines()) == 2:
                signal.pause()

        verify(version, level=Level.DEEP, workers=workers, report=tell, resume_dir=cache)

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    until(lambda: (told.exists() and told.read_text().count("\n") == 2) or process.exitcode)
    os.kill(process.pid, sent)  # its workers are not told
    process.join()
    assert process.exitcode
    finished = set(told.read_text().splitlines())
    assert len(finished) == 2
    report, read = read_by(version, cache, Level.DEEP)
    assert not read & finished
    assert report.resumed >= len(finished)
    assert report.digest == Manifest.read(version).content.digest


def test_what_was_wrong_is_reported_again(version, cache):
    shard = version / sorted(shards_of(version))[0]
    data = bytearray(shard.read_bytes())
    data[100] ^= 1
    shard.write_bytes(data)
    expected = verify(version, workers=1)
    assert not expected.is_good
    interrupted(version, cache, Level.BYTES, after=5)
    report, read = read_by(version, cache, Level.BYTES)
    assert_same(report, expected)
    assert len(read) == 1


def touched(shard, cache):
    os.utime(shard, ns=(1, 1))


def rewritten(shard, cache):
    state = shard.stat()
    shard.write_bytes(shard.read_bytes())
    os.utime(shard, ns=(state.st_atime_ns, state.st_mtime_ns))


def other_file(shard, cache):
    copy = shard.with_name("copy")
    shutil.copy2(shard, copy)
    copy.replace(shard)


def other_index(shard, cache):
    path = index.path_of(shard)
    path.write_bytes(path.read_bytes())


def journal_of(cache):
    (journal,) = cache.glob("*/journal.jsonl")
    return journal


def torn_line(shard, cache):
    journal = journal_of(cache)
    lines = journal.read_text().splitlines(keepends=True)
    (number,) = [i for i, line in enumerate(lines) if shard.name in line]
    lines.append(lines.pop(number)[:-40])
    journal.write_text("".join(lines))


def damaged_notes(shard, cache):
    (line,) = [json.loads(line) for line in journal_of(cache).read_text().splitlines()
               if shard.name in line]  # fmt: skip
    name = next(iter(line["notes"]))
    path = journal_of(cache).with_name(name)
    path.write_bytes(b"\1" + path.read_bytes()[1:])


def missing_notes(shard, cache):
    (line,) = [json.loads(line) for line in journal_of(cache).read_text().splitlines()
               if shard.name in line]  # fmt: skip
    journal_of(cache).with_name(next(iter(line["notes"]))).unlink()


def foreign_issues(shard, cache):
    journal = journal_of(cache)
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    for line in lines:
        if line.get("shard") == shard.name:
            line["issues"] = [{"x": 1}]
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(
    "change",
    [touched, rewritten, other_file, other_index, torn_line, damaged_notes, missing_notes,
     foreign_issues],
)  # fmt: skip
def test_a_shard_that_may_be_another_is_read_again(version, cache, change):
    seen = interrupted(version, cache, Level.DEEP)
    change(version / seen[0], cache)
    report, read = read_by(version, cache, Level.DEEP)
    assert read == shards_of(version) - set(seen[1:])
    assert report.is_good
    assert report.digest == Manifest.read(version).content.digest


def edited_manifest(version):
    path = version / "my_datasets_manifest.json"
    path.write_text(path.read_text() + "\n")


def edited_features(version):
    path = version / "features.json"
    path.write_text(path.read_text() + "\n")


@pytest.mark.parametrize("change", [edited_manifest, edited_features])
def test_other_metadata_make_it_another_run(version, cache, change):
    interrupted(version, cache, Level.BYTES)
    change(version)
    report, read = read_by(version, cache, Level.BYTES)
    assert (report.resumed, read) == (0, shards_of(version))


def test_other_software_makes_it_another_run(version, cache, monkeypatch):
    interrupted(version, cache, Level.BYTES)
    monkeypatch.setattr(verifier, "__version__", "0.0.0")
    assert read_by(version, cache, Level.BYTES)[0].resumed == 0


def test_each_level_and_each_version_has_its_own(version, cache, good):
    interrupted(version, cache, Level.BYTES)
    assert read_by(version, cache, Level.DEEP)[0].resumed == 0
    assert read_by(good, cache, Level.BYTES)[0].resumed == 0
    assert read_by(version, cache, Level.BYTES)[0].resumed == 3


def test_restarting(version, cache):
    interrupted(version, cache, Level.BYTES)
    report, read = read_by(version, cache, Level.BYTES, restart=True)
    assert (report.resumed, read) == (0, shards_of(version))
    assert not list(cache.glob("*/*"))


@pytest.mark.parametrize("restart", [False, True])
def test_what_checks_leave_behind_is_deleted(version, cache, restart):
    interrupted(version, cache, Level.DEEP)
    (journal_of(cache).parent / "by a check").mkdir()
    (journal_of(cache).parent / "by a check" / "file").write_text("")
    seen = interrupted(version, cache, Level.DEEP, after=4, restart=restart)
    assert not (journal_of(cache).parent / "by a check").exists()
    assert read_by(version, cache, Level.DEEP)[0].resumed == len(seen)


def test_a_run_that_is_interrupted_twice(version, cache):
    first = interrupted(version, cache, Level.DEEP, after=2)
    second = interrupted(version, cache, Level.DEEP, after=4)
    assert second[:2] == first
    report, read = read_by(version, cache, Level.DEEP)
    assert (report.resumed, len(read)) == (4, 2)
    assert report.digest == Manifest.read(version).content.digest


def test_what_could_not_be_read_is_tried_again(version, cache):
    gone = version / sorted(shards_of(version))[-1]
    aside = version.parent / "aside"
    seen = []

    def tell(looked):
        if not seen:
            gone.rename(aside)
        seen.append(looked.stage)
        if looked.stage == gone.name:
            aside.rename(gone)
            raise Stop

    with pytest.raises(Stop):
        verify(version, workers=1, report=tell, resume_dir=cache)
    report, read = read_by(version, cache, Level.BYTES)
    assert report.is_good
    assert gone.name in read


def test_two_runs_at_once_do_not_disturb_each_other(version, cache, monkeypatch):
    monkeypatch.setattr(checkpoint, "_PATIENCE", 0.1)
    reports = []

    def tell(looked):
        if not reports:
            reports.append(verify(version, level=Level.DEEP, workers=1, resume_dir=cache))

    report = verify(version, level=Level.DEEP, workers=1, report=tell, resume_dir=cache)
    assert_same(reports[0], report)
    assert report.is_good


def test_where_nothing_can_be_kept(version, tmp_path):
    (tmp_path / "file").write_text("")
    report = verify(version, workers=1, resume_dir=tmp_path / "file" / "cache")
    assert report.is_good


def test_what_is_old_is_deleted(version, cache, good, monkeypatch):
    interrupted(version, cache, Level.BYTES)
    (state,) = cache.glob("*/")
    long_ago = time.time() - checkpoint._OLD - 10
    for path in (*cache.iterdir(), *state.iterdir()):
        os.utime(path, (long_ago, long_ago))
    assert verify(good, workers=1, resume_dir=cache).is_good
    assert not state.exists()


def test_a_full_disk_is_no_damaged_shard(version, cache, monkeypatch):
    monkeypatch.setattr(shard_reading.Worker, "hashes_of", lambda self, task: Path("/dev/full"))
    with pytest.raises(DiskFullError, match="cannot write notes on the examples"):
        verify(version, level=Level.DEEP, workers=1, resume_dir=cache)
