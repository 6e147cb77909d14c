"""Builds a version with three pipelines, each of which resumes the work of an earlier build.

This is what builders import of the engine; `__all__` lists it.
"""

import pickle
import shutil
from pathlib import Path
from typing import Any

from my_datasets.building.engines import shard_writing
from my_datasets.building.engines.beam import build_files, generating, preflight, sorting, writing
from my_datasets.building.engines.beam.runners import Submission
from my_datasets.building.engines.beam.stage import BeamStage, Driver
from my_datasets.building.engines.beam.workers import WorkerEnvironment
from my_datasets.building.engines.beam.workspace import SharedDirectory, Workspace
from my_datasets.building.options import BuildOptions, Job, SplitResult
from my_datasets.building.progress import Meter, log_progress
from my_datasets.core.json_types import Json
from my_datasets.errors import LostExamplesError

__all__ = [
    "BeamStage",
    "Driver",
    "SharedDirectory",
    "Submission",
    "Workspace",
    "build",
    "findings",
    "metadata_of",
    "opened",
]  # fmt: skip


def opened(job: Job, options: BuildOptions, how: BeamStage) -> Driver:
    """Returns a build, with the finished work of an earlier one."""
    how.check()
    work = build_files.opened(how.place, {**how.identity, "engine": "beam"}, resume=options.resume)
    return Driver(
        job=job, options=options, how=how, work=work,
        meter=Meter(options.report or log_progress),
        environment=WorkerEnvironment(work.place, how.modules),
    )  # fmt: skip


def build(driver: Driver, target: Path) -> list[SplitResult]:
    """Builds all splits, with shards in `target`; returns them in the order of `job.inputs`.

    Raises:
      ExampleError: An example does not fit the features.
      DuplicateKeyError: Two examples of a split have the same key.
      UnitError: The generator of a unit raised.
      LostExamplesError: The runner lost or duplicated examples.
      BuildInterruptedError: A worker or the runner failed, or workers lack something.
      DiskFullError: There is not enough free space.
    """
    preflight.check(driver.how.submission, driver.work, driver.environment)
    found = generating.generate(driver)
    parts = sorting.sort(driver, found)
    results = writing.write(driver, found, parts)
    driver.how.check()
    driver.work.place.hand_over(writing.SHARDS, target)
    shard_writing.report_quarantine(results, target)
    return results


def metadata_of(driver: Driver) -> dict[str, Json]:
    """Returns the values that the builder computed beside its examples, by key."""
    return generating.read_metadata(driver.work) or {}


def findings(driver: Driver, shard: str, scratch: Path) -> Any:
    """Returns what the worker's `Examine` function returned for a shard of a finished build."""
    folder, place = writing.findings_of(shard), driver.work.place
    for name, size in place.sizes(folder).items():
        with place.reading(f"{folder}/{name}", size) as reading:
            reading.fetch(0, size)
            shutil.copyfile(reading.path, scratch / name)
    data = place.read(folder + writing.SUMMARY)
    if data is None:
        raise LostExamplesError(
            f"The findings for {shard} are missing in {place}.",
            fix="build with --restart; if it fails again, please report it",
        )
    return pickle.loads(data)  # noqa: S301 - our own workers wrote it
