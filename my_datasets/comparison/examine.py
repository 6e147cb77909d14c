"""A single pass over all examples of a version: hashes, statistics and constraint violations.

Shards are read in this process, or in several if that is faster.
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

from my_datasets.building.engines import process_pool
from my_datasets.comparison.findings import Examined, Violated, note
from my_datasets.comparison.shard_parts import (
    BYTES,
    ShardPart,
    batches,
    check_count,
    cut,
    parts_of,
    unreadable,
    values_of,
)
from my_datasets.core.hash_sets import Hashes, HashFiles
from my_datasets.metadata.dataset_info import Declared
from my_datasets.metadata.features import Leaf
from my_datasets.records import shard_reader
from my_datasets.records.random_access import RecordBatch
from my_datasets.records.tf_example.columns import UnreadableRecordError
from my_datasets.records.tf_example.parsing import Parser
from my_datasets.statistics.constraints import Constraint, ConstraintChecker
from my_datasets.statistics.feature import SplitStatistics

# Less data than this is read by a single process.
FEW_BYTES = 16 << 20


_Task = TypeVar("_Task")
_Task_contra = TypeVar("_Task_contra", contravariant=True)
_Result = TypeVar("_Result")
_Result_co = TypeVar("_Result_co", covariant=True)

# Bytes of records parsed together if a record may have many numbers: a byte becomes eight, and
# several times as many temporarily.
_BYTES_OF_LISTS = 1 << 20
# File name for the hashes of a shard that is examined on its own.
_HASHES = "hashes"


class Reader(Protocol[_Task_contra, _Result_co]):
    """Processes shards; it is copied into worker processes."""

    def handle(self, task: _Task_contra, /) -> _Result_co:
        """Returns the result for a shard or a part of one."""

    def finish(self) -> None:
        """Ends the reader."""


def read_each(
    tasks: Sequence[_Task],
    reader: Reader[_Task, _Result],
    workers: int,
    *,
    size: int,
    file_format: str,
    describe: Callable[[_Task], str],
) -> Iterator[tuple[_Task, _Result]]:
    """Yields each task with the reader's result, in any order.

    Args:
      tasks: The shards, or parts of them, to read.
      reader: The reader.
      workers: The maximum number of processes.
      size: The total size of the tasks in bytes.
      file_format: The file format of the shards.
      describe: Returns a task's name for errors.
    """
    can_fork = process_pool.available() and shard_reader.can_be_read_forked(file_format)
    if workers == 1 or len(tasks) < 2 or size < FEW_BYTES or not can_fork:
        for task in tasks:
            yield task, reader.handle(task)
        return
    yield from process_pool.run(tasks, workers, lambda _: reader, lambda _: None, describe=describe)


@dataclass(frozen=True)
class Examination:
    """What to compute besides the hashes of examples.

    Attributes:
      leaves: The features to compute statistics of; None for none.
      constraints: The declared constraints, by feature name.
      is_canonical: Whether the records are known to be in canonical form.
      without: Features to leave out of the hashes.
    """

    leaves: Sequence[Leaf] | None = None
    constraints: Mapping[str, Constraint] = field(default_factory=dict)
    is_canonical: bool = False
    without: frozenset[str] = frozenset()


def examine(
    version_dir: Path,
    declared: Declared,
    scratch: Path,
    wanted: Examination,
    *,
    workers: int,
    report: Callable[[str, int], None] = lambda _split, _bytes: None,
) -> dict[str, Examined]:
    """Reads all examples of a version once.

    Args:
      version_dir: The version's directory.
      declared: The version's metadata.
      scratch: An empty directory for the hashes, which take 32 bytes per example.
      wanted: What to compute.
      workers: The number of processes that read.
      report: Called with the split and the size in bytes of each part that has been read.

    Returns:
      The results by split. They become invalid once `scratch` is deleted.

    Raises:
      CorruptShardError: A shard is damaged or missing, or does not have the declared number of
        records.
      DataDirError: The file format is not supported.
    """
    tasks = list(parts_of(version_dir, declared, scratch, is_canonical=wanted.is_canonical))
    found = {name: Examined() for name in declared.splits}
    waiting: dict[int, PartResult] = {}
    done = read_each(
        tasks, _Worker(wanted), workers, size=sum(task.size for task in tasks),
        file_format=declared.file_format, describe=lambda task: f"shard {task.shard.name}",
    )  # fmt: skip
    next_one = 0
    of_shard: PartResult | None = None
    for task, result in done:
        waiting[task.number] = result
        if task.end is None:
            check_count(task.shard, task.examples, HashFiles([task.target]).hashes)
        report(task.split, task.size)
        # In order, so that floating-point sums are reproducible.
        while next_one in waiting:
            own_task = tasks[next_one]
            of_shard = PartResult.joined(filter(None, (of_shard, waiting.pop(next_one))))
            _add_files(found[own_task.split], own_task.target, wanted)
            next_one += 1
            if next_one == len(tasks) or tasks[next_one].shard != own_task.shard:
                _add(found[own_task.split], of_shard)
                of_shard = None
    return found


@dataclass
class PartResult:
    """The results for some consecutive examples.

    Attributes:
      statistics: The statistics of the examples; None if only TFDS can read the features.
      violated: The constraint violations, by feature and rule.
    """

    statistics: SplitStatistics | None
    violated: dict[tuple[str, str], Violated]

    @classmethod
    def joined(cls, parts: Iterable["PartResult"]) -> "PartResult":
        """Returns the combined results of consecutive parts.

        Args:
          parts: The results of at least one part. Only one of them is in memory at a time.
        """
        rest = iter(parts)
        whole = next(rest)
        for part in rest:
            _add(whole, part)
        return whole


def examine_shard(
    wanted: Examination, file_format: str, shard: Path, examples: int, of: int, folder: Path
) -> PartResult:
    """Examines one shard that this package has just written, on any machine.

    `of` is the number of examples in its split, and `folder` an empty directory for the hashes,
    which `joined` requires.
    """
    size, target = shard.stat().st_size, folder / _HASHES
    whole = ShardPart(0, "", shard, file_format, target, examples, size, of)
    worker = _Worker(wanted)
    with worker.writing(whole) as files:
        parts = cut(whole, is_canonical=wanted.is_canonical)
        return PartResult.joined(worker.examined(part, files) for part in parts)


def joined(shards: Iterable[tuple[Path, PartResult]], wanted: Examination) -> Examined:
    """Returns the results for a split whose shards were examined separately.

    Args:
      shards: For each shard, the folder with its hashes, and its results.
      wanted: What was computed.
    """
    found = Examined()
    for folder, one in shards:
        _add_files(found, folder / _HASHES, wanted)
        _add(found, one)
    return found


def _add_files(found: Examined, target: Path, wanted: Examination) -> None:
    found.hashes.append(target)
    for number, (name, constraint) in enumerate(wanted.constraints.items()):
        if constraint.unique:
            found.values.setdefault(name, HashFiles()).append(values_of(target, number))


def _add(found: Examined | PartResult, one: PartResult) -> None:
    if found.statistics is None:
        found.statistics = one.statistics
    elif one.statistics is not None:
        found.statistics.merge(one.statistics)
    for key, violated in one.violated.items():
        note(found.violated, key, violated)


@dataclass(frozen=True)
class _Files:
    """Output files for the hashes of examples, and, by constraint, of values to be unique."""

    hashes: BinaryIO
    values: Mapping[int, BinaryIO]


class _Worker:
    """Examines parts of shards, in this process or in another one."""

    def __init__(self, wanted: Examination) -> None:
        self._wanted = wanted
        statistics = SplitStatistics(wanted.leaves or [])
        self._parser = Parser(statistics.keys)
        self._checks = [
            (number, ConstraintChecker(feature, wanted.constraints[feature.leaf.name]))
            for number, name in enumerate(wanted.constraints)
            for feature in statistics.features
            if feature.leaf.name == name
        ]

    @contextlib.contextmanager
    def writing(self, task: ShardPart) -> Iterator[_Files]:
        """Opens the files to which the hashes of some examples are written."""
        with contextlib.ExitStack() as stack:
            yield _Files(
                stack.enter_context(task.target.open("xb")),
                {
                    number: stack.enter_context(task.values(number).open("xb"))
                    for number, constraint in enumerate(self._wanted.constraints.values())
                    if constraint.unique
                },
            )

    def handle(self, task: ShardPart) -> PartResult:
        with self.writing(task) as files:
            return self.examined(task, files)

    def examined(self, task: ShardPart, files: _Files) -> PartResult:
        """Returns the results for a part, after appending its hashes to `files`."""
        wanted = self._wanted
        statistics = None if wanted.leaves is None else SplitStatistics(wanted.leaves, task.of)
        result = PartResult(statistics, {})
        row, most = task.begin, _most_bytes(wanted)
        for batch, hashes in batches(
            task, most, is_canonical=wanted.is_canonical, without=wanted.without
        ):
            hashes.tofile(files.hashes)
            if result.statistics is not None:
                self._look(task, row, batch, hashes, result, files.values)
            row += len(hashes)
        return result

    def _look(
        self,
        task: ShardPart,
        row: int,
        batch: RecordBatch,
        hashes: Hashes,
        result: PartResult,
        values: Mapping[int, BinaryIO],
    ) -> None:
        try:
            columns = self._parser(batch.data, batch.starts, batch.stops)
        except UnreadableRecordError as error:
            raise unreadable(task.shard, row + error.row, error.reason) from error
        if result.statistics is not None:
            result.statistics.add(batch.data, columns, hashes)
        for number, check in self._checks:
            for violation in check.violations(batch.data, columns):
                place = f"{task.shard.name}, record {row + violation.row:,}"
                key = violation.feature, violation.rule
                note(result.violated, key, Violated(place, violation))
            if number in values:
                digests = [
                    hashlib.sha256(one).digest() for one in check.values(batch.data, columns)
                ]
                values[number].write(b"".join(digests))

    def finish(self) -> None:
        pass


def _most_bytes(wanted: Examination) -> int:
    """Returns how many bytes of records to parse together."""
    numbers = [leaf for leaf in wanted.leaves or () if leaf.form == "number"]
    has_lists = any(leaf.sequence or leaf.shape for leaf in numbers if leaf.encoding == "none")
    return _BYTES_OF_LISTS if has_lists else BYTES
