"""The engine for one machine: worker processes generate, sort externally and write shards.

The first stage, which gathers units in sorted runs, is in this module; `shard_writing` has the
third.
"""

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from my_datasets.building import disk_space, shards
from my_datasets.building.collector import Collector, SplitRules, States
from my_datasets.building.engines import process_pool, shard_writing
from my_datasets.building.engines.process_pool import Link
from my_datasets.building.journal import Journal
from my_datasets.building.options import BuildOptions, Job, SplitResult
from my_datasets.building.progress import Meter, log_progress
from my_datasets.building.runs import Run
from my_datasets.building.units import Pair, SplitInput, examples_of

# The part of a worker's memory for records that wait to be written as a run. The rest is for the
# current batch, for the copy of a portion, and for what Python and Arrow keep.
_HELD = 0.4
# Seconds between a worker's signs of life while a unit's examples come slowly.
_SIGN_OF_LIFE = 1.0

_Message: TypeAlias = (
    tuple[Literal["run"], str, Run | None, States] | tuple[Literal["progress"], str, int, int]
)


@dataclass(frozen=True)
class _UnitTask:
    split: int
    unit: int


class _UnitWorker:
    """Encodes the examples of units, in a worker."""

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

    def _alive(self, examples: Iterator[Pair]) -> Iterator[Pair]:
        """Sends a sign of life about once a second, however slowly the examples come."""
        reported_at = time.monotonic()
        for pair in examples:
            if time.monotonic() - reported_at >= _SIGN_OF_LIFE:
                reported_at = time.monotonic()
                self._link.check()
                self._link.tell(("progress", "", 0, 0))
            yield pair

    def finish(self) -> None:
        for collector in self._collectors.values():
            collector.flush()

    def _on_run(self, split: str, run: Run | None, states: States) -> None:
        self._link.tell(("run", split, run, states))


def _collector(
    job: Job,
    options: BuildOptions,
    directory: Path,
    on_run: Callable[[str, Run | None, States], None],
    split: int,
    *,
    holders: int | None = None,
) -> Collector:
    name = job.inputs[split].name
    rules = SplitRules(
        name, ordered=job.ordered, quarantine=options.on_error == "quarantine",
        limit=job.max_examples,
    )  # fmt: skip
    share = options.memory / (holders or options.worker_count)
    report = functools.partial(on_run, name)
    return Collector(directory, rules, job.encoder, int(share * _HELD), report)


def generate(job: Job, options: BuildOptions, journal: Journal, meter: Meter) -> None:
    """Writes the examples of all unfinished units as runs, and records them."""
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
    # First, because plain generators may start TensorFlow's threads here, which a fork would lose.
    _generate_units(tasks, job, options, journal, meter)
    for number in plain:
        _generate_in_process(job, number, [0], options, journal, meter)


def _generate_units(
    tasks: Sequence[_UnitTask], job: Job, options: BuildOptions, journal: Journal, meter: Meter
) -> None:
    if not tasks:
        return
    if options.worker_count == 1 or not process_pool.available():
        for split, some in itertools.groupby(tasks, lambda task: task.split):
            _generate_in_process(job, split, [task.unit for task in some], options, journal, meter)
        return

    def describe(task: _UnitTask) -> str:
        return f"unit {job.inputs[task.split].unit_name(task.unit)}"

    results = process_pool.run(
        tasks,
        options.worker_count,
        lambda link: _UnitWorker(link, job, options, journal.directory),
        functools.partial(_on_message, journal=journal, meter=meter),
        describe=describe,
        timeout=options.unit_timeout,
    )
    for _ in results:
        meter.progress.units_done += 1
        meter.add(meter.progress.split, 0, 0)


def _examples(item: SplitInput, unit: int) -> Iterator[Pair]:
    units = item.units
    return examples_of(item.name, item.unit_name(unit), units.generate, units.items[unit])


def _on_message(message: _Message, journal: Journal, meter: Meter) -> None:
    if message[0] == "run":
        journal.add_run(*message[1:])
    else:
        _, split, count, size = message
        meter.add(split or meter.progress.split, count, size)


def _generate_in_process(
    job: Job,
    split: int,
    units: Sequence[int],
    options: BuildOptions,
    journal: Journal,
    meter: Meter,
) -> None:
    """Runs units of a split in this process: a plain generator may rely on it."""
    item = job.inputs[split]
    collector = _collector(job, options, journal.directory, journal.add_run, split, holders=1)

    def between(count: int, size: int) -> None:
        meter.add(item.name, count, size)

    threads = options.worker_count if item.is_plain else 1
    try:
        for unit in units:
            examples = iter(item.units) if item.is_plain else _examples(item, unit)
            collector.generate(unit, item.unit_name(unit), examples, between, threads=threads)
            meter.progress.units_done += 1
    except BaseException:
        # Keeps the units that finished before the failure.
        with contextlib.suppress(Exception):
            collector.flush()
        raise
    collector.flush()


def build(job: Job, options: BuildOptions, journal: Journal, target: Path) -> list[SplitResult]:
    """Builds all splits of a version, and puts the shards into `target`.

    Args:
      job: What to build.
      options: How to build it.
      journal: The journal, with the work of an earlier build if this one resumes it.
      target: A directory on the same file system as the journal.

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
    disk_space.warn_of_units(job, journal)
    generate(job, options, journal, meter)
    meter.begin("sorting")
    plans = [shards.planned(job, item, journal, options) for item in job.inputs]
    return shard_writing.write(job, plans, options, journal, target, meter)
