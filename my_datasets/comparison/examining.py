"""One pass over all examples of a version: hashes, statistics, and what is not as declared."""

import contextlib
import functools
import hashlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from my_datasets.building.engines import processes
from my_datasets.core import content
from my_datasets.core.content import ShardContent, SplitContent
from my_datasets.core.declared import Declared
from my_datasets.core.hashes import Copies, Hashes, Parts
from my_datasets.core.schema import Leaf
from my_datasets.errors import CorruptShardError, DataDirError, explain
from my_datasets.records import canonical, index, stored
from my_datasets.records.columns import PADDING, UnreadableRecordError
from my_datasets.records.parsing import Parser
from my_datasets.records.reading import Batch, Records, Shard
from my_datasets.statistics.constraints import Checking, Constraint, Violation
from my_datasets.statistics.numbers import Labels
from my_datasets.statistics.split import SplitStatistics

# Records that are a task for a worker, and about how many bytes of them at most.
_RECORDS = 1 << 15
_BYTES = 8 << 20
# Bytes of records that are taken apart together where one may hold many numbers: a byte becomes
# eight, and several times as many on the way.
_BYTES_OF_LISTS = 1 << 20
# Of classes without an example so many are told.
_MOST_TOLD = 5
# Less than this is read by one process.
FEW_BYTES = 16 << 20

# What spreads work over other machines: yields tasks with what a function makes of them.
Distribute = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[tuple[Any, Any]]]


@dataclass(frozen=True)
class Violated:
    """Values of a split that are not what was declared of them.

    Attributes:
      place: The shard and the record of the first.
      violation: The first, with the number of all.
    """

    place: str
    violation: Violation


@dataclass
class Examined:
    """What was found in a split.

    Attributes:
      hashes: Those of the examples of each part, in their order.
      statistics: Of its examples; None if the features are of a kind that only TFDS reads.
      violated: What is not as it was declared, by feature and rule.
      values: Hashes of the values that must be unique, by feature; parts as of `hashes`.
    """

    hashes: Parts = field(default_factory=Parts)
    statistics: SplitStatistics | None = None
    violated: dict[tuple[str, str], Violated] = field(default_factory=dict)
    values: dict[str, Parts] = field(default_factory=dict)

    def content(self, shards: Sequence[ShardContent]) -> SplitContent:
        """Returns what the manifest says of the examples.

        Args:
          shards: The shards they are in.
        """
        return SplitContent(
            self.hashes.hashes, content.ordered(self.hashes),
            content.unordered(self.hashes), tuple(shards),
        )  # fmt: skip


@dataclass(frozen=True)
class Wanted:
    """What is looked for beside hashes.

    Attributes:
      leaves: The features whose statistics are made; None for none.
      constraints: What was declared of them, by their names.
      is_canonical: Whether the records are known to be in their canonical form.
      without: Features that are left out of the hashes.
    """

    leaves: Sequence[Leaf] | None = None
    constraints: Mapping[str, Constraint] = field(default_factory=dict)
    is_canonical: bool = False
    without: frozenset[str] = frozenset()


def examine(
    version_dir: Path,
    declared: Declared,
    scratch: Path,
    wanted: Wanted,
    *,
    workers: int,
    report: Callable[[str, int], None] = lambda _split, _bytes: None,
    distribute: Distribute | None = None,
) -> dict[str, Examined]:
    """Reads all examples of a version once.

    Args:
      version_dir: The version's directory.
      declared: What it declares.
      scratch: An empty directory for the hashes, 32 bytes of each example.
      wanted: What is looked for.
      workers: How many processes read.
      report: Is told the split and the bytes of each part that was read.
      distribute: Does the work elsewhere: gets a function and tasks, and yields each task with
        what the function makes of it, in any order. None for processes here.

    Returns:
      What was found, by split. It is of no use once `scratch` is gone.

    Raises:
      CorruptShardError: A shard is damaged, not there, or has another number of records than is
        declared.
      DataDirError: It is of a format that is not read here.
    """
    tasks = list(_tasks(version_dir, declared, scratch, wanted))
    found = {name: Examined() for name in declared.splits}
    waiting: dict[int, _Result] = {}
    if distribute is None:
        done = _results(tasks, _Worker(wanted), workers)
    else:
        done = distribute(functools.partial(_handled, wanted), tasks)
    for task, result in done:
        waiting[task.number] = result
        if task.end is None:
            _check_count(task.shard, task.examples, Parts([task.target]).hashes)
        report(task.split, task.size)
        # In their order, so that what is added up is always the same.
        while (number := sum(len(one.hashes) for one in found.values())) in waiting:
            _add(found[tasks[number].split], tasks[number], waiting.pop(number), wanted)
    return found


def violations(
    found: Mapping[str, Examined], declared: Mapping[str, Constraint]
) -> Iterator[tuple[str, str]]:
    """Yields features and what does not hold of them in a split, or between splits.

    Args:
      found: What was found.
      declared: What was declared, by the names of features.
    """
    for name, split in found.items():
        for place, one in ((each.place, each.violation) for each in split.violated.values()):
            others = f", and {one.count - 1:,} more" if one.count > 1 else ""
            rule = one.rule if one.expected == str(True) else f"{one.rule} is {one.expected}"
            there = one.found or "nothing"
            yield one.feature, f"{rule}; found {there} in {name} ({place}{others})"
        for feature in split.statistics.features if split.statistics else []:
            constraint = declared.get(feature.leaf.name)
            if constraint and constraint.all_labels and isinstance(feature.values, Labels):
                missing = feature.values.without_examples()
                if missing:
                    told = ", ".join(missing[:_MOST_TOLD])
                    yield feature.leaf.name, f"all_labels; {name} has no {told}"
    for feature_name, constraint in declared.items():
        if constraint.unique:
            yield from _repeated(feature_name, found)


def _repeated(feature: str, found: Mapping[str, Examined]) -> Iterator[tuple[str, str]]:
    """Yields the feature and a few words if values come twice."""
    parts = {name: split.values.get(feature, Parts()) for name, split in found.items()}
    copies = Copies.of(Parts(path for some in parts.values() for path in some.paths), 1)
    for first in copies.places:
        sizes = {name: some.hashes for name, some in parts.items()}
        one, other = (_counted_in(sizes, place) for place in first)
        told = f"unique; found {copies.copies:,} that came before, such as {other}, as {one}"
        yield feature, told


def _counted_in(sizes: Mapping[str, int], place: int) -> str:
    for name, size in sizes.items():
        if place < size:
            return f"value {place:,} of {name}"
        place -= size
    raise IndexError(place)


@dataclass(frozen=True)
class _Task:
    number: int
    split: str
    shard: Path
    file_format: str
    target: Path
    examples: int
    size: int
    # How many examples the split has.
    of: int
    # The records; all of them if there is no end.
    begin: int = 0
    end: int | None = None

    def values(self, feature: int) -> Path:
        """Returns where the hashes of a feature's values are put."""
        return self.target.with_name(f"{self.target.name}-{feature}")


@dataclass
class _Result:
    statistics: SplitStatistics | None
    violated: dict[tuple[str, str], Violated]


def _tasks(version_dir: Path, declared: Declared, scratch: Path, wanted: Wanted) -> Iterator[_Task]:
    number = 0
    form = declared.file_format
    for name, shards in declared.splits.items():
        total = sum(shard.examples for shard in shards)
        for shard in shards:
            path = version_dir / shard.name
            if not path.is_file():
                raise CorruptShardError(
                    explain(f"{path} is not there.", mend="build or pull the version anew")
                )
            size = path.stat().st_size
            whole = _Task(
                number, name, path, form, scratch / str(number), shard.examples, size, total
            )
            if form == "tfrecord" and wanted.is_canonical and shard.examples:
                parts = list(_parts(whole))
            else:
                parts = [whole]
            yield from parts
            number += len(parts)


def _parts(whole: _Task) -> Iterator[_Task]:
    """Yields parts of a shard that this package wrote, which only the shard decides."""
    _check_count(whole.shard, whole.examples, len(index.read(whole.shard)) - 1)
    step = max(1, min(_RECORDS, _BYTES * whole.examples // max(whole.size, 1)))
    for i, begin in enumerate(range(0, whole.examples, step)):
        end = min(begin + step, whole.examples)
        number = whole.number + i
        yield replace(
            whole, number=number, target=whole.target.with_name(str(number)), begin=begin, end=end,
            size=whole.size * (end - begin) // whole.examples,
        )  # fmt: skip


def _handled(wanted: Wanted, task: _Task) -> _Result:
    """Examines a part of a shard, in whichever process; also while another one does the same."""
    mark = secrets.token_hex(6)
    own = replace(task, target=task.target.with_name(f"{task.target.name}.{mark}"))
    result = _Worker(wanted).handle(own)
    for path in own.target.parent.glob(f"{own.target.name}*"):
        path.rename(path.with_name(path.name.replace(f".{mark}", "")))
    return result


def _results(
    tasks: Sequence[_Task], worker: "_Worker", workers: int
) -> Iterator[tuple[_Task, _Result]]:
    total = sum(task.size for task in tasks)
    if workers == 1 or total < FEW_BYTES or len(tasks) == 1 or not processes.available():
        for task in tasks:
            yield task, worker.handle(task)
        return
    yield from processes.run(
        tasks, workers, lambda _: worker, lambda _: None,
        describe=lambda task: f"shard {task.shard.name}",
    )  # fmt: skip


def _add(found: Examined, task: _Task, result: _Result, wanted: Wanted) -> None:
    found.hashes.append(task.target)
    if found.statistics is None:
        found.statistics = result.statistics
    elif result.statistics is not None:
        found.statistics.merge(result.statistics)
    for key, one in result.violated.items():
        _note(found.violated, key, one)
    for number, (name, constraint) in enumerate(wanted.constraints.items()):
        if constraint.unique:
            found.values.setdefault(name, Parts()).append(task.values(number))


def _note(found: dict[tuple[str, str], Violated], key: tuple[str, str], one: Violated) -> None:
    first = found.setdefault(key, one)
    if first is not one:
        count = first.violation.count + one.violation.count
        found[key] = Violated(first.place, replace(first.violation, count=count))


class _Worker:
    """Examines parts of shards, here or in a process of its own."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        statistics = SplitStatistics(wanted.leaves or [])
        self._parser = Parser(statistics.keys)
        self._checks = [
            (number, Checking(feature, wanted.constraints[feature.leaf.name]))
            for number, name in enumerate(wanted.constraints)
            for feature in statistics.features
            if feature.leaf.name == name
        ]

    def handle(self, task: _Task) -> _Result:
        wanted = self._wanted
        statistics = None if wanted.leaves is None else SplitStatistics(wanted.leaves, task.of)
        result = _Result(statistics, {})
        with task.target.open("xb") as file, contextlib.ExitStack() as stack:
            values = {
                number: stack.enter_context(task.values(number).open("xb"))
                for number, constraint in enumerate(wanted.constraints.values())
                if constraint.unique
            }
            row = task.begin
            for batch, hashes in _batches(task, wanted):
                hashes.tofile(file)
                if result.statistics is not None:
                    self._look(task, row, batch, hashes, result, values)
                row += len(hashes)
        return result

    def _look(
        self,
        task: _Task,
        row: int,
        batch: Batch,
        hashes: Hashes,
        result: _Result,
        values: Mapping[int, BinaryIO],
    ) -> None:
        try:
            columns = self._parser(batch.data, batch.starts, batch.stops)
        except UnreadableRecordError as error:
            raise _unreadable(task.shard, row + error.row, error.reason) from error
        if result.statistics is not None:
            result.statistics.add(batch.data, columns, hashes)
        for number, check in self._checks:
            for violation in check.look(batch.data, columns):
                place = f"{task.shard.name}, record {row + violation.row:,}"
                key = violation.feature, violation.rule
                _note(result.violated, key, Violated(place, violation))
            if number in values:
                digests = [
                    hashlib.sha256(one).digest() for one in check.values(batch.data, columns)
                ]
                values[number].write(b"".join(digests))

    def finish(self) -> None:
        pass


def _batches(task: _Task, wanted: Wanted) -> Iterator[tuple[Batch, Hashes]]:
    """Yields records of a part of a shard, and their hashes; errors as of `examine`."""
    most = _most_bytes(wanted)
    if task.end is not None:
        step = max(1, (task.end - task.begin) * most // max(task.size, 1))
        shard = Records([Shard(task.shard, task.examples)], [(0, task.examples)])
        for begin in range(task.begin, task.end, step):
            batch = shard.read(np.arange(begin, min(begin + step, task.end)))
            view, sha256 = batch.data.data, hashlib.sha256
            places = zip(batch.starts.tolist(), batch.stops.tolist(), strict=True)
            yield batch, canonical.joined([sha256(view[a:b]).digest() for a, b in places])
        return
    row = 0
    try:
        for records in _gathered(stored.records(task.shard, task.file_format), most):
            if wanted.is_canonical:
                hashes = canonical.joined([hashlib.sha256(one).digest() for one in records])
            else:
                hashes = canonical.hashes(records, wanted.without)
            yield _batch(records), hashes
            row += len(records)
    except stored.UnknownFormatError as error:
        raise DataDirError(
            explain(
                f"{task.shard} is of the format {task.file_format}.",
                "Expected: tfrecord, array_record or parquet",
                mend="build the version in one of those",
            )
        ) from error
    except stored.DamagedError as error:
        raise _damaged(task.shard, error.row, error.reason) from error
    except UnreadableRecordError as error:
        raise _unreadable(task.shard, row + error.row, error.reason) from error


def _most_bytes(wanted: Wanted) -> int:
    """Returns how many bytes of records are taken apart together."""
    numbers = [leaf for leaf in wanted.leaves or () if leaf.form == "number"]
    has_lists = any(leaf.sequence or leaf.shape for leaf in numbers if leaf.encoding == "none")
    return _BYTES_OF_LISTS if has_lists else _BYTES


def _gathered(parts: Iterator[list[bytes]], most: int) -> Iterator[list[bytes]]:
    """Yields as many records together as are best taken apart together."""
    found: list[bytes] = []
    held = 0
    for records in parts:
        found += records
        held += sum(map(len, records))
        if len(found) >= _RECORDS or held >= most:
            yield found
            found, held = [], 0
    if found:
        yield found


def _batch(records: Sequence[bytes]) -> Batch:
    sizes = np.array([len(record) for record in records], np.int64)
    stops = np.cumsum(sizes)
    data = np.frombuffer(b"".join([*records, bytes(PADDING)]), np.uint8)
    return Batch(data, stops - sizes, stops)


def _check_count(shard: Path, expected: int, found: int) -> None:
    if found != expected:
        raise CorruptShardError(
            explain(
                f"{shard} has {found:,} records.",
                f"Expected: {expected:,}, as dataset_info.json says",
                mend="build or pull the version anew",
            )
        )


def _damaged(shard: Path, row: int, reason: str) -> CorruptShardError:
    return CorruptShardError(
        explain(
            f"{shard} is damaged at record {row:,} (counted from 0).",
            reason,
            mend="build or pull the version anew",
        )
    )


def _unreadable(shard: Path, row: int, reason: str) -> CorruptShardError:
    return _damaged(shard, row, f"It is no tf.Example: {reason}.")
