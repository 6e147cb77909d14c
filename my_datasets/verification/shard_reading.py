"""Verifies shards and their examples, in processes, and reuses the results of an interrupted run.

A shard must have its recorded bytes, or the damaged record is named; its examples must match the
features.
"""

import contextlib
import errno
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from my_datasets.comparison import examine
from my_datasets.comparison.version_metadata import REBUILD, ComparedVersion
from my_datasets.core.issue import Issue
from my_datasets.errors import DiskFullError
from my_datasets.input_pipeline.decode.decoder import Decoder, FeatureMismatchError
from my_datasets.records import index, shard_reader
from my_datasets.records.random_access import RecordBatch
from my_datasets.records.tf_example import canonical
from my_datasets.records.tf_example.columns import UnreadableRecordError
from my_datasets.storage import regular_files
from my_datasets.verification import checkpoint, file_checks

# Takes the decoded values of some examples, nested like the features, in order.
OnExamples = Callable[[Any], None]


class ExampleObserver(Protocol):
    """Writes notes on examples, to one file per shard.

    `repr` must show all that the notes depend on besides the shard: a later run may reuse them.
    """

    @property
    def name(self) -> str:
        """A short unique name, for files."""

    def noting(self, target: Path) -> AbstractContextManager[OnExamples]:
        """Returns a function that takes a shard's examples, and writes notes to a file."""


@dataclass(frozen=True)
class ObservedShard:
    """A shard whose examples were all decoded; paths of its notes begin with `notes`."""

    path: Path
    file_format: str
    examples: int
    notes: Path

    def of(self, observer: ExampleObserver) -> Path:
        """Returns the file of a observer's notes."""
        return file_of(self.notes, observer)

    def record(self, row: int) -> bytes:
        """Reads a record again; raises an `IndexError` if the shard no longer has it."""
        begin = 0
        for records in shard_reader.records(self.path, self.file_format):
            if row < begin + len(records):
                return records[row - begin]
            begin += len(records)
        raise IndexError(row)


class Check(Protocol):
    """A check of the notes on all shards."""

    @property
    def observers(self) -> Sequence[ExampleObserver]:
        """The observers that write the notes."""

    @property
    def not_checked(self) -> Sequence[str]:
        """What could not be checked, and why; complete after `issues`."""

    def issues(self, splits: Mapping[str, Sequence[ObservedShard]]) -> Iterator[Issue]:
        """Yields issues, given the shards of each split in order."""


def file_of(notes: Path, observer: ExampleObserver) -> Path:
    """Returns the file of a observer's notes, given the prefix of such files."""
    return notes.with_name(f"{notes.name}.{observer.name}")


def place(shards: Sequence[ObservedShard], number: int) -> tuple[ObservedShard, int]:
    """Returns the shard of a split's example, and its row in the shard."""
    for shard in shards:
        if number < shard.examples:
            return shard, number
        number -= shard.examples
    raise IndexError(number)


def shown(shards: Sequence[ObservedShard], number: int) -> str:
    """Returns the place of a split's example, for a message."""
    shard, row = place(shards, number)
    return f"{shard.path.name}, record {row:,}"


# The maximum number of issues per shard.
_MOST_ISSUES = 5
# Records that are decoded together.
_AT_ONCE = 256

# Issues of shards that cannot be read; there is no second issue for them.
NOT_TO_BE_READ = frozenset({"missing-shard", "link", "no-file", "unreadable-shard"})


def check_shard(
    path: Path, file_format: str, examples: int, sha256: str | None, known: Mapping[str, str]
) -> Iterator[Issue]:
    """Yields the issues of a shard; reads all of it.

    `sha256` is that in the manifest, if any, and `known` has all shards' names by their SHA-256.
    """
    found = regular_files.sha256_of(path) if sha256 is not None else None
    if found is not None and found == sha256:
        if not index.matches(path):
            yield file_checks.stale_index(path, "other offsets")
        return
    other = known.get(found) if found is not None else None
    if other is not None:
        yield Issue(
            "swapped-shard", path.name, "The file is another shard of this version.",
            f"rename the shards, or {REBUILD}", found=other,
        )  # fmt: skip
        return
    count = 0
    try:
        for records in shard_reader.records(path, file_format):
            count += len(records)
    except shard_reader.UnknownFormatError:
        count = examples
    except shard_reader.DamagedError as error:
        yield damaged(path, error)
        return
    if count != examples:
        yield Issue(
            "count", path.name, "The number of records differs from the metadata.",
            REBUILD, f"{examples:,} records", f"{count:,} records",
        )  # fmt: skip
    elif not index.matches(path):
        yield file_checks.stale_index(path, "other offsets")
    if count == examples and sha256 is not None and found is not None:
        yield Issue(
            "other-bytes", path.name,
            "The shard differs from the manifest, although no record is damaged.",
            REBUILD, f"SHA-256 {sha256[:16]}", found[:16],
        )  # fmt: skip


def damaged(path: Path, error: shard_reader.DamagedError) -> Issue:
    """Returns the issue of a damaged shard."""
    where = f", byte {error.at:,}" if error.at is not None else ""
    return Issue("damaged", f"{path.name}, record {error.row:,}{where}", error.reason, REBUILD)


def check_examples(
    path: Path,
    file_format: str,
    decoder: Decoder | None,
    hashes: BinaryIO,
    callbacks: Sequence[OnExamples] = (),
) -> list[Issue]:
    """Returns the issues of a shard's examples; without a decoder, they are only hashed.

    The hashes are written up to the first damage. The callbacks get the values of examples that
    match the features.
    """
    issues: list[Issue] = []
    row = 0
    try:
        for records in shard_reader.records(path, file_format):
            hashes.write(canonical.hashes(records).data)
            for begin in range(0, len(records), _AT_ONCE):
                if decoder is None:
                    break
                try:
                    values = decoder(RecordBatch.of(records[begin : begin + _AT_ONCE]))
                except FeatureMismatchError as error:
                    if len(issues) < _MOST_ISSUES:
                        issues.append(_mismatch_issue(path, row + begin, error))
                    continue
                for callback in callbacks:
                    callback(values)
            row += len(records)
    except shard_reader.UnknownFormatError as error:
        issues.append(
            Issue(
                "unknown-format", path.name, "This file format is not supported.",
                "build the version as tfrecord, array_record or parquet", found=str(error),
            )
        )  # fmt: skip
    except shard_reader.DamagedError as error:
        issues.append(damaged(path, error))
    except UnreadableRecordError as error:
        issues.append(
            Issue(
                "no-example", f"{path.name}, record {row + error.row:,}",
                "The record is not a tf.Example.", REBUILD, found=error.reason,
            )
        )  # fmt: skip
    return issues


def _mismatch_issue(path: Path, begin: int, error: FeatureMismatchError) -> Issue:
    feature = f", feature {error.feature}" if error.feature else ""
    return Issue(
        "misfit", f"{path.name}, record {begin + error.rows[0]:,}{feature}",
        "The example does not match the features.", REBUILD, error.expected, error.found,
    )  # fmt: skip


@dataclass(frozen=True)
class Task:
    """A shard to read, with its number among all, its declared examples, and its bytes."""

    number: int
    name: str
    examples: int
    size: int


class Worker:
    """Verifies shards; can be sent to another process."""

    def __init__(
        self,
        subject: ComparedVersion,
        is_deep: bool,
        decoder: Decoder | None,
        directory: Path,
        observers: Sequence[ExampleObserver],
    ) -> None:
        """Reads nothing yet; without a decoder, examples are only hashed."""
        self._subject = subject
        self._is_deep = is_deep
        self._decoder = decoder
        self._directory = directory
        self._observers = observers
        recorded = subject.content.splits.values() if subject.content else ()
        shards = [one for split in recorded for one in split.shards]
        self._sha256 = {one.name: one.sha256 for one in shards}
        self._known = {one.sha256: one.name for one in shards}

    def handle(self, task: Task) -> list[Issue]:
        """Returns the issues of a shard, and writes notes on its examples."""
        path = self.path_of(task)
        form = self.file_format
        try:
            issues = list(
                check_shard(path, form, task.examples, self._sha256.get(task.name), self._known)
            )
            if self._is_deep:
                is_damaged = any(issue.code == "damaged" for issue in issues)
                with contextlib.ExitStack() as stack:
                    notes = self.hashes_of(task)
                    hashes = stack.enter_context(notes.open("wb"))
                    callbacks = [
                        stack.enter_context(observer.noting(file_of(notes, observer)))
                        for observer in self._observers
                    ]
                    more = check_examples(path, form, self._decoder, hashes, callbacks)
                issues += [] if is_damaged else more
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):  # only notes are written
                raise DiskFullError(
                    f"The disk is full: cannot write notes on the examples to {self._directory}.",
                    "They take 32 bytes per example, and more for near-duplicates.",
                    fix="free some space there, or set MY_DATASETS_HOME to another directory",
                ) from error
            return [file_checks.denied(path, error)]
        return issues

    def finish(self) -> None:
        """Does nothing."""

    @property
    def file_format(self) -> str:
        """The format of the shards."""
        return self._subject.declared.file_format if self._subject.declared else "tfrecord"

    def path_of(self, task: Task) -> Path:
        """Returns the path of a shard."""
        return self._subject.path / task.name

    def hashes_of(self, task: Task) -> Path:
        """Returns the file for the hashes of a shard's examples."""
        return self._directory / str(task.number)

    def notes_of(self, task: Task) -> list[Path]:
        """Returns all files of notes on a shard."""
        notes = self.hashes_of(task)
        if not self._is_deep:
            return []
        return [notes, *(file_of(notes, observer) for observer in self._observers)]


def tasks(subject: ComparedVersion, not_to_be_read: set[str]) -> list[Task]:
    """Returns the readable shards of a version."""
    shards = [one for some in subject.splits.values() for one in some]
    return [
        Task(number, one.name, one.examples, (subject.path / one.name).stat().st_size)
        for number, one in enumerate(shards)
        if one.name not in not_to_be_read
    ]


def with_checkpoint(
    tasks: Sequence[Task], worker: Worker, workers: int, scratch: checkpoint.Scratch
) -> Iterator[tuple[Task, list[Issue], bool]]:
    """Yields the issues of each shard, and whether an earlier run found them."""
    left = []
    for task in tasks:
        result = scratch.reusable(worker.path_of(task), worker.notes_of(task))
        if result is None:
            left.append(task)
        else:
            yield task, result, True
    for task, found in examine.read_each(
        left, worker, workers, size=sum(task.size for task in left), file_format=worker.file_format,
        describe=lambda task: f"shard {task.name}",
    ):  # fmt: skip
        # Reasons that prevent reading may disappear, so they are not kept.
        if not any(issue.code in NOT_TO_BE_READ for issue in found):
            scratch.record(worker.path_of(task), found, worker.notes_of(task))
        yield task, found, False
