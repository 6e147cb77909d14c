"""The third pipeline: shards from parts, each read as a stream."""

import itertools
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import apache_beam as beam
import google_crc32c
import numpy as np
import numpy.typing as npt

from my_datasets.building import shards
from my_datasets.building.engines import shard_files
from my_datasets.building.engines.beam.pipelines.checksum_totals import Tally
from my_datasets.building.engines.beam.pipelines.sorting import SortedBucket
from my_datasets.building.engines.beam.workers.environment_check import Surroundings
from my_datasets.building.engines.beam.workspace import local_runs
from my_datasets.building.engines.beam.workspace.build_files import BuildFiles
from my_datasets.building.engines.beam.workspace.workspace import Place
from my_datasets.building.job import Examine, WriteShard
from my_datasets.building.journal import FinishedShard
from my_datasets.building.runs import Columns, Run
from my_datasets.errors import CorruptShardError, LostExamplesError, explain
from my_datasets.metadata import recorded_files
from my_datasets.records import shard_reader, tfrecord
from my_datasets.records.tf_example.pieces import Bytes

# Records of about so many bytes are copied, and read back, at once.
_AT_ONCE = 4 << 20
# Where finished shards are, their reports, and what was found in them.
SHARDS, REPORTS, FINDINGS = "shards", "shard reports", "findings"
SUMMARY = ".pickle"


@dataclass(frozen=True)
class HowShards:
    """How shards are written; workers get a copy of it.

    Attributes:
      write_shard: Writes a shard in another format than TFRecord; None for TFRecord.
      file_format: The format.
      with_keys: Whether the hashes of keys are written beside shards.
      examine: Looks at a shard once it is written.
    """

    write_shard: WriteShard | None
    file_format: str
    with_keys: bool
    examine: Examine


@dataclass(frozen=True)
class ShardTask:
    """A shard to be written.

    Attributes:
      name: Its file name.
      count: The records it is to have.
      of: Those that its split has.
      pieces: Parts, and the records of each: the first and the one after the last.
    """

    name: str
    count: int
    of: int
    pieces: tuple[tuple[Run, int, int], ...]


@dataclass(frozen=True)
class WrittenShard:
    """A shard that was written, as its report says.

    Attributes:
      shard: The shard.
      tally: What its records add up to, as they were read back from the file.
      sidecars: The size and SHA-256 of the files beside it, by name.
    """

    shard: FinishedShard
    tally: Tally
    sidecars: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, said: Mapping[str, Any], sizes: Mapping[str, int]) -> "WrittenShard | None":
        """Returns a shard; None if its files are not as its report says.

        Args:
          said: The report.
          sizes: Those of the files that are there, by their names.
        """
        shard = FinishedShard(**said["shard"])
        if any(sizes.get(name) != size for name, (size, _) in shard.files.items()):
            return None
        return cls(shard, Tally.from_json(said["tally"]), said["sidecars"])


def report_of(name: str) -> str:
    """Returns where the report of a shard is."""
    return f"{REPORTS}/{name}.json"


def tasks(parts: Sequence[SortedBucket], count: int, names: Sequence[str]) -> Iterator[ShardTask]:
    """Yields the shards of a split.

    Args:
      parts: Its parts that have records, in their order.
      count: How many records it is to have: the first ones.
      names: The file names of the shards.
    """
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
    """Returns where what was found in a shard is put."""
    return f"{FINDINGS}/{name}"


def add_writing(
    pipeline: beam.Pipeline, files: Sequence[str], work: BuildFiles, how: HowShards,
    surroundings: Surroundings,
) -> None:  # fmt: skip
    """Adds the writing of shards to a pipeline.

    Args:
      pipeline: The pipeline.
      files: Those with `ShardTask`s, by their names.
      work: Where parts are, and shards come.
      how: How shards are written.
      surroundings: What workers must find.
    """
    _ = (
        pipeline
        | "Files of shards" >> beam.Create(list(files), reshuffle=False)
        | "Read shards" >> beam.FlatMap(work.tasks_in)
        | "Spread shards" >> beam.Reshuffle()
        | "Write shards" >> beam.ParDo(WriteShards(work, how, surroundings))
    )


class WriteShards(beam.DoFn):  # type: ignore[misc]
    """Writes shards, and reads them back."""

    def __init__(self, work: BuildFiles, how: HowShards, surroundings: Surroundings) -> None:
        """Takes what a worker needs."""
        self._work = work
        self._how = how
        self._surroundings = surroundings

    def setup(self) -> None:
        """Sees that this worker is like the building process."""
        with self._work.telling_failures():
            self._surroundings.check()

    def process(self, task: ShardTask) -> None:
        """Writes a shard, what lies beside it, what was found in it, and its report."""
        work, how = self._work, self._how
        with work.telling_failures(), work.place.draft() as directory:
            path = Path(directory) / task.name
            records = _records(work.place, task)
            shard, _, keys = shard_files.write(path, task.count, records, how.write_shard)
            found, offsets = _read_back(path, how.file_format)
            _check(task, found)
            shard = shard_files.with_sidecars(
                shard, path, offsets if how.write_shard is None else None,
                keys if how.with_keys else None,
            )  # fmt: skip
            sidecars = recorded_files.of_files(path.parent, {path.name})
            self._examine(path, task)
            for name in shard.files:
                work.place.put(Path(directory) / name, f"{SHARDS}/{name}")
            said = {"shard": asdict(shard), "tally": found.to_json(), "sidecars": sidecars}
            work.write_json(report_of(task.name), said)

    def _examine(self, path: Path, task: ShardTask) -> None:
        place = self._work.place
        with place.draft() as directory:
            found = self._how.examine(path, task.count, task.of, Path(directory))
            for each in sorted(Path(directory).iterdir()):
                place.put(each, f"{findings_of(task.name)}/{each.name}")
        place.write(f"{findings_of(task.name)}{SUMMARY}", pickle.dumps(found))


def _records(place: Place, task: ShardTask) -> Iterator[tuple[Bytes, Columns]]:
    """Yields the framed records of a shard, in portions, with their hashes and sizes."""
    for part, first, last in task.pieces:
        with local_runs.opened(place, part) as here:
            here.bring(first, last)
            yield from _portions(here.run, first, last)


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


def _read_back(path: Path, file_format: str) -> tuple[Tally, npt.NDArray[np.uint64]]:
    """Returns what the records of a file add up to, and where they begin if they are TFRecords.

    From the file alone: its lengths are followed, and each record's checksum is made anew.
    """
    checksums, sizes = 0, [np.zeros(1, np.uint64)]
    try:
        for records in shard_reader.records(path, file_format):
            found = np.fromiter(map(google_crc32c.value, records), np.uint32, len(records))
            checksums += int(tfrecord.masked(found).sum(dtype=np.uint64))
            sizes.append(np.fromiter(map(len, records), np.uint64, len(records)))
    except shard_reader.DamagedError as error:
        raise CorruptShardError(
            explain(
                f"{path.name} is not on the disk as it was written: {error}",
                fix="see to the disk, or to the network's, then run the same again",
            )
        ) from error
    lengths = np.concatenate(sizes)
    lengths[1:] += np.uint64(tfrecord.OVERHEAD)
    offsets = np.cumsum(lengths, dtype=np.uint64)
    return Tally(len(offsets) - 1, int(offsets[-1]), checksums % 2**64), offsets


def _check(task: ShardTask, found: Tally) -> None:
    if found.count != task.count:
        raise LostExamplesError(
            explain(
                f"The shard {task.name} does not add up.",
                f"Expected: {task.count:,} records; read back: {found.count:,}",
                fix="run the same again; if it stays, please report it",
            )
        )
