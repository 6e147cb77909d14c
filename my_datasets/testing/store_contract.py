"""The contract of every store, as tests: to test your own store, derive from `StoreContract`.

class TestMyStore(StoreContract):
    @pytest.fixture
    def store(self):
        return MyStore(...)  # an empty one
"""

import hashlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias

import pytest

from my_datasets.errors import (
    AlreadyInStoreError,
    ChangedInStoreError,
    ChecksumError,
    NotInStoreError,
    StoreError,
)
from my_datasets.storage.store import Store

_LARGE = 12_345_678
_WRITERS = 4
# A store, and a function that writes a file into it.
Filled: TypeAlias = tuple[Store, Callable[[str, bytes], object]]


class ReadingContract:
    """The contract of every readable store; `held` provides the store and a function to fill it."""

    @pytest.fixture
    def held(self) -> Filled:
        """Returns an empty store, and a function that writes a file into it by other means."""
        raise NotImplementedError

    def test_a_file_is_read_as_a_whole_and_in_parts(self, held: Filled) -> None:
        """Any range is returned exactly, even an empty one and one that exceeds the file."""
        store, put = held
        data = _data(3_000_000)
        put("folder/large", data)
        put("empty", b"")
        _same(b"".join(store.read("folder/large")), data)
        _same(b"".join(store.read("empty")), b"")
        for begin, end in [(0, 1), (1, 1), (5, 2_000_000), (2_999_999, None), (3_000_000, None)]:
            _same(b"".join(store.read("folder/large", begin, end)), data[begin:end])
        _same(b"".join(store.read("folder/large", 2_999_990, 4_000_000)), data[2_999_990:])
        _same(store.stat("folder/large").bytes, len(data))
        _same(store.stat("empty").bytes, 0)

    def test_a_large_file_is_never_taken_for_a_small_one(self, held: Filled) -> None:
        """`state` returns a whole file up to a size limit, and never a part of a larger one."""
        store, put = held
        put("state.json", b"0123456789")
        _same(store.state("state.json", 10)[0], b"0123456789")
        with pytest.raises(StoreError, match="larger"):
            store.state("state.json", 9)

    def test_what_is_not_there(self, held: Filled) -> None:
        """Every read method raises `NotInStoreError` if the file does not exist."""
        store, put = held
        put("folder/file", b"1")
        for path in ("nothing", "folder/nothing", "folder", "folder/file/nothing"):
            with pytest.raises(NotInStoreError, match="has no file"):
                store.stat(path)
            with pytest.raises(NotInStoreError):
                b"".join(store.read(path))
            with pytest.raises(NotInStoreError):
                store.state(path, 10)

    def test_names_are_taken_as_they_are(self, held: Filled) -> None:
        """Characters with a meaning in URLs are literal parts of names."""
        store, put = held
        for name in ("a b.txt", "50%25.txt", "a+b&c=d.txt", "größe.txt"):
            put(f"names/{name}", name.encode())
            _same(b"".join(store.read(f"names/{name}")), name.encode())


class StoreContract(ReadingContract):
    """The contract of every store; `store` provides an empty one."""

    @pytest.fixture
    def store(self) -> Store:
        """Returns an empty store."""
        raise NotImplementedError

    @pytest.fixture
    def held(self, store: Store) -> Filled:
        """Returns the store, and a function that writes a file into it."""
        return store, lambda path, data: store.create(path, data, _sha256(data))

    def test_a_file_is_written_once(self, store: Store, tmp_path: Path) -> None:
        """An existing file is never replaced, even by the same bytes."""
        data = _data(_LARGE)
        (tmp_path / "file").write_bytes(data)
        moved: list[int] = []
        store.create("a/b/file", tmp_path / "file", _sha256(data), moved.append)
        _same(sum(moved), len(data))
        _same(b"".join(store.read("a/b/file")), data)
        found = store.stat("a/b/file")
        _same((found.bytes, found.sha256) in ((len(data), _sha256(data)), (len(data), None)), True)
        moved.clear()
        store.create("a/b/small", b"12345", _sha256(b"12345"), moved.append)
        _same(sum(moved), 5)
        for source in (b"other", tmp_path / "file"):
            expected = _sha256(source if isinstance(source, bytes) else data)
            with pytest.raises(AlreadyInStoreError):
                store.create("a/b/file", source, expected)
        _same(b"".join(store.read("a/b/file")), data)

    def test_a_source_that_is_not_what_it_should_be(self, store: Store, tmp_path: Path) -> None:
        """Nothing is written, and the progress that was reported is taken back."""
        for size in (0, 10, _LARGE):
            (tmp_path / "file").write_bytes(_data(size))
            moved: list[int] = []
            for source in (tmp_path / "file", _data(size)):
                with pytest.raises(ChecksumError, match="changed while it was copied"):
                    store.create("file", source, _sha256(b"others"), moved.append)
            _same(sum(moved), 0)
        with pytest.raises(NotInStoreError):
            store.stat("file")
        with pytest.raises(StoreError, match="cannot be read"):
            store.create("file", tmp_path / "nothing", _sha256(b""))
        _same(list(store.list("")), [])

    def test_of_several_writers_one_succeeds(self, store: Store) -> None:
        """The other writers get an error, and the file is what the one wrote."""
        for turn in range(5):
            outcomes = _together(
                lambda data: store.create(f"file{turn}", data, _sha256(data)),  # noqa: B023
                [b"%d" % number * 1000 for number in range(_WRITERS)],
            )
            _same(sorted(map(str, outcomes)), ["AlreadyInStoreError"] * (_WRITERS - 1) + ["None"])
            winner = outcomes.index(None)
            _same(b"".join(store.read(f"file{turn}")), b"%d" % winner * 1000)

    def test_a_small_file_is_replaced_by_who_knows_it(self, store: Store) -> None:
        """Replacing with a tag that is not the current one changes nothing."""
        with pytest.raises(ChangedInStoreError):
            store.replace("state", b"1", _other_tag(store))
        first = store.replace("state", b"1", None)
        with pytest.raises(ChangedInStoreError):
            store.replace("state", b"2", None)
        _same(store.state("state", 10), (b"1", first))
        second = store.replace("state", b"22", first)
        with pytest.raises(ChangedInStoreError):
            store.replace("state", b"3", first)
        _same(store.state("state", 10), (b"22", second))
        store.delete("state")
        with pytest.raises(ChangedInStoreError):
            store.replace("state", b"4", second)

    def test_of_several_that_replace_one_succeeds(self, store: Store) -> None:
        """No update is lost: a counter that several writers increment counts every increment."""
        store.replace("counter", b"0", None)

        def count(_: bytes) -> None:
            done = 0
            while done < 5:
                data, tag = store.state("counter", 100)
                try:
                    store.replace("counter", b"%d" % (int(data) + 1), tag)
                except ChangedInStoreError:
                    continue
                done += 1

        _same(_together(count, [b""] * _WRITERS), [None] * _WRITERS)
        _same(store.state("counter", 100)[0], b"%d" % (5 * _WRITERS))

    def test_all_files_of_a_folder_are_listed(self, store: Store) -> None:
        """Files in subfolders are listed, but not those of folders with the same name prefix."""
        for path in ("a/1", "a/b/2", "a/b/c/3", "ab/4", "5"):
            store.create(path, path.encode(), _sha256(path.encode()))
        _same(
            {one.path: one.bytes for one in store.list("a")},
            {
                "a/1": 3,
                "a/b/2": 5,
                "a/b/c/3": 7,
            },
        )
        _same({one.path for one in store.list("")}, {"a/1", "a/b/2", "a/b/c/3", "ab/4", "5"})
        _same(list(store.list("nothing")), [])
        _same(all(one.modified > 1e9 for one in store.list("a")), True)

    def test_a_folder_is_moved(self, store: Store) -> None:
        """All files are moved, with their metadata; moving again does nothing."""
        names = [f"file{number:02}" for number in range(20)] + ["last.json", "very_last.json"]
        for name in names:
            store.create(f"from/{name}", name.encode(), _sha256(name.encode()))
        before = store.stat("from/file00").sha256
        for _ in range(2):
            store.move("from", "new/to", ["last.json", "very_last.json"])
            _same(
                sorted(one.path for one in store.list("new")), [f"new/to/{name}" for name in names]
            )
            _same(list(store.list("from")), [])
        _same(b"".join(store.read("new/to/file07")), b"file07")
        _same(store.stat("new/to/file00").sha256, before)

    def test_several_move_the_same_folder(self, store: Store) -> None:
        """Concurrent moves of the same folder all succeed."""
        names = [f"file{number:02}" for number in range(20)]
        for name in names:
            store.create(f"from/{name}", b"1", _sha256(b"1"))
        moved = _together(lambda _: store.move("from", "to", ["file03"]), [b""] * _WRITERS)
        _same(moved, [None] * _WRITERS)
        _same(sorted(one.path for one in store.list("to")), [f"to/{name}" for name in names])
        _same(list(store.list("from")), [])

    def test_what_is_deleted_is_gone(self, store: Store) -> None:
        """Deleting a file that does not exist is not an error."""
        store.create("a/file", b"1", _sha256(b"1"))
        for _ in range(2):
            store.delete("a/file")
            _same(list(store.list("")), [])
        store.create("a/file", b"2", _sha256(b"2"))

    def test_it_says_where_it_is(self, store: Store) -> None:
        """`url` is set and has no credentials, and the store is writable."""
        _same(bool(store.url), True)
        _same("@" not in store.url, True)
        _same(store.is_writable, True)


def _data(size: int) -> bytes:
    """Returns pseudorandom bytes, with no repeated parts."""
    seed = hashlib.sha256(b"%d" % size).digest()
    return b"".join(
        hashlib.sha256(seed + number.to_bytes(8, "little")).digest()
        for number in range(size // 32 + 1)
    )[:size]


def _same(found: object, expected: object) -> None:
    if found != expected:
        raise AssertionError(f"found {found!r:.500}, expected {expected!r:.500}")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _other_tag(store: Store) -> str:
    """Returns the tag of another file, which must not be accepted."""
    return store.replace("other", b"other", None)


def _together(work: Callable[[bytes], None], arguments: Sequence[bytes]) -> list[str | None]:
    """Runs calls concurrently; returns None or the name of its error for each."""
    barrier = threading.Barrier(len(arguments))

    def run(argument: bytes) -> str | None:
        barrier.wait()
        try:
            work(argument)
        except StoreError as error:
            return type(error).__name__
        return None

    with ThreadPoolExecutor(len(arguments)) as pool:
        return list(pool.map(run, arguments))
