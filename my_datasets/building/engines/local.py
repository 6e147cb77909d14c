"""The engine for one machine: units in processes, an external sort, shards in processes."""

from pathlib import Path

from my_datasets.building.engines import disk_space, generating, planning, writing
from my_datasets.building.job import Job, SplitResult
from my_datasets.building.journal import Journal
from my_datasets.building.options import BuildOptions
from my_datasets.building.progress import Meter, log_progress


def build(job: Job, options: BuildOptions, journal: Journal, target: Path) -> list[SplitResult]:
    """Builds all splits of a version, and puts the shards into `target`.

    Args:
      job: What to build.
      options: How.
      journal: What an earlier build has done already.
      target: A directory on the same file system as the journal's.

    Returns:
      The splits, in the order of `job.inputs`.

    Raises:
      ExampleError: An example does not fit the features.
      DuplicateKeyError: Two examples of a split have the same key.
      UnitError: The generator of a unit raised.
      BuildInterruptedError: A worker died or hung.
      DiskFullError: There is not enough room.
    """
    meter = Meter(options.report or log_progress)
    meter.progress.units = sum(len(item.units.items) for item in job.inputs)
    meter.begin("generating")
    disk_space.warn_of_units(job, journal)
    generating.generate(job, options, journal, meter)
    meter.begin("sorting")
    plans = [planning.planned(job, item, journal, options) for item in job.inputs]
    return writing.write(job, plans, options, journal, target, meter)
