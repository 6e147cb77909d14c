"""The work of a build on Beam: what workers and the building process leave for each other.

It lies in a place that all of them see. Each file is made elsewhere, has reached the disk before it
gets its name, and never changes after that; so what is there is whole, whoever wrote it and
whatever died meanwhile. Reports are files, not elements of a pipeline: what a runner loses, it does
not lose of them.
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
from my_datasets.building.engines.beam.workspace import OpenFile, Place
from my_datasets.building.runs import Run
from my_datasets.core import ordered_pool
from my_datasets.core.logs import get_logger
from my_datasets.errors import BuildInterruptedError, LostExamplesError, MyDatasetsError, explain

_LOGGER = get_logger(__name__)
_IDENTITY = "beam.json"
# Tasks of one file, which one worker reads and Beam spreads.
_TASKS = 500
# Parts in a folder: some file systems get slow beyond tens of thousands of files.
_FILES = 1000
# Reports that are read at the same time.
_READERS = 16
_TASK_FILES = "tasks"
_FAILURES = "failures"
# Lines of a worker's traceback that are told, and characters of each.
_LINES, _WIDTH = 20, 300
_FRAME_OF_JAVA = re.compile(
    r"\s*(at )?[\w.$/<>@-]+\((\w+\.(java|scala):\d+|Native Method|Unknown Source)\)\s*"
)
# Before the message of an error that only a runner tells of.
_OURS = "BuildInterruptedError: "


@dataclass(frozen=True)
class BuildFiles:
    """The work of a build, by the names of its files; workers get a copy of this.

    Attributes:
      place: Where it is.
    """

    place: Place

    def generated(self, split: str) -> str:
        """Returns where the runs of a split are, with their reports."""
        return f"generated/{split}"

    def parts(self, split: str) -> str:
        """Returns the folder of a split's parts."""
        return f"parts/{split}"

    def part(self, split: str, number: int) -> str:
        """Returns what the name of a part of a split begins with."""
        return f"{self.parts(split)}/{number // _FILES:06d}/{number:09d}"

    def write_json(self, name: str, value: Any) -> None:
        """Writes a report."""
        self.place.write(name, json.dumps(value, separators=(",", ":")).encode())

    def read_json(self, name: str) -> Any:
        """Returns what a report says; None if there is none."""
        data = self.place.read(name)
        return None if data is None else json.loads(data)

    def read_all(self, names: Iterable[str]) -> Iterator[Any]:
        """Returns what reports say, in the order of their names.

        Reading waits for a network, and there may be millions of them.
        """
        return ordered_pool.results(self.read_json, names, _READERS)

    def write_tasks(self, name: str, tasks: Iterable[Any]) -> list[str]:
        """Writes tasks as files, and returns their names, for `tasks_in`.

        A pipeline of millions of tasks is not sent to any runner: some take 10 MB at most.

        Args:
          name: What the files are called.
          tasks: Anything that can be pickled.
        """
        names: list[str] = []
        rest = iter(tasks)
        while some := list(itertools.islice(rest, _TASKS)):
            names.append(f"{_TASK_FILES}/{name}-{len(names):06d}-{secrets.token_hex(4)}.pickle")
            self.place.write(names[-1], cloudpickle_pickler.dumps(some))
        return names

    def tasks_in(self, name: str) -> Iterator[Any]:
        """Yields the tasks of a file; a function of Beam's `FlatMap`.

        Raises:
          LostExamplesError: There is no such file.
        """
        data = self.place.read(name)
        if data is None:
            raise LostExamplesError(
                explain(
                    f"{name} is gone from {self.place}.",
                    fix="see that nothing else writes there, then run the same again",
                )
            )
        yield from cloudpickle_pickler.loads(data)

    def forget_tasks(self) -> None:
        """Removes the files of tasks: those of a stage that is over."""
        self.place.forget(_TASK_FILES)

    @contextmanager
    def telling_failures(self) -> Iterator[None]:
        """Leaves word of what is raised, since runners pass on no more than a text of it."""
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
                # Not where the place is not shared: nobody would look there.
                if self.place.is_there():
                    self.write_json(f"{_FAILURES}/{secrets.token_hex(8)}.json", said)
            except (OSError, MyDatasetsError):
                _LOGGER.exception("A worker cannot say in %s what has failed", self.place)
            raise

    def forget_failures(self) -> None:
        """Removes what workers said: a runner has tried again, or somebody has fixed it."""
        self.place.forget(_FAILURES)

    def failure(self, stage: str, error: Exception) -> Exception:
        """Returns the error for a pipeline that failed.

        Args:
          stage: The stage.
          error: What the runner raised.
        """
        names = [f"{_FAILURES}/{name}" for name in sorted(self.place.sizes(_FAILURES))]
        said = [found for found in self.read_all(names) if found]
        # What a builder or its data have wrong comes before what may be a consequence of it.
        said.sort(key=lambda one: not one["is_ours"])
        if not said:
            told = _told_by_runner(str(error))
            if told is not None:
                return told
            return BuildInterruptedError(
                explain(
                    f"The runner failed while {stage}.",
                    f"It said: {_last_lines(str(error) or type(error).__name__)}",
                    "What was finished is kept.",
                    fix="look at the runner's own logs, then run the same again",
                )
            )
        first = said[0]
        if first["is_ours"]:
            kind: type[MyDatasetsError] = getattr(errors, first["kind"], BuildInterruptedError)
            return kind(first["message"])
        if first["errno"] in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            return OSError(first["errno"], os.strerror(first["errno"]), first["file"])
        return BuildInterruptedError(
            explain(
                f"A worker failed while {stage}: {first['kind']}: {first['message']}",
                _last_lines(first["traceback"]),
                "What was finished is kept.",
                fix="fix it, then run the same again",
            )
        )


def opened(place: Place, identity: Mapping[str, Any], *, resume: bool) -> BuildFiles:
    """Returns the work of a build, with what an earlier one left of it if that still fits.

    It has a folder of its own: a worker of a build that was given up, which may be one of other
    code, goes on where nobody looks any more.

    Args:
      place: Where it is; made if need be.
      identity: What the work depends on. Other work is discarded.
      resume: Whether to go on with earlier work at all.
    """
    wanted = json.loads(json.dumps(identity))
    said = BuildFiles(place).read_json(_IDENTITY)
    # That of an earlier release of this package has none.
    found = (said or {}).get("identity", {})
    if resume and found == wanted:
        _LOGGER.warning("Resuming the build in %s.", place)
        work = BuildFiles(place.below(said["folder"]))
        work.forget_tasks()
        work.forget_failures()
    else:
        if said is not None and resume:
            changed = sorted(
                key for key in {**found, **wanted} if found.get(key) != wanted.get(key)
            )
            _LOGGER.warning(
                "Discarding the unfinished work in %s: changed since: %s.",
                place, ", ".join(changed),
            )  # fmt: skip
        place.discard()
        folder = secrets.token_hex(4)
        work = BuildFiles(place.below(folder))
        place.begin()
        BuildFiles(place).write_json(_IDENTITY, {"identity": wanted, "folder": folder})
    work.place.begin()
    return work


def _told_by_runner(text: str) -> MyDatasetsError | None:
    """Returns an error of ours in what a runner passed on, of a worker that could not tell it."""
    begin = text.find(_OURS)
    end = text.find("Fix: ", begin)
    if begin < 0 or end < 0:
        return None
    end = text.find("\n", end)
    message = text[begin + len(_OURS) : end if end >= 0 else None]
    return BuildInterruptedError(message.partition(" [while running")[0])


def _last_lines(text: str) -> str:
    # What a runner in Java says ends in pages of them.
    lines = [line for line in text.strip().splitlines() if not _FRAME_OF_JAVA.fullmatch(line)]
    return "\n".join(line[:_WIDTH] for line in lines[-_LINES:])


@dataclass(frozen=True)
class LocalRun:
    """A run of which some records are to be read.

    Attributes:
      run: The run, as a file of this machine that has its index.
      reading: Brings more of it.
    """

    run: Run
    reading: OpenFile

    def bring(self, begin: int, end: int, *, with_keys: bool = False) -> None:
        """Sees that records `begin` to `end` are here, and their keys if they are wanted."""
        if begin == end:
            return
        starts, run = self.run.mapped("begin"), self.run
        stop = int(starts[end]) if end < run.count else run.data_bytes
        self.reading.bring(int(starts[begin]), stop)
        if with_keys:
            ends, base = run.mapped("key_end"), run.index_bytes[1]
            first = int(ends[begin - 1]) if begin else 0
            self.reading.bring(base + first, base + int(ends[end - 1]))


@contextmanager
def opened_here(place: Place, run: Run) -> Iterator[LocalRun]:
    """Gives a run, of which the index is here.

    Args:
      place: Where it lies.
      run: The run, whose path is its name there.
    """
    with place.reading(run.path, run.file_bytes) as reading:
        reading.bring(*run.index_bytes)
        yield LocalRun(replace(run, path=str(reading.path)), reading)
