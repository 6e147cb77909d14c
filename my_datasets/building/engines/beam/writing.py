"""The third pipeline: shards from parts, each read as a stream."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import apache_beam as beam
import google_crc32c
import numpy as np
import numpy.typing as npt

from my_datasets.building import shards
from my_datasets.building.engines import shard_files
from my_datasets.building.engines.beam.sorting import Part
from my_datasets.building.engines.beam.surroundings import Surroundings
from my_datasets.building.engines.beam.tally import Tally
from my_datasets.building.engines.beam.work import Work, published, read_json, tasks_in, write_json
from my_datasets.building.job import WriteShard
from my_datasets.building.journal import Shard
from my_datasets.building.runs import Columns, Run
from my_datasets.errors import CorruptShardError, LostExamplesError, explain
from my_datasets.records import index, stored, tfrecord
from my_datasets.records import keys as keys_of
from my_datasets.records.pieces import Bytes

# Records of about so many bytes are copied, and read back, at once.
_AT_ONCE = 4 << 20


@dataclass(frozen=True)
class ShardTask:
    """A shard to be written.

    Attributes:
      name: Its file name.
      count: The records it is to have.
      pieces: Parts, and the records of each: the first and the one after the last.
    """

    name: str
    count: int
    pieces: tuple[tuple[Run, int, int], ...]


@dataclass(frozen=True)
class WrittenShard:
    """A shard that was written, as its report says.

    Attributes:
      shard: The shard.
      tally: What its records add up to, as they were read back from the file.
    """

    shard: Shard
    tally: Tally

    @classmethod
    def read(cls, work: Work, name: str) -> "WrittenShard | None":
        """Returns a shard that is there; None if it is not."""
        said = read_json(report_path(work, name))
        path = work.shards / name
        if said is None or not path.is_file() or path.stat().st_size != said["shard"]["bytes"]:
            return None
        return cls(Shard(**said["shard"]), Tally.from_json(said["tally"]))


def report_path(work: Work, name: str) -> Path:
    """Returns where the report of a shard is."""
    return work.directory / "shard reports" / f"{name}.json"


def tasks(parts: Sequence[Part], count: int, names: Sequence[str]) -> Iterator[ShardTask]:
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
        yield ShardTask(name, end - begin, tuple(pieces))


def add_writing(
    pipeline: beam.Pipeline, paths: Sequence[str], work: Work, write_shard: WriteShard | None,
    file_format: str, surroundings: Surroundings, *, with_keys: bool,
) -> None:  # fmt: skip
    """Adds the writing of shards to a pipeline.

    Args:
      pipeline: The pipeline.
      paths: Files of `ShardTask`s.
      work: The work directory.
      write_shard: Writes a shard in another format than TFRecord; None for TFRecord.
      file_format: The format.
      surroundings: What workers must find.
      with_keys: Whether the hashes of keys are written beside shards.
    """
    writer = WriteShards(work, write_shard, file_format, surroundings, with_keys=with_keys)
    _ = (
        pipeline
        | "Files of shards" >> beam.Create(list(paths), reshuffle=False)
        | "Read shards" >> beam.FlatMap(tasks_in)
        | "Spread shards" >> beam.Reshuffle()
        | "Write shards" >> beam.ParDo(writer)
    )


class WriteShards(beam.DoFn):  # type: ignore[misc]
    """Writes shards, and reads them back."""

    def __init__(
        self, work: Work, write_shard: WriteShard | None, file_format: str,
        surroundings: Surroundings, *, with_keys: bool,
    ) -> None:  # fmt: skip
        """Takes what a worker needs."""
        self._with_keys = with_keys
        self._work = work
        self._write_shard = write_shard
        self._file_format = file_format
        self._surroundings = surroundings

    def setup(self) -> None:
        """Sees that this worker is like the building process."""
        with self._work.telling_failures():
            self._surroundings.check()

    def process(self, task: ShardTask) -> None:
        """Writes a shard, its index and its report."""
        with self._work.telling_failures():
            path = self._work.shards / task.name
            with published(path) as partial:
                shard, _, keys = shard_files.write(
                    task.name, task.count, partial, _records(task), self._write_shard
                )
                found, offsets = _read_back(partial, self._file_format)
                _check(task, found)
                if self._write_shard is None:
                    with published(index.path_of(path)) as sidecar:
                        index.save(sidecar, offsets)
                if self._with_keys:
                    with published(keys_of.path_of(path)) as sidecar:
                        keys_of.save(sidecar, keys)
            said = {"shard": asdict(shard), "tally": found.to_json()}
            write_json(report_path(self._work, task.name), said)


def _records(task: ShardTask) -> Iterator[tuple[Bytes, Columns]]:
    """Yields the framed records of a shard, in portions, with their hashes and sizes."""
    for run, first, last in task.pieces:
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
        for records in stored.records(path, file_format):
            found = np.fromiter(map(google_crc32c.value, records), np.uint32, len(records))
            checksums += int(tfrecord.masked(found).sum(dtype=np.uint64))
            sizes.append(np.fromiter(map(len, records), np.uint64, len(records)))
    except stored.DamagedError as error:
        raise CorruptShardError(
            explain(
                f"{path.name} is not on the disk as it was written: {error}",
                mend="see to the disk, or to the network's, then run the same again",
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
                mend="run the same again; if it stays, please report it",
            )
        )
