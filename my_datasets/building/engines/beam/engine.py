"""Builds a version by three pipelines, each of which goes on where an earlier build has ended."""

from pathlib import Path

from my_datasets.building.engines import shard_files
from my_datasets.building.engines import writing as local_writing
from my_datasets.building.engines.beam import (
    first_stage,
    preflight,
    second_stage,
    third_stage,
    work,
)
from my_datasets.building.engines.beam.driving import Driver, OnBeam
from my_datasets.building.engines.beam.surroundings import Surroundings
from my_datasets.building.job import Job, SplitResult
from my_datasets.building.journal import sync_directory
from my_datasets.building.options import BuildOptions
from my_datasets.building.progress import Meter, log_progress


def opened(job: Job, options: BuildOptions, how: OnBeam) -> Driver:
    """Returns a build, with what an earlier one has left of it.

    Args:
      job: What to build.
      options: How.
      how: On Beam.
    """
    there = work.opened(how.directory, {**how.identity, "engine": "beam"}, resume=options.resume)
    return Driver(
        job=job, options=options, how=how, work=there,
        meter=Meter(options.report or log_progress),
        surroundings=Surroundings(there.directory, how.modules),
    )  # fmt: skip


def build(driver: Driver, target: Path) -> list[SplitResult]:
    """Builds all splits of a version, and puts the shards into `target`.

    Args:
      driver: The build.
      target: A directory on the same file system as the work directory.

    Returns:
      The splits, in the order of `job.inputs`.

    Raises:
      ExampleError: An example does not fit the features.
      DuplicateKeyError: Two examples of a split have the same key.
      UnitError: The generator of a unit raised.
      LostExamplesError: Examples were lost or doubled on the way.
      BuildInterruptedError: A worker, or the runner, failed; or workers lack something.
      DiskFullError: There is not enough room.
    """
    preflight.check(driver.how.submission, driver.work, driver.surroundings)
    found = first_stage.generate(driver)
    parts = second_stage.sort(driver, found)
    results = third_stage.write(driver, found, parts)
    for result in results:
        for shard in result.shards:
            for each in shard_files.beside(driver.work.shards / shard.name):
                if each.exists():
                    each.rename(target / each.name)
    local_writing.report_quarantine(results, target)
    sync_directory(target)
    return results
