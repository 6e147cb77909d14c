"""The engine for one machine: worker processes generate, sort externally and write shards.

The first stage, which gathers units in sorted runs, is in this module; `shard_writing` has the
third.
"""

import contextlib
import functools
import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from my_datasets.building import shards
from my_datasets.building.collector import Collector, SplitRules, States
from my_datasets.building.engines import process_pool, shard_writing
from my_datasets.building.engines.process_pool import Link
from my_datasets.building.journal import Journal
from my_datasets.building.options import BuildOptions, Job, SplitResult
from my_datasets.building.progress import Meter, log_progress
from my_datasets.building.runs import Run
from my_datasets.building.units import Pair, SplitInput, examples_of
from my_datasets.core.logs import get_logger

# The part of a worker's memory for records that wait to be written as a run. The rest is for the
# current batch, for the copy of a portion, and for what Python and Arrow keep.
_BUFFER_SHARE = 0.4
# Seconds between a worker's signs of life while a unit's examples come slowly.
_SIGN_OF_LIFE = 1.0

_LOGGER = get_logger(__name__)
_Message: TypeAlias = (
    tuple[Literal["run"], str, Run | None, States] | tuple[Literal["progress"], str, int, int]
)


@dataclass(frozen=True)
class _UnitTask:
    split: int
    unit: int


class _UnitWorker:
    def __init__(self, link: Link, job: Job, options: BuildOptions, directory: Path) -> None:
        self._link = link
        self._job = job
        self._collector = functools.partial(
            _collector, job, options, directory, lambda *run: link.send(("run", *run))
        )
        self._collectors: dict[int, Collector] = {}

    def handle(self, task: _UnitTask) -> None:
        for split in [split for split in self._collectors if split != task.split]:
            self._collectors.pop(split).flush()
        if task.split not in self._collectors:
            self._collectors[task.split] = self._collector(task.split)
        item = self._job.inputs[task.split]
        examples = self._with_signs_of_life(_examples(item, task.unit))
        between = functools.partial(self._send_progress, item.name)
        collector = self._collectors[task.split]
        collector.generate(task.unit, item.unit_name(task.unit), examples, between)

    def _send_progress(self, split: str, examples: int, size: int) -> None:
        self._link.check()
        self._link.send(("progress", split, examples, size))

    def _with_signs_of_life(self, examples: Iterator[Pair]) -> Iterator[Pair]:
        """Sends a sign of life about once a second, however slowly the examples come."""
        reported_at = time.monotonic()
        for pair in examples:
            if time.monotonic() - reported_at >= _SIGN_OF_LIFE:
                reported_at = time.monotonic()
                self._send_progress("", 0, 0)
            yield pair

    def finish(self) -> None:
        for collector in self._collectors.values():
            collector.flush()


def _collector(
    job: Job,
    options: BuildOptions,
    directory: Path,
    on_run: Callable[[str, Run | None, States], None],
    split: int,
    *,
    processes: int | None = None,
) -> Collector:
    name = job.inputs[split].name
    rules = SplitRules(
        name, ordered=job.ordered, quarantine=options.on_error == "quarantine",
        limit=job.max_examples,
    )  # fmt: skip
    capacity = int(options.memory / (processes or options.worker_count) * _BUFFER_SHARE)
    report = functools.partial(on_run, name)
    return Collector(directory, rules, job.encoder, capacity, report)


def generate(job: Job, options: BuildOptions, journal: Journal, meter: Meter) -> None:
    """Writes the examples of all unfinished units as runs, and records them."""
    tasks: list[_UnitTask] = []
    plain: list[int] = []
    for number, item in enumerate(job.inputs):
        left = item.units_left(journal.split(item.name).units)
        meter.progress.units_done += len(item.units.items) - len(left)
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
    if options.worker_count == 1 or not process_pool.available():
        for split, some in itertools.groupby(tasks, lambda task: task.split):
            _generate_in_process(job, split, [task.unit for task in some], options, journal, meter)
        return

    def on_message(message: _Message) -> None:
        if message[0] == "run":
            journal.add_run(*message[1:])
        else:
            _, split, count, size = message
            meter.add(split or meter.progress.split, count, size)

    results = process_pool.run(
        tasks,
        options.worker_count,
        lambda link: _UnitWorker(link, job, options, journal.directory),
        on_message,
        describe=lambda task: f"unit {job.inputs[task.split].unit_name(task.unit)}",
        timeout=options.unit_timeout,
    )
    for _ in results:
        meter.progress.units_done += 1
        meter.add(meter.progress.split, 0, 0)


def _examples(item: SplitInput, unit: int) -> Iterator[Pair]:
    units = item.units
    return examples_of(item.name, item.unit_name(unit), units.generate, units.items[unit])


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
    collector = _collector(job, options, journal.directory, journal.add_run, split, processes=1)
    between = functools.partial(meter.add, item.name)
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
    """Builds all splits, with shards in `target`; returns them in the order of `job.inputs`.

    The journal has the work of an earlier build if this one resumes it. `target` is a directory on
    the journal's file system.

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
    _warn_of_large_inputs(job, journal)
    generate(job, options, journal, meter)
    meter.begin("sorting")
    plans = [shards.planned(job, item, journal, options) for item in job.inputs]
    return shard_writing.write(job, plans, options, journal, target, meter)


def _warn_of_large_inputs(job: Job, journal: Journal) -> None:
    """Warns if the input files of unfinished units are larger than the free space.

    This is only an estimate, because a builder may write less than it reads.
    """
    need = 0
    for item in job.inputs if job.max_examples is None else ():
        for number in item.units_left(journal.split(item.name).units):
            unit = item.units.items[number]
            if isinstance(unit, (str, os.PathLike)) and "://" not in os.fspath(unit):
                with contextlib.suppress(OSError, ValueError):
                    path = Path(unit)
                    need += path.stat().st_size if path.is_file() else 0
    free = shutil.disk_usage(journal.directory).free
    if need > free:
        _LOGGER.warning(
            "The units' files have %s bytes, but only %s are free in %s: the disk may fill up.",
            f"{need:,}", f"{free:,}", journal.directory.parent,
        )  # fmt: skip
