"""`verify`: checks a prepared version against its manifest and its own checksums."""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from my_datasets._version import __version__
from my_datasets.comparison.version_metadata import ComparedVersion
from my_datasets.core.hash_sets import HashFiles
from my_datasets.core.issue import Issue, Severity
from my_datasets.core.processes import cores
from my_datasets.core.progress import OnProgress, Progress, ignore
from my_datasets.core.reference import DatasetReference
from my_datasets.errors import (
    FeatureError,
    IncompleteVersionError,
    MissingDependencyError,
    NotPreparedError,
    problem_of,
)
from my_datasets.input_pipeline.decode.decoder import Decoder
from my_datasets.metadata import content
from my_datasets.metadata.dataset_info import MALFORMED
from my_datasets.resolving.lock import Lock
from my_datasets.verification import checkpoint, file_checks, shard_reading, value_checks
from my_datasets.verification.near_duplicates import NearDuplicateCheck, NearDuplicates
from my_datasets.verification.shard_reading import Check, ObservedShard, Worker
from my_datasets.verification.split_checks import SplitDeclarations


class Level(StrEnum):
    """How much to verify.

    `FAST` compares metadata, names and sizes, and reads no shard. `BYTES` reads all shards and
    compares their SHA-256, or each record's checksum if that is unknown or different. `DEEP` also
    parses each example, and compares digests.
    """

    FAST = "fast"
    BYTES = "bytes"
    DEEP = "deep"


@dataclass(frozen=True)
class Report:
    """The result of verifying a version.

    Attributes:
      name: The version's full name.
      path: Its directory.
      level: How much was verified.
      issues: The problems found, errors first.
      examples: Its declared number of examples.
      bytes: The size of the verified shards.
      digest: The digest of the data, after deep verification without errors; else None.
      not_checked: What could not be checked, and why.
      seconds: The duration.
      was_rebuilt: Whether it was compared with a rebuild.
      signed_by: The fingerprint of the trusted key that signed it; None if it was not checked or
        there is none.
      resumed: The number of shards that an interrupted earlier run had verified.
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
    signed_by: str | None = None

    @property
    def is_good(self) -> bool:
        """Whether there are no errors."""
        return not any(issue.severity is Severity.ERROR for issue in self.issues)

    def to_json(self) -> dict[str, object]:
        """Returns the report as JSON."""
        return {
            "name": self.name, "path": self.path, "level": self.level.value, "good": self.is_good,
            "examples": self.examples, "bytes": self.bytes, "digest": self.digest,
            "not_checked": list(self.not_checked), "rebuilt": self.was_rebuilt,
            "resumed": self.resumed, "signed_by": self.signed_by,
            "seconds": round(self.seconds, 3),
            "issues": [issue.to_json() for issue in self.issues],
        }  # fmt: skip


_OLD_MANIFEST = (
    "sidecars of shards; description, citation and other texts of the metadata; classes of "
    "features: the manifest was written before it recorded them"
)


def verify(
    version_dir: str | os.PathLike[str],
    *,
    level: Level = Level.BYTES,
    workers: int | None = None,
    report: OnProgress = ignore,
    resume_dir: Path | None = None,
    restart: bool = False,
    near_duplicates: NearDuplicates | None = None,
    lock: Lock | None = None,
) -> Report:
    """Verifies a prepared version, without changing it.

    Args:
      version_dir: Its directory.
      level: How much to verify.
      workers: Number of processes; None for one per core.
      report: Called after each shard, with its name and bytes.
      resume_dir: A directory that keeps the results of finished shards of any version, so that a
        run after an interruption reads only the others. None to keep nothing.
      restart: Whether to ignore kept results.
      near_duplicates: When images or texts of different splits count as near-duplicates, at level
        `DEEP`; None to find exact duplicates only.
      lock: The project's lock, which the version must match; None for no lock.

    Returns:
      The report. Problems with the data are issues in it, and not raised.

    Raises:
      NotPreparedError: The directory does not exist.
      DiskFullError: There is no space for notes on the examples.
      BuildInterruptedError: A process died.
      MissingDependencyError: The extra `near-duplicates` is needed, and not installed.
    """
    began = time.monotonic()
    path = Path(version_dir).expanduser()
    if not path.is_dir():
        raise NotPreparedError(
            f"{path} is not a directory.",
            "Expected: the directory of a prepared version",
            fix="name a reference such as digits, or a directory as shown by my-datasets info",
        )
    subject = ComparedVersion.read(path)
    issues = [*subject.issues, *file_checks.check_metadata(subject)]
    issues += file_checks.check_files(subject, read=level is not Level.FAST)
    issues += [*value_checks.check_noted_constraints(subject), *value_checks.check_drift(subject)]
    issues += _locked(subject, lock)
    not_checked: list[str] = []
    if subject.content is not None and not subject.recorded.metadata_copy:
        not_checked.append(_OLD_MANIFEST)
    tasks = shard_reading.tasks(
        subject, {i.node for i in issues if i.code in shard_reading.NOT_TO_BE_READ}
    )
    shards = [one for some in subject.splits.values() for one in some]
    digest, resumed = None, 0
    if level is not Level.FAST:
        decoder = _decoder(subject, not_checked) if level is Level.DEEP else None
        checks = _checks(subject, decoder, near_duplicates) if level is Level.DEEP else []
        observers = [observer for check in checks for observer in check.observers]
        identity = {
            "software": __version__,
            "metadata": checkpoint.metadata_of(path),
            "decoded": decoder is not None,
            "watches": [repr(observer) for observer in observers],
        }
        with checkpoint.scratch(
            resume_dir, path, level.value, identity, restart=restart
        ) as scratch:
            worker = Worker(subject, level is Level.DEEP, decoder, scratch.directory, observers)
            done, total = 0, sum(task.size for task in tasks)
            for task, result, is_resumed in shard_reading.with_checkpoint(
                tasks, worker, workers or cores(), scratch
            ):
                issues += result
                resumed += is_resumed
                done += task.size
                report(Progress(task.name, done, total))
            are_read = all(worker.hashes_of(task).exists() for task in tasks)
            if level is Level.DEEP and are_read and len(tasks) == len(shards):
                paths = {task.name: worker.hashes_of(task) for task in tasks}
                splits = {
                    name: HashFiles(paths[one.name] for one in some)
                    for name, some in subject.splits.items()
                }
                if not _has_errors(issues):
                    issues += value_checks.check_digests(subject.content, splits)
                    observed = {
                        name: [
                            ObservedShard(
                                path / one.name, worker.file_format, one.examples, paths[one.name]
                            )
                            for one in some
                        ]
                        for name, some in subject.splits.items()
                    }
                    issues += [issue for check in checks for issue in check.issues(observed)]
                    again = scratch.directory / "constraints"
                    issues += value_checks.check_constraints_again(
                        subject, again, workers or cores()
                    )
                if not _has_errors(issues):
                    digest = _digest(subject, splits)
        not_checked += [note for check in checks for note in check.not_checked]
    issues.sort(key=lambda issue: (issue.severity is not Severity.ERROR, issue.node))
    return Report(
        subject.name, str(path), level, tuple(issues), sum(one.examples for one in shards),
        sum(task.size for task in tasks), digest, tuple(not_checked), time.monotonic() - began,
        resumed=resumed,
    )  # fmt: skip


def _has_errors(issues: Sequence[Issue]) -> bool:
    return any(issue.severity is Severity.ERROR for issue in issues)


def _locked(subject: ComparedVersion, lock: Lock | None) -> Iterator[Issue]:
    """Yields the difference between a version and the lock."""
    if lock is None or subject.manifest is None:
        return
    for text in lock.references_to(subject.name):
        reference = DatasetReference.parse(text)
        found = lock.difference(reference, subject.metadata, has_shards=False)
        if found is not None:
            yield Issue(
                "not-locked", str(lock.path), f"{text} is locked. {found.problem}",
                "build or pull the locked version; or, to accept this one, run "
                f"my-datasets lock {text}",
                found.expected, found.found,
            )  # fmt: skip


def _decoder(subject: ComparedVersion, not_checked: list[str]) -> Decoder | None:
    """Returns the decoder of examples, or None and a note that says why not."""
    if subject.declared is None or any(issue.node == "features.json" for issue in subject.issues):
        return None
    try:
        return Decoder(subject.metadata.schema.tree)
    except (FeatureError, IncompleteVersionError, MissingDependencyError, *MALFORMED) as error:
        not_checked.append(f"whether examples match their features: {problem_of(error)}")
        return None


def _checks(
    subject: ComparedVersion, decoder: Decoder | None, near_duplicates: NearDuplicates | None
) -> list[Check]:
    """Returns the checks that run after all examples were decoded."""
    tree = decoder.tree if decoder else None
    found: list[Check] = [SplitDeclarations(subject.recorded, tree)]
    if near_duplicates is not None:
        found.append(NearDuplicateCheck(near_duplicates, tree, len(subject.splits)))
    return found


def _digest(subject: ComparedVersion, splits: dict[str, HashFiles]) -> str:
    found = {
        name: content.SplitContent(parts.hashes, content.ordered(parts), "")
        for name, parts in splits.items()
    }
    return content.Content(subject.metadata.schema_digest, found).digest
