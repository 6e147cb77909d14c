"""The places where workers and the building process meet: a shared directory, and a bucket."""

import contextlib
import pickle
import threading
from pathlib import Path

import pytest

from my_datasets.building.engines.beam import build_files
from my_datasets.building.engines.beam.workspace import BucketWorkspace, SharedDirectory
from my_datasets.errors import StoreError


@pytest.fixture
def place(address, tmp_path):
    is_remote = "://" in address
    found = (
        BucketWorkspace(address, "a/.1.0.0.work", "a/1.0.0")
        if is_remote
        else SharedDirectory(tmp_path)
    )
    assert is_remote or not any(tmp_path.iterdir())
    found.begin()
    return pickle.loads(pickle.dumps(found))  # as workers get it


def put(place, name, data):
    with place.draft() as directory:
        path = Path(directory) / "draft"
        path.write_bytes(data)
        place.put(path, name)
        assert not path.exists()


def whole(place, name):
    folder, _, last = name.rpartition("/")
    size = place.sizes(folder)[last]
    with place.reading(name, size) as reading:
        reading.fetch(0, size)
        return reading.path.read_bytes()


def test_a_place_is_seen_once_it_is_made(address, tmp_path):
    made = (
        BucketWorkspace(address, "b/w", "b/v")
        if "://" in address
        else SharedDirectory(tmp_path / "w")
    )
    assert not made.exists()
    made.begin()
    made.begin()
    assert made.exists()
    made.discard()
    assert not made.exists()


def test_small_files(place):
    assert place.read("reports/a.json") is None
    place.write("reports/a.json", b"1")
    place.write("reports/a.json", b"1")
    assert place.read("reports/a.json") == b"1"
    place.write("reports/a.json", b"another")  # an attempt that was given up, and the next one
    assert place.read("reports/a.json") == b"another"
    place.write("reports/empty", b"")
    assert place.read("reports/empty") == b""


def test_large_files_are_read_where_they_are_wanted(place):
    data = bytes(range(256)) * 1000
    put(place, "runs/one.run", data)
    with place.reading("runs/one.run", len(data)) as reading:
        reading.fetch(1000, 5000)
        reading.fetch(200_000, len(data))
        reading.fetch(7, 7)
        found = reading.path.read_bytes()
        assert len(found) == len(data)
        assert found[1000:5000] == data[1000:5000]
        assert found[200_000:] == data[200_000:]
    put(place, "runs/one.run", b"of another attempt")
    assert whole(place, "runs/one.run") == b"of another attempt"


def test_files_are_listed_at_any_depth_and_only_whole_ones(place):
    names = {"train/0/1.run", "train/0/1.json", "train/1/2.run", "x"}
    for name in names:
        place.write(f"parts/{name}", f"parts/{name}".encode())
    assert place.sizes("parts/train") == {"0/1.run": 19, "0/1.json": 20, "1/2.run": 19}
    assert place.sizes("nothing") == {}
    with place.draft():
        assert set(place.sizes("parts")) == {
            "train/0/1.run",
            "train/0/1.json",
            "train/1/2.run",
            "x",
        }
    place.remove("parts/train", ".run")
    assert set(place.sizes("parts")) == {"train/0/1.json", "x"}
    place.remove("parts")
    place.remove("parts")
    assert place.sizes("parts") == {}


def test_two_that_put_a_file_under_one_name_both_succeed(place):
    failed = []

    def work(number):
        try:
            for turn in range(5):
                put(place, "parts/same", f"{number} {turn}".encode())
                place.write("parts/report", f"{number} {turn}".encode())
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert whole(place, "parts/same").split()[1] == b"4"
    assert place.read("parts/report").split()[1] == b"4"


def test_what_is_handed_over_comes_to_the_version(place, tmp_path):
    target = tmp_path / "version"
    target.mkdir()
    place.write("shards/one", b"1")
    place.write("shards/two", b"22")
    place.hand_over("shards", target)
    if isinstance(place, BucketWorkspace):
        assert place.handed_over() == {"one": 1, "two": 2}
        assert not any(target.iterdir())
        assert place.sizes("shards") == {}
    else:
        assert {path.name for path in target.iterdir()} == {"one", "two"}
        assert place.handed_over() == {}
        # They stay until the version is in its place.
        assert place.sizes("shards") == {"one": 1, "two": 2}


def test_a_file_in_a_bucket_that_is_shorter_than_it_was_made_is_reported(s3_bucket):
    place = BucketWorkspace(s3_bucket, "short/w", "short/v")
    put(place, "runs/one.run", b"12345")
    with (
        place.reading("runs/one.run", 10) as reading,
        pytest.raises(StoreError, match="is not as it was written"),
    ):
        reading.fetch(3, 10)


def test_workers_of_a_build_that_was_given_up_write_where_nobody_looks(place):
    """They may be of other code; those of the same build meet again."""
    first = build_files.opened(place, {"code": 1}, resume=True)
    first.write_json("generated/train/a.report.json", 1)
    same = build_files.opened(place, {"code": 1}, resume=True)
    assert set(same.place.sizes("generated")) == {"train/a.report.json"}
    other = build_files.opened(place, {"code": 2}, resume=True)
    anew = build_files.opened(place, {"code": 2}, resume=False)
    for late in (first, same, other):
        with contextlib.suppress(FileNotFoundError):  # where they have no folder any more
            late.write_json("generated/train/b.report.json", 1)
    assert anew.place.sizes("generated") == {}
    assert anew.place.exists()


def test_what_an_earlier_release_of_this_package_left_is_discarded(place):
    place.write("beam.json", b'{"code": 1, "engine": "beam"}')
    place.write("generated/train/a.report.json", b"{}")
    found = build_files.opened(place, {"code": 1, "engine": "beam"}, resume=True)
    assert found.place.sizes("generated") == {}
    assert place.sizes("generated") == {}
