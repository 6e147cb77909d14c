"""Random access to the records of a split, in any order, in local TFRecord shards."""

import contextlib
import functools
import mmap
import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import google_crc32c
import numpy as np
import numpy.typing as npt

from my_datasets.core.processes import PerProcess
from my_datasets.errors import CorruptShardError, explain, missing_shard
from my_datasets.records import index, tfrecord
from my_datasets.records.tf_example.columns import PADDING, Bytes, Places

# If records are shorter on average, checksums are computed on slices of one copy of the buffer.
_SHORT = 4096
# Maximum number of open shards. Each takes two file descriptors, and the usual limit is 1,024.
_MAX_OPEN = 256
# How often to fetch and open a shard before giving up: others evict it meanwhile, more often the
# smaller the cache and the more processes share it.
_TRIES = 20


def lock_shard(file: int) -> None:
    """Locks a shard, by its descriptor, against eviction for as long as it is open."""
    # Without such locks, the open file stays readable even after it is unlinked.
    with contextlib.suppress(OSError, ModuleNotFoundError):
        import fcntl

        fcntl.flock(file, fcntl.LOCK_SH)


def unlock_shard(file: int, process: int) -> None:
    """Unlocks a shard that is about to be closed, if this is the process that locked it.

    Closing alone leaves the lock to children that were forked while the shard was open, for as long
    as they live.
    """
    if process == os.getpid():
        with contextlib.suppress(OSError, ModuleNotFoundError):
            import fcntl

            fcntl.flock(file, fcntl.LOCK_UN)


@dataclass(frozen=True)
class RecordShard:
    """A file with some of a split's records; `length` is the declared number of them."""

    path: Path
    length: int


@dataclass(frozen=True)
class RecordBatch:
    """Some records.

    Attributes:
      data: A buffer that contains all of them, in any order, and ends with `PADDING` bytes.
      starts: The offset of each record, in the requested order; shape [n].
      stops: The end of each record; shape [n].
    """

    data: Bytes
    starts: Places
    stops: Places

    @classmethod
    def of(cls, records: Sequence[bytes]) -> "RecordBatch":
        """Returns a batch of records that are already in memory."""
        sizes = np.fromiter(map(len, records), np.int64, len(records))
        stops = np.cumsum(sizes)
        data = np.frombuffer(b"".join([*records, bytes(PADDING)]), np.uint8)
        return cls(data, stops - sizes, stops)

    @functools.cached_property
    def text(self) -> bytes:
        """The buffer as `bytes`, which are fast to slice; copied if necessary."""
        return self.data.base if isinstance(self.data.base, bytes) else self.data.tobytes()

    @property
    def is_short(self) -> bool:
        """Whether the records are short enough that copying the buffer pays off."""
        return len(self.data) < _SHORT * len(self.starts)


@dataclass(frozen=True)
class RecordReader:
    """Ranges of the records of several shards, as one sequence.

    Attributes:
      shards: The shards, grouped by split.
      ranges: The first record of each range and the one after its last, counted over all shards.
      fetch: Called with each shard that is about to be opened, to fetch it.
      max_open: The number of shards that stay open between reads.
    """

    shards: Sequence[RecordShard]
    ranges: Sequence[tuple[int, int]]
    fetch: Callable[[Path], None] | None = None
    max_open: int = _MAX_OPEN
    _ends: Places = field(init=False, repr=False, compare=False)
    _opened: "PerProcess[dict[int, _Opened]]" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ends = np.cumsum([shard.length for shard in self.shards], dtype=np.int64)
        object.__setattr__(self, "_ends", ends)
        object.__setattr__(self, "_opened", PerProcess(keeps_inherited=False))

    def __len__(self) -> int:
        return sum(end - begin for begin, end in self.ranges)

    def __reduce__(self) -> tuple[type["RecordReader"], tuple[object, ...]]:
        return type(self), (self.shards, self.ranges, self.fetch, self.max_open)

    def runs(self) -> list[tuple[Path, int]]:
        """Returns the path of each shard that is read and the number of its records, in order.

        A shard may appear more than once.
        """
        found = []
        for begin, end in self.ranges:
            while begin < end:
                shard, row = self._locate(begin)
                count = min(end - begin, shard.length - row)
                found.append((shard.path, count))
                begin += count
        return found

    def read(self, numbers: Places) -> RecordBatch:
        """Returns records, after verifying their lengths and checksums.

        `numbers` are indices from 0 to `len(self)`, of shape [n].

        Raises:
          CorruptShardError: A shard is damaged, truncated or not the expected one.
        """
        try:
            return self._read(self._absolute(numbers))
        finally:
            if not self.max_open:
                # Emptied, not replaced: a thread that waits to fetch a shard refers to this dict,
                # and would keep its files open, whose locks it may be waiting for.
                self._opened.get(dict).clear()

    def place(self, number: int) -> str:
        """Returns the location of a record, for an error message."""
        absolute = int(self._absolute(np.array([number]))[0])
        shard, row = self._locate(absolute)
        return f"record {row} of {shard.path}"

    def _absolute(self, numbers: Places) -> Places:
        if len(self.ranges) == 1:
            return numbers + self.ranges[0][0]
        begins = np.array([begin for begin, _ in self.ranges], np.int64)
        sizes = np.array([end - begin for begin, end in self.ranges], np.int64)
        firsts = np.cumsum(sizes) - sizes
        which = np.searchsorted(firsts + sizes, numbers, side="right")
        return numbers - firsts[which] + begins[which]

    def _locate(self, number: int) -> tuple[RecordShard, int]:
        """Returns the shard of a record, counted over all shards, and its row there."""
        which = int(np.searchsorted(self._ends, number, side="right"))
        shard = self.shards[which]
        return shard, number - int(self._ends[which]) + shard.length

    def _read(self, numbers: Places) -> RecordBatch:
        if not len(numbers):
            return RecordBatch(np.zeros(PADDING, np.uint8), numbers, numbers)
        order = np.argsort(numbers, kind="stable")
        in_order = numbers[order]
        which = np.searchsorted(self._ends, in_order, side="right")
        first = np.flatnonzero(np.diff(which, prepend=-1))
        begins, ends = np.empty_like(numbers), np.empty_like(numbers)
        jobs: list[tuple[_Opened, int, Places, Places]] = []
        total = 0
        for start, stop in zip(first, [*first[1:], len(which)], strict=True):
            shard = int(which[start])
            opened = self._open(shard)
            offsets = opened.offsets
            rows = in_order[start:stop] - (int(self._ends[shard]) - self.shards[shard].length)
            begin, end = offsets[rows].astype(np.int64), offsets[rows + 1].astype(np.int64)
            # The offsets of a wrong index could be far outside the shard, or exceed any memory.
            wrong = np.flatnonzero((end - begin < tfrecord.OVERHEAD) | (end > int(offsets[-1])))
            if len(wrong):
                row = int(rows[wrong[0]])
                raise index.mismatch(
                    opened.path, f"Record {row} (counted from 0) has no place in it"
                )
            # Adjacent records are read in one go; a record requested twice is read once.
            joined = np.maximum.accumulate(end)
            breaks = np.flatnonzero(begin[1:] > joined[:-1]) + 1
            run_begins = begin[np.concatenate([np.zeros(1, np.int64), breaks])]
            run_ends = joined[np.concatenate([breaks, np.array([len(begin)])]) - 1]
            sizes = run_ends - run_begins
            at = total + np.cumsum(sizes) - sizes
            shift = np.repeat(at - run_begins, np.diff(breaks, prepend=0, append=len(begin)))
            begins[start:stop], ends[start:stop] = begin + shift, end + shift
            jobs.append((opened, total, run_begins, run_ends))
            total += int(sizes.sum())
        if total < _SHORT * len(numbers):
            data = np.frombuffer(_joined(jobs), np.uint8)
        else:
            data = np.empty(total + PADDING, np.uint8)
            data[total:] = 0
            for opened, at_byte, run_begins, run_ends in jobs:
                _fill(data, at_byte, opened, run_begins, run_ends)
        starts, stops = np.empty_like(begins), np.empty_like(ends)
        starts[order], stops[order] = begins + tfrecord.HEADER, ends - tfrecord.FOOTER
        batch = RecordBatch(data, starts, stops)
        self._check(batch, numbers)
        return batch

    def _check(self, batch: RecordBatch, numbers: Places) -> None:
        """Compares the length and checksum of each record with those stored beside it."""
        words = np.ndarray((len(batch.data) - 7,), "<u8", batch.data, strides=(1,))
        lengths = (batch.stops - batch.starts).astype(np.uint64)
        found = words[batch.starts - tfrecord.HEADER] == lengths
        if found.all():
            expected = (words[batch.stops] & np.uint64(0xFFFFFFFF)).astype(np.uint32)
            found = tfrecord.masked(_checksums(batch)) == expected
        if not found.all():
            places = [self._locate(number) for number in numbers[~found].tolist()]
            raise DamagedRecordsError.of(np.flatnonzero(~found).tolist(), places)

    def _open(self, shard: int) -> "_Opened":
        files = self._opened.get(dict)
        opened = files.get(shard)
        if opened is not None:
            return opened
        # No lock, because a fork could copy it while locked: if two threads open a shard, one file
        # is kept.
        path = self.shards[shard].path
        try:
            opened = self._fetch_and_open(self.shards[shard])
        except FileNotFoundError as error:
            raise missing_shard(path) from error
        current = files.setdefault(shard, opened)
        if self.max_open:
            for old in list(files)[: -self.max_open]:
                files.pop(old, None)
        return current

    def _fetch_and_open(self, shard: RecordShard) -> "_Opened":
        if self.fetch is None:
            return self._open_file(shard.path, shard.length)
        for _ in range(_TRIES):
            # Another process may have evicted it again.
            with contextlib.suppress(FileNotFoundError):
                self.fetch(shard.path)
                return self._open_file(shard.path, shard.length)
        raise _changed(shard.path, "it is evicted as often as it is fetched")

    def _open_file(self, path: Path, length: int) -> "_Opened":
        state = path.stat()
        size = state.st_size
        try:
            offsets = index.read(path)
        except FileNotFoundError:
            # A shard that is fetched has another time each time, and a name by what is in it.
            is_here = self.fetch is None
            changed = state.st_mtime_ns if is_here else os.path.realpath(path)
            offsets = _scanned(path, size, changed)
        file = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # else a pipe blocks
        try:
            if self.fetch is not None and not self.max_open:
                lock_shard(file)  # one that stays open is readable even if it is evicted
            if len(offsets) - 1 != length:
                raise _changed(path, f"it has {len(offsets) - 1:,} records; expected {length:,}")
            mapped = mmap.mmap(file, 0, prot=mmap.PROT_READ) if size else b""
        except BaseException:
            _close(file, os.getpid())
            raise
        return _Opened(path, file, offsets, mapped)


@dataclass(frozen=True)
class _Opened:
    """An open shard; `file` is closed once nothing reads from it, or when Python exits."""

    path: Path
    file: int
    offsets: npt.NDArray[np.uint64]
    mapped: mmap.mmap | bytes

    def __post_init__(self) -> None:
        # `__del__` would also run when Python exits, and miss the modules that it needs.
        weakref.finalize(self, _close, self.file, os.getpid()).atexit = False


def _close(file: int, process: int) -> None:
    unlock_shard(file, process)
    os.close(file)


class DamagedRecordsError(CorruptShardError):
    """Some records are damaged, while the index can still locate the others.

    Attributes:
      rows: The positions of the damaged records among those requested.
      messages: The error message of each.
    """

    rows: Sequence[int] = ()
    messages: Sequence[str] = ()

    @classmethod
    def of(
        cls, rows: Sequence[int], places: Sequence[tuple[RecordShard, int]]
    ) -> "DamagedRecordsError":
        """Returns the error for records whose locations are known."""
        messages = [
            explain(
                f"Record {row} (counted from 0) of {shard.path} is damaged.",
                "Its length or its checksum does not fit its bytes",
                fix="build or pull the version again; my-datasets index PATH, if only the "
                "record index is wrong",
            )
            for shard, row in places
        ]
        found = cls(messages[0])
        found.rows, found.messages = rows, messages
        return found


def _joined(jobs: Sequence[tuple[_Opened, int, Places, Places]]) -> bytes:
    """Returns short records, sliced from mapped files at a tenth of the cost of a call for each."""
    parts: list[bytes] = []
    for opened, _, begins, ends in jobs:
        # Reading a mapped file past its end would kill the process.
        if os.fstat(opened.file).st_size < int(ends[-1]):
            raise _changed(opened.path, "it ends too early")
        mapped = opened.mapped
        parts += [mapped[a:b] for a, b in zip(begins.tolist(), ends.tolist(), strict=True)]
    return b"".join([*parts, bytes(PADDING)])


def _fill(data: Bytes, at: int, opened: _Opened, begins: Places, ends: Places) -> None:
    """Reads long records into a buffer, starting at position `at`."""
    view = data.data
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        done = 0
        while done < end - begin:
            part = view[at + done : at + end - begin]
            count = os.preadv(opened.file, [part], begin + done)
            if not count:
                raise _changed(opened.path, "it ends too early")
            done += count
        at += end - begin


@functools.lru_cache(maxsize=4096)
def _scanned(
    path: Path,
    size: int,  # noqa: ARG001
    changed: int | str,  # noqa: ARG001
) -> npt.NDArray[np.uint64]:
    """Returns the record offsets of a shard without an index.

    Cached by the file's size, and its modification time or where it lies.
    """
    return index.scan(path)


def _checksums(batch: RecordBatch) -> npt.NDArray[np.uint32]:
    places = zip(batch.starts.tolist(), batch.stops.tolist(), strict=True)
    data = batch.text if batch.is_short else batch.data
    return np.array([google_crc32c.value(data[a:b]) for a, b in places], np.uint32)


def _changed(path: Path, found: str) -> CorruptShardError:
    return CorruptShardError(
        f"{path} is not the shard that its version declares: {found}.",
        fix=f"my-datasets verify {path.parent} says what else is wrong; build or pull it again",
    )
