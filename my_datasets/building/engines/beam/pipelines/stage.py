"""What the stages of a build on Beam share in the building process."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import apache_beam as beam
from apache_beam.runners.runner import PipelineState

from my_datasets.building.engines.beam.build_files import BuildFiles
from my_datasets.building.engines.beam.runners.runners import Submission
from my_datasets.building.engines.beam.workers import Surroundings
from my_datasets.building.engines.beam.workspace import Place
from my_datasets.building.options import BuildOptions, Examine, Job
from my_datasets.building.progress import Meter
from my_datasets.core import interruption
from my_datasets.core.logs import get_logger
from my_datasets.errors import LostExamplesError, MyDatasetsError

_LOGGER = get_logger(__name__)

# Seconds between two looks, and how many times as long as a look itself at least: where there are
# a million files, looking takes a while.
_EVERY = 2.0
_TIMES = 20


@contextmanager
def watch_progress(look: Callable[[], None], meter: Meter) -> Iterator[None]:
    """Looks, and tells, every few seconds while a pipeline runs.

    Args:
      look: Brings the progress up to date.
      meter: Tells it; nobody else uses it meanwhile.
    """
    over = threading.Event()

    def run() -> None:
        wait = _EVERY
        while not over.wait(wait):
            begin = time.monotonic()
            try:
                look()
            except (MyDatasetsError, OSError) as error:
                # The pipeline goes on; a store, for one, may answer again by the next time.
                _LOGGER.warning("It is not seen how far the pipeline is: %s", error)
            wait = max(_EVERY, _TIMES * (time.monotonic() - begin))
            meter.tell()

    thread = threading.Thread(target=run, name="watching a pipeline", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class NewFiles:
    """The files of a kind that have come since one last looked."""

    def __init__(self, place: Place, folder: str, ending: str = "") -> None:
        """Passes over those that are there.

        Args:
          place: The place.
          folder: Where they come.
          ending: How their names end.
        """
        self._place, self._folder, self._ending = place, folder, ending
        self._known: set[str] = set()
        self.look()

    def look(self) -> list[tuple[str, int]]:
        """Returns the names of the new ones, and their sizes in bytes."""
        new = [
            (f"{self._folder}/{name}", size)
            for name, size in sorted(self._place.sizes(self._folder).items())
            if name.endswith(self._ending) and name not in self._known
        ]
        self._known |= {name.removeprefix(f"{self._folder}/") for name, _ in new}
        return new


_Found = TypeVar("_Found")


def _is_no_interruption(record: logging.LogRecord) -> bool:
    return record.exc_info is None or interruption.interruption_of(record.exc_info[1]) is None


# Beam logs a traceback of whatever is raised in a function that it runs, also of Ctrl-C.
logging.getLogger("apache_beam.runners.common").addFilter(_is_no_interruption)


@dataclass(frozen=True, kw_only=True)
class BeamStage:
    """Where and how a version is built on Beam.

    Attributes:
      submission: Where its pipelines run.
      pipeline: The one that the builder has added its collections to; None if it has not.
      metadata: Collections of one element each, by key, that the builder records beside its
        examples; more come while its transforms are applied. None if it records none.
      ended: Called with the result of each pipeline that the builder's own transforms were part of.
      place: Where the work is.
      check: Raises if it may be another process by now that builds the version.
      examine: Looks at a shard that was just written.
      identity: What the work depends on.
      modules: What workers must be able to import: the builder's module.
      file_format: The format of the shards.
    """

    submission: Submission
    pipeline: beam.Pipeline | None
    metadata: Mapping[Any, beam.PCollection] | None
    ended: Callable[[Any], None]
    place: Place
    check: Callable[[], None]
    examine: Examine
    identity: Mapping[str, Any]
    modules: tuple[str, ...]
    file_format: str


@dataclass(frozen=True, kw_only=True)
class Driver:
    """A build that runs.

    Attributes:
      job: What is built.
      options: How.
      how: On Beam.
      work: What workers and this process leave for each other.
      meter: Tells how far it is.
      surroundings: What workers must find.
    """

    job: Job
    options: BuildOptions
    how: BeamStage
    work: BuildFiles
    meter: Meter
    surroundings: Surroundings

    def forget_generated(self, split: str) -> None:
        """Removes all that was gathered of a split."""
        self.work.place.forget(self.work.generated(split))

    def forget_parts(self, split: str) -> None:
        """Removes the sorted parts of a split."""
        self.work.place.forget(self.work.parts(split))

    def patiently(self, look: Callable[[], _Found]) -> _Found:
        """Returns what is found of what workers have written, once all of it is to be seen.

        Args:
          look: Returns it, or raises `LostExamplesError`.

        Raises:
          LostExamplesError: It is not there, also after a while.
        """
        has_workers = self.how.submission.preset.has_workers
        until = time.monotonic() + (self.work.place.late if has_workers else 0.0)
        while True:
            try:
                return look()
            except LostExamplesError:
                if time.monotonic() >= until:
                    raise
                time.sleep(1.0)

    def run_pipeline(self, stage: str, pipeline: beam.Pipeline, look: Callable[[], None]) -> Any:
        """Runs a pipeline to its end.

        Args:
          stage: What it does, for messages.
          pipeline: The pipeline.
          look: Brings the progress up to date.

        Returns:
          What Beam returns of it.

        Raises:
          MyDatasetsError: What a worker said, or that the runner failed.
        """
        self.work.forget_failures()
        try:
            with watch_progress(look, self.meter):
                result = pipeline.run()
                try:
                    state = result.wait_until_finish()
                except KeyboardInterrupt:
                    result.cancel()
                    raise
            # The in-process runner has none.
            if state not in (None, PipelineState.DONE):
                raise RuntimeError(f"The pipeline ended as {state}.")
        except Exception as error:
            # Beam makes its own errors of whatever is raised in a function that it runs here.
            if (interrupted := interruption.interruption_of(error)) is not None:
                raise interrupted from None
            raise self.work.failure(stage, error) from error
        finally:
            self.work.forget_tasks()
        look()
        return result
