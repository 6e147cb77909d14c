"""The files that workers and the building process exchange during a build on Beam.

They are in a place that all processes see. Each file is written elsewhere and synced before it gets
its name, and never changes after that, so every file is complete, whichever process wrote it and
whatever died meanwhile. Reports are files, not elements of a pipeline, so that no runner can lose
them. `open_run` makes a run in such a place readable on this machine.
"""

import errno
import itertools
import json
import os
import re
import secrets
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from apache_beam.internal import cloudpickle_pickler

from my_datasets import errors
from my_datasets.building.engines.beam.workspace import OpenFile, Workspace
from my_datasets.building.journal import changed_keys
from my_datasets.building.runs import Run
from my_datasets.core import processes
from my_datasets.core.logs import get_logger
from my_datasets.errors import BuildInterruptedError, LostExamplesError, MyDatasetsError

_LOGGER = get_logger(__name__)
_IDENTITY = "beam.json"
# Tasks per file; one worker reads a file, and Beam distributes its tasks.
_TASKS = 500
# Parts per folder: some file systems get slow beyond tens of thousands of files.
_FILES = 1000
# Reports to read at the same time.
_READERS = 16
_TASK_FILES = "tasks"
_FAILURES = "failures"
# Lines to show of a worker's traceback, and characters of each.
_LINES, _WIDTH = 20, 300
_FRAME_OF_JAVA = re.compile(
    r"\s*(at )?[\w.$/<>@-]+\((\w+\.(java|scala):\d+|Native Method|Unknown Source)\)\s*"
)
# Precedes the message of an error that only the runner reports.
_OURS = "BuildInterruptedError: "


@dataclass(frozen=True)
class BuildFiles:
    """The files of a build; workers get a copy of this."""

    place: Workspace

    def generated(self, split: str) -> str:
        """Returns the folder of a split's runs and their reports."""
        return f"generated/{split}"

    def parts(self, split: str) -> str:
        """Returns the folder of a split's parts."""
        return f"parts/{split}"

    def part(self, split: str, number: int) -> str:
        """Returns a part's name, without suffix."""
        return f"{self.parts(split)}/{number // _FILES:06d}/{number:09d}"

    def write_json(self, name: str, value: object) -> None:
        """Writes a value as JSON."""
        self.place.write(name, json.dumps(value, separators=(",", ":")).encode())

    def read_json(self, name: str) -> Any:
        """Returns the value of a JSON file; None if there is no such file."""
        data = self.place.read(name)
        return None if data is None else json.loads(data)

    def read_all(self, names: Iterable[str]) -> Iterator[Any]:
        """Reads JSON files in parallel, because there may be millions; yields them in order."""
        return processes.ordered_results(self.read_json, names, _READERS)

    def write_tasks(self, name: str, tasks: Iterable[object]) -> list[str]:
        """Pickles tasks to files, and returns the files' names, for `tasks_in`.

        Runners limit the size of a pipeline, some to 10 MB: too little for millions of tasks.
        """
        names: list[str] = []
        rest = iter(tasks)
        while some := list(itertools.islice(rest, _TASKS)):
            names.append(f"{_TASK_FILES}/{name}-{len(names):06d}-{secrets.token_hex(4)}.pickle")
            self.place.write(names[-1], cloudpickle_pickler.dumps(some))
        return names

    def tasks_in(self, name: str) -> Iterator[Any]:
        """Yields the tasks of a file, for `FlatMap`; raises `LostExamplesError` if it is gone."""
        data = self.place.read(name)
        if data is None:
            raise LostExamplesError(
                f"{name} is missing in {self.place}.",
                fix="make sure that nothing else writes there, then run the same again",
            )
        yield from cloudpickle_pickler.loads(data)

    def remove_tasks(self) -> None:
        """Removes the files of tasks, after their stage."""
        self.place.remove(_TASK_FILES)

    @contextmanager
    def reporting_failures(self) -> Iterator[None]:
        """Writes exceptions to files, because runners pass on only their text."""
        try:
            yield
        except Exception as error:
            said = {
                "kind": type(error).__name__,
                "message": str(error),
                "is_ours": isinstance(error, MyDatasetsError),
                "errno": error.errno if isinstance(error, OSError) else None,
                "file": str(error.filename) if isinstance(error, OSError) else None,
                "traceback": "".join(traceback.format_exception(error)),
            }
            try:
                # If the place is not shared, the building process would not see the file.
                if self.place.exists():
                    self.write_json(f"{_FAILURES}/{secrets.token_hex(8)}.json", said)
            except (OSError, MyDatasetsError):
                _LOGGER.exception("A worker cannot report a failure in %s", self.place)
            raise

    def remove_failures(self) -> None:
        """Removes the files of exceptions, before work starts again."""
        self.place.remove(_FAILURES)

    def failure(self, stage: str, error: Exception) -> Exception:
        """Returns the error for a pipeline that failed; `stage` is like `sorting`."""
        names = [f"{_FAILURES}/{name}" for name in sorted(self.place.sizes(_FAILURES))]
        said = [found for found in self.read_all(names) if found]
        # Errors of the builder or its data come first; others may be their consequences.
        said.sort(key=lambda one: not one["is_ours"])
        if not said:
            reported = _error_in_text(str(error))
            if reported is not None:
                return reported
            return BuildInterruptedError(
                f"The runner failed while {stage}.",
                f"It said: {_last_lines(str(error) or type(error).__name__)}",
                "What was finished is kept.",
                fix="read the runner's own logs, then run the same again",
            )
        first = said[0]
        if first["is_ours"]:
            kind: type[MyDatasetsError] = getattr(errors, first["kind"], BuildInterruptedError)
            return kind(first["message"])
        if first["errno"] in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            return OSError(first["errno"], os.strerror(first["errno"]), first["file"])
        return BuildInterruptedError(
            f"A worker failed while {stage}: {first['kind']}: {first['message']}",
            _last_lines(first["traceback"]),
            "What was finished is kept.",
            fix="fix the error, then run the same again",
        )


def opened(place: Workspace, identity: Mapping[str, object], *, resume: bool) -> BuildFiles:
    """Returns the files of a build, with those of an earlier build with the same identity.

    The identity is everything that the work depends on; work with another one is discarded. Each
    has a folder of its own, so that workers of an abandoned build, which may have other code, write
    to a folder that no later build reads. `place` is created if need be.
    """
    current = json.loads(json.dumps(identity))
    earlier = BuildFiles(place).read_json(_IDENTITY)
    # Files of earlier releases of this package have no identity.
    found = (earlier or {}).get("identity", {})
    if resume and found == current:
        _LOGGER.warning("Resuming the build in %s.", place)
        work = BuildFiles(place.below(earlier["folder"]))
        work.remove_tasks()
        work.remove_failures()
    else:
        if earlier is not None and resume:
            _LOGGER.warning(
                "Discarding the unfinished work in %s: changed since: %s.",
                place, changed_keys(found, current),
            )  # fmt: skip
        place.discard()
        folder = secrets.token_hex(4)
        work = BuildFiles(place.below(folder))
        place.begin()
        BuildFiles(place).write_json(_IDENTITY, {"identity": current, "folder": folder})
    work.place.begin()
    return work


def _error_in_text(text: str) -> MyDatasetsError | None:
    """Returns the error in a runner's text that a worker could not write to a file."""
    begin = text.find(_OURS)
    end = text.find("Fix: ", begin)
    if begin < 0 or end < 0:
        return None
    end = text.find("\n", end)
    message = text[begin + len(_OURS) : end if end >= 0 else None]
    return BuildInterruptedError(message.partition(" [while running")[0])


def _last_lines(text: str) -> str:
    # Errors of Java runners end in pages of stack frames.
    lines = [line for line in text.strip().splitlines() if not _FRAME_OF_JAVA.fullmatch(line)]
    return "\n".join(line[:_WIDTH] for line in lines[-_LINES:])


@dataclass(frozen=True)
class LocalRun:
    """A run as a file of this machine, which has its index and the parts that `fetch` fetched."""

    run: Run
    reading: OpenFile

    def fetch(self, begin: int, end: int, *, with_keys: bool = False) -> None:
        """Fetches the records `begin` to `end`, and their keys if requested."""
        if begin == end:
            return
        starts, run = self.run.mapped("begin"), self.run
        stop = int(starts[end]) if end < run.count else run.data_bytes
        self.reading.fetch(int(starts[begin]), stop)
        if with_keys:
            ends, base = run.mapped("key_end"), run.index_bytes[1]
            first = int(ends[begin - 1]) if begin else 0
            self.reading.fetch(base + first, base + int(ends[end - 1]))


@contextmanager
def open_run(place: Workspace, run: Run) -> Iterator[LocalRun]:
    """Opens a run, whose path is its name in the place, and fetches its index."""
    with place.reading(run.path, run.file_bytes) as reading:
        reading.fetch(*run.index_bytes)
        yield LocalRun(replace(run, path=str(reading.path)), reading)
