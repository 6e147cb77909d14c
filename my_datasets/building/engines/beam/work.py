"""The work directory of a build on Beam: where workers and the building process meet.

It lies beside the version, so it is in the data directory that all of them see. Each file is made
under another name, has reached the disk before it gets its own, and never changes after that; so
what is there is whole, whoever wrote it and whatever died meanwhile. Reports are files, not
elements of a pipeline: what a runner loses, it does not lose of them.
"""

import errno
import json
import logging
import os
import re
import secrets
import shutil
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apache_beam.internal import cloudpickle_pickler

from my_datasets import errors
from my_datasets.building.journal import sync_directory
from my_datasets.errors import BuildInterruptedError, MyDatasetsError, explain

_LOGGER = logging.getLogger(__name__)
_IDENTITY = "beam.json"
# Tasks of one file, which one worker reads and Beam spreads.
_TASKS = 500
# Files of a directory: some file systems get slow beyond tens of thousands.
_FILES = 1000
# Lines of a worker's traceback that are told, and characters of each.
_LINES, _WIDTH = 20, 300
_FRAME_OF_JAVA = re.compile(
    r"\s*(at )?[\w.$/<>@-]+\((\w+\.(java|scala):\d+|Native Method|Unknown Source)\)\s*"
)
# Before the message of an error that only a runner tells of.
_OURS = "BuildInterruptedError: "


@dataclass(frozen=True)
class Work:
    """A work directory; workers get a copy of this.

    Attributes:
      directory: Its absolute path, the same on all machines.
    """

    directory: Path

    def generated(self, split: str) -> Path:
        """Returns where the runs of a split are, with their reports."""
        return self.directory / "generated" / split

    def part(self, split: str, number: int) -> Path:
        """Returns where a part of a split is."""
        return self.parts(split) / f"{number // _FILES:06d}" / f"{number:09d}.run"

    def parts(self, split: str) -> Path:
        """Returns the directory of a split's parts."""
        return self.directory / "parts" / split

    @property
    def shards(self) -> Path:
        """Where finished shards are, until all are there."""
        return self.directory / "shards"

    @property
    def failures(self) -> Path:
        """Where workers say why they failed."""
        return self.directory / "failures"

    def write_tasks(self, name: str, tasks: Iterable[Any]) -> list[str]:
        """Writes tasks as files, and returns their paths.

        A pipeline of millions of tasks is not sent to any runner: some take 10 MB at most.

        Args:
          name: What the files are called.
          tasks: Anything that can be pickled.
        """
        directory = self.directory / "tasks"
        paths: list[str] = []
        some: list[Any] = []

        def write() -> None:
            path = directory / f"{name}-{len(paths):06d}-{secrets.token_hex(4)}.pickle"
            write_whole(path, cloudpickle_pickler.dumps(some))
            paths.append(os.fspath(path))
            some.clear()

        for task in tasks:
            some.append(task)
            if len(some) == _TASKS:
                write()
        if some:
            write()
        return paths

    def forget_generated(self, split: str) -> None:
        """Removes all that was gathered of a split."""
        shutil.rmtree(self.generated(split), ignore_errors=True)

    def forget_parts(self, split: str) -> None:
        """Removes the sorted parts of a split."""
        shutil.rmtree(self.parts(split), ignore_errors=True)

    def forget_shards(self) -> None:
        """Removes the shards."""
        shutil.rmtree(self.shards, ignore_errors=True)

    def forget_runs(self) -> None:
        """Removes the runs, of which sorted parts were made; their reports stay."""
        for path in (self.directory / "generated").glob("*/*.run"):
            path.unlink(missing_ok=True)

    def forget_tasks(self) -> None:
        """Removes the files of tasks: those of a stage that is over."""
        shutil.rmtree(self.directory / "tasks", ignore_errors=True)

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
            # Not where the directory is not shared: nobody would look there.
            if self.directory.is_dir():
                try:
                    write_json(self.failures / f"{secrets.token_hex(8)}.json", said)
                except OSError:
                    _LOGGER.exception("A worker cannot say what has failed in %s", self.failures)
            raise

    def forget_failures(self) -> None:
        """Removes what workers said: a runner has tried again, or somebody has mended it."""
        shutil.rmtree(self.failures, ignore_errors=True)

    def failure(self, stage: str, error: Exception) -> Exception:
        """Returns the error for a pipeline that failed.

        Args:
          stage: The stage.
          error: What the runner raised.
        """
        said = [
            found for path in sorted(self.failures.glob("[!.]*.json")) if (found := read_json(path))
        ]
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
                    mend="look at the runner's own logs, then run the same again",
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
                mend="mend it, then run the same again",
            )
        )


def opened(directory: Path, identity: Mapping[str, Any], *, resume: bool) -> Work:
    """Returns a work directory, with what an earlier build left in it if that still fits.

    Args:
      directory: Where it is; made if need be.
      identity: What the work depends on. Other work is discarded.
      resume: Whether to go on with earlier work at all.
    """
    work = Work(Path(os.path.abspath(directory)))
    wanted = json.loads(json.dumps(identity))
    found = read_json(directory / _IDENTITY)
    if directory.exists() and not (resume and found == wanted):
        if found is not None and resume:
            changed = sorted(
                key for key in {**found, **wanted} if found.get(key) != wanted.get(key)
            )
            _LOGGER.warning(
                "Discarding the unfinished work in %s: changed since: %s.",
                directory, ", ".join(changed),
            )  # fmt: skip
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    if read_json(directory / _IDENTITY) is None:
        write_json(directory / _IDENTITY, wanted)
    else:
        _LOGGER.warning("Resuming the build in %s.", directory)
    work.forget_tasks()
    work.forget_failures()
    return work


def tasks_in(path: str) -> Iterator[Any]:
    """Yields the tasks of a file; a function of Beam's `FlatMap`."""
    yield from cloudpickle_pickler.loads(Path(path).read_bytes())


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file that is there whole or not at all."""
    with published(path) as partial, partial.open("xb") as file:
        file.write(data)


@contextmanager
def published(path: Path) -> Iterator[Path]:
    """Gives a name to write to; what was written there then gets its own name.

    Two that write the same at the same time do not meet: a runner may start a task again while the
    first one, given up for dead, still works on it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(6)}.partial")
    try:
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.rename(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Writes a report: whole or not at all."""
    write_whole(path, json.dumps(value, separators=(",", ":")).encode())


def read_json(path: Path) -> Any:
    """Returns what a report says; None if there is none."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None


def _told_by_runner(text: str) -> MyDatasetsError | None:
    """Returns an error of ours in what a runner passed on, of a worker that could not tell it."""
    begin = text.find(_OURS)
    end = text.find("To mend: ", begin)
    if begin < 0 or end < 0:
        return None
    end = text.find("\n", end)
    message = text[begin + len(_OURS) : end if end >= 0 else None]
    return BuildInterruptedError(message.partition(" [while running")[0])


def _last_lines(text: str) -> str:
    # What a runner in Java says ends in pages of them.
    lines = [line for line in text.strip().splitlines() if not _FRAME_OF_JAVA.fullmatch(line)]
    return "\n  ".join(line[:_WIDTH] for line in lines[-_LINES:])
