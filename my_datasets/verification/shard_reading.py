"""Reading shards: what is wrong with each, here or in processes, and what a run before has done."""

import contextlib
import errno
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from my_datasets.comparison import reader_pool
from my_datasets.comparison.version_metadata import ComparedVersion
from my_datasets.core.issue import Issue
from my_datasets.errors import DiskFullError, explain
from my_datasets.input_pipeline.decode.decoder import Decoder
from my_datasets.verification import checkpoint, observer
from my_datasets.verification.checks import examples, files, shards
from my_datasets.verification.observer import Watch
from my_datasets.verification.report import Level

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
# What is not there, or cannot be read, is told once.
NOT_TO_BE_READ = frozenset({"missing-shard", "link", "no-file", "unreadable-shard"})


@dataclass(frozen=True)
class Task:
    """A shard that is read.

    Attributes:
      number: Its number among all shards.
      name: Its name.
      examples: How many it is declared to have.
      size: Its size in bytes.
    """

    number: int
    name: str
    examples: int
    size: int


class Worker:
    """Looks at shards, here or in a process of its own."""

    def __init__(
        self,
        subject: ComparedVersion,
        level: Level,
        decoder: Decoder | None,
        directory: Path,
        watches: Sequence[Watch],
    ) -> None:
        """Prepares.

        Args:
          subject: The version.
          level: How much is looked at.
          decoder: Takes examples apart; None if they are only hashed.
          directory: Where notes are put.
          watches: What else is noted of examples.
        """
        self._subject = subject
        self._level = level
        self._decoder = decoder
        self._directory = directory
        self._watches = watches
        said = subject.content
        made = [one for split in said.splits.values() for one in split.shards] if said else []
        self._sha256 = {one.name: one.sha256 for one in made}
        self._known = {one.sha256: one.name for one in made}

    def handle(self, task: Task) -> list[Issue]:
        """Returns what is wrong with a shard; notes on its examples are in files afterwards."""
        path = self.path_of(task)
        form = self.file_format
        try:
            issues = list(
                shards.check(path, form, task.examples, self._sha256.get(task.name), self._known)
            )
            if self._level is Level.DEEP:
                is_damaged = any(issue.code == "damaged" for issue in issues)
                with contextlib.ExitStack() as stack:
                    notes = self.hashes_of(task)
                    hashes = stack.enter_context(notes.open("wb"))
                    takers = [
                        stack.enter_context(watch.noting(observer.file_of(notes, watch)))
                        for watch in self._watches
                    ]
                    more = examples.check(path, form, self._decoder, hashes, takers)
                issues += [] if is_damaged else more
        except OSError as error:
            if error.errno in _FULL:  # of notes, as nothing else is written
                raise _no_room(self._directory) from error
            return [files.denied(path, error)]
        return issues

    def finish(self) -> None:
        """Nothing is left to do."""

    @property
    def file_format(self) -> str:
        """The format of the shards."""
        return self._subject.declared.file_format if self._subject.declared else "tfrecord"

    def path_of(self, task: Task) -> Path:
        """Returns where a shard lies."""
        return self._subject.path / task.name

    def hashes_of(self, task: Task) -> Path:
        """Returns where the hashes of a shard's examples are put."""
        return self._directory / str(task.number)

    def notes_of(self, task: Task) -> list[Path]:
        """Returns all files with notes on a shard."""
        notes = self.hashes_of(task)
        if self._level is not Level.DEEP:
            return []
        return [notes, *(observer.file_of(notes, watch) for watch in self._watches)]


def tasks(subject: ComparedVersion, not_to_be_read: set[str]) -> list[Task]:
    """Returns the shards of a version that can be read."""
    if subject.declared is None:
        return []
    shards = [one for some in subject.declared.splits.values() for one in some]
    return [
        Task(number, one.name, one.examples, (subject.path / one.name).stat().st_size)
        for number, one in enumerate(shards)
        if one.name not in not_to_be_read
    ]


def with_kept(
    tasks: Sequence[Task], worker: Worker, workers: int, scratch: checkpoint.Scratch
) -> Iterator[tuple[Task, list[Issue], bool]]:
    """Yields what was found in each shard, and whether a run before has found it."""
    left = []
    for task in tasks:
        kept = scratch.kept(worker.path_of(task), worker.notes_of(task))
        if kept is None:
            left.append(task)
        else:
            yield task, kept, True
    for task, found in reader_pool.each(
        left, worker, workers, size=sum(task.size for task in left), file_format=worker.file_format,
        describe=lambda task: f"shard {task.name}",
    ):  # fmt: skip
        # What hinders from reading may be gone without a trace.
        if not any(issue.code in NOT_TO_BE_READ for issue in found):
            scratch.keep(worker.path_of(task), found, worker.notes_of(task))
        yield task, found, False


def _no_room(directory: Path) -> DiskFullError:
    return DiskFullError(
        explain(
            f"The disk is full: notes on the examples cannot be written into {directory}.",
            "They take 32 bytes for each example, and more for near-duplicates.",
            fix="free some space there, or set MY_DATASETS_HOME to another directory",
        )
    )
