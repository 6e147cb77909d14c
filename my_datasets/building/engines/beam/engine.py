"""Builds a version by three pipelines, each of which goes on where an earlier build has ended."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.runners.runner import PipelineState

from my_datasets.building.engines import writing as local_writing
from my_datasets.building.engines.beam import (
    buckets,
    gathered,
    generating,
    preflight,
    sorting,
    work,
    writing,
)
from my_datasets.building.engines.beam.gathered import Gathered
from my_datasets.building.engines.beam.gathering import Gathering
from my_datasets.building.engines.beam.runners import Submission
from my_datasets.building.engines.beam.sorting import Part, Sorting
from my_datasets.building.engines.beam.surroundings import Surroundings
from my_datasets.building.engines.beam.tally import Tally
from my_datasets.building.engines.beam.watching import NewFiles, watching
from my_datasets.building.engines.beam.work import Work
from my_datasets.building.engines.beam.writing import ShardTask, WrittenShard
from my_datasets.building.engines.planning import limit
from my_datasets.building.job import Job, SplitResult
from my_datasets.building.journal import sync_directory
from my_datasets.building.options import BuildOptions
from my_datasets.building.progress import Meter, log_progress
from my_datasets.building.units import SplitInput
from my_datasets.core.content import ShardContent
from my_datasets.errors import LostExamplesError, explain
from my_datasets.records import index, tfrecord

_LOGGER = logging.getLogger(__name__)
_ALL_SORTED = "sorted.json"


@dataclass(frozen=True, kw_only=True)
class OnBeam:
    """Where and how a version is built on Beam.

    Attributes:
      submission: Where its pipelines run.
      pipeline: The one that the builder has added its collections to; None if it has not.
      directory: The work directory.
      identity: What the work depends on.
      modules: What workers must be able to import: the builder's module.
      file_format: The format of the shards.
    """

    submission: Submission
    pipeline: beam.Pipeline | None
    directory: Path
    identity: Mapping[str, Any]
    modules: tuple[str, ...]
    file_format: str


def build(job: Job, options: BuildOptions, how: OnBeam, target: Path) -> list[SplitResult]:
    """Builds all splits of a version, and puts the shards into `target`.

    Args:
      job: What to build.
      options: How.
      how: On Beam.
      target: A directory on the same file system as the work directory.

    Returns:
      The splits, in the order of `job.inputs`.

    Raises:
      ExampleError: An example does not fit the features.
      DuplicateKeyError: Two examples of a split have the same key.
      UnitError: The generator of a unit raised.
      LostExamplesError: Examples were lost or doubled on the way.
      BuildInterruptedError: A worker, or the runner, failed; or workers lack something.
      DiskFullError: There is not enough room.
    """
    there = work.opened(how.directory, {**how.identity, "engine": "beam"}, resume=options.resume)
    meter = Meter(options.report or log_progress)
    try:
        return _Build(job, options, how, there, meter).run(target)
    finally:
        how.submission.close()


class _Build:
    def __init__(
        self, job: Job, options: BuildOptions, how: OnBeam, there: Work, meter: Meter
    ) -> None:
        self._job, self._options, self._how = job, options, how
        self._work, self._meter = there, meter
        self._surroundings = Surroundings(there.directory, how.modules)

    def run(self, target: Path) -> list[SplitResult]:
        preflight.check(self._how.submission, self._work, self._surroundings)
        self._generate()
        found = [gathered.complete(self._work, item, self._options) for item in self._job.inputs]
        parts = self._sort(found)
        results = self._write(found, parts)
        for result in results:
            for shard in result.shards:
                path = self._work.shards / shard.name
                for each in (path, index.path_of(path)):
                    if each.exists():
                        each.rename(target / each.name)
        local_writing.report_quarantine(results, target)
        sync_directory(target)
        return results

    def _run_pipeline(self, stage: str, pipeline: beam.Pipeline, look: Callable[[], None]) -> None:
        self._work.forget_failures()
        try:
            with watching(look, self._meter):
                result = pipeline.run()
                try:
                    state = result.wait_until_finish()
                except KeyboardInterrupt:
                    result.cancel()
                    raise
            # The in-process runner has none.
            if state not in (None, PipelineState.DONE):
                raise RuntimeError(f"The pipeline ended as {state}.")
        except Exception as error:
            raise self._work.failure(stage, error) from error
        finally:
            self._work.forget_tasks()
        look()

    def _generate(self) -> None:
        self._meter.begin("generating")
        progress = self._meter.progress
        progress.units = sum(len(item.units.items) for item in self._job.inputs)
        self._gather_plain()
        tasks = list(self._units_left())
        progress.units_done = progress.units - len(tasks)
        collections = [
            item
            for item in self._job.inputs
            if item.collection is not None
            and not (self._work.generated(item.name) / gathered.COMMITTED).is_file()
        ]
        if not tasks and not collections:
            return
        pipeline = self._how.pipeline if collections and self._how.pipeline else None
        pipeline = pipeline or self._how.submission.pipeline()
        gatherings = [self._gathering(item) for item in self._job.inputs]
        if tasks:
            paths = self._work.write_tasks("units", tasks)
            generators = [item.units.generate for item in self._job.inputs]
            generating.add_units(pipeline, paths, gatherings, generators, self._surroundings)
        for item in collections:
            self._work.forget_generated(item.name)
            generating.add_collection(pipeline, item, self._gathering(item), self._surroundings)
        self._run_pipeline("generating", pipeline, self._look_at_units())

    def _gathering(self, item: SplitInput) -> Gathering:
        return generating.gathering_of(self._work, self._job, item, self._options)

    def _gather_plain(self) -> None:
        for item in self._job.inputs:
            if item.is_plain and not gathered.read(self._work, item).state.is_complete(0):
                gathered.write_unit_names(self._work, item)
                generating.gather_here(
                    self._gathering(item), item, self._options.worker_count, self._meter
                )

    def _units_left(self) -> Sequence[generating.UnitTask]:
        left = []
        for number, item in enumerate(self._job.inputs):
            if item.is_plain or item.collection is not None:
                continue
            gathered.write_unit_names(self._work, item)
            state = gathered.read(self._work, item).state
            left += [
                generating.UnitTask(number, unit, item.unit_name(unit), item.units.items[unit])
                for unit in range(len(item.units.items))
                if not state.is_complete(unit)
            ]
        return left

    def _look_at_units(self) -> Callable[[], None]:
        new = [
            (item, NewFiles(self._work.generated(item.name), "[!.]*-*.json"))
            for item in self._job.inputs
        ]
        for _, files in new:
            files.look()

        def look() -> None:
            for item, files in new:
                for path in files.look():
                    report = work.read_json(path) or {"units": {}}
                    done = sum(state["complete"] for state in report["units"].values())
                    tallies = map(Tally.from_json, report.get("tallies", {}).values())
                    total = sum(tallies, Tally())
                    self._meter.progress.units_done += 0 if item.collection is not None else done
                    self._meter.add(item.name, total.count, total.bytes)

        return look

    def _sort(self, found: Sequence[Gathered]) -> list[list[Part]]:
        total = sum(one.data_bytes for one in found)
        self._meter.begin("sorting", expected_bytes=total)
        sortings = [
            self._sorting(item, one) for item, one in zip(self._job.inputs, found, strict=True)
        ]
        there: list[dict[int, Part]] = [{} for _ in sortings]
        is_sorted = (self._work.directory / _ALL_SORTED).is_file()
        waves = self._waves(sortings, there)
        if waves and is_sorted:
            raise LostExamplesError(
                explain(
                    f"Sorted parts are gone from {self._work.directory}.",
                    mend="build with --restart; if it stays, please report it",
                )
            )
        for wave in waves:
            tasks = [
                (number, counted)
                for number, one in enumerate(found)
                if wave[number]
                for counted in one.runs
            ]
            pipeline = self._how.submission.pipeline()
            paths = self._work.write_tasks("runs", tasks)
            sorting.add_sorting(pipeline, paths, sortings, wave, self._surroundings)
            self._run_pipeline("sorting", pipeline, self._look_at_parts())
            self._read_parts(sortings, wave, there)
        parts = [[each[number] for number in sorted(each)] for each in there]
        for item, one, its in zip(self._job.inputs, found, parts, strict=True):
            self._reconcile(item, one, its)
        if not is_sorted:
            work.write_json(self._work.directory / _ALL_SORTED, [])
        self._work.forget_runs()
        return parts

    def _sorting(self, item: SplitInput, found: Gathered) -> Sorting:
        is_collection = item.collection is not None
        return Sorting(
            self._work,
            buckets.cut(self._work, item.name, found, spread_evenly=not self._job.ordered),
            self._job.ignore_duplicates,
            None if is_collection else limit(self._job, item, found.state.units),
            has_units=not is_collection,
            by_text=is_collection and self._job.ordered,
        )

    def _waves(
        self, sortings: Sequence[Sorting], there: Sequence[dict[int, Part]]
    ) -> list[list[tuple[int, ...]]]:
        """Returns which buckets of each split are sorted by one pipeline after the other."""
        self._read_parts(sortings, [range(one.buckets.count) for one in sortings], there)
        at_once = self._how.submission.at_once(self._options.memory)
        left = [
            [number for number in range(one.buckets.count) if number not in parts]
            for one, parts in zip(sortings, there, strict=True)
        ]
        if at_once is None:
            return [[tuple(numbers) for numbers in left]] if any(left) else []
        return [
            [some if other == number else () for other in range(len(sortings))]
            for number, one in enumerate(sortings)
            for some in one.buckets.waves(left[number], at_once)
        ]

    def _read_parts(
        self,
        sortings: Sequence[Sorting],
        wanted: Sequence[Sequence[int]],
        there: Sequence[dict[int, Part]],
    ) -> None:
        for one, numbers, parts in zip(sortings, wanted, there, strict=True):
            for number in numbers:
                part = Part.read(self._work, one.buckets.split, number)
                if part is not None:
                    parts[number] = part

    def _look_at_parts(self) -> Callable[[], None]:
        new = [
            (item.name, NewFiles(self._work.parts(item.name), "*/[!.]*.run"))
            for item in self._job.inputs
        ]
        for _, files in new:
            files.look()

        def look() -> None:
            for split, files in new:
                for path in files.look():
                    self._meter.add(split, 0, path.stat().st_size)

        return look

    def _reconcile(self, item: SplitInput, found: Gathered, parts: Sequence[Part]) -> None:
        total = sum((part.kept + part.dropped for part in parts), Tally())
        if total != found.tally:
            raise gathered.lost(item.name, "sorted", found.tally, total)

    def _write(
        self, found: Sequence[Gathered], parts: Sequence[Sequence[Part]]
    ) -> list[SplitResult]:
        kept = [sum((part.kept for part in its), Tally()) for its in parts]
        self._meter.begin("writing", expected_bytes=sum(one.bytes for one in kept))
        tasks: list[list[ShardTask]] = []
        for item, its, whole in zip(self._job.inputs, parts, kept, strict=True):
            wanted = self._wanted(item, its, whole)
            num_bytes = wanted.bytes - wanted.count * tfrecord.OVERHEAD
            count = local_writing.number_of_shards(self._job, item, num_bytes, wanted.count)
            names = [self._job.shard_name(item.name, i, count) for i in range(count)]
            tasks.append(list(writing.tasks(its, wanted.count, names)))
        left = [
            task
            for some in tasks
            for task in some
            if WrittenShard.read(self._work, task.name) is None
        ]
        if left:
            pipeline = self._how.submission.pipeline()
            paths = self._work.write_tasks("shards", left)
            writing.add_writing(
                pipeline, paths, self._work, self._job.write_shard, self._how.file_format,
                self._surroundings,
            )  # fmt: skip
            self._run_pipeline("writing", pipeline, self._look_at_shards())
        return [
            self._result(item, one, some, whole)
            for item, one, some, whole in zip(self._job.inputs, found, tasks, kept, strict=True)
        ]

    def _wanted(self, item: SplitInput, parts: Sequence[Part], whole: Tally) -> Tally:
        """Returns the tally of the records that are written; its checksums are of no use."""
        most = self._job.max_examples
        if item.collection is None or most is None or most >= whole.count:
            return whole
        count = size = 0
        for part in parts:
            if part.run is None or count == most:
                continue
            rows = min(part.run.count, most - count)
            count += rows
            size += int(part.run.mapped("size")[:rows].sum())
        return Tally(count, size)

    def _look_at_shards(self) -> Callable[[], None]:
        files = NewFiles(self._work.shards, "[!.]*-of-*[0-9]")
        files.look()

        def look() -> None:
            for path in files.look():
                self._meter.add(self._meter.progress.split, 0, path.stat().st_size)

        return look

    def _result(
        self, item: SplitInput, found: Gathered, tasks: Sequence[ShardTask], kept: Tally
    ) -> SplitResult:
        written = []
        for task in tasks:
            one = WrittenShard.read(self._work, task.name)
            if one is None:
                raise gathered.lost(item.name, "written", f"the shard {task.name}", "no such file")
            written.append(one)
        total = sum((one.tally for one in written), Tally())
        expected = sum(task.count for task in tasks)
        is_whole = expected == kept.count
        if total.count != expected or (is_whole and total != kept):
            raise gathered.lost(item.name, "written", kept if is_whole else expected, total)
        shards = tuple(
            ShardContent(one.name, one.bytes, one.count, one.sha256)
            for one in (each.shard for each in written)
        )
        quarantined = [
            entry for _, unit in sorted(found.state.units.items()) for entry in unit.quarantined
        ]
        num_bytes = total.bytes - total.count * tfrecord.OVERHEAD
        return SplitResult(item.name, shards, num_bytes, quarantined)
