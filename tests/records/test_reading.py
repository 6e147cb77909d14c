"""Records at random, and what is wrong with shards."""

import fcntl
import os
import pickle
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from my_datasets.errors import CorruptShardError
from my_datasets.records import index, random_access, tfrecord
from my_datasets.records.random_access import RecordReader, RecordShard
from my_datasets.records.tf_example.columns import PADDING

LENGTHS = [5, 0, 90, 1, 30]
TEXTS = [bytes([i]) * (i * 7 % 120) for i in range(sum(LENGTHS))]


def written(folder, texts, lengths=LENGTHS, *, with_index=True):
    shards, begin = [], 0
    for i, length in enumerate(lengths):
        path = folder / f"part-{i}"
        some = pa.array(texts[begin : begin + length], pa.large_binary())
        records = tfrecord.framed([some], length).to_pylist() if length else []
        path.write_bytes(b"".join(records))
        if with_index:
            index.write(path, np.cumsum([0, *map(len, records)]).astype(np.uint64))
        shards.append(RecordShard(path, length))
        begin += length
    return shards


@pytest.fixture(scope="module", params=[True, False], ids=["index", "no index"])
def shards(request, tmp_path_factory):
    return written(tmp_path_factory.mktemp("shards"), TEXTS, with_index=request.param)


def texts_of(batch):
    assert not batch.data[-PADDING:].any()
    return [batch.data[a:b].tobytes() for a, b in zip(batch.starts, batch.stops, strict=True)]


@given(
    numbers=st.lists(st.integers(0, 80), max_size=50),
    short=st.sampled_from([0, 10**6]),
)
def test_records_are_those_asked_for(shards, numbers, short):
    records = RecordReader(shards, [(100, 126), (3, 60)])
    assert len(records) == 83
    expected = [*TEXTS[100:126], *TEXTS[3:60]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(random_access, "_SHORT", short)
        found = texts_of(records.read(np.array(numbers, np.int64)))
    assert found == [expected[number] for number in numbers]


def test_threads_and_copies_read_the_same(shards):
    records = RecordReader(shards, [(0, len(TEXTS))])
    numbers = np.random.default_rng(0).permutation(len(TEXTS))
    expected = [TEXTS[i] for i in numbers]
    with ThreadPoolExecutor(8) as pool:
        for batch in pool.map(records.read, [numbers] * 40):
            assert texts_of(batch) == expected
    assert texts_of(pickle.loads(pickle.dumps(records)).read(numbers)) == expected


def flipped(at):
    def change(path):
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)

    return change


def cut(path):
    path.write_bytes(path.read_bytes()[:-20])


def replaced(path):
    some = pa.array([b"another record"] * 30, pa.large_binary())
    path.write_bytes(b"".join(tfrecord.framed([some], 30).to_pylist()))


@pytest.mark.parametrize("with_index", [True, False])
@pytest.mark.parametrize("short", [0, 10**6])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (flipped(-1), "is damaged"),
        (flipped(-9), "is damaged"),
        (flipped(0), "damaged"),
        (cut, "is not that of this shard|is damaged"),
        (replaced, "is not that of this shard|is damaged"),
        (os.unlink, r"does not exist(.|\n)*my-datasets verify .* to see what else is missing"),
        (lambda path: path.write_bytes(b""), "not that of this shard|it has 0 records"),
    ],
)
def test_a_damaged_shard_is_reported(tmp_path, monkeypatch, with_index, short, change, said):
    monkeypatch.setattr(random_access, "_SHORT", short)
    shards = written(tmp_path, TEXTS, with_index=with_index)
    change(shards[4].path)
    records = RecordReader(shards, [(0, len(TEXTS))])
    if change is replaced and not with_index:
        texts_of(records.read(np.array([100])))  # nothing tells: its own framing is sound
        return
    with pytest.raises(CorruptShardError, match=said) as caught:
        records.read(np.arange(len(TEXTS)))
    assert str(shards[4].path) in str(caught.value)


def test_a_shard_that_becomes_shorter_while_it_is_open_is_an_error(tmp_path):
    """And not the end of the process, as it is of one that reads a mapped file."""
    shards = written(tmp_path, TEXTS)
    records = RecordReader(shards, [(0, len(TEXTS))])
    records.read(np.array([100]))
    os.truncate(shards[4].path, 10)
    with pytest.raises(CorruptShardError, match="ends too early"):
        records.read(np.array([125]))


def test_an_index_of_another_shard_of_the_same_size_is_noticed(tmp_path):
    shards = written(tmp_path, [b"abcd"] * 3 + [b"ab", b"abcdef", b"abcd"], [3, 3])
    shutil.copy(index.path_of(shards[0].path), index.path_of(shards[1].path))
    with pytest.raises(CorruptShardError, match="my-datasets index"):
        RecordReader(shards, [(0, 6)]).read(np.arange(6))


def test_a_shard_replaced_by_one_of_the_same_size_is_read_anew(tmp_path):
    (first,) = written(tmp_path, [b"abc", b"d"], [2], with_index=False)
    assert texts_of(RecordReader([first], [(0, 2)]).read(np.arange(2))) == [b"abc", b"d"]
    (second,) = written(tmp_path, [b"a", b"bcd"], [2], with_index=False)
    os.utime(second.path, ns=(0, 0))
    assert texts_of(RecordReader([second], [(0, 2)]).read(np.arange(2))) == [b"a", b"bcd"]


def test_many_shards_take_few_descriptors(tmp_path):
    lengths = [1] * 600
    shards = written(tmp_path, [b"%d" % i for i in range(600)], lengths)
    records = RecordReader(shards, [(0, 600)])
    before = len(list(Path("/proc/self/fd").iterdir()))
    for begin in range(0, 600, 50):
        records.read(np.arange(begin, begin + 50))
    assert len(list(Path("/proc/self/fd").iterdir())) - before <= 2 * 256


@pytest.mark.parametrize("place", [0, 5, 1 << 62, (1 << 64) - 5])
def test_an_index_with_impossible_places_is_refused(tmp_path, place):
    """Its first and last numbers are right; what is between takes no memory, and is not read."""
    path = tmp_path / "x.tfrecord"
    path.write_bytes(b"".join(map(tfrecord.framed_one, [b"a", b"b", b"c"])))
    offsets = index.scan(path)
    offsets[1] = place
    index.write(path, offsets)
    records = RecordReader([RecordShard(path, 3)], [(0, 3)])
    with pytest.raises(CorruptShardError, match=r"Record [01] .* has no place in it"):
        records.read(np.arange(3))


_ENDS = """
import sys
import threading
from pathlib import Path
import numpy as np
from my_datasets.records import random_access

records = random_access.RecordReader([random_access.RecordShard(Path(sys.argv[1]), 3)], [(0, 3)])
records.read(np.arange(3))
kept = next(iter(records._opened.get(dict).values()))
# When Python ends, what a module has is gone before what it made.
vars(random_access)["os"] = None
"""


def test_nothing_is_printed_when_python_ends(tmp_path):
    path = tmp_path / "x.tfrecord"
    path.write_bytes(b"".join(map(tfrecord.framed_one, [b"a", b"b", b"c"])))
    code = [sys.executable, "-c", _ENDS, str(path)]
    done = subprocess.run(code, capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_a_thread_that_waits_for_a_shard_keeps_no_other_files_open(tmp_path):
    """It may be waiting for the very lock that such a file has."""
    [shard] = written(tmp_path, [b"a", b"b"], [2])
    waits, may_go_on, is_first = threading.Event(), threading.Event(), iter([True])

    class Fetch:
        max_open = spare = 0

        def __call__(self, path):
            if next(is_first, False):
                waits.set()
                assert may_go_on.wait(60)

    reader = RecordReader([shard], [(0, 2)], Fetch(), 0)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(reader.read, np.array([0]))
        assert waits.wait(60)
        assert texts_of(reader.read(np.array([1]))) == [b"b"]
        try:
            with open(shard.path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            may_go_on.set()
        assert texts_of(waiting.result()) == [b"a"]


def is_locked(path):
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_that_was_forked_while_a_shard_was_read_does_not_keep_it_locked(tmp_path):
    shards = written(tmp_path, TEXTS)
    begun, ended = os.pipe(), os.pipe()
    children = []

    def fetch(path):
        if path == shards[2].path:  # the first shard is open
            assert is_locked(shards[0].path)
            children.append(os.fork())
            if not children[-1]:
                reader._opened.get(dict)  # drops what its parent has
                os.write(begun[1], b"1")
                os.read(ended[0], 1)
                os._exit(0)
            os.read(begun[0], 1)
            assert is_locked(shards[0].path)  # which the child did not end

    reader = RecordReader(shards, [(0, sum(LENGTHS))], fetch, max_open=0)
    try:
        reader.read(np.arange(sum(LENGTHS)))
        assert children
        assert not any(is_locked(shard.path) for shard in shards)
    finally:
        os.write(ended[1], b"1")
        os.waitpid(children[0], 0)
        for end in (*begun, *ended):
            os.close(end)


def test_a_shard_that_others_evict_a_few_times_is_read(tmp_path):
    shards = written(tmp_path, TEXTS)
    path, there = shards[0].path, shards[0].path.with_name("there")
    path.rename(there)
    tries = []

    def fetch(_):
        tries.append(1)
        if len(tries) == 6:
            there.rename(path)

    reader = RecordReader(shards, [(0, LENGTHS[0])], fetch, max_open=1)
    assert len(reader.read(np.arange(1)).starts) == 1


def test_a_shard_that_cannot_be_mapped_leaves_no_descriptor(tmp_path, monkeypatch):
    shards = written(tmp_path, TEXTS)

    def none(*_, **__):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(random_access.mmap, "mmap", none)
    reader = RecordReader(shards, [(0, LENGTHS[0])])
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        with pytest.raises(OSError, match="allocate"):
            reader.read(np.arange(1))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_shard_that_is_fetched_again_is_not_scanned_again(tmp_path, monkeypatch):
    [shard] = written(tmp_path, [b"a", b"b"], [2], with_index=False)
    data = shard.path.read_bytes()
    scans, scan = [], index.scan
    monkeypatch.setattr(index, "scan", lambda path: scans.append(path) or scan(path))

    def fetch(path):
        there = path.with_name(f"cached-{hash(data)}")
        there.write_bytes(data)
        os.utime(there, ns=(len(scans) + 1,) * 2)
        path.unlink(missing_ok=True)
        path.symlink_to(there)

    reader = RecordReader([shard], [(0, 2)], fetch, 0)
    for _ in range(3):
        assert texts_of(reader.read(np.array([1]))) == [b"b"]
    assert scans == [shard.path]
    shard.path.unlink()
    data = b"".join(map(tfrecord.framed_one, [b"A", b"B"]))
    assert texts_of(reader.read(np.array([1]))) == [b"B"]
    assert scans == [shard.path] * 2
