"""A single pass over all examples of a version: hashes, statistics and constraint violations.

Shards are read in this process, or in several if that is faster.
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, TypeVar

from my_datasets.building.engines import process_pool
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
from my_datasets.core.hash_sets import DuplicateHashes, HashFiles
from my_datasets.metadata import content
from my_datasets.metadata.content import ShardContent, SplitContent
from my_datasets.metadata.dataset_info import Declared
from my_datasets.metadata.features import Leaf
from my_datasets.records import shard_reader
from my_datasets.records.random_access import RecordBatch
from my_datasets.records.tf_example.columns import Column, UnreadableRecordError
from my_datasets.records.tf_example.parsing import Parser
from my_datasets.statistics.constraints import Constraint, ConstraintChecker, Violation
from my_datasets.statistics.feature import SplitStatistics
from my_datasets.statistics.values import LabelStatistics

# Maximum number of classes without examples to list.
_MOST_LISTED = 5


@dataclass(frozen=True)
class Violated:
    """Values of a split that violate a constraint.

    Attributes:
      place: The shard and the record of the first violation.
      violation: The first violation, with the total count.
    """

    place: str
    violation: Violation


@dataclass
class Examined:
    """The results for a split.

    Attributes:
      hashes: The hashes of the examples of each part, in order.
      statistics: The statistics of the examples; None if only TFDS can read the features.
      violated: The constraint violations, by feature and rule.
      values: The hashes of values that must be unique, by feature; in the same parts as `hashes`.
    """

    hashes: HashFiles = field(default_factory=HashFiles)
    statistics: SplitStatistics | None = None
    violated: dict[tuple[str, str], Violated] = field(default_factory=dict)
    values: dict[str, HashFiles] = field(default_factory=dict)

    def content(self, shards: Sequence[ShardContent]) -> SplitContent:
        """Returns the manifest's entry on the examples in these shards."""
        return SplitContent(
            self.hashes.hashes, content.ordered(self.hashes),
            content.unordered(self.hashes), tuple(shards),
        )  # fmt: skip


def note(found: dict[tuple[str, str], Violated], key: tuple[str, str], one: Violated) -> None:
    """Adds violations to the earlier ones of the same feature and rule."""
    first = found.setdefault(key, one)
    if first is not one:
        count = first.violation.count + one.violation.count
        found[key] = Violated(first.place, replace(first.violation, count=count))


def violations(
    found: Mapping[str, Examined], declared: Mapping[str, Constraint]
) -> Iterator[tuple[str, str]]:
    """Yields each feature with a violated constraint, and a description of the violation."""
    for name, split in found.items():
        for each in split.violated.values():
            one = each.violation
            others = f", and {one.count - 1:,} more" if one.count > 1 else ""
            rule = one.rule if one.expected == str(True) else f"{one.rule} is {one.expected}"
            shown = one.found or "nothing"
            yield one.feature, f"{rule}; found {shown} in {name} ({each.place}{others})"
        for feature in split.statistics.features if split.statistics else []:
            constraint = declared.get(feature.leaf.name)
            if constraint and constraint.all_labels and isinstance(feature.values, LabelStatistics):
                missing = feature.values.without_examples()
                if missing:
                    shown = ", ".join(missing[:_MOST_LISTED])
                    yield feature.leaf.name, f"all_labels; {name} has no {shown}"
    for feature_name, constraint in declared.items():
        if constraint.unique:
            yield from _repeated(feature_name, found)


def _repeated(feature: str, found: Mapping[str, Examined]) -> Iterator[tuple[str, str]]:
    """Yields the feature and a description if values are not unique."""
    parts = {name: split.values.get(feature, HashFiles()) for name, split in found.items()}
    copies = DuplicateHashes.of(
        HashFiles(path for some in parts.values() for path in some.paths), 1
    )
    for pair in copies.places:
        one, other = (_place_in(parts, place) for place in pair)
        message = f"unique; found {copies.copies:,} that came before, such as {other}, as {one}"
        yield feature, message


def _place_in(parts: Mapping[str, HashFiles], place: int) -> str:
    for name, some in parts.items():
        if place < some.hashes:
            return f"value {place:,} of {name}"
        place -= some.hashes
    raise IndexError(place)


# Less data than this is read by a single process.
FEW_BYTES = 16 << 20


_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

# Bytes of records parsed together if a record may have many numbers: a byte becomes eight, and
# several times as many temporarily.
_BYTES_OF_LISTS = 1 << 20
# File name for the hashes of a shard that is examined on its own.
_HASHES = "hashes"


def read_each(
    tasks: Sequence[_Task],
    reader: process_pool.Handler[_Task, _Result],
    workers: int,
    *,
    size: int,
    file_format: str,
    describe: Callable[[_Task], str],
) -> Iterator[tuple[_Task, _Result]]:
    """Yields each task with the reader's result, in any order.

    The tasks are shards, or parts of them, of `size` bytes in all. The reader is copied into worker
    processes. `describe` returns a task's name for errors.
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
    examination: Examination,
    *,
    workers: int,
    report: Callable[[str, int], None] = lambda _split, _bytes: None,
) -> dict[str, Examined]:
    """Reads all examples of a version once; returns the results by split.

    The hashes are in `scratch`, an empty directory, and take 32 bytes per example; results become
    invalid once it is deleted. `report` is called with the split and the size in bytes of each part
    that has been read.

    Raises:
      CorruptShardError: A shard is damaged or missing, or does not have the declared number of
        records.
      DataDirError: The file format is not supported.
    """
    tasks = list(parts_of(version_dir, declared, scratch, is_canonical=examination.is_canonical))
    found = {name: Examined() for name in declared.splits}
    waiting: dict[int, PartResult] = {}
    done = read_each(
        tasks, _Worker(examination), workers, size=sum(task.size for task in tasks),
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
            part = waiting.pop(next_one)
            if of_shard is None:
                of_shard = part
            else:
                _add(of_shard, part)
            _add_files(found[own_task.split], own_task.target, examination)
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


def examine_shard(
    examination: Examination, file_format: str, shard: Path, examples: int, of: int, folder: Path
) -> PartResult:
    """Examines one shard that this package has just written, on any machine.

    `of` is the number of examples in its split, and `folder` an empty directory for the hashes,
    which `joined` requires.
    """
    size, target = shard.stat().st_size, folder / _HASHES
    whole = ShardPart(0, "", shard, file_format, target, examples, size, of)
    worker = _Worker(examination)
    with worker.writing(whole) as files:
        first, *rest = cut(whole, is_canonical=examination.is_canonical)
        result = worker.examined(first, files)
        for part in rest:
            _add(result, worker.examined(part, files))
        return result


def joined(shards: Iterable[tuple[Path, PartResult]], examination: Examination) -> Examined:
    """Returns the results for a split, given the folder and the results of `examine_shard`."""
    found = Examined()
    for folder, one in shards:
        _add_files(found, folder / _HASHES, examination)
        _add(found, one)
    return found


def _add_files(found: Examined, target: Path, examination: Examination) -> None:
    found.hashes.append(target)
    for number, (name, constraint) in enumerate(examination.constraints.items()):
        if constraint.unique:
            found.values.setdefault(name, HashFiles()).append(values_of(target, number))


def _add(found: Examined | PartResult, one: PartResult) -> None:
    if found.statistics is None:
        found.statistics = one.statistics
    elif one.statistics is not None:
        found.statistics.merge(one.statistics)
    for key, violated in one.violated.items():
        note(found.violated, key, violated)


class _Worker:
    """Examines parts of shards, in this process or in another one."""

    def __init__(self, examination: Examination) -> None:
        self._examination = examination
        statistics = SplitStatistics(examination.leaves or [])
        self._parser = Parser(statistics.keys)
        self._checks = [
            (number, ConstraintChecker(feature, examination.constraints[feature.leaf.name]))
            for number, name in enumerate(examination.constraints)
            for feature in statistics.features
            if feature.leaf.name == name
        ]

    @contextlib.contextmanager
    def writing(self, task: ShardPart) -> Iterator[tuple[BinaryIO, dict[int, BinaryIO]]]:
        """Opens the files for hashes: of examples, and by constraint, of values to be unique."""
        with contextlib.ExitStack() as stack:
            values: dict[int, BinaryIO] = {
                number: stack.enter_context(values_of(task.target, number).open("xb"))
                for number, constraint in enumerate(self._examination.constraints.values())
                if constraint.unique
            }
            hashes: BinaryIO = stack.enter_context(task.target.open("xb"))
            yield hashes, values

    def handle(self, task: ShardPart) -> PartResult:
        with self.writing(task) as files:
            return self.examined(task, files)

    def examined(
        self, task: ShardPart, files: tuple[BinaryIO, Mapping[int, BinaryIO]]
    ) -> PartResult:
        """Returns the results for a part, after appending its hashes to the files."""
        examination, row = self._examination, task.begin
        statistics = (
            None if examination.leaves is None else SplitStatistics(examination.leaves, task.of)
        )
        result = PartResult(statistics, {})
        for batch, hashes in batches(
            task,
            _most_bytes(examination),
            is_canonical=examination.is_canonical,
            without=examination.without,
        ):
            hashes.tofile(files[0])
            if statistics is not None:
                try:
                    columns = self._parser(batch.data, batch.starts, batch.stops)
                except UnreadableRecordError as error:
                    raise unreadable(task.shard, row + error.row, error.reason) from error
                statistics.add(batch.data, columns, hashes)
                self._check(task, row, batch, columns, result, files[1])
            row += len(hashes)
        return result

    def _check(
        self,
        task: ShardPart,
        row: int,
        batch: RecordBatch,
        columns: Mapping[str, Column],
        result: PartResult,
        values: Mapping[int, BinaryIO],
    ) -> None:
        for number, check in self._checks:
            for violation in check.violations(batch.data, columns):
                place = f"{task.shard.name}, record {row + violation.row:,}"
                key = violation.feature, violation.rule
                note(result.violated, key, Violated(place, violation))
            for one in check.values(batch.data, columns) if number in values else ():
                values[number].write(hashlib.sha256(one).digest())

    def finish(self) -> None:
        pass


def _most_bytes(examination: Examination) -> int:
    """Returns how many bytes of records to parse together."""
    numbers = [leaf for leaf in examination.leaves or () if leaf.form == "number"]
    has_lists = any(leaf.sequence or leaf.shape for leaf in numbers if leaf.encoding == "none")
    return _BYTES_OF_LISTS if has_lists else BYTES
