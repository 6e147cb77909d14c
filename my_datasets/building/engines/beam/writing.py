"""The third stage: the pipeline that writes shards from parts, and the process that runs it.

The building process cuts shards, writes them on Beam, and checks the totals of what was written.
"""

import itertools
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import apache_beam as beam
import google_crc32c
import numpy as np
import numpy.typing as npt

from my_datasets.building import shards
from my_datasets.building.engines import shard_writing
from my_datasets.building.engines.beam import build_files, run_files
from my_datasets.building.engines.beam.build_files import BuildFiles
from my_datasets.building.engines.beam.run_files import ChecksumTotals, GeneratedRuns
from my_datasets.building.engines.beam.sorting import SortedBucket
from my_datasets.building.engines.beam.stage import Driver, NewFiles
from my_datasets.building.engines.beam.workers import CheckedDoFn, WorkerEnvironment
from my_datasets.building.engines.beam.workspace import Workspace
from my_datasets.building.journal import FinishedShard
from my_datasets.building.options import Examine, SplitResult, WriteShard
from my_datasets.building.runs import Columns, Run
from my_datasets.building.units import Entry, SplitInput
from my_datasets.core.json_types import Json
from my_datasets.errors import CorruptShardError, LostExamplesError
from my_datasets.metadata import recorded_files, sidecars
from my_datasets.records import shard_reader, tfrecord
from my_datasets.records.tf_example.pieces import Bytes

# Bytes of records to copy at once.
_AT_ONCE = 4 << 20
# The folders of finished shards, of their reports, and of the results of examining them.
SHARDS, REPORTS, FINDINGS = "shards", "shard reports", "findings"
SUMMARY = ".pickle"


@dataclass(frozen=True)
class ShardWriteOptions:
    """The settings for writing shards; workers get a copy of it."""

    # Writes a shard in a format other than TFRecord; None for TFRecord.
    write_shard: WriteShard | None
    file_format: str
    with_keys: bool  # whether to write the hashes of keys beside shards
    examine: Examine  # examines a shard that was just written


@dataclass(frozen=True)
class ShardTask:
    """A shard to write."""

    name: str
    count: int  # the number of its records
    of: int  # the number of its split's records
    # Parts, each with the range of its records that go into the shard.
    pieces: tuple[tuple[Run, int, int], ...]


@dataclass(frozen=True)
class WrittenShard:
    """A shard that was written, from its report."""

    shard: FinishedShard
    tally: ChecksumTotals  # of the records, read back from the file
    # The manifest's entries of the files beside it, by name.
    sidecars: Mapping[str, Json] = field(default_factory=dict)

    @classmethod
    def of(cls, said: Entry, sizes: Mapping[str, int]) -> "WrittenShard | None":
        """Returns the shard of a report; None unless its files are in `sizes` as reported."""
        shard = FinishedShard(**said["shard"])
        if any(sizes.get(name) != size for name, (size, _) in shard.files.items()):
            return None
        return cls(shard, ChecksumTotals.from_json(said["tally"]), said["sidecars"])


def _tasks_of(
    parts: Sequence[SortedBucket], count: int, names: Sequence[str]
) -> Iterator[ShardTask]:
    """Yields the shards with the first `count` records of sorted parts."""
    runs = [part.run for part in parts if part.run is not None]
    starts = [0, *itertools.accumulate(run.count for run in runs)]
    which = 0
    edges = shards.boundaries(count, len(names))
    for name, (begin, end) in zip(names, itertools.pairwise(edges), strict=True):
        pieces = []
        while which < len(runs) and starts[which] < end:
            first, last = max(begin, starts[which]), min(end, starts[which + 1])
            pieces.append((runs[which], first - starts[which], last - starts[which]))
            if starts[which + 1] > end:
                break
            which += 1
        yield ShardTask(name, end - begin, count, tuple(pieces))


def findings_of(name: str) -> str:
    """Returns the folder with the results of examining a shard."""
    return f"{FINDINGS}/{name}"


class WriteShards(CheckedDoFn):
    """Writes shards, and reads them back."""

    def __init__(
        self, work: BuildFiles, how: ShardWriteOptions, environment: WorkerEnvironment
    ) -> None:
        super().__init__(work, environment)
        self._how = how

    def process(self, task: ShardTask) -> None:
        """Writes a shard with its sidecar files, examines it, and writes its report."""
        work, how = self._work, self._how
        with work.reporting_failures(), work.place.draft() as directory:
            path = Path(directory) / task.name
            records = _records(work.place, task)
            shard, _, keys = shard_writing.write_shard(path, task.count, records, how.write_shard)
            found, offsets = _read_back(path, how.file_format)
            if found.count != task.count:
                raise LostExamplesError(
                    f"The shard {task.name} does not add up.",
                    f"Expected: {task.count:,} records; read back: {found.count:,}",
                    fix="run the same again; if it fails again, please report it",
                )
            shard = shard_writing.with_sidecars(
                shard, path, offsets if how.write_shard is None else None,
                keys if how.with_keys else None,
            )  # fmt: skip
            sidecars = recorded_files.of_files(path.parent, {path.name})
            self._examine(path, task)
            for name in shard.files:
                work.place.put(Path(directory) / name, f"{SHARDS}/{name}")
            said = {"shard": asdict(shard), "tally": found.to_json(), "sidecars": sidecars}
            work.write_json(f"{REPORTS}/{task.name}.json", said)

    def _examine(self, path: Path, task: ShardTask) -> None:
        place = self._work.place
        with place.draft() as directory:
            found = self._how.examine(path, task.count, task.of, Path(directory))
            for each in sorted(Path(directory).iterdir()):
                place.put(each, f"{findings_of(task.name)}/{each.name}")
        place.write(f"{findings_of(task.name)}{SUMMARY}", pickle.dumps(found))


def _records(place: Workspace, task: ShardTask) -> Iterator[tuple[Bytes, Columns]]:
    """Yields the framed records of a shard, in portions, with their hashes and sizes."""
    for part, first, last in task.pieces:
        with build_files.open_run(place, part) as local:
            local.fetch(first, last)
            yield from _portions(local.run, first, last)


def _portions(run: Run, first: int, last: int) -> Iterator[tuple[Bytes, Columns]]:
    sizes = run.mapped("size")
    while first < last:
        ends = np.cumsum(sizes[first : min(last, first + _AT_ONCE // tfrecord.OVERHEAD)])
        count = max(1, int(np.searchsorted(ends, _AT_ONCE, side="right")))
        columns = run.columns(("high", "low", "size", "begin"), first, first + count)
        data = np.empty(int(columns["size"].sum()), np.uint8)
        run.read_into(data.data, int(columns["begin"][0]))
        yield data, columns
        first += count


def _read_back(path: Path, file_format: str) -> tuple[ChecksumTotals, npt.NDArray[np.uint64]]:
    """Returns the totals of a file's records, and the offsets they have in a TFRecord file.

    This reads the file alone: it follows the stored lengths and recomputes each checksum.
    """
    checksums, sizes = 0, [np.zeros(1, np.uint64)]
    try:
        for records in shard_reader.records(path, file_format):
            found = np.fromiter(map(google_crc32c.value, records), np.uint32, len(records))
            checksums += int(tfrecord.masked(found).sum(dtype=np.uint64))
            sizes.append(np.fromiter(map(len, records), np.uint64, len(records)))
    except shard_reader.DamagedError as error:
        raise CorruptShardError(
            f"{path.name} was damaged after it was written: {error}",
            fix="check the disk, or the network file system, then run the same again",
        ) from error
    lengths = np.concatenate(sizes)
    lengths[1:] += np.uint64(tfrecord.OVERHEAD)
    offsets = np.cumsum(lengths, dtype=np.uint64)
    return ChecksumTotals(len(offsets) - 1, int(offsets[-1]), checksums % 2**64), offsets


def write(
    driver: Driver, found: Sequence[GeneratedRuns], parts: Sequence[Sequence[SortedBucket]]
) -> list[SplitResult]:
    """Writes and examines the shards of all splits, in the work directory.

    Raises:
      MyDatasetsError: See `engine.build`.
    """
    inputs = driver.job.inputs
    totals = [sum((part.kept for part in its), ChecksumTotals()) for its in parts]
    driver.meter.begin("writing", expected_bytes=sum(one.bytes for one in totals))
    tasks = [_tasks(driver, *each) for each in zip(inputs, parts, totals, strict=True)]
    done = _written(driver, tasks)
    left = [one for some in tasks for one in some if one.name not in done]
    if left:
        _write_shards(driver, left)
    every = list(zip(inputs, found, tasks, totals, strict=True))

    def look() -> list[SplitResult]:
        written = _written(driver, tasks)
        return [_result(*each, written) for each in every]

    try:
        return driver.retry_until_visible(look)
    except LostExamplesError:
        for folder in (SHARDS, REPORTS, FINDINGS):
            driver.work.place.remove(folder)  # so that the next build makes them again
        raise


def _write_shards(driver: Driver, left: Sequence[ShardTask]) -> None:
    place = driver.work.place
    need = sum(
        sum(run.data_bytes * (b - a) // run.count for run, a, b in one.pieces) for one in left
    )
    place.require_room(need, "The shards take")
    pipeline = driver.how.submission.pipeline()
    how = ShardWriteOptions(
        driver.job.write_shard, driver.how.file_format, not driver.job.ordered, driver.how.examine
    )
    write_shards = WriteShards(driver.work, how, driver.environment)
    spread = driver.distribute(pipeline, "shards", left)
    _ = spread | "Write shards" >> beam.ParDo(write_shards)
    driver.run_pipeline("writing", pipeline, _look(driver))


def _written(driver: Driver, tasks: Sequence[Sequence[ShardTask]]) -> dict[str, WrittenShard]:
    """Returns the finished shards by name."""
    work = driver.work
    sizes = {**work.place.handed_over(), **work.place.sizes(SHARDS)}
    found_in = work.place.sizes(FINDINGS)
    names = [
        one.name
        for some in tasks
        for one in some
        if one.name in sizes and one.name + SUMMARY in found_in
    ]
    reports = work.read_all(f"{REPORTS}/{name}.json" for name in names)
    found = (WrittenShard.of(one, sizes) for one in reports if one is not None)
    return {one.shard.name: one for one in found if one is not None}


def _tasks(
    driver: Driver, item: SplitInput, parts: Sequence[SortedBucket], totals: ChecksumTotals
) -> list[ShardTask]:
    count, size = _count_and_size(driver, item, parts, totals)
    num_bytes = size - count * tfrecord.OVERHEAD
    number = shard_writing.number_of_shards(driver.job, item, num_bytes, count)
    names = [driver.job.shard_name(item.name, i, number) for i in range(number)]
    return list(_tasks_of(parts, count, names))


def _count_and_size(
    driver: Driver, item: SplitInput, parts: Sequence[SortedBucket], totals: ChecksumTotals
) -> tuple[int, int]:
    """Returns how many records to write, and their size with framing."""
    most = driver.job.max_examples
    if item.collection is None or most is None or most >= totals.count:
        return totals.count, totals.bytes
    count = size = 0
    for run in (part.run for part in parts if part.run is not None):
        rows = min(run.count, most - count)
        if not rows:
            break
        count += rows
        with build_files.open_run(driver.work.place, run) as local:
            size += int(local.run.mapped("size")[:rows].sum())
    return count, size


def _look(driver: Driver) -> Callable[[], None]:
    """Returns a function that counts new shards."""
    files = NewFiles(driver.work.place, SHARDS)

    def look() -> None:
        for name, size in files.look():
            if sidecars.kind_of(name) is None:
                driver.meter.add(driver.meter.progress.split, 0, size)

    return look


def _result(
    item: SplitInput, found: GeneratedRuns, tasks: Sequence[ShardTask], totals: ChecksumTotals,
    done: Mapping[str, WrittenShard],
) -> SplitResult:  # fmt: skip
    """Returns the result of a split; raises unless its shards are complete and add up."""
    written = []
    for task in tasks:
        one = done.get(task.name)
        if one is None:
            raise run_files.lost(item.name, "written", f"the shard {task.name}", "no such file")
        written.append(one)
    total = sum((one.tally for one in written), ChecksumTotals())
    expected = sum(task.count for task in tasks)
    # If the examples are limited, only their number is known beforehand.
    is_right = total == totals if expected == totals.count else total.count == expected
    if not is_right:
        raise run_files.lost(item.name, "written", totals, total)
    return shard_writing.split_result(
        item.name,
        [one.shard for one in written],
        total.bytes - total.count * tfrecord.OVERHEAD,
        found.state.units,
        {name: entry for one in written for name, entry in one.sidecars.items()},
    )
