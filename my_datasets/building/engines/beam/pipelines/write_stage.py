"""The third stage, in the building process: shards are cut, handed to Beam and reconciled."""

from collections.abc import Callable, Mapping, Sequence

from my_datasets.building.engines import writing as local_writing
from my_datasets.building.engines.beam.pipelines import run_manifest, writing
from my_datasets.building.engines.beam.pipelines.checksum_totals import Tally
from my_datasets.building.engines.beam.pipelines.progress import NewFiles
from my_datasets.building.engines.beam.pipelines.run_manifest import Gathered
from my_datasets.building.engines.beam.pipelines.sorting import SortedBucket
from my_datasets.building.engines.beam.pipelines.stage import Driver
from my_datasets.building.engines.beam.pipelines.writing import HowShards, ShardTask, WrittenShard
from my_datasets.building.engines.beam.workspace import local_runs
from my_datasets.building.job import SplitResult
from my_datasets.building.units import SplitInput
from my_datasets.errors import LostExamplesError
from my_datasets.metadata import sidecars
from my_datasets.metadata.content import ShardContent
from my_datasets.records import tfrecord


def write(
    driver: Driver, found: Sequence[Gathered], parts: Sequence[Sequence[SortedBucket]]
) -> list[SplitResult]:
    """Writes the shards of all splits, and what was found in them, among the work.

    Returns:
      The splits.

    Raises:
      MyDatasetsError: See `engine.build`.
    """
    inputs = driver.job.inputs
    kept = [sum((part.kept for part in its), Tally()) for its in parts]
    driver.meter.begin("writing", expected_bytes=sum(one.bytes for one in kept))
    tasks = [_tasks(driver, *each) for each in zip(inputs, parts, kept, strict=True)]
    there = _written(driver, tasks)
    left = [one for some in tasks for one in some if one.name not in there]
    if left:
        _write_shards(driver, left)
    every = list(zip(inputs, found, tasks, kept, strict=True))

    def look() -> list[SplitResult]:
        written = _written(driver, tasks)
        return [_result(*each, written) for each in every]

    try:
        return driver.patiently(look)
    except LostExamplesError:
        for folder in (writing.SHARDS, writing.REPORTS, writing.FINDINGS):
            driver.work.place.forget(folder)  # for the next run to fix
        raise


def _write_shards(driver: Driver, left: Sequence[ShardTask]) -> None:
    place = driver.work.place
    need = sum(
        sum(run.data_bytes * (b - a) // run.count for run, a, b in one.pieces) for one in left
    )
    place.require_room(need, "The shards take")
    pipeline = driver.how.submission.pipeline()
    files = driver.work.write_tasks("shards", left)
    how = HowShards(
        driver.job.write_shard, driver.how.file_format, not driver.job.ordered, driver.how.examine
    )
    writing.add_writing(pipeline, files, driver.work, how, driver.surroundings)
    driver.run_pipeline("writing", pipeline, _look(driver))


def _written(driver: Driver, tasks: Sequence[Sequence[ShardTask]]) -> dict[str, WrittenShard]:
    """Returns the shards that are there, by their names."""
    work = driver.work
    sizes = {**work.place.handed_over(), **work.place.sizes(writing.SHARDS)}
    found_in = work.place.sizes(writing.FINDINGS)
    names = [
        one.name
        for some in tasks
        for one in some
        if one.name in sizes and one.name + writing.SUMMARY in found_in
    ]
    said = work.read_all(map(writing.report_of, names))
    found = (WrittenShard.of(one, sizes) for one in said if one is not None)
    return {one.shard.name: one for one in found if one is not None}


def _tasks(
    driver: Driver, item: SplitInput, parts: Sequence[SortedBucket], kept: Tally
) -> list[ShardTask]:
    count, size = _wanted(driver, item, parts, kept)
    num_bytes = size - count * tfrecord.OVERHEAD
    number = local_writing.number_of_shards(driver.job, item, num_bytes, count)
    names = [driver.job.shard_name(item.name, i, number) for i in range(number)]
    return list(writing.tasks(parts, count, names))


def _wanted(
    driver: Driver, item: SplitInput, parts: Sequence[SortedBucket], kept: Tally
) -> tuple[int, int]:
    """Returns how many records are written, the first ones, and their size with framing."""
    most = driver.job.max_examples
    if item.collection is None or most is None or most >= kept.count:
        return kept.count, kept.bytes
    count = size = 0
    for run in (part.run for part in parts if part.run is not None):
        rows = min(run.count, most - count)
        if not rows:
            break
        count += rows
        with local_runs.opened(driver.work.place, run) as here:
            size += int(here.run.mapped("size")[:rows].sum())
    return count, size


def _look(driver: Driver) -> Callable[[], None]:
    """Returns what counts the shards that have come."""
    files = NewFiles(driver.work.place, writing.SHARDS)

    def look() -> None:
        for name, size in files.look():
            if sidecars.kind_of(name) is None:
                driver.meter.add(driver.meter.progress.split, 0, size)

    return look


def _result(
    item: SplitInput, found: Gathered, tasks: Sequence[ShardTask], kept: Tally,
    there: Mapping[str, WrittenShard],
) -> SplitResult:  # fmt: skip
    """Returns a split of which all shards are there, and add up to what was gathered."""
    written = []
    for task in tasks:
        one = there.get(task.name)
        if one is None:
            raise run_manifest.lost(item.name, "written", f"the shard {task.name}", "no such file")
        written.append(one)
    total = sum((one.tally for one in written), Tally())
    expected = sum(task.count for task in tasks)
    # Of a sample only the number is known beforehand.
    is_right = total == kept if expected == kept.count else total.count == expected
    if not is_right:
        raise run_manifest.lost(item.name, "written", kept, total)
    shards = tuple(
        ShardContent(one.name, one.bytes, one.count, one.sha256)
        for one in (each.shard for each in written)
    )
    quarantined = [
        entry for _, unit in sorted(found.state.units.items()) for entry in unit.quarantined
    ]
    num_bytes = total.bytes - total.count * tfrecord.OVERHEAD
    sidecars = {name: said for one in written for name, said in one.sidecars.items()}
    return SplitResult(item.name, shards, num_bytes, quarantined, sidecars)
