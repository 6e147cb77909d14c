import hashlib
import multiprocessing
import os

import pytest

from my_datasets.storage.verified_files import VerifiedFiles

DATA = b"some bytes" * 1000
SUM = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def state(tmp_path):
    folder = tmp_path / "state"
    folder.mkdir()
    return folder


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(DATA)
    return path


def wait_for_another_time(path):
    """Writes until the file system's clock, which stands still for milliseconds, has moved on."""
    before = path.stat().st_ctime_ns
    while path.stat().st_ctime_ns == before:
        path.chmod(0o600)


def test_a_file_is_read_once_by_all_processes(state, file, monkeypatch):
    known = VerifiedFiles(state)
    assert not known.knows(file, SUM)
    assert known.has(file, SUM, len(DATA))
    monkeypatch.setattr(hashlib, "file_digest", None)  # reading it again would fail
    for one in (known, VerifiedFiles(state)):
        assert one.knows(file, SUM)
        assert one.has(file, SUM)
        assert not one.knows(file, hashlib.sha256(b"other").hexdigest())
        assert not one.knows(file, SUM, len(DATA) + 1)


def test_what_another_process_verifies_later_is_known(state, file, tmp_path):
    first, second = VerifiedFiles(state), VerifiedFiles(state)
    assert not first.knows(file, SUM)
    assert second.has(file, SUM)
    assert first.knows(file, SUM)
    other = tmp_path / "other"
    other.write_bytes(DATA)
    second.remember(other, SUM)
    assert first.knows(other, SUM)


@pytest.mark.parametrize("change", ["write", "write with the old time", "replace"])
def test_what_was_changed_since_is_not_known(state, file, change):
    known = VerifiedFiles(state)
    assert known.has(file, SUM)
    wait_for_another_time(file)
    assert known.has(file, SUM)
    wait_for_another_time(file)
    before = file.stat()
    evil = b"X" + DATA[1:]
    if change == "replace":
        other = file.with_name("evil")
        other.write_bytes(evil)
        os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
        other.replace(file)
    else:
        with file.open("r+b") as opened:
            opened.write(evil)
        if change == "write with the old time":
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    for one in (known, VerifiedFiles(state)):
        assert not one.knows(file, SUM)
        assert not one.has(file, SUM)
        assert not one.has(file, SUM, len(DATA))


def test_a_file_that_is_wrong_is_not_remembered(state, file):
    known, other = VerifiedFiles(state), hashlib.sha256(b"other").hexdigest()
    assert not known.has(file, other)
    assert not known.knows(file, other)
    assert not known.has(file.with_name("none"), SUM)


def test_links_and_pipes_are_no_files(state, file, tmp_path):
    known = VerifiedFiles(state)
    assert known.has(file, SUM)
    (tmp_path / "link").symlink_to(file)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "state"):
        assert not known.has(tmp_path / name, SUM)


def test_it_is_bounded(tmp_path, state):
    known = VerifiedFiles(state, most=50)
    paths = []
    for number in range(120):
        paths.append(tmp_path / str(number))
        paths[-1].write_bytes(b"x")
        known.remember(paths[-1], SUM)
    (only,) = state.iterdir()
    assert only.stat().st_size <= 51 * 33
    fresh = VerifiedFiles(state, most=50)
    assert all(fresh.knows(path, SUM) for path in paths[-20:])
    assert not fresh.knows(paths[0], SUM)
    assert only.stat().st_mode & 0o077 == 0


def test_torn_and_foreign_lines_are_ignored(state, file):
    known = VerifiedFiles(state)
    assert known.has(file, SUM)
    (only,) = state.iterdir()
    line = only.read_bytes()
    for text in (line[:-2], b"\xff\0" + line, line[:10] + line, b"\n\n"):
        only.write_bytes(text)
        assert not VerifiedFiles(state).knows(file, SUM)
    only.write_bytes(line[:10] + b"\n" + line)
    assert VerifiedFiles(state).knows(file, SUM)


def test_a_state_that_cannot_be_written_costs_hashing_only(tmp_path, file):
    known = VerifiedFiles(tmp_path / "nowhere")
    assert known.has(file, SUM)
    assert known.knows(file, SUM)
    assert not VerifiedFiles(tmp_path / "nowhere").knows(file, SUM)


def _remember(state, folder, name):
    known = VerifiedFiles(state, most=400)
    for number in range(100):
        path = folder / f"{name}.{number}"
        path.write_bytes(b"x")
        known.remember(path, SUM)


def test_many_processes_write_at_once(tmp_path, state):
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=_remember, args=(state, tmp_path, name)) for name in "abcdef"
    ]
    for one in processes:
        one.start()
    for one in processes:
        one.join()
    assert [one.exitcode for one in processes] == [0] * len(processes)
    known = VerifiedFiles(state)
    mine = [path for path in tmp_path.iterdir() if path.is_file()]
    assert sum(known.knows(path, SUM) for path in mine) >= 200
    assert not any(known.knows(path, hashlib.sha256(b"other").hexdigest()) for path in mine)
