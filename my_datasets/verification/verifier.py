"""`verify`: whether a prepared version is what its manifest, and its own checksums, say it is."""

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from my_datasets._version import __version__
from my_datasets.building.engines import processes
from my_datasets.comparison.examining import FEW_BYTES
from my_datasets.comparison.subject import Subject
from my_datasets.core import content, schema
from my_datasets.core.declared import MALFORMED
from my_datasets.core.hashes import Hashes, mapped
from my_datasets.core.issues import Issue, Severity
from my_datasets.core.machine import cores
from my_datasets.errors import (
    DiskFullError,
    FeatureError,
    MissingDependencyError,
    NotPreparedError,
    explain,
)
from my_datasets.input_pipeline.decoding import Decoder
from my_datasets.verification import resuming, watching
from my_datasets.verification.checks import (
    constraints,
    digests,
    drift,
    examples,
    files,
    metadata,
    shards,
)
from my_datasets.verification.checks.near_duplicates import NearDuplicateCheck, NearDuplicates
from my_datasets.verification.checks.splits import SplitDeclarations
from my_datasets.verification.watching import Check, Noted, Watch


class Level(StrEnum):
    """How much is looked at.

    `FAST` reads no shard: metadata, names and sizes. `BYTES` reads all shards and compares their
    SHA-256, or each record's checksum if that is not known or not right. `DEEP` takes each example
    apart, too, and compares digests.
    """

    FAST = "fast"
    BYTES = "bytes"
    DEEP = "deep"


@dataclass(frozen=True)
class Report:
    """What was found.

    Attributes:
      name: The version's full name.
      path: Its directory.
      level: How much was looked at.
      issues: What is wrong, errors first.
      examples: How many examples it is declared to have.
      bytes: The size of the shards that were looked at.
      digest: The digest of what is there: after a deep look without errors; else None.
      not_checked: What could not be looked at, and why.
      seconds: How long it took.
      was_rebuilt: Whether it was built again, and compared with that.
      resumed: How many shards were not read, as a run before that was interrupted has done it.
    """

    name: str
    path: str
    level: Level
    issues: tuple[Issue, ...]
    examples: int
    bytes: int
    digest: str | None
    not_checked: tuple[str, ...]
    seconds: float
    was_rebuilt: bool = False
    resumed: int = 0

    @property
    def is_good(self) -> bool:
        """Whether there is no error."""
        return not any(issue.severity is Severity.ERROR for issue in self.issues)

    def to_json(self) -> dict[str, Any]:
        """Returns it for scripts."""
        return {
            "name": self.name,
            "path": self.path,
            "level": self.level.value,
            "good": self.is_good,
            "examples": self.examples,
            "bytes": self.bytes,
            "digest": self.digest,
            "not_checked": list(self.not_checked),
            "rebuilt": self.was_rebuilt,
            "resumed": self.resumed,
            "seconds": round(self.seconds, 3),
            "issues": [issue.to_json() for issue in self.issues],
        }


@dataclass(frozen=True)
class Looked:
    """How far a verification is.

    Attributes:
      done: Bytes of shards that were looked at.
      total: Bytes of all shards.
      shard: The one that was finished last.
    """

    done: int
    total: int
    shard: str


def verify(
    version_dir: str | os.PathLike[str],
    *,
    level: Level = Level.BYTES,
    workers: int | None = None,
    report: Callable[[Looked], None] = lambda _: None,
    resume_dir: Path | None = None,
    restart: bool = False,
    near_duplicates: NearDuplicates | None = None,
) -> Report:
    """Looks whether a prepared version is what it is said to be; it is never changed.

    Args:
      version_dir: Its directory.
      level: How much is looked at.
      workers: How many processes read shards; None for one for each core.
      report: Is told of each shard that was looked at.
      resume_dir: Where it is kept, for all versions, which shards were looked at until all are:
        so a run that follows one that was interrupted reads the others only. None to keep nothing.
      restart: Whether what was kept there is not used.
      near_duplicates: What counts as nearly the same in two splits, for a deep look at images and
        texts, too; None to look for examples only that are the same.

    Returns:
      What was found. Whatever is wrong with the data is in it, not raised.

    Raises:
      NotPreparedError: There is no such directory.
      DiskFullError: There is no room for notes on the examples.
      BuildInterruptedError: A process that read shards died.
      MissingDependencyError: The extra `near-duplicates` is not installed, and needed.
    """
    began = time.monotonic()
    path = Path(version_dir).expanduser()
    if not path.is_dir():
        raise NotPreparedError(
            explain(
                f"{path} is not a directory.",
                "Expected: that of a prepared version",
                mend="give a reference such as digits, or a directory that my-datasets info shows",
            )
        )
    subject = Subject.read(path)
    issues = [*subject.issues, *metadata.check(subject), *files.check(subject)]
    issues += [*constraints.check_noted(subject), *drift.check(subject)]
    not_checked: list[str] = []
    tasks = _tasks(subject, {issue.node for issue in issues if issue.code in _NOT_TO_BE_READ})
    digest, resumed = None, 0
    if level is not Level.FAST:
        decoder = _decoder(subject, not_checked) if level is Level.DEEP else None
        checks = _checks(subject, decoder, near_duplicates) if level is Level.DEEP else []
        watches = [watch for check in checks for watch in check.watches]
        identity = {
            "software": __version__,
            "metadata": resuming.metadata_of(path),
            "decoded": decoder is not None,
            "watches": [repr(watch) for watch in watches],
        }
        with resuming.scratch(resume_dir, path, level.value, identity, restart=restart) as scratch:
            worker = _Worker(subject, level, decoder, scratch.directory, watches)
            found: dict[str, Hashes] = {}
            done, total = 0, sum(task.size for task in tasks)
            for task, result, was_kept in _with_kept(tasks, worker, workers or cores(), scratch):
                issues += result
                resumed += was_kept
                done += task.size
                report(Looked(done, total, task.name))
            are_read = all(worker.hashes_of(task).exists() for task in tasks)
            if level is Level.DEEP and are_read and len(tasks) == _declared(subject):
                found = {task.name: mapped(worker.hashes_of(task)) for task in tasks}
                splits = _by_split(subject, found)
                is_whole = not any(i.severity is Severity.ERROR for i in issues)
                if is_whole:
                    issues += digests.check(subject.content, splits)
                    noted = _noted(subject, worker, tasks)
                    issues += [issue for check in checks for issue in check.issues(noted)]
                    again = scratch.directory / "constraints"
                    issues += constraints.check_again(subject, again, workers or cores())
                if not any(i.severity is Severity.ERROR for i in issues):
                    digest = _digest(subject, splits)
                del found, splits  # mapped files in the directory
        not_checked += [note for check in checks for note in check.not_checked]
    issues.sort(key=lambda issue: (issue.severity is not Severity.ERROR, issue.node))
    return Report(
        subject.name, str(path), level, tuple(issues), _examples(subject),
        sum(task.size for task in tasks), digest, tuple(not_checked), time.monotonic() - began,
        resumed=resumed,
    )  # fmt: skip


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
# What is not there, or cannot be read, is told once.
_NOT_TO_BE_READ = frozenset({"missing-shard", "link", "no-file", "unreadable-shard"})


@dataclass(frozen=True)
class _Task:
    number: int
    name: str
    examples: int
    size: int


class _Worker:
    """Looks at shards, here or in a process of its own."""

    def __init__(
        self,
        subject: Subject,
        level: Level,
        decoder: Decoder | None,
        directory: Path,
        watches: Sequence[Watch],
    ) -> None:
        self._subject = subject
        self._level = level
        self._decoder = decoder
        self._directory = directory
        self._watches = watches
        said = subject.content
        made = [one for split in said.splits.values() for one in split.shards] if said else []
        self._sha256 = {one.name: one.sha256 for one in made}
        self._known = {one.sha256: one.name for one in made}

    def handle(self, task: _Task) -> list[Issue]:
        path = self.path_of(task)
        form = self._subject.declared.file_format if self._subject.declared else "tfrecord"
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
                        stack.enter_context(watch.noting(watching.file_of(notes, watch)))
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
        pass

    def path_of(self, task: _Task) -> Path:
        """Returns where a shard lies."""
        return self._subject.path / task.name

    def hashes_of(self, task: _Task) -> Path:
        """Returns where the hashes of a shard's examples are put."""
        return self._directory / str(task.number)

    def notes_of(self, task: _Task) -> list[Path]:
        """Returns all files with notes on a shard."""
        notes = self.hashes_of(task)
        if self._level is not Level.DEEP:
            return []
        return [notes, *(watching.file_of(notes, watch) for watch in self._watches)]


def _tasks(subject: Subject, not_to_be_read: set[str]) -> list[_Task]:
    if subject.declared is None:
        return []
    shards = [one for some in subject.declared.splits.values() for one in some]
    return [
        _Task(number, one.name, one.examples, (subject.path / one.name).stat().st_size)
        for number, one in enumerate(shards)
        if one.name not in not_to_be_read
    ]


def _with_kept(
    tasks: Sequence[_Task], worker: _Worker, workers: int, scratch: resuming.Scratch
) -> Iterator[tuple[_Task, list[Issue], bool]]:
    """Yields what was found in each shard, and whether a run before has found it."""
    left = []
    for task in tasks:
        kept = scratch.kept(worker.path_of(task), worker.notes_of(task))
        if kept is None:
            left.append(task)
        else:
            yield task, kept, True
    for task, found in _results(left, worker, workers, sum(task.size for task in left)):
        # What hinders from reading may be gone without a trace.
        if not any(issue.code in _NOT_TO_BE_READ for issue in found):
            scratch.keep(worker.path_of(task), found, worker.notes_of(task))
        yield task, found, False


def _results(
    tasks: Sequence[_Task], worker: _Worker, workers: int, total: int
) -> Iterator[tuple[_Task, list[Issue]]]:
    if workers == 1 or len(tasks) < 2 or total < FEW_BYTES or not processes.available():
        for task in tasks:
            yield task, worker.handle(task)
        return
    yield from processes.run(
        tasks, workers, lambda _: worker, lambda _: None,
        describe=lambda task: f"shard {task.name}",
    )  # fmt: skip


def _decoder(subject: Subject, not_checked: list[str]) -> Decoder | None:
    """Returns what takes examples apart; None, with a note, if that is not to be had."""
    if any(issue.node == "features.json" for issue in subject.issues):
        return None
    try:
        return Decoder(schema.read(subject.path).tree)
    except (FeatureError, MissingDependencyError, *MALFORMED) as error:
        first = (str(error) or type(error).__name__).splitlines()[0]
        not_checked.append(f"whether examples fit their features: {first}")
        return None


def _checks(
    subject: Subject, decoder: Decoder | None, near_duplicates: NearDuplicates | None
) -> list[Check]:
    """Returns what is to be looked at when all examples were taken apart."""
    tree = decoder.tree if decoder else None
    found: list[Check] = [SplitDeclarations(subject.manifest, tree)]
    if near_duplicates is not None:
        splits = len(subject.declared.splits) if subject.declared else 0
        found.append(NearDuplicateCheck(near_duplicates, tree, splits))
    return found


def _noted(subject: Subject, worker: _Worker, tasks: Sequence[_Task]) -> dict[str, list[Noted]]:
    """Returns the shards of each split, with what was noted of them."""
    declared = subject.declared
    if declared is None:
        return {}
    by_name = {
        task.name: Noted(
            subject.path / task.name, declared.file_format, task.examples, worker.hashes_of(task)
        )
        for task in tasks
    }
    return {name: [by_name[one.name] for one in some] for name, some in declared.splits.items()}


def _no_room(directory: Path) -> DiskFullError:
    return DiskFullError(
        explain(
            f"The disk is full: notes on the examples cannot be written into {directory}.",
            "They take 32 bytes for each example, and more for near-duplicates.",
            mend="free some space there, or set XDG_CACHE_HOME to another directory",
        )
    )


def _declared(subject: Subject) -> int:
    return sum(map(len, subject.declared.splits.values())) if subject.declared else 0


def _examples(subject: Subject) -> int:
    splits = subject.declared.splits.values() if subject.declared else ()
    return sum(one.examples for some in splits for one in some)


def _by_split(subject: Subject, found: dict[str, Hashes]) -> dict[str, list[Hashes]]:
    splits = subject.declared.splits if subject.declared else {}
    return {name: [found[one.name] for one in some] for name, some in splits.items()}


def _digest(subject: Subject, splits: dict[str, list[Hashes]]) -> str:
    found = {
        name: content.SplitContent(sum(map(len, parts)), content.ordered(parts), "")
        for name, parts in splits.items()
    }
    return content.Content(content.schema_of(subject.path), found).digest
