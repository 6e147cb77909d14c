"""Any work on files that all machines see, spread over Beam's workers: a function and its tasks."""

import functools
import pickle
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam

from my_datasets.building.engines.beam.driving import Driver
from my_datasets.building.engines.beam.surroundings import Surroundings
from my_datasets.building.engines.beam.work import Work, tasks_in, write_whole
from my_datasets.errors import LostExamplesError, explain


def distribute(
    driver: Driver, stage: str, handle: Callable[[Any], Any], tasks: Sequence[Any]
) -> Iterator[tuple[Any, Any]]:
    """Yields tasks with what a function makes of them, in their order.

    Args:
      driver: The build; its shards are there.
      stage: What is done, for messages.
      handle: The function. It and what it returns can be pickled; it may be called more than once.
      tasks: The tasks.

    Raises:
      MyDatasetsError: What the function raised, or that the runner failed or lost a task.
    """
    place = driver.work.directory / "results"
    shutil.rmtree(place, ignore_errors=True)
    driver.meter.begin(stage)
    pipeline = driver.how.submission.pipeline()
    _ = (
        pipeline
        | "Files of tasks" >> beam.Create(
            driver.work.write_tasks("tasks", enumerate(tasks)), reshuffle=False
        )
        | "Read tasks" >> beam.FlatMap(tasks_in)
        | "Spread tasks" >> beam.Reshuffle()
        | "Handle tasks" >> beam.ParDo(Handle(driver.work, handle, place, driver.surroundings))
    )  # fmt: skip
    driver.run_pipeline(stage, pipeline, lambda: None)
    for number, task in enumerate(tasks):
        data = driver.patiently(functools.partial(_read, _result(place, number), stage))
        yield task, pickle.loads(data)  # noqa: S301 - our own workers wrote it
    shutil.rmtree(place, ignore_errors=True)


def _read(path: Path, stage: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise LostExamplesError(
            explain(
                f"The runner has lost a task while {stage}.",
                f"Expected: its result in {path}",
                mend="run the same again; if it stays, use another runner",
            )
        ) from error


def _result(place: Path, number: int) -> Path:
    return place / f"{number:09d}.pickle"


@dataclass
class Handle(beam.DoFn):  # type: ignore[misc]
    """Calls the function.

    Attributes:
      work: The work directory.
      function: What is called.
      place: Where results are put.
      surroundings: What a worker must find.
    """

    work: Work
    function: Callable[[Any], Any]
    place: Path
    surroundings: Surroundings

    def setup(self) -> None:
        """Sees that this worker is like the building process."""
        with self.work.telling_failures():
            self.surroundings.check()

    def process(self, numbered: tuple[int, Any]) -> None:
        """Calls it with one task."""
        number, task = numbered
        with self.work.telling_failures():
            write_whole(_result(self.place, number), pickle.dumps(self.function(task)))
