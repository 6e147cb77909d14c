"""What the three stages of a build on Beam share in the building process.

`Driver` runs pipelines, and shows their progress by the files in the work directory, because not
every runner reports progress.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import apache_beam as beam
from apache_beam.runners.runner import PipelineResult, PipelineState

from my_datasets.building.engines.beam.build_files import BuildFiles
from my_datasets.building.engines.beam.runners import Submission
from my_datasets.building.engines.beam.workers import WorkerEnvironment
from my_datasets.building.engines.beam.workspace import Workspace
from my_datasets.building.options import BuildOptions, Examine, Job
from my_datasets.building.progress import Meter
from my_datasets.core import interruption
from my_datasets.core.logs import get_logger
from my_datasets.errors import LostExamplesError, MyDatasetsError

_LOGGER = get_logger(__name__)

# Seconds between two looks; at least this many times as long as a look takes, because listing a
# million files takes a while.
_EVERY = 2.0
_TIMES = 20

_Found = TypeVar("_Found")


@contextmanager
def watch_progress(look: Callable[[], None], meter: Meter) -> Iterator[None]:
    """Reports the progress every few seconds while a pipeline runs.

    `look` updates the counts of `meter`, which no other thread may use meanwhile.
    """
    over = threading.Event()

    def run() -> None:
        wait = _EVERY
        while not over.wait(wait):
            begin = time.monotonic()
            try:
                look()
            except (MyDatasetsError, OSError) as error:
                # The pipeline runs on, and a store may answer next time.
                _LOGGER.warning("Cannot determine the progress of the pipeline: %s", error)
            wait = max(_EVERY, _TIMES * (time.monotonic() - begin))
            meter.report_now()

    thread = threading.Thread(target=run, name="watching a pipeline", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class NewFiles:
    """Finds the files that were added to a folder since the last look."""

    def __init__(self, place: Workspace, folder: str, ending: str = "") -> None:
        self._place, self._folder, self._ending = place, folder, ending
        self._known: set[str] = set()
        self.look()

    def look(self) -> list[tuple[str, int]]:
        """Returns the names and sizes in bytes of the new files."""
        new = [
            (f"{self._folder}/{name}", size)
            for name, size in sorted(self._place.sizes(self._folder).items())
            if name.endswith(self._ending) and name not in self._known
        ]
        self._known |= {name.removeprefix(f"{self._folder}/") for name, _ in new}
        return new


def _is_no_interruption(record: logging.LogRecord) -> bool:
    return record.exc_info is None or interruption.interruption_of(record.exc_info[1]) is None


# Beam logs a traceback of any exception in a function that it runs, including Ctrl-C.
logging.getLogger("apache_beam.runners.common").addFilter(_is_no_interruption)


@dataclass(frozen=True, kw_only=True)
class BeamStage:
    """Where and how to build a version on Beam.

    Attributes:
      submission: The runner and its options.
      pipeline: The pipeline to which the builder has added its collections; None if it has none.
      metadata: Collections of one element each, by key, that the builder records beside its
        examples; applying its transforms adds more. None if it records none.
      ended: Called with the result of each pipeline that has transforms of the builder.
      place: Where workers and this process exchange files.
      check: Raises if another process may be building the version by now.
      examine: Examines a shard that was just written.
      identity: Everything that the work depends on.
      modules: The modules that workers must be able to import: the builder's.
      file_format: The format of the shards.
    """

    submission: Submission
    pipeline: beam.Pipeline | None
    metadata: Mapping[str, beam.PCollection] | None
    ended: Callable[[PipelineResult], None]
    place: Workspace
    check: Callable[[], None]
    examine: Examine
    identity: Mapping[str, object]
    modules: tuple[str, ...]
    file_format: str


@dataclass(frozen=True, kw_only=True)
class Driver:
    """A running build."""

    job: Job
    options: BuildOptions
    how: BeamStage
    work: BuildFiles
    meter: Meter
    environment: WorkerEnvironment

    def remove_generated(self, split: str) -> None:
        """Removes the runs and reports of a split."""
        self.work.place.remove(self.work.generated(split))

    def remove_parts(self, split: str) -> None:
        """Removes the sorted parts of a split."""
        self.work.place.remove(self.work.parts(split))

    def distribute(
        self, pipeline: beam.Pipeline, name: str, tasks: Iterable[object]
    ) -> beam.PCollection:
        """Returns tasks as a collection that is spread over the workers; `name` is like `units`."""
        return (
            pipeline
            | f"Files of {name}" >> beam.Create(self.work.write_tasks(name, tasks), reshuffle=False)
            | f"Read {name}" >> beam.FlatMap(self.work.tasks_in)
            | f"Spread {name}" >> beam.Reshuffle()
        )

    def retry_until_visible(self, look: Callable[[], _Found]) -> _Found:
        """Calls `look` until all files of other machines are visible, and returns its result.

        Raises:
          LostExamplesError: `look` still raises it after `Workspace.visibility_delay` seconds.
        """
        has_workers = self.how.submission.preset.has_workers
        until = time.monotonic() + (self.work.place.visibility_delay if has_workers else 0.0)
        while True:
            try:
                return look()
            except LostExamplesError:
                if time.monotonic() >= until:
                    raise
                time.sleep(1.0)

    def run_pipeline(
        self, stage: str, pipeline: beam.Pipeline, look: Callable[[], None]
    ) -> PipelineResult:
        """Runs a pipeline to its end, and returns its result.

        `stage` is a participle for messages, such as `sorting`, and `look` updates the progress.

        Raises:
          MyDatasetsError: A worker or the runner failed.
        """
        self.work.remove_failures()
        try:
            with watch_progress(look, self.meter):
                result = pipeline.run()
                try:
                    state = result.wait_until_finish()
                except KeyboardInterrupt:
                    result.cancel()
                    raise
            # The in-process runner returns None.
            if state not in (None, PipelineState.DONE):
                raise RuntimeError(f"The pipeline ended as {state}.")
        except Exception as error:
            # Beam wraps any exception of a function that it runs in this process.
            if (interrupted := interruption.interruption_of(error)) is not None:
                raise interrupted from None
            raise self.work.failure(stage, error) from error
        finally:
            self.work.remove_tasks()
        look()
        return result
