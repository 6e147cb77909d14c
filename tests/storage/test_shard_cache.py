"""Room for verified files: bounded, shared, and never with a byte that is wrong."""

import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from my_datasets.errors import CorruptReleaseError, DiskFullError, damaged_release
from my_datasets.records.random_access import lock_shard
from my_datasets.storage import shard_cache
from my_datasets.storage.shard_cache import RemoteFile, ShardCache
from my_datasets.storage.verified_files import verified_files

SIZE = 1000


def data_of(number, size=SIZE):
    return bytes([number]) * size


def file_of(number, size=SIZE):
    return RemoteFile.of(hashlib.sha256(data_of(number, size)).hexdigest(), size)


def damaged(found):
    return damaged_release("file1", found)


def brought(shelf, number, size=SIZE, **how):
    """Brings a file; returns where it is."""
    data = data_of(number, size)
    shelf.fetch(file_of(number, size), lambda: [data[:300], data[300:]], damaged, **how)
    return shelf.path_of(file_of(number, size).key)


def numbers_on(shelf):
    """Which files are there: each is what it should be."""
    found = []
    for path in shelf.directory.iterdir():
        if not path.name.startswith("."):
            data = path.read_bytes()
            assert hashlib.sha256(data).hexdigest() == path.name
            found.append(data[0])
    return sorted(found)


@pytest.fixture
def shelf(tmp_path):
    return ShardCache(tmp_path / "shelf", 3 * SIZE)


def used_at(shelf, number, seconds):
    """Says when a file was wanted last: clocks may be too coarse to tell what follows quickly."""
    os.utime(shelf.directory / ".used" / file_of(number).sha256, (seconds, seconds))


def test_what_comes_is_there_and_comes_once(shelf):
    path = brought(shelf, 1)
    assert path.read_bytes() == data_of(1)

    def unwanted():
        raise AssertionError

    shelf.fetch(file_of(1), unwanted, damaged)
    assert numbers_on(shelf) == [1]


def test_what_was_not_wanted_for_the_longest_time_goes(shelf):
    for number in (1, 2, 3):
        brought(shelf, number)
        used_at(shelf, number, number)
    brought(shelf, 1)  # wanted again, just now
    brought(shelf, 4)
    assert numbers_on(shelf) == [1, 3, 4]
    brought(shelf, 5, size=2 * SIZE)
    assert 5 in numbers_on(shelf)
    assert len(numbers_on(shelf)) == 2


def test_what_others_look_after_is_left_alone(shelf):
    ignored = {file_of(number).key for number in (1, 2)}
    mine = ShardCache(shelf.directory, 2 * SIZE, ignored)
    for number in (1, 2, 3):
        brought(shelf, number)
        used_at(shelf, number, number)
    for number in (4, 5):
        brought(mine, number)
    assert numbers_on(shelf) == [1, 2, 4, 5]


def test_what_is_read_stays(shelf, caplog):
    paths = [brought(shelf, number) for number in (1, 2, 3)]
    for number in (1, 2, 3):
        used_at(shelf, number, number)
    with paths[0].open("rb") as first:
        lock_shard(first.fileno())
        brought(shelf, 4)
        assert numbers_on(shelf) == [1, 3, 4]
        with paths[2].open("rb") as third, shelf.path_of(file_of(4).key).open("rb") as fourth:
            lock_shard(third.fileno())
            lock_shard(fourth.fileno())
            brought(shelf, 5, is_optional=True)
            assert numbers_on(shelf) == [1, 3, 4]
            assert not caplog.text
            brought(shelf, 5)
            assert numbers_on(shelf) == [1, 3, 4, 5]
            assert "that much is being read at once" in caplog.text
    brought(shelf, 6)
    assert len(numbers_on(shelf)) == 3


@pytest.mark.parametrize(
    "pieces",
    [
        [data_of(1)[:-1]], [data_of(1), b"1"], [data_of(1), data_of(1)], [data_of(2)], [],
        [data_of(1)[:500], b"x", data_of(1)[501:]],
    ],
)  # fmt: skip
def test_nobody_sees_a_byte_of_anything_else(shelf, pieces):
    seen = []

    def given():
        for piece in pieces:
            yield piece
            seen.extend(p.name for p in shelf.directory.iterdir() if p.suffix != ".partial")

    with pytest.raises(CorruptReleaseError, match="file1 is not what was published"):
        shelf.fetch(file_of(1), given, damaged)
    assert set(seen) <= {".lock", ".used", ".my_datasets_cache"}
    assert numbers_on(shelf) == []
    assert brought(shelf, 1).read_bytes() == data_of(1)


def test_what_was_cut_off_comes_anew(shelf):
    os.truncate(brought(shelf, 1), 10)
    assert brought(shelf, 1).read_bytes() == data_of(1)


def test_an_empty_file(shelf):
    assert brought(shelf, 1, size=0).read_bytes() == b""


def test_threads_bring_a_file_once(shelf):
    began, calls = threading.Barrier(8), []

    def given():
        calls.append(1)
        yield data_of(1)

    def fetch(_):
        began.wait()
        shelf.fetch(file_of(1), given, damaged)
        return shelf.path_of(file_of(1).key).read_bytes()

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(fetch, range(8))) == {data_of(1)}
    assert len(calls) == 1


def test_threads_share_too_little_room(tmp_path):
    shelf = ShardCache(tmp_path / "shelf", 3 * SIZE)

    def go(seed):
        for i in range(30):
            brought(shelf, (seed * 7 + i * 5) % 9)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(go, range(4)))
    assert 1 <= len(numbers_on(shelf)) <= 3


_KILLED = """
import sys
from pathlib import Path
from my_datasets.storage.shard_cache import ShardCache
from tests.storage.test_shard_cache import damaged, data_of, file_of

def given():
    yield data_of(int(sys.argv[2]))[:600]
    print("begun", flush=True)
    sys.stdin.read()

ShardCache(Path(sys.argv[1]), 3000).fetch(file_of(int(sys.argv[2])), given, damaged)
"""


def killed_while_bringing(shelf, number, root):
    process = subprocess.Popen(
        [sys.executable, "-c", _KILLED, shelf.directory, str(number)], cwd=root, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout.readline() == "begun\n"
    (partial,) = shelf.directory.glob("*.partial")
    assert partial.stat().st_size == SIZE  # others see the room taken
    for other in (7, 8, 9):
        brought(shelf, other)
    assert len(list(shelf.directory.glob("*.partial"))) == 1  # somebody writes there
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_what_a_killed_process_left_is_of_no_harm(shelf, root):
    killed_while_bringing(shelf, 1, root)
    assert brought(shelf, 1).read_bytes() == data_of(1)
    assert not list(shelf.directory.glob("*.partial"))
    killed_while_bringing(shelf, 2, root)
    for number in (3, 4, 5):  # it is in the way of others
        brought(shelf, number)
    assert numbers_on(shelf) == [3, 4, 5]


_BUSY = """
import random
import sys
from pathlib import Path
from my_datasets.storage.shard_cache import ShardCache
from my_datasets.records.random_access import lock_shard
from tests.storage.test_shard_cache import brought, data_of

shelf = ShardCache(Path(sys.argv[1]), 3000)
print("ready", flush=True)
for _ in range(int(sys.argv[2])):
    number = random.randrange(9)
    try:
        with brought(shelf, number).open("rb") as file:
            lock_shard(file.fileno())
            assert file.read() == data_of(number)
    except FileNotFoundError:
        pass  # others took it away before it was opened
print("done", flush=True)
"""


def busy(shelf, root, turns):
    process = subprocess.Popen(
        [sys.executable, "-c", _BUSY, shelf.directory, str(turns)], cwd=root, text=True,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    return process


def test_processes_that_are_killed_at_any_moment(shelf, root):
    steady = busy(shelf, root, 500)
    for seconds in (0.01, 0.1, 0.3):
        killed = busy(shelf, root, 1_000_000)
        time.sleep(seconds)
        killed.kill()
        killed.communicate()
    assert steady.communicate()[0] == "done\n"
    for number in range(9):
        assert brought(shelf, number).read_bytes() == data_of(number)
    assert len(numbers_on(shelf)) == 3


def test_a_full_disk(tmpfs):
    disk = tmpfs("1m")
    shelf = ShardCache(disk / "shelf", 10 << 20)
    size = 300 << 10
    brought(shelf, 1, size=size)
    brought(shelf, 2, size=size)
    (disk / "filler").write_bytes(bytes(350 << 10))
    with shelf.path_of(file_of(2, size).key).open("rb") as second:
        lock_shard(second.fileno())
        brought(shelf, 3, size=size)  # another one goes
        assert numbers_on(shelf) == [2, 3]
        with pytest.raises(DiskFullError, match=r"no room for a shard(.|\n)*another cache_dir"):
            brought(shelf, 4, size=2 * size)
    assert numbers_on(shelf) == [2]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_that_was_forked_during_an_eviction_locks_nobody_out(shelf, monkeypatch):
    path = brought(shelf, 1)
    ended = os.pipe()
    children = []

    def forking(*_):
        children.append(os.fork())
        if not children[-1]:
            os.read(ended[0], 1)
            os._exit(0)
        return False  # another file has that name by now

    with monkeypatch.context() as patched:
        patched.setattr(shard_cache, "_is_at", forking)
        assert not shard_cache._removed(path)
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # as `hold`, which would wait
    finally:
        os.write(ended[1], b"1")
        os.waitpid(children[0], 0)
        for end in ended:
            os.close(end)


def test_a_pipe_in_place_of_a_note_keeps_nobody_waiting(shelf):
    os.mkfifo(shelf.directory / ".used" / file_of(1).key)
    with ThreadPoolExecutor(1) as pool:
        bringing = pool.submit(brought, shelf, 1)
        try:
            assert bringing.result(10).read_bytes() == data_of(1)
        finally:  # or the thread would wait for ever
            os.close(os.open(shelf.directory / ".used" / file_of(1).key, os.O_RDWR))


def test_a_thread_that_waits_for_a_file_does_not_wait_for_its_reader(shelf):
    """The reader may be waiting for that very thread, as where two datasets are zipped."""
    wanted = file_of(1)
    path = shelf.path_of(wanted.key)
    partial = path.with_name(f"{path.name}.partial")

    def times_open():
        descriptors = Path("/proc/self/fd").iterdir()
        return sum(os.path.realpath(one) == str(partial) for one in descriptors)

    with ThreadPoolExecutor(1) as pool, shard_cache._locked_partial(partial) as file:
        waiting = pool.submit(brought, shelf, 1)
        while times_open() < 2:
            time.sleep(0.01)
        os.write(file, data_of(1))
        partial.rename(path)
        verified_files().remember(file, wanted.key)
        fcntl.flock(file, fcntl.LOCK_SH)  # of a reader, who was quicker
        assert waiting.result(10).read_bytes() == data_of(1)


_ORPHAN = """
import os
import signal
import sys
import threading
from pathlib import Path
from my_datasets.storage.shard_cache import ShardCache
from tests.storage.test_shard_cache import damaged, data_of, file_of

begun = threading.Event()

def given():
    yield data_of(1)[:600]
    begun.set()
    threading.Event().wait()

shelf = ShardCache(Path(sys.argv[1]), 3000)
threading.Thread(target=shelf.fetch, args=(file_of(1), given, damaged), daemon=True).start()
begun.wait()
if os.fork():
    os.kill(os.getpid(), signal.SIGKILL)
print("alone", flush=True)
sys.stdin.read()
os._exit(0)
"""


def test_the_child_of_a_killed_process_keeps_nobody_waiting(shelf, root):
    process = subprocess.Popen(
        [sys.executable, "-c", _ORPHAN, shelf.directory], cwd=root, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout.readline() == "alone\n"
    process.wait()
    with ThreadPoolExecutor(1) as pool:
        bringing = pool.submit(brought, shelf, 1)
        try:
            assert bringing.result(10).read_bytes() == data_of(1)
        finally:
            process.communicate()  # ends the child
