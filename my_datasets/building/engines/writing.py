"""The third stage: shards in processes, each from the runs."""

import hashlib
import itertools
import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from my_datasets.building import shards
from my_datasets.building.engines import processes, room
from my_datasets.building.engines.worker import Link
from my_datasets.building.job import Job, SplitResult, WriteShard
from my_datasets.building.journal import Journal, Shard, hashes_path, sync_directory
from my_datasets.building.options import BuildOptions
from my_datasets.building.progress import Meter
from my_datasets.building.runs import Columns
from my_datasets.building.shards import Plan
from my_datasets.building.units import SplitInput
from my_datasets.core import content as content_of
from my_datasets.core.content import ShardContent, SplitContent
from my_datasets.errors import BuilderError, LostExamplesError, explain
from my_datasets.records import checksum, index, tfrecord
from my_datasets.records.pieces import Bytes

_LOGGER = logging.getLogger(__name__)

# Shards of less than this together are written by the building process itself.
_FEW_BYTES = 32 << 20
# Python's objects for hashes and places take a few times what they stand for.
_HASHED_AT_ONCE = 4096
QUARANTINE_REPORT = "quarantine.jsonl"

_Records = Iterator[tuple[Bytes, Columns]]


@dataclass(frozen=True)
class _ShardTask:
    name: str
    plan: int
    begin: int
    end: int


class _ShardWorker:
    def __init__(self, link: Link | None, job: Job, plans: Sequence[Plan], directory: Path):
        self._link = link
        self._job = job
        self._plans = plans
        self._directory = directory
        self._space = shards.Space()

    def handle(self, task: _ShardTask) -> Shard:
        if self._link is not None:
            self._link.check()
        plan, path = self._plans[task.plan], self._directory / task.name
        records = shards.records(plan, task.begin, task.end, self._space)
        if self._job.write_shard is not None:
            return _written_by_library(task, path, records, self._job.write_shard)
        return _write_shard(task, path, records)

    def finish(self) -> None:
        pass


def write(
    job: Job,
    plans: Sequence[Plan],
    options: BuildOptions,
    journal: Journal,
    target: Path,
    meter: Meter,
) -> list[SplitResult]:
    """Writes the shards of all splits that are not there yet, and moves them into `target`.

    Raises:
      BuilderError: More shards were asked for than there are examples.
      DiskFullError: There is not enough room.
      LostExamplesError: A shard has not the records that were planned.
    """
    total = sum(plan.num_bytes + plan.num_examples * tfrecord.OVERHEAD for plan in plans)
    meter.begin("writing", expected_bytes=total)
    tasks: list[_ShardTask] = []
    for number, (item, plan) in enumerate(zip(job.inputs, plans, strict=True)):
        count = job.number_of_shards(plan.num_bytes, plan.num_examples)
        if count > plan.num_examples:
            raise BuilderError(
                explain(
                    f"{count} shards were asked for split {item.name!r}, which has "
                    f"{plan.num_examples} examples.",
                    mend="ask for fewer shards with num_shards",
                )
            )
        edges = shards.boundaries(plan.num_examples, count)
        for i, (begin, end) in enumerate(itertools.pairwise(edges)):
            tasks.append(_ShardTask(job.shard_name(item.name, i, count), number, begin, end))
    left = [task for task in tasks if journal.intact_shard(task.name) is None]
    room.require(sum(_size(task, plans) for task in left), journal.directory, "The shards take")
    for task, shard in _written(left, job, plans, options, journal, total):
        journal.add_shard(shard)
        meter.add(job.inputs[task.plan].name, 0, shard.bytes)
    results = [
        _result(item, plan, [one.name for one in tasks if one.plan == number], journal)
        for number, (item, plan) in enumerate(zip(job.inputs, plans, strict=True))
    ]
    for task in tasks:
        for path in (journal.directory / task.name, index.path_of(journal.directory / task.name)):
            if path.exists():
                path.rename(target / path.name)
    _report_quarantine(results, target)
    sync_directory(target)
    return results


def _result(item: SplitInput, plan: Plan, names: Sequence[str], journal: Journal) -> SplitResult:
    """Returns what was made of a split, whose shards are all in the work directory."""
    quarantined = [
        entry
        for _, unit in sorted(journal.split(item.name).units.items())
        for entry in unit.quarantined
    ]
    some = [journal.shards[name] for name in names]
    hashes = []
    for shard in some:
        found = journal.hashes(shard)
        if found is None:
            raise LostExamplesError(
                explain(
                    f"The hashes of the examples of {shard.name} are gone.",
                    mend="build with --restart; if it stays, please report it",
                )
            )
        hashes.append(found)
    content = SplitContent(
        plan.num_examples,
        content_of.ordered(hashes),
        content_of.unordered(hashes),
        tuple(ShardContent(one.name, one.bytes, one.count, one.sha256) for one in some),
    )
    lengths = [one.count for one in some]
    return SplitResult(item.name, lengths, plan.num_bytes, quarantined, content)


def _size(task: _ShardTask, plans: Sequence[Plan]) -> int:
    """Returns about how many bytes a shard will have."""
    plan = plans[task.plan]
    record = plan.num_bytes / plan.num_examples + tfrecord.OVERHEAD
    return int(record * (task.end - task.begin))


def _written(
    tasks: Sequence[_ShardTask],
    job: Job,
    plans: Sequence[Plan],
    options: BuildOptions,
    journal: Journal,
    total: int,
) -> Iterator[tuple[_ShardTask, Shard]]:
    alone = options.worker_count == 1 or len(tasks) == 1 or total < _FEW_BYTES
    # Other formats are written by libraries with threads of their own, which a fork would lose.
    if alone or job.write_shard is not None or not processes.available():
        worker = _ShardWorker(None, job, plans, journal.directory)
        for task in tasks:
            yield task, worker.handle(task)
        return
    yield from processes.run(
        tasks,
        options.worker_count,
        lambda link: _ShardWorker(link, job, plans, journal.directory),
        lambda _: None,
        describe=lambda task: f"shard {task.name}",
    )


def _write_shard(task: _ShardTask, path: Path, records: _Records) -> Shard:
    partial = path.with_name(path.name + ".partial")
    ends = [np.zeros(1, np.uint64)]
    count = 0
    whole = hashlib.sha256()
    with (
        checksum.writing(partial, to_be_synced=True) as file,
        _writing_hashes(path) as hashes,
    ):
        for data, columns in records:
            file.write(data)
            whole.update(data.data)
            hashes.writelines(_hashes(data, columns["size"]))
            ends.append(ends[-1][-1] + np.cumsum(columns["size"], dtype=np.uint64))
            count += len(columns["size"])
        file.sync()
    if count != task.end - task.begin or file.size != int(ends[-1][-1]):
        raise LostExamplesError(
            explain(
                f"The shard {task.name} does not add up.",
                f"Expected: {task.end - task.begin:,} records; written: {count:,}",
                mend="build with --restart; if it stays, please report it",
            )
        )
    partial.rename(path)
    index.write(path, np.concatenate(ends))
    return Shard(task.name, count, file.size, file.checksum, whole.hexdigest())


def _hashes(data: Bytes, sizes: npt.NDArray[Any]) -> Iterator[bytes]:
    """Yields the hashes of framed records, some at a time, one after the other.

    Records are canonical as this package encodes them.
    """
    ends = np.cumsum(sizes.astype(np.int64))
    begins = ends - sizes.astype(np.int64) + tfrecord.HEADER
    view, sha256 = data.data, hashlib.sha256
    for first in range(0, len(ends), _HASHED_AT_ONCE):
        some = slice(first, first + _HASHED_AT_ONCE)
        places = zip(begins[some].tolist(), (ends[some] - tfrecord.FOOTER).tolist(), strict=True)
        yield b"".join([sha256(view[a:b]).digest() for a, b in places])


@contextmanager
def _writing_hashes(shard: Path) -> Iterator[BinaryIO]:
    """Opens the file for the hashes of a shard's examples; in the end it has reached the disk."""
    with hashes_path(shard).open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _written_by_library(
    task: _ShardTask, path: Path, records: _Records, write_shard: WriteShard
) -> Shard:
    partial = path.with_name(path.name + ".partial")
    with _writing_hashes(path) as hashes:

        def noted() -> Iterator[tuple[int, bytes]]:
            for key, record in _unframed(records):
                hashes.write(hashlib.sha256(record).digest())
                yield key, record

        write_shard(partial, noted())
    with partial.open("rb") as written:
        os.fsync(written.fileno())
    found, size = checksum.of_file(partial)
    with partial.open("rb") as written:
        whole = hashlib.file_digest(written, "sha256").hexdigest()
    partial.rename(path)
    return Shard(task.name, task.end - task.begin, size, found, whole)


def _unframed(records: _Records) -> Iterator[tuple[int, bytes]]:
    for data, columns in records:
        start = 0
        hashes = zip(columns["high"].tolist(), columns["low"].tolist(), strict=True)
        for (high, low), size in zip(hashes, columns["size"].tolist(), strict=True):
            record = data[start + tfrecord.HEADER : start + size - tfrecord.FOOTER]
            yield high << 64 | low, record.tobytes()
            start += size


def _report_quarantine(results: Sequence[SplitResult], target: Path) -> None:
    entries = [entry for result in results for entry in result.quarantined]
    if not entries:
        return
    lines = "".join(json.dumps(asdict(entry)) + "\n" for entry in entries)
    (target / QUARANTINE_REPORT).write_text(lines, "utf-8")
    _LOGGER.warning("%d examples were set aside; see %s.", len(entries), QUARANTINE_REPORT)
