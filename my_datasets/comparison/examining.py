"""One pass over all examples of a version: hashes, statistics, and what is not as declared."""

import contextlib
import functools
import hashlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from my_datasets.comparison import readers
from my_datasets.comparison.examined import Examined, Violated, note
from my_datasets.comparison.shard_parts import (
    BYTES,
    Part,
    batches,
    check_count,
    parts_of,
    unreadable,
)
from my_datasets.core.declared import Declared
from my_datasets.core.hashes import Hashes, Parts
from my_datasets.core.schema import Leaf
from my_datasets.records.columns import UnreadableRecordError
from my_datasets.records.parsing import Parser
from my_datasets.records.reading import Batch
from my_datasets.statistics.constraints import Checking, Constraint
from my_datasets.statistics.split import SplitStatistics

# Bytes of records that are taken apart together where one may hold many numbers: a byte becomes
# eight, and several times as many on the way.
_BYTES_OF_LISTS = 1 << 20

# What spreads work over other machines: yields tasks with what a function makes of them.
Distribute = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[tuple[Any, Any]]]


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
    tasks = list(parts_of(version_dir, declared, scratch, is_canonical=wanted.is_canonical))
    found = {name: Examined() for name in declared.splits}
    waiting: dict[int, _Result] = {}
    if distribute is None:
        done = readers.each(
            tasks, _Worker(wanted), workers, size=sum(task.size for task in tasks),
            file_format=declared.file_format, describe=lambda task: f"shard {task.shard.name}",
        )  # fmt: skip
    else:
        done = distribute(functools.partial(_handled, wanted), tasks)
    for task, result in done:
        waiting[task.number] = result
        if task.end is None:
            check_count(task.shard, task.examples, Parts([task.target]).hashes)
        report(task.split, task.size)
        # In their order, so that what is added up is always the same.
        while (number := sum(len(one.hashes) for one in found.values())) in waiting:
            _add(found[tasks[number].split], tasks[number], waiting.pop(number), wanted)
    return found


@dataclass
class _Result:
    statistics: SplitStatistics | None
    violated: dict[tuple[str, str], Violated]


def _handled(wanted: Wanted, task: Part) -> _Result:
    """Examines a part of a shard, in whichever process; also while another one does the same."""
    mark = secrets.token_hex(6)
    own = replace(task, target=task.target.with_name(f"{task.target.name}.{mark}"))
    result = _Worker(wanted).handle(own)
    for path in own.target.parent.glob(f"{own.target.name}*"):
        path.rename(path.with_name(path.name.replace(f".{mark}", "")))
    return result


def _add(found: Examined, task: Part, result: _Result, wanted: Wanted) -> None:
    found.hashes.append(task.target)
    if found.statistics is None:
        found.statistics = result.statistics
    elif result.statistics is not None:
        found.statistics.merge(result.statistics)
    for key, one in result.violated.items():
        note(found.violated, key, one)
    for number, (name, constraint) in enumerate(wanted.constraints.items()):
        if constraint.unique:
            found.values.setdefault(name, Parts()).append(task.values(number))


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

    def handle(self, task: Part) -> _Result:
        wanted = self._wanted
        statistics = None if wanted.leaves is None else SplitStatistics(wanted.leaves, task.of)
        result = _Result(statistics, {})
        with task.target.open("xb") as file, contextlib.ExitStack() as stack:
            values = {
                number: stack.enter_context(task.values(number).open("xb"))
                for number, constraint in enumerate(wanted.constraints.values())
                if constraint.unique
            }
            row, most = task.begin, _most_bytes(wanted)
            for batch, hashes in batches(
                task, most, is_canonical=wanted.is_canonical, without=wanted.without
            ):
                hashes.tofile(file)
                if result.statistics is not None:
                    self._look(task, row, batch, hashes, result, values)
                row += len(hashes)
        return result

    def _look(
        self,
        task: Part,
        row: int,
        batch: Batch,
        hashes: Hashes,
        result: _Result,
        values: Mapping[int, BinaryIO],
    ) -> None:
        try:
            columns = self._parser(batch.data, batch.starts, batch.stops)
        except UnreadableRecordError as error:
            raise unreadable(task.shard, row + error.row, error.reason) from error
        if result.statistics is not None:
            result.statistics.add(batch.data, columns, hashes)
        for number, check in self._checks:
            for violation in check.look(batch.data, columns):
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


def _most_bytes(wanted: Wanted) -> int:
    """Returns how many bytes of records are taken apart together."""
    numbers = [leaf for leaf in wanted.leaves or () if leaf.form == "number"]
    has_lists = any(leaf.sequence or leaf.shape for leaf in numbers if leaf.encoding == "none")
    return _BYTES_OF_LISTS if has_lists else BYTES
