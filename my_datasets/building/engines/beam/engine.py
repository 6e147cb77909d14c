"""Builds a version by three pipelines, each of which goes on where an earlier build has ended."""

import pickle
import shutil
from pathlib import Path
from typing import Any

from my_datasets.building.engines import shard_writing as local_writing
from my_datasets.building.engines.beam import build_files
from my_datasets.building.engines.beam.pipelines import generate_stage, sort_stage, write_stage
from my_datasets.building.engines.beam.pipelines.stage import BeamStage, Driver
from my_datasets.building.engines.beam.runners import preflight
from my_datasets.building.engines.beam.workers import Surroundings
from my_datasets.building.options import BuildOptions, Job, SplitResult
from my_datasets.building.progress import Meter, log_progress
from my_datasets.errors import LostExamplesError, explain


def opened(job: Job, options: BuildOptions, how: BeamStage) -> Driver:
    """Returns a build, with what an earlier one has left of it.

    Args:
      job: What to build.
      options: How.
      how: On Beam.
    """
    how.check()
    there = build_files.opened(how.place, {**how.identity, "engine": "beam"}, resume=options.resume)
    return Driver(
        job=job, options=options, how=how, work=there,
        meter=Meter(options.report or log_progress),
        surroundings=Surroundings(there.place, how.modules),
    )  # fmt: skip


def build(driver: Driver, target: Path) -> list[SplitResult]:
    """Builds all splits of a version, and puts the shards into `target`.

    Args:
      driver: The build.
      target: The version's directory on this machine.

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
    found = generate_stage.generate(driver)
    parts = sort_stage.sort(driver, found)
    results = write_stage.write(driver, found, parts)
    driver.how.check()
    driver.work.place.hand_over(write_stage.SHARDS, target)
    local_writing.report_quarantine(results, target)
    return results


def metadata_of(driver: Driver) -> dict[Any, Any]:
    """Returns what the builder computed beside its examples, by its keys.

    Args:
      driver: The build that is done.
    """
    return generate_stage.read_metadata(driver.work) or {}


def findings(driver: Driver, shard: str, scratch: Path) -> Any:
    """Returns what a worker found in a shard of a build that is done.

    Args:
      driver: The build.
      shard: The shard's file name.
      scratch: An empty directory for the files of it.
    """
    folder, place = write_stage.findings_of(shard), driver.work.place
    for name, size in place.sizes(folder).items():
        with place.reading(f"{folder}/{name}", size) as reading:
            reading.bring(0, size)
            shutil.copyfile(reading.path, scratch / name)
    data = place.read(folder + write_stage.SUMMARY)
    if data is None:
        raise LostExamplesError(
            explain(
                f"What was found in {shard} is gone from {place}.",
                fix="build with --restart; if it stays, please report it",
            )
        )
    return pickle.loads(data)  # noqa: S301 - our own workers wrote it
