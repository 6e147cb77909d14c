"""The engine for one machine: units in processes, an external sort, shards in processes."""

import contextlib
import functools
import itertools
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from my_datasets.building import shards
from my_datasets.building.collector import Collector, Quarantined, Rules, UnitState
from my_datasets.building.engines import processes
from my_datasets.building.engines.processes import Link
from my_datasets.building.journal import Journal, Shard, sync_directory
from my_datasets.building.options import BuildOptions
from my_datasets.building.progress import Meter, log_progress
from my_datasets.building.runs import Run
from my_datasets.building.shards import Plan, Sources
from my_datasets.building.units import Encoder, SplitInput
from my_datasets.errors import (
    BuilderError,
    DiskFullError,
    EmptySplitError,
    LostExamplesError,
    MyDatasetsError,
    QuarantineError,
    UnitError,
    explain,
)
from my_datasets.records import index, tfrecord

_LOGGER = logging.getLogger(__name__)

# Of a worker's share of the memory: records held before they are written as a run. The rest is
# for the batch at work, for the copy of a portion, and for what Python and Arrow keep.
_HELD = 0.4
# ... and what is read of the runs at once while shards are written.
_CHUNK = 0.3
# Seconds between a worker's signs of life while a unit's examples come slowly.
_SIGN_OF_LIFE = 1.0
# Shards of less than this together are written by the building process itself.
_FEW_BYTES = 32 << 20
QUARANTINE_REPORT = "quarantine.jsonl"

WriteShard = Callable[[Path, Iterable[tuple[int, bytes]]], None]


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is to be built, told in the engine's terms.

    Attributes:
      inputs: The splits, in their order.
      encoder: Makes the records.
      ordered: Keep the order of generation.
      ignore_duplicates: Keep the first example of each key.
      max_examples: At most so many examples of each split; None for all.
      number_of_shards: Says how many shards a split has, from (bytes, examples).
      shard_name: Says the file name of a shard, from (split, number, number of shards).
      write_shard: Writes a shard in another format than TFRecord; None for TFRecord.
    """

    inputs: Sequence[SplitInput]
    encoder: Encoder
    ordered: bool
    ignore_duplicates: bool
    max_examples: int | None
    number_of_shards: Callable[[int, int], int]
    shard_name: Callable[[str, int, int], str]
    write_shard: WriteShard | None = None


@dataclass(frozen=True)
class SplitResult:
    """A split as it was built.

    Attributes:
      name: The split.
      shard_lengths: The number of examples in each shard.
      num_bytes: The size of the records, without framing.
      quarantined: The examples that were set aside.
    """

    name: str
    shard_lengths: list[int]
    num_bytes: int
    quarantined: list[Quarantined]


def build(job: Job, options: BuildOptions, journal: Journal, target: Path) -> list[SplitResult]:
    """Builds all splits of a version, and puts the shards into `target`.

    Args:
      job: What to build.
      options: How.
      journal: What an earlier build has done already.
      target: A directory on the same file system as the journal's.

    Returns:
      The splits, in the order of `job.inputs`.

    Raises:
      ExampleError: An example does not fit the features.
      DuplicateKeyError: Two examples of a split have the same key.
      UnitError: The generator of a unit raised.
      BuildInterruptedError: A worker died or hung.
      DiskFullError: There is not enough room.
    """
    meter = Meter(options.report or log_progress)
    meter.progress.units = sum(len(item.units.items) for item in job.inputs)
    meter.begin("generating")
    _check_room(job, journal)
    _generate(job, options, journal, meter)
    meter.begin("sorting")
    chunk_bytes = int(options.memory / options.worker_count * _CHUNK)
    plans = [_planned(job, item, journal, chunk_bytes, options) for item in job.inputs]
    return _write(job, plans, options, journal, target, meter)


# --- Generating ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _UnitTask:
    split: int
    unit: int


class _UnitWorker:
    """Generates units in a worker, and gathers their examples."""

    def __init__(self, link: Link, job: Job, options: BuildOptions, directory: Path) -> None:
        self._link = link
        self._job = job
        self._gather = functools.partial(_collector, job, options, directory, self._on_run)
        self._collectors: dict[int, Collector] = {}

    def handle(self, task: _UnitTask) -> int:
        for split in [split for split in self._collectors if split != task.split]:
            self._collectors.pop(split).flush()
        if task.split not in self._collectors:
            self._collectors[task.split] = self._gather(task.split)
        item = self._job.inputs[task.split]
        count = 0

        def between(examples: int, size: int) -> None:
            nonlocal count
            count += examples
            self._link.check()
            self._link.tell(("progress", item.name, examples, size))

        self._collectors[task.split].generate(
            task.unit, item.unit_name(task.unit), self._alive(_examples(item, task.unit)), between
        )
        return count

    def _alive(self, examples: Iterator[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
        """Gives a sign of life about once a second, however slowly the examples come."""
        told = time.monotonic()
        for pair in examples:
            if time.monotonic() - told >= _SIGN_OF_LIFE:
                told = time.monotonic()
                self._link.check()
                self._link.tell(("progress", "", 0, 0))
            yield pair

    def finish(self) -> None:
        for collector in self._collectors.values():
            collector.flush()

    def _on_run(self, split: str, run: Run | None, states: dict[int, dict[str, Any]]) -> None:
        self._link.tell(("run", split, run, states))


def _collector(
    job: Job,
    options: BuildOptions,
    directory: Path,
    on_run: Callable[[str, Run | None, dict[int, dict[str, Any]]], None],
    split: int,
    *,
    holders: int | None = None,
) -> Collector:
    name = job.inputs[split].name
    rules = Rules(
        name, ordered=job.ordered, quarantine=options.on_error == "quarantine",
        limit=job.max_examples,
    )  # fmt: skip
    share = options.memory / (holders or options.worker_count)
    report = functools.partial(on_run, name)
    return Collector(directory, rules, job.encoder, int(share * _HELD), report)


def _generate(job: Job, options: BuildOptions, journal: Journal, meter: Meter) -> None:
    tasks: list[_UnitTask] = []
    plain: list[int] = []
    for number, item in enumerate(job.inputs):
        state = journal.split(item.name)
        units = range(len(item.units.items))
        left = [unit for unit in units if not state.is_complete(unit)]
        meter.progress.units_done += len(units) - len(left)
        if item.is_plain:
            plain += [number] if left else []
        else:
            tasks += [_UnitTask(number, unit) for unit in left]
    # Before the plain ones: those may run TensorFlow here, whose threads a fork would lose.
    _generate_units(tasks, job, options, journal, meter)
    for number in plain:
        _generate_here(job, number, options, journal, meter)


def _generate_units(
    tasks: Sequence[_UnitTask], job: Job, options: BuildOptions, journal: Journal, meter: Meter
) -> None:
    if not tasks:
        return
    if options.worker_count == 1 or not processes.available():
        for task in tasks:
            _generate_here(job, task.split, options, journal, meter, unit=task.unit)
        return

    def describe(task: _UnitTask) -> str:
        return f"unit {job.inputs[task.split].unit_name(task.unit)}"

    results = processes.run(
        tasks,
        options.worker_count,
        lambda link: _UnitWorker(link, job, options, journal.directory),
        lambda message: _on_message(message, journal, meter),
        describe=describe,
        timeout=options.unit_timeout,
    )
    for _ in results:
        meter.progress.units_done += 1
        meter.add(meter.progress.split, 0, 0)


def _examples(item: SplitInput, unit: int) -> Iterator[tuple[Any, Any]]:
    """Yields a unit's examples; an error of the builder's own code says which unit it was."""
    count = 0
    try:
        for pair in item.units.generate(item.units.items[unit]):
            yield pair
            count += 1
    except (MyDatasetsError, OSError):
        raise
    except Exception as error:
        raise UnitError(
            explain(
                f"The generator of split {item.name!r} failed.",
                f"Unit: {item.unit_name(unit)}, after it had yielded {count:,} times",
                f"The error was: {type(error).__name__}: {error}",
                "What was finished is kept.",
                mend="mend the input or the builder, then run the same again",
            )
        ) from error


def _on_message(message: tuple[Any, ...], journal: Journal, meter: Meter) -> None:
    kind, *content = message
    if kind == "run":
        journal.add_run(*content)
    else:
        split, count, size = content
        meter.add(split or meter.progress.split, count, size)


def _generate_here(
    job: Job, split: int, options: BuildOptions, journal: Journal, meter: Meter, unit: int = 0
) -> None:
    """Runs one unit in this process: a plain generator may rely on it."""
    item = job.inputs[split]
    collector = _collector(job, options, journal.directory, journal.add_run, split, holders=1)

    def between(count: int, size: int) -> None:
        meter.add(item.name, count, size)

    examples = iter(item.units) if item.is_plain else _examples(item, unit)
    collector.generate(unit, item.unit_name(unit), examples, between)
    collector.flush()
    meter.progress.units_done += 1


# --- Sorting ------------------------------------------------------------------------------------


def _planned(
    job: Job, item: SplitInput, journal: Journal, chunk_bytes: int, options: BuildOptions
) -> Plan:
    state = journal.split(item.name)
    for unit in range(len(item.units.items)):
        if not state.is_complete(unit):
            raise LostExamplesError(
                explain(
                    f"Unit {item.unit_name(unit)} of split {item.name!r} is not finished.",
                    mend="run the same again; if it stays, please report it",
                )
            )
    _check_counts(item, journal)
    _check_quarantine(item, journal, options)
    names = ["0 (the whole split)"] if item.is_plain else [
        item.unit_name(unit) for unit in range(len(item.units.items))
    ]  # fmt: skip
    sources = Sources(
        [run for run, _ in state.runs],
        [frozenset(excluded) for _, excluded in state.runs],
        limit=_limit(job, item, state.units),
        ignore_duplicates=job.ignore_duplicates,
        units=names,
    )
    plan = shards.plan(sources, chunk_bytes)
    if not plan.num_examples:
        raise EmptySplitError(
            explain(
                f"The split {item.name!r} has no example.",
                f"Its units: {len(item.units.items)}",
                mend="see that its generator finds its input, or leave the split out",
            )
        )
    return plan


def _check_counts(item: SplitInput, journal: Journal) -> None:
    """Compares, for each unit, the examples that were seen with the records that are there."""
    state = journal.split(item.name)
    found = np.zeros(len(item.units.items), np.int64)
    for run, excluded in state.runs:
        units = run.mapped("unit")
        counted = np.bincount(units, minlength=len(found))
        counted[list(excluded)] = 0
        found += counted
    for unit, there in enumerate(found.tolist()):
        expected = state.units[unit].seen - len(state.units[unit].quarantined)
        if there != expected:
            raise LostExamplesError(
                explain(
                    f"Unit {item.unit_name(unit)} of split {item.name!r} does not add up.",
                    f"Expected: {expected:,} records; found: {there:,}",
                    mend="build with --restart; if it stays, please report it",
                )
            )


def _check_quarantine(item: SplitInput, journal: Journal, options: BuildOptions) -> None:
    units = journal.split(item.name).units.values()
    quarantined = sum(len(unit.quarantined) for unit in units)
    seen = sum(unit.seen for unit in units)
    if quarantined > options.max_quarantined * seen:
        first = next(entry for unit in units for entry in unit.quarantined)
        raise QuarantineError(
            explain(
                f"{quarantined:,} of {seen:,} examples of split {item.name!r} do not fit.",
                f"Allowed: {options.max_quarantined:.2%}",
                f"One of them: unit {first.unit}, example {first.position}, key {first.key}, "
                f"feature {first.feature}: expected {first.expected}, found {first.found}",
                mend="mend the input or the builder, or allow more with max_quarantined",
            )
        )


def _limit(job: Job, item: SplitInput, units: dict[int, UnitState]) -> tuple[int, int] | None:
    """Returns the first (unit, position) beyond the wanted number of examples."""
    if job.max_examples is None:
        return None
    left = job.max_examples
    for unit in range(len(item.units.items)):
        if units[unit].seen >= left:
            return unit, left
        left -= units[unit].seen
    return None


# --- Writing ------------------------------------------------------------------------------------


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

    def handle(self, task: _ShardTask) -> Shard:
        if self._link is not None:
            self._link.check()
        return _write_shard(task, self._plans[task.plan], self._directory, self._job.write_shard)

    def finish(self) -> None:
        pass


def _write(
    job: Job,
    plans: Sequence[Plan],
    options: BuildOptions,
    journal: Journal,
    target: Path,
    meter: Meter,
) -> list[SplitResult]:
    total = sum(plan.num_bytes + plan.num_examples * tfrecord.OVERHEAD for plan in plans)
    meter.begin("writing", expected_bytes=total)
    tasks, results = [], []
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
        quarantined = [
            entry
            for _, unit in sorted(journal.split(item.name).units.items())
            for entry in unit.quarantined
        ]
        lengths = [end - begin for begin, end in itertools.pairwise(edges)]
        results.append(SplitResult(item.name, lengths, plan.num_bytes, quarantined))
    left = [task for task in tasks if journal.intact_shard(task.name) is None]
    _check_shard_room(left, plans, journal.directory)
    for task, shard in _written(left, job, plans, options, journal, total):
        journal.add_shard(shard)
        meter.add(job.inputs[task.plan].name, 0, shard.bytes)
    for task in tasks:
        for path in (journal.directory / task.name, index.path_of(journal.directory / task.name)):
            if path.exists():
                path.rename(target / path.name)
    _report_quarantine(results, target)
    sync_directory(target)
    return results


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


def _write_shard(
    task: _ShardTask, plan: Plan, directory: Path, write_shard: WriteShard | None
) -> Shard:
    path = directory / task.name
    partial = path.with_name(path.name + ".partial")
    if write_shard is not None:
        write_shard(partial, _unframed(plan, task.begin, task.end))
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        return _finished(partial, path, task.end - task.begin)
    ends = [np.zeros(1, np.uint64)]
    count, checksum = 0, 0
    with partial.open("wb", buffering=0) as file:
        for data, columns in shards.records(plan, task.begin, task.end):
            checksum = google_crc32c.extend(checksum, data.tobytes())
            written = 0
            while written < len(data):
                written += file.write(data[written:])
            ends.append(ends[-1][-1] + np.cumsum(columns["size"], dtype=np.uint64))
            count += len(columns["size"])
        os.fsync(file.fileno())
        size = file.tell()
    if count != task.end - task.begin or size != int(ends[-1][-1]):
        raise LostExamplesError(
            explain(
                f"The shard {task.name} does not add up.",
                f"Expected: {task.end - task.begin:,} records; written: {count:,}",
                mend="build with --restart; if it stays, please report it",
            )
        )
    partial.rename(path)
    index.write(path, np.concatenate(ends))
    return Shard(task.name, count, size, checksum)


def _unframed(plan: Plan, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
    for data, columns in shards.records(plan, begin, end):
        start = 0
        hashes = zip(columns["high"].tolist(), columns["low"].tolist(), strict=True)
        for (high, low), size in zip(hashes, columns["size"].tolist(), strict=True):
            record = data[start + tfrecord.HEADER : start + size - tfrecord.FOOTER]
            yield high << 64 | low, record.tobytes()
            start += size


def _finished(partial: Path, path: Path, count: int) -> Shard:
    checksum = 0
    with partial.open("rb") as file:
        while block := file.read(1 << 20):
            checksum = google_crc32c.extend(checksum, block)
        size = file.tell()
    partial.rename(path)
    return Shard(path.name, count, size, checksum)


def _report_quarantine(results: Sequence[SplitResult], target: Path) -> None:
    entries = [entry for result in results for entry in result.quarantined]
    if not entries:
        return
    lines = "".join(json.dumps(asdict(entry)) + "\n" for entry in entries)
    (target / QUARANTINE_REPORT).write_text(lines, "utf-8")
    _LOGGER.warning("%d examples were set aside; see %s.", len(entries), QUARANTINE_REPORT)


# --- Room ---------------------------------------------------------------------------------------


def _check_room(job: Job, journal: Journal) -> None:
    """Warns before starting if the unfinished units' own files alone would not fit.

    It is an estimate: a builder may also make less of them, so it does not refuse.
    """
    need = 0
    for item in job.inputs if job.max_examples is None else ():
        state = journal.split(item.name)
        for number, unit in enumerate(item.units.items):
            is_path = isinstance(unit, (str, os.PathLike)) and "://" not in os.fspath(unit)
            if is_path and not state.is_complete(number):
                with contextlib.suppress(OSError, ValueError):
                    path = Path(unit)
                    need += path.stat().st_size if path.is_file() else 0
    free = shutil.disk_usage(journal.directory).free
    if need > free:
        _LOGGER.warning(
            "The units' files have %s bytes, and only %s are free in %s: the disk may fill up.",
            f"{need:,}", f"{free:,}", journal.directory.parent,
        )  # fmt: skip


def _check_shard_room(tasks: Sequence[_ShardTask], plans: Sequence[Plan], directory: Path) -> None:
    need = 0
    for task in tasks:
        plan = plans[task.plan]
        size = plan.num_bytes / plan.num_examples + tfrecord.OVERHEAD
        need += int(size * (task.end - task.begin))
    _require_room(need, directory, "The shards take")


def _require_room(need: int, directory: Path, what: str) -> None:
    free = shutil.disk_usage(directory).free
    if need > free:
        raise DiskFullError(
            explain(
                f"There is not enough room in {directory.parent}.",
                f"{what} {need:,} bytes; free there: {free:,}",
                "What was finished is kept.",
                mend="free some space or choose another directory, then run the same again",
            )
        )
