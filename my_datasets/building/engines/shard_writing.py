"""The third stage: worker processes write shards, in any format, from the sorted runs.

`write_shard` writes the file and the sidecars of one shard from a stream of records; `write` does
so for all shards of a split.
"""

import hashlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from my_datasets.building import shards
from my_datasets.building.engines import process_pool
from my_datasets.building.engines.process_pool import Link
from my_datasets.building.journal import FinishedShard, Journal, sync_directory
from my_datasets.building.options import BuildOptions, Job, SplitResult, WriteShard
from my_datasets.building.progress import Meter
from my_datasets.building.runs import Columns
from my_datasets.building.shards import ShardPlan
from my_datasets.building.units import SplitInput, UnitState
from my_datasets.core.json_types import Json
from my_datasets.core.logs import get_logger
from my_datasets.errors import BuilderError, LostExamplesError
from my_datasets.metadata import sidecars
from my_datasets.metadata.content import ShardContent
from my_datasets.metadata.sidecars import Sidecar
from my_datasets.records import index, tfrecord
from my_datasets.records.index import KeyHashes
from my_datasets.records.tf_example.pieces import Bytes
from my_datasets.storage import disk_space

# Portions of adjacent framed records, with their columns `high`, `low` and `size`.
Records = Iterator[tuple[Bytes, Columns]]

_LOGGER = get_logger(__name__)
# If all shards together have fewer bytes than this, the building process writes them itself.
_FEW_BYTES = 32 << 20
QUARANTINE_REPORT = "quarantine.jsonl"


def write_shard(
    path: Path, count: int, records: Records, write_shard: WriteShard | None
) -> tuple[FinishedShard, npt.NDArray[np.uint64] | None, KeyHashes]:
    """Writes a shard of `count` records and syncs it.

    `write_shard` writes formats other than TFRecord. Returns the shard; the offsets of its records
    if they are TFRecords, shape [n + 1]; the hashes of its keys (or the numbers that sort them in
    their place), shape [n, 2].

    Raises:
      LostExamplesError: There are more or fewer records.
    """
    name = path.name
    keys = [np.zeros((0, 2), np.uint64)]
    if write_shard is not None:
        write_shard(path, _unframed(records, keys))
        with path.open("rb") as written:
            os.fsync(written.fileno())
            sha256 = hashlib.file_digest(written, "sha256").hexdigest()
        checksum, size = tfrecord.of_file(path)
        shard = FinishedShard(name, count, size, checksum, sha256)
        return shard, None, np.concatenate(keys)
    ends = [np.zeros(1, np.uint64)]
    num_written = 0
    whole = hashlib.sha256()
    with tfrecord.writing(path, to_be_synced=True) as file:
        for data, columns in records:
            file.write(data)
            whole.update(data.data)
            ends.append(ends[-1][-1] + np.cumsum(columns["size"], dtype=np.uint64))
            keys.append(_keys(columns))
            num_written += len(columns["size"])
        file.sync()
    if num_written != count or file.size != int(ends[-1][-1]):
        raise LostExamplesError(
            f"The shard {name} does not add up.",
            f"Expected: {count:,} records; written: {num_written:,}",
            fix="build with --restart; if it fails again, please report it",
        )
    shard = FinishedShard(name, count, file.size, file.checksum, whole.hexdigest())
    return shard, np.concatenate(ends), np.concatenate(keys)


def with_sidecars(
    shard: FinishedShard, path: Path, offsets: npt.NDArray[np.uint64] | None, keys: KeyHashes | None
) -> FinishedShard:
    """Writes and syncs a shard's sidecar files, and returns the shard with them.

    Nothing else is in the folder of `path`. `offsets` are those of a TFRecord file's records, shape
    [n + 1]; `keys` are the hashes of their keys, shape [n, 2]. Either is None to leave it out.
    """
    if offsets is not None:
        index.write(path, offsets)
    if keys is not None:
        index.write_keys(index.keys_path(path), keys)
    existing = {
        os.fspath(each.relative_to(path.parent)): tfrecord.of_file(each)[::-1]
        for each in sorted(path.parent.rglob("*"))
        if each.is_file() and each != path
    }
    return replace(shard, beside=existing)


def beside(path: Path) -> tuple[Path, ...]:
    """Returns the path of a shard, and those of its possible sidecar files."""
    return path, *(path.with_name(sidecars.name_of(path.name, kind)) for kind in Sidecar)


def _keys(columns: Columns) -> KeyHashes:
    return np.stack([columns["high"], columns["low"]], axis=1).astype(np.uint64, copy=False)


def _unframed(records: Records, keys: list[KeyHashes]) -> Iterator[tuple[int, bytes]]:
    for data, columns in records:
        keys.append(_keys(columns))
        start = 0
        hashes = zip(columns["high"].tolist(), columns["low"].tolist(), strict=True)
        for (high, low), size in zip(hashes, columns["size"].tolist(), strict=True):
            record = data[start + tfrecord.HEADER : start + size - tfrecord.FOOTER]
            yield high << 64 | low, record.tobytes()
            start += size


@dataclass(frozen=True)
class _ShardTask:
    name: str
    plan: int
    begin: int
    end: int


class _ShardWorker:
    def __init__(self, link: Link | None, job: Job, plans: Sequence[ShardPlan], journal: Journal):
        self._link = link
        self._job = job
        self._plans = plans
        self._journal = journal
        self._space = shards.Space()

    def handle(self, task: _ShardTask) -> FinishedShard:
        if self._link is not None:
            self._link.check()
        plan = self._plans[task.plan]

        def write(folder: Path) -> FinishedShard:
            records = shards.records(plan, task.begin, task.end, self._space)
            path, count = folder / task.name, task.end - task.begin
            shard, offsets, keys = write_shard(path, count, records, self._job.write_shard)
            return with_sidecars(shard, path, offsets, None if self._job.ordered else keys)

        return self._journal.write_shard(task.name, write)

    def finish(self) -> None:
        pass


def write(
    job: Job,
    plans: Sequence[ShardPlan],
    options: BuildOptions,
    journal: Journal,
    target: Path,
    meter: Meter,
) -> list[SplitResult]:
    """Writes the missing shards of all splits, and puts all shards into `target`.

    Raises:
      BuilderError: More shards were requested than there are examples.
      DiskFullError: There is not enough free space.
      LostExamplesError: A shard does not have the planned records.
    """
    total = sum(plan.num_bytes + plan.num_examples * tfrecord.OVERHEAD for plan in plans)
    meter.begin("writing", expected_bytes=total)
    tasks: list[_ShardTask] = []
    for number, (item, plan) in enumerate(zip(job.inputs, plans, strict=True)):
        count = number_of_shards(job, item, plan.num_bytes, plan.num_examples)
        edges = shards.boundaries(plan.num_examples, count)
        for i, (begin, end) in enumerate(itertools.pairwise(edges)):
            tasks.append(_ShardTask(job.shard_name(item.name, i, count), number, begin, end))
    left = [task for task in tasks if journal.intact_shard(task.name) is None]
    need = 0.0
    for task in left:
        plan = plans[task.plan]
        record = plan.num_bytes / plan.num_examples + tfrecord.OVERHEAD
        need += record * (task.end - task.begin)
    disk_space.require(int(need), journal.directory, "The shards take")
    for task, shard in _written(left, job, plans, options, journal, total):
        journal.add_shard(shard)
        meter.add(job.inputs[task.plan].name, 0, shard.bytes)
    results = []
    for number, (item, plan) in enumerate(zip(job.inputs, plans, strict=True)):
        finished = [journal.shards[task.name] for task in tasks if task.plan == number]
        units = journal.split(item.name).units
        results.append(split_result(item.name, finished, plan.num_bytes, units, {}))
    journal.place_shards([task.name for task in tasks], target)
    report_quarantine(results, target)
    sync_directory(target)
    return results


def number_of_shards(job: Job, item: SplitInput, num_bytes: int, num_examples: int) -> int:
    """Returns how many shards a split gets.

    Raises:
      BuilderError: More were requested than there are examples.
    """
    count = job.number_of_shards(num_bytes, num_examples)
    if count > num_examples:
        raise BuilderError(
            f"num_shards is {count}, but split {item.name!r} has only {num_examples} examples.",
            fix="pass a smaller num_shards",
        )
    return count


def split_result(
    split: str,
    shards: Sequence[FinishedShard],
    num_bytes: int,
    units: Mapping[int, UnitState],
    sidecars: Mapping[str, Json],
) -> SplitResult:
    """Returns the result for a split whose shards are all written."""
    contents = tuple(ShardContent(one.name, one.bytes, one.count, one.sha256) for one in shards)
    quarantined = [entry for _, unit in sorted(units.items()) for entry in unit.quarantined]
    return SplitResult(split, contents, num_bytes, quarantined, sidecars)


def _written(
    tasks: Sequence[_ShardTask],
    job: Job,
    plans: Sequence[ShardPlan],
    options: BuildOptions,
    journal: Journal,
    total: int,
) -> Iterator[tuple[_ShardTask, FinishedShard]]:
    alone = options.worker_count == 1 or len(tasks) == 1 or total < _FEW_BYTES
    # The libraries for other formats have threads, which a fork would lose.
    if alone or job.write_shard is not None or not process_pool.available():
        worker = _ShardWorker(None, job, plans, journal)
        for task in tasks:
            yield task, worker.handle(task)
        return
    yield from process_pool.run(
        tasks,
        options.worker_count,
        lambda link: _ShardWorker(link, job, plans, journal),
        lambda _: None,
        describe=lambda task: f"shard {task.name}",
    )


def report_quarantine(results: Sequence[SplitResult], target: Path) -> None:
    """Writes the report of examples that were set aside, if there are any."""
    entries = [entry for result in results for entry in result.quarantined]
    if not entries:
        return
    lines = "".join(json.dumps(asdict(entry)) + "\n" for entry in entries)
    (target / QUARANTINE_REPORT).write_text(lines, "utf-8")
    _LOGGER.warning("%d examples were set aside; see %s.", len(entries), QUARANTINE_REPORT)
