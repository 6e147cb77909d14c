"""The first stage, in the building process: generates on Beam what is not generated yet.

A builder may also compute metadata on Beam: a value for each key, which is stored with the work.
"""

import functools
import hashlib
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import apache_beam as beam
from apache_beam.internal import cloudpickle_pickler

from my_datasets.building.engines.beam.build_files import BuildFiles
from my_datasets.building.engines.beam.pipelines import generating, run_files
from my_datasets.building.engines.beam.pipelines.generating import ProcessLocal, UnitTask
from my_datasets.building.engines.beam.pipelines.run_files import (
    REPORT,
    ChecksumTotals,
    Gathered,
    Gathering,
)
from my_datasets.building.engines.beam.pipelines.stage import Driver, NewFiles
from my_datasets.building.units import Generator, SplitInput
from my_datasets.core.json_types import Json
from my_datasets.errors import BuilderError, LostExamplesError

_FOLDER = "metadata"
# Lists the files of the values once they are complete.
_COMMITTED = f"{_FOLDER}/committed.json"


def add_metadata(work: BuildFiles, collections: Mapping[str, beam.PCollection]) -> None:
    """Adds the writing of values to the pipeline of their collections.

    Each collection has one element: the list of the builder's elements for its key.
    """
    for key, collection in collections.items():
        _ = collection | f"Write metadata {key}" >> beam.Map(_Write(work, key))


def commit_metadata(work: BuildFiles, keys: Iterable[str]) -> None:
    """Records that the values of these keys are complete, besides those recorded before.

    Raises:
      LostExamplesError: A value is missing.
    """
    names = {_name(key): key for key in keys}
    for key, said in zip(names.values(), work.read_all(names), strict=True):
        if said is None:
            raise LostExamplesError(
                f"The pipeline ended without the metadata {key!r}.",
                fix="run the same again; if it stays, see the runner's own logs",
            )
    # A pipeline that runs again for one split computes only that split's metadata.
    work.write_json(_COMMITTED, sorted({*names, *(work.read_json(_COMMITTED) or ())}))


def read_metadata(work: BuildFiles) -> dict[str, Json] | None:
    """Returns the values by key; None if they are not complete."""
    names: Iterable[str] | None = work.read_json(_COMMITTED)
    if names is None:
        return None
    return {said["key"]: said["value"] for said in work.read_all(names)}


@dataclass(frozen=True)
class _Write:
    """Writes the value of a key."""

    work: BuildFiles
    key: str

    def __call__(self, elements: list[Json]) -> None:
        with self.work.telling_failures():
            if len(elements) != 1:
                raise BuilderError(
                    f"The collection for the metadata {self.key!r} has {len(elements)} elements.",
                    "Expected one, such as beam.CombineGlobally(...) gives.",
                    fix="combine it in _generate_examples or _build_pcollection",
                )
            try:
                self.work.write_json(_name(self.key), {"key": self.key, "value": elements[0]})
            except (TypeError, ValueError) as error:
                raise BuilderError(
                    f"The metadata {self.key!r} is a {type(elements[0]).__name__}, which "
                    "cannot be saved as JSON.",
                    fix="convert it to an int, float, str, list or dict: .item() of a NumPy number",
                ) from error


def _name(key: str) -> str:
    return f"{_FOLDER}/{hashlib.sha256(repr(key).encode()).hexdigest()[:32]}.json"


def generate(driver: Driver) -> list[Gathered]:
    """Writes the examples of all splits as runs, and returns those of each split.

    Raises:
      MyDatasetsError: See `engine.build`.
    """
    inputs, progress = driver.job.inputs, driver.meter.progress
    progress.units = sum(len(item.units.items) for item in inputs)
    driver.meter.begin("generating")
    _gather_plain(driver)
    tasks = _units_left(driver)
    progress.units_done = progress.units - len(tasks)
    lacks_metadata = driver.how.metadata is not None and read_metadata(driver.work) is None
    collections = [
        item
        for item in inputs
        # The transforms that make the examples also compute the metadata.
        if _is_left(driver, item) or (lacks_metadata and item.collection is not None)
    ]
    of_builder = bool(collections or (lacks_metadata and driver.how.metadata))
    if tasks or of_builder:
        _gather(driver, tasks, collections, of_builder=of_builder)
    elif lacks_metadata:
        commit_metadata(driver.work, ())
    found = []
    for item in inputs:
        try:
            look = functools.partial(run_files.complete, driver.work, item, driver.options)
            found.append(driver.patiently(look))
        except LostExamplesError:
            driver.forget_generated(item.name)  # so that the next build makes it again
            raise
    return found


def _gather(
    driver: Driver, tasks: Sequence[UnitTask], collections: Sequence[SplitInput], *,
    of_builder: bool,
) -> None:  # fmt: skip
    pipeline = driver.how.pipeline if of_builder else None
    if pipeline is None:
        pipeline = driver.how.submission.pipeline()
    local: list[ProcessLocal] = []
    if tasks:
        inputs = driver.job.inputs
        gatherings = [_gathering(driver, item) for item in inputs]
        # A plain generator has already run, and could not be pickled.
        generators: list[Generator | ProcessLocal] = [
            iter if item.is_plain else item.units.generate for item in inputs
        ]
        if driver.how.submission.preset.has_workers:
            with _sent_to_workers():
                cloudpickle_pickler.dumps((generators, gatherings))
                files = driver.work.write_tasks("units", tasks)
        else:
            items = [ProcessLocal.kept(task.item) for task in tasks]
            local = [*map(ProcessLocal.kept, generators), *items]
            generators = [*local[: len(generators)]]
            stored = (replace(task, item=item) for task, item in zip(tasks, items, strict=True))
            files = driver.work.write_tasks("units", stored)
        generating.add_units(pipeline, files, gatherings, generators, driver.surroundings)
    for item in collections:
        driver.forget_generated(item.name)
        gathering = _gathering(driver, item)
        generating.add_collection(pipeline, item, gathering, driver.surroundings)
    recorded = driver.how.metadata if of_builder else None
    if recorded is not None:
        add_metadata(driver.work, recorded)
    try:
        result = driver.run_pipeline("generating", pipeline, _look(driver))
    finally:
        for one in local:
            one.forget()
    if of_builder:
        driver.how.ended(result)
    if recorded is not None:
        driver.patiently(functools.partial(commit_metadata, driver.work, recorded))


@contextmanager
def _sent_to_workers() -> Iterator[None]:
    """Raises `BuilderError` for what cannot be pickled."""
    try:
        yield
    except (TypeError, AttributeError, pickle.PicklingError, NotImplementedError) as error:
        raise BuilderError(
            "The units cannot be sent to workers.",
            f"The error was: {type(error).__name__}: {error}",
            fix="pass self.units a function and items without open files, locks or "
            "connections; open those inside the generator",
        ) from error


def _is_left(driver: Driver, item: SplitInput) -> bool:
    committed = f"{driver.work.generated(item.name)}/{run_files.COMMITTED}"
    return item.collection is not None and driver.work.place.read(committed) is None


def _gathering(driver: Driver, item: SplitInput) -> Gathering:
    return generating.gathering_of(driver.work, driver.job, item, driver.options)


def _gather_plain(driver: Driver) -> None:
    for item in driver.job.inputs:
        if item.is_plain and not run_files.read(driver.work, item).state.is_complete(0):
            driver.forget_generated(item.name)
            run_files.write_unit_names(driver.work, item)
            threads = driver.options.worker_count
            generating.gather_here(_gathering(driver, item), item, threads, driver.meter)


def _units_left(driver: Driver) -> list[UnitTask]:
    left = []
    for number, item in enumerate(driver.job.inputs):
        if item.is_plain or item.collection is not None:
            continue
        run_files.write_unit_names(driver.work, item)
        state = run_files.read(driver.work, item).state
        left += [
            UnitTask(number, unit, item.unit_name(unit), item.units.items[unit])
            for unit in range(len(item.units.items))
            if not state.is_complete(unit)
        ]
    return left


def _look(driver: Driver) -> Callable[[], None]:
    """Returns a function that counts new reports."""
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
                total = sum(
                    map(ChecksumTotals.from_json, report.get("tallies", {}).values()),
                    ChecksumTotals(),
                )
                driver.meter.add(item.name, total.count, total.bytes)

    return look
