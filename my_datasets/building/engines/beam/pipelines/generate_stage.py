"""The first stage, in the building process: what is left to be gathered is handed to Beam."""

import functools
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from apache_beam.internal import cloudpickle_pickler

from my_datasets.building.engines.beam.pipelines import generating, metadata_values, run_manifest
from my_datasets.building.engines.beam.pipelines.checksum_totals import Tally
from my_datasets.building.engines.beam.pipelines.generating import Here, UnitTask
from my_datasets.building.engines.beam.pipelines.progress import NewFiles
from my_datasets.building.engines.beam.pipelines.run_manifest import Gathered
from my_datasets.building.engines.beam.pipelines.run_writer import REPORT, Gathering
from my_datasets.building.engines.beam.pipelines.stage import Driver
from my_datasets.building.units import SplitInput
from my_datasets.errors import BuilderError, LostExamplesError, explain


def generate(driver: Driver) -> list[Gathered]:
    """Gathers the examples of all splits.

    Returns:
      What was gathered of each.

    Raises:
      MyDatasetsError: See `engine.build`.
    """
    inputs, progress = driver.job.inputs, driver.meter.progress
    progress.units = sum(len(item.units.items) for item in inputs)
    driver.meter.begin("generating")
    _gather_plain(driver)
    tasks = _units_left(driver)
    progress.units_done = progress.units - len(tasks)
    lacks_metadata = driver.how.metadata is not None and metadata_values.read(driver.work) is None
    collections = [
        item
        for item in inputs
        # Metadata are made by the transforms that make the examples.
        if _is_left(driver, item) or (lacks_metadata and item.collection is not None)
    ]
    of_builder = bool(collections or (lacks_metadata and driver.how.metadata))
    if tasks or of_builder:
        _gather(driver, tasks, collections, of_builder=of_builder)
    elif lacks_metadata:
        metadata_values.commit(driver.work, ())
    found = []
    for item in inputs:
        try:
            look = functools.partial(run_manifest.complete, driver.work, item, driver.options)
            found.append(driver.patiently(look))
        except LostExamplesError:
            driver.forget_generated(item.name)  # for the next run to fix
            raise
    return found


def _gather(
    driver: Driver,
    tasks: Sequence[UnitTask],
    collections: Sequence[SplitInput],
    *,
    of_builder: bool,
) -> None:
    pipeline = driver.how.pipeline if of_builder else None
    if pipeline is None:
        pipeline = driver.how.submission.pipeline()
    here: list[Here] = []
    if tasks:
        inputs = driver.job.inputs
        gatherings = [_gathering(driver, item) for item in inputs]
        # A plain generator has been gathered, and cannot be sent to workers.
        generators: list[Any] = [iter if item.is_plain else item.units.generate for item in inputs]
        if driver.how.submission.preset.has_workers:
            with _sent_to_workers():
                cloudpickle_pickler.dumps((generators, gatherings))
                files = driver.work.write_tasks("units", tasks)
        else:
            generators = [Here.kept(each) for each in generators]
            items = [Here.kept(task.item) for task in tasks]
            here = [*generators, *items]
            kept = (replace(task, item=item) for task, item in zip(tasks, items, strict=True))
            files = driver.work.write_tasks("units", kept)
        generating.add_units(pipeline, files, gatherings, generators, driver.surroundings)
    for item in collections:
        driver.forget_generated(item.name)
        gathering = _gathering(driver, item)
        generating.add_collection(pipeline, item, gathering, driver.surroundings)
    recorded = driver.how.metadata if of_builder else None
    if recorded is not None:
        metadata_values.add(driver.work, recorded)
    try:
        result = driver.run_pipeline("generating", pipeline, _look(driver))
    finally:
        for one in here:
            one.forget()
    if of_builder:
        driver.how.ended(result)
    if recorded is not None:
        driver.patiently(functools.partial(metadata_values.commit, driver.work, recorded))


@contextmanager
def _sent_to_workers() -> Iterator[None]:
    """Explains that something cannot be sent to workers.

    Raises:
      BuilderError: It cannot.
    """
    try:
        yield
    except (TypeError, AttributeError, pickle.PicklingError, NotImplementedError) as error:
        raise BuilderError(
            explain(
                "The units cannot be sent to workers.",
                f"The error was: {type(error).__name__}: {error}",
                fix="give self.units a function and items without open files, locks or "
                "connections: open what is needed inside of the generator",
            )
        ) from error


def _is_left(driver: Driver, item: SplitInput) -> bool:
    committed = f"{driver.work.generated(item.name)}/{run_manifest.COMMITTED}"
    return item.collection is not None and driver.work.place.read(committed) is None


def _gathering(driver: Driver, item: SplitInput) -> Gathering:
    return generating.gathering_of(driver.work, driver.job, item, driver.options)


def _gather_plain(driver: Driver) -> None:
    for item in driver.job.inputs:
        if item.is_plain and not run_manifest.read(driver.work, item).state.is_complete(0):
            driver.forget_generated(item.name)
            run_manifest.write_unit_names(driver.work, item)
            threads = driver.options.worker_count
            generating.gather_here(_gathering(driver, item), item, threads, driver.meter)


def _units_left(driver: Driver) -> list[UnitTask]:
    left = []
    for number, item in enumerate(driver.job.inputs):
        if item.is_plain or item.collection is not None:
            continue
        run_manifest.write_unit_names(driver.work, item)
        state = run_manifest.read(driver.work, item).state
        left += [
            UnitTask(number, unit, item.unit_name(unit), item.units.items[unit])
            for unit in range(len(item.units.items))
            if not state.is_complete(unit)
        ]
    return left


def _look(driver: Driver) -> Callable[[], None]:
    """Returns what counts the reports that have come."""
    work = driver.work
    new = [
        (item, NewFiles(work.place, work.generated(item.name), REPORT))
        for item in driver.job.inputs
    ]

    def look() -> None:
        for item, files in new:
            for said in work.read_all(name for name, _ in files.look()):
                report = said or {"units": {}}
                if item.collection is None:
                    done = sum(state["complete"] for state in report["units"].values())
                    driver.meter.progress.units_done += done
                total = sum(map(Tally.from_json, report.get("tallies", {}).values()), Tally())
                driver.meter.add(item.name, total.count, total.bytes)

    return look
