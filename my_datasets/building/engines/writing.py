"""The third stage: shards in processes, each from the runs."""

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from my_datasets.building import shards
from my_datasets.building.engines import disk_space, process_pool, shard_files
from my_datasets.building.engines.worker import Link
from my_datasets.building.job import Job, SplitResult
from my_datasets.building.journal import FinishedShard, Journal, sync_directory
from my_datasets.building.options import BuildOptions
from my_datasets.building.progress import Meter
from my_datasets.building.shards import ShardPlan
from my_datasets.building.units import SplitInput
from my_datasets.core.logs import get_logger
from my_datasets.errors import BuilderError, explain
from my_datasets.metadata.content import ShardContent
from my_datasets.records import tfrecord

_LOGGER = get_logger(__name__)

# Shards of less than this together are written by the building process itself.
_FEW_BYTES = 32 << 20
QUARANTINE_REPORT = "quarantine.jsonl"


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
            shard, offsets, keys = shard_files.write(path, count, records, self._job.write_shard)
            return shard_files.with_sidecars(
                shard, path, offsets, None if self._job.ordered else keys
            )

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
    """Writes the shards of all splits that are not there yet, and puts all of them into `target`.

    Raises:
      BuilderError: More shards were asked for than there are examples.
      DiskFullError: There is not enough room.
      LostExamplesError: A shard has not the records that were planned.
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
    disk_space.require(
        sum(_size(task, plans) for task in left), journal.directory, "The shards take"
    )
    for task, shard in _written(left, job, plans, options, journal, total):
        journal.add_shard(shard)
        meter.add(job.inputs[task.plan].name, 0, shard.bytes)
    results = [
        _result(item, plan, [one.name for one in tasks if one.plan == number], journal)
        for number, (item, plan) in enumerate(zip(job.inputs, plans, strict=True))
    ]
    journal.place_shards([task.name for task in tasks], target)
    report_quarantine(results, target)
    sync_directory(target)
    return results


def number_of_shards(job: Job, item: SplitInput, num_bytes: int, num_examples: int) -> int:
    """Returns how many shards a split gets.

    Raises:
      BuilderError: More were asked for than there are examples.
    """
    count = job.number_of_shards(num_bytes, num_examples)
    if count > num_examples:
        raise BuilderError(
            explain(
                f"{count} shards were asked for split {item.name!r}, which has {num_examples} "
                "examples.",
                fix="ask for fewer shards with num_shards",
            )
        )
    return count


def _result(
    item: SplitInput, plan: ShardPlan, names: Sequence[str], journal: Journal
) -> SplitResult:
    """Returns what was made of a split, whose shards are all in the work directory."""
    quarantined = [
        entry
        for _, unit in sorted(journal.split(item.name).units.items())
        for entry in unit.quarantined
    ]
    some = [journal.shards[name] for name in names]
    shards = tuple(ShardContent(one.name, one.bytes, one.count, one.sha256) for one in some)
    return SplitResult(item.name, shards, plan.num_bytes, quarantined)


def _size(task: _ShardTask, plans: Sequence[ShardPlan]) -> int:
    """Returns about how many bytes a shard will have."""
    plan = plans[task.plan]
    record = plan.num_bytes / plan.num_examples + tfrecord.OVERHEAD
    return int(record * (task.end - task.begin))


def _written(
    tasks: Sequence[_ShardTask],
    job: Job,
    plans: Sequence[ShardPlan],
    options: BuildOptions,
    journal: Journal,
    total: int,
) -> Iterator[tuple[_ShardTask, FinishedShard]]:
    alone = options.worker_count == 1 or len(tasks) == 1 or total < _FEW_BYTES
    # Other formats are written by libraries with threads of their own, which a fork would lose.
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
    """Writes the report of the examples that were set aside, if there are any."""
    entries = [entry for result in results for entry in result.quarantined]
    if not entries:
        return
    lines = "".join(json.dumps(asdict(entry)) + "\n" for entry in entries)
    (target / QUARANTINE_REPORT).write_text(lines, "utf-8")
    _LOGGER.warning("%d examples were set aside; see %s.", len(entries), QUARANTINE_REPORT)
