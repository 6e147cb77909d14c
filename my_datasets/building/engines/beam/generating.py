"""The first pipeline: writes units, or the elements of a collection, as runs.

A builder may also compute metadata on Beam: a value for each key, which is stored with the work.
"""

import functools
import hashlib
import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import apache_beam as beam
from apache_beam.internal import cloudpickle_pickler
from apache_beam.transforms.window import GlobalWindow, GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from my_datasets.building.collector import BYTES, ROWS, SplitRules, batches, rough_size
from my_datasets.building.engines.beam import run_files
from my_datasets.building.engines.beam.build_files import BuildFiles
from my_datasets.building.engines.beam.run_files import (
    COMMITTED,
    REPORT,
    BundleEncoder,
    ChecksumTotals,
    GeneratedRuns,
    SplitEncoding,
)
from my_datasets.building.engines.beam.stage import Driver, NewFiles
from my_datasets.building.engines.beam.workers import CheckedDoFn, WorkerEnvironment
from my_datasets.building.units import COLLECTION, Entry, Generator, Pair, SplitInput, examples_of
from my_datasets.core.json_types import Json
from my_datasets.errors import BuilderError, LostExamplesError

_T = TypeVar("_T")


@dataclass(frozen=True)
class UnitTask:
    """A unit to generate."""

    split: int  # the number of its split
    unit: int
    name: str  # for messages
    item: object


_here: dict[int, Any] = {}
# Unique in the process, where several builds may run at the same time.
_numbers = itertools.count()


@dataclass(frozen=True)
class ProcessLocal:
    """A reference to an object of this process, for a runner without other processes.

    Beam's in-process runner pickles functions as well. It pickles a class of a notebook by value,
    and the copy would replace the class's methods, with the globals of that moment.
    """

    number: int

    @classmethod
    def register(cls, value: object) -> "ProcessLocal":
        """Registers an object until `unregister`."""
        found = cls(next(_numbers))
        _here[found.number] = value
        return found

    def unregister(self) -> None:
        """Removes the object from the registry."""
        _here.pop(self.number, None)


def _found(value: "_T | ProcessLocal") -> _T:
    found: _T = _here[value.number] if isinstance(value, ProcessLocal) else value
    return found


def _add_collection(
    pipeline: beam.Pipeline,
    item: SplitInput,
    encoding: SplitEncoding,
    environment: WorkerEnvironment,
) -> None:
    """Adds the encoding of a split's collection to a pipeline."""
    collection: beam.PCollection | beam.PTransform = item.collection
    if isinstance(collection, beam.PTransform):
        collection = pipeline | item.name >> collection
    if not collection.windowing.is_default():
        collection = collection | f"{item.name}: one window" >> beam.WindowInto(GlobalWindows())
    _ = (
        collection
        | f"{item.name}: gather" >> beam.ParDo(EncodeCollection(encoding, environment))
        # One group, written as one file, lists exactly the bundles that count, however often a
        # runner repeats parts of the pipeline.
        | f"{item.name}: all as one" >> beam.GroupByKey()
        | f"{item.name}: commit" >> beam.MapTuple(Commit(encoding.work, item.name))
    )


class EncodeUnits(CheckedDoFn):
    """Encodes units; the runs go to the work directory, not to a collection."""

    def __init__(
        self,
        encodings: Sequence[SplitEncoding],
        generators: Sequence[Generator | ProcessLocal],
        environment: WorkerEnvironment,
    ) -> None:
        super().__init__(encodings[0].work, environment)
        self._encodings = [replace(one, memory=one.memory // len(encodings)) for one in encodings]
        self._generators = list(generators)
        self._encoders: dict[int, BundleEncoder] = {}

    def start_bundle(self) -> None:
        """Drops what a failed bundle may have buffered."""
        self._encoders = {}

    def process(self, task: UnitTask) -> None:
        """Encodes a unit."""
        with self._work.reporting_failures():
            encoding = self._encodings[task.split]
            if task.split not in self._encoders:
                self._encoders[task.split] = BundleEncoder(encoding)
            generate: Generator = _found(self._generators[task.split])
            if not self._encoders[task.split].begins(task.unit):
                return
            item = _found(task.item)
            examples = examples_of(encoding.rules.split, task.name, generate, item)
            collector = self._encoders[task.split].collector
            collector.generate(task.unit, task.name, examples, lambda *_: None)

    def finish_bundle(self) -> None:
        """Writes the buffered examples."""
        with self._work.reporting_failures():
            for encoder in self._encoders.values():
                encoder.collector.flush()
            self._encoders = {}


class EncodeCollection(CheckedDoFn):
    """Encodes the elements of a collection; yields an entry for each bundle."""

    def __init__(self, encoding: SplitEncoding, environment: WorkerEnvironment) -> None:
        super().__init__(encoding.work, environment)
        self._encoding = encoding
        self._encoder: BundleEncoder | None = None

    def start_bundle(self) -> None:
        """Drops what a failed bundle may have buffered."""
        self._encoder = None
        self._pairs: list[Pair] = []
        self._seen = self._size = 0

    def process(self, pair: Pair) -> None:
        """Takes an element; elements are encoded in batches."""
        with self._work.reporting_failures():
            self._pairs.append(pair)
            self._size += rough_size(pair[1]) if isinstance(pair, tuple) else BYTES
            if len(self._pairs) == ROWS or self._size >= BYTES:
                self._take()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """Writes the buffered examples, and yields the bundle's entry."""
        with self._work.reporting_failures():
            self._take()
            if self._encoder is None:
                return
            self._encoder.collector.finish_unit(0)
            self._encoder.collector.flush()
        said = {
            "attempt": self._encoder.attempt,
            "reports": self._encoder.reports,
            "seen": self._seen,
        }
        window = GlobalWindow()
        yield WindowedValue((0, said), window.max_timestamp(), [window])

    def _take(self) -> None:
        if not self._pairs:
            return
        if self._encoder is None:
            self._encoder = BundleEncoder(self._encoding)
        collector = self._encoder.collector
        # Beam forbids changing elements, so they need not be copied.
        seen = self._seen
        for first, batch in batches(iter(self._pairs), None, lambda item: item):
            count, _ = collector.add(0, COLLECTION, seen + first, batch)
            self._seen += count
        self._pairs, self._size = [], 0


@dataclass(frozen=True)
class Commit:
    """Records which bundles of a collection count."""

    work: BuildFiles
    split: str

    def __call__(self, _: int, said: Iterable[Entry]) -> None:
        """Writes the entries of all bundles as one file."""
        with self.work.reporting_failures():
            self.work.write_json(f"{self.work.generated(self.split)}/{COMMITTED}", list(said))


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
        with self.work.reporting_failures():
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


def generate(driver: Driver) -> list[GeneratedRuns]:
    """Writes the examples of all splits as runs, and returns those of each split.

    Raises:
      MyDatasetsError: See `engine.build`.
    """
    inputs, progress = driver.job.inputs, driver.meter.progress
    progress.units = sum(len(item.units.items) for item in inputs)
    driver.meter.begin("generating")
    for item in inputs:
        if item.is_plain:
            _generate_here(driver, item)
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
        _generate_on_beam(driver, tasks, collections, of_builder=of_builder)
    elif lacks_metadata:
        commit_metadata(driver.work, ())
    found = []
    for item in inputs:
        try:
            look = functools.partial(run_files.complete, driver.work, item, driver.options)
            found.append(driver.retry_until_visible(look))
        except LostExamplesError:
            driver.remove_generated(item.name)  # so that the next build makes it again
            raise
    return found


def _generate_here(driver: Driver, item: SplitInput) -> None:
    """Runs a plain generator in this process, because it cannot be pickled."""
    if not item.units_left(run_files.read(driver.work, item).state.units):
        return
    driver.remove_generated(item.name)
    run_files.write_unit_names(driver.work, item)
    encoder = BundleEncoder(_encoding(driver, item))
    between = functools.partial(driver.meter.add, item.name)
    threads = driver.options.worker_count
    encoder.collector.generate(0, item.unit_name(0), iter(item.units), between, threads=threads)
    encoder.collector.flush()


def _generate_on_beam(
    driver: Driver, tasks: Sequence[UnitTask], collections: Sequence[SplitInput], *,
    of_builder: bool,
) -> None:  # fmt: skip
    pipeline = driver.how.pipeline if of_builder else None
    if pipeline is None:
        pipeline = driver.how.submission.pipeline()
    local: list[ProcessLocal] = []
    if tasks:
        inputs = driver.job.inputs
        encodings = [_encoding(driver, item) for item in inputs]
        # A plain generator has already run, and could not be pickled.
        generators: list[Generator | ProcessLocal] = [
            iter if item.is_plain else item.units.generate for item in inputs
        ]
        with _explained_pickling():
            if driver.how.submission.preset.has_workers:
                cloudpickle_pickler.dumps((generators, encodings))
            else:
                items = [ProcessLocal.register(task.item) for task in tasks]
                local = [*map(ProcessLocal.register, generators), *items]
                generators = [*local[: len(generators)]]
                tasks = [replace(task, item=item) for task, item in zip(tasks, items, strict=True)]
            units = driver.distribute(pipeline, "units", tasks)
        gather = EncodeUnits(encodings, generators, driver.environment)
        _ = units | "Gather units" >> beam.ParDo(gather)
    for item in collections:
        driver.remove_generated(item.name)
        _add_collection(pipeline, item, _encoding(driver, item), driver.environment)
    recorded = driver.how.metadata if of_builder else None
    if recorded is not None:
        add_metadata(driver.work, recorded)
    try:
        result = driver.run_pipeline("generating", pipeline, _look(driver))
    finally:
        for one in local:
            one.unregister()
    if of_builder:
        driver.how.ended(result)
    if recorded is not None:
        driver.retry_until_visible(functools.partial(commit_metadata, driver.work, recorded))


@contextmanager
def _explained_pickling() -> Iterator[None]:
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


def _encoding(driver: Driver, item: SplitInput) -> SplitEncoding:
    job, options, is_collection = driver.job, driver.options, item.collection is not None
    rules = SplitRules(
        item.name, ordered=job.ordered, quarantine=options.on_error == "quarantine",
        limit=None if is_collection else job.max_examples,  # a collection has no first examples
        by_text=is_collection,
    )  # fmt: skip
    return SplitEncoding(driver.work, rules, job.encoder, options.memory)


def _units_left(driver: Driver) -> list[UnitTask]:
    left = []
    for number, item in enumerate(driver.job.inputs):
        if item.is_plain or item.collection is not None:
            continue
        run_files.write_unit_names(driver.work, item)
        state = run_files.read(driver.work, item).state
        left += [
            UnitTask(number, unit, item.unit_name(unit), item.units.items[unit])
            for unit in item.units_left(state.units)
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
