"""The first pipeline: writes units, or the elements of a collection, as runs."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow, GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from my_datasets.building.batches import BYTES, ROWS, batches, rough_size
from my_datasets.building.collector import SplitRules
from my_datasets.building.engines.beam.build_files import BuildFiles
from my_datasets.building.engines.beam.pipelines.run_files import COMMITTED, Gatherer, Gathering
from my_datasets.building.engines.beam.workers import CheckedDoFn, Surroundings
from my_datasets.building.options import BuildOptions, Job
from my_datasets.building.progress import Meter
from my_datasets.building.units import COLLECTION, Entry, Generator, Pair, SplitInput, examples_of

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
    def kept(cls, value: object) -> "ProcessLocal":
        """Registers an object until `forget`."""
        found = cls(next(_numbers))
        _here[found.number] = value
        return found

    def forget(self) -> None:
        """Removes the object from the registry."""
        _here.pop(self.number, None)


def _found(value: "_T | ProcessLocal") -> _T:
    found: _T = _here[value.number] if isinstance(value, ProcessLocal) else value
    return found


def gathering_of(work: BuildFiles, job: Job, item: SplitInput, options: BuildOptions) -> Gathering:
    """Returns the settings for encoding a split."""
    rules = SplitRules(
        item.name, ordered=job.ordered, quarantine=options.on_error == "quarantine",
        # A collection has no first examples.
        limit=None if item.collection is not None else job.max_examples,
        by_text=item.collection is not None,
    )  # fmt: skip
    return Gathering(work, rules, job.encoder, options.memory)


def gather_here(gathering: Gathering, item: SplitInput, threads: int, meter: Meter) -> None:
    """Runs a plain generator in this process, because it cannot be pickled."""
    gatherer = Gatherer(gathering)

    def between(count: int, size: int) -> None:
        meter.add(item.name, count, size)

    gatherer.collector.generate(0, item.unit_name(0), iter(item.units), between, threads=threads)
    gatherer.collector.flush()


def add_units(
    pipeline: beam.Pipeline,
    files: Sequence[str],
    gatherings: Sequence[Gathering],
    generators: Sequence[Generator | ProcessLocal],
    surroundings: Surroundings,
) -> None:
    """Adds the generating of units to a pipeline; `files` are the names of files of `UnitTask`s."""
    _ = (
        pipeline
        | "Files of units" >> beam.Create(list(files), reshuffle=False)
        | "Read units" >> beam.FlatMap(gatherings[0].work.tasks_in)
        | "Spread units" >> beam.Reshuffle()
        | "Gather units" >> beam.ParDo(GatherUnits(gatherings, generators, surroundings))
    )


def add_collection(
    pipeline: beam.Pipeline, item: SplitInput, gathering: Gathering, surroundings: Surroundings
) -> None:
    """Adds the encoding of a split's collection to a pipeline."""
    collection: beam.PCollection | beam.PTransform = item.collection
    if isinstance(collection, beam.PTransform):
        collection = pipeline | item.name >> collection
    if not collection.windowing.is_default():
        collection = collection | f"{item.name}: one window" >> beam.WindowInto(GlobalWindows())
    _ = (
        collection
        | f"{item.name}: gather" >> beam.ParDo(GatherCollection(gathering, surroundings))
        # One group, written as one file, lists exactly the bundles that count, however often a
        # runner repeats parts of the pipeline.
        | f"{item.name}: all as one" >> beam.GroupByKey()
        | f"{item.name}: commit" >> beam.MapTuple(Commit(gathering.work, item.name))
    )


class GatherUnits(CheckedDoFn):
    """Encodes units; the runs go to the work directory, not to a collection."""

    def __init__(
        self,
        gatherings: Sequence[Gathering],
        generators: Sequence[Generator | ProcessLocal],
        surroundings: Surroundings,
    ) -> None:
        """Takes the arguments of `add_units`."""
        super().__init__(gatherings[0].work, surroundings)
        self._gatherings = [
            replace(one, memory=one.memory // len(gatherings)) for one in gatherings
        ]
        self._generators = list(generators)
        self._gatherers: dict[int, Gatherer] = {}

    def start_bundle(self) -> None:
        """Drops what a failed bundle may have buffered."""
        self._gatherers = {}

    def process(self, task: UnitTask) -> None:
        """Encodes a unit."""
        with self._work.telling_failures():
            gathering = self._gatherings[task.split]
            if task.split not in self._gatherers:
                self._gatherers[task.split] = Gatherer(gathering)
            generate: Generator = _found(self._generators[task.split])
            if not self._gatherers[task.split].begins(task.unit):
                return
            item = _found(task.item)
            examples = examples_of(gathering.rules.split, task.name, generate, item)
            collector = self._gatherers[task.split].collector
            collector.generate(task.unit, task.name, examples, lambda *_: None)

    def finish_bundle(self) -> None:
        """Writes the buffered examples."""
        with self._work.telling_failures():
            for gatherer in self._gatherers.values():
                gatherer.collector.flush()
            self._gatherers = {}


class GatherCollection(CheckedDoFn):
    """Encodes the elements of a collection; yields an entry for each bundle."""

    def __init__(self, gathering: Gathering, surroundings: Surroundings) -> None:
        """Takes the split's settings and the environment that workers need."""
        super().__init__(gathering.work, surroundings)
        self._gathering = gathering
        self._gatherer: Gatherer | None = None

    def start_bundle(self) -> None:
        """Drops what a failed bundle may have buffered."""
        self._gatherer = None
        self._pairs: list[Pair] = []
        self._seen = self._size = 0

    def process(self, pair: Pair) -> None:
        """Takes an element; elements are encoded in batches."""
        with self._work.telling_failures():
            self._pairs.append(pair)
            self._size += rough_size(pair[1]) if isinstance(pair, tuple) else BYTES
            if len(self._pairs) == ROWS or self._size >= BYTES:
                self._take()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """Writes the buffered examples, and yields the bundle's entry."""
        with self._work.telling_failures():
            self._take()
            if self._gatherer is None:
                return
            self._gatherer.collector.finish_unit(0)
            self._gatherer.collector.flush()
        said = {
            "attempt": self._gatherer.attempt,
            "reports": self._gatherer.reports,
            "seen": self._seen,
        }
        window = GlobalWindow()
        yield WindowedValue((0, said), window.max_timestamp(), [window])

    def _take(self) -> None:
        if not self._pairs:
            return
        if self._gatherer is None:
            self._gatherer = Gatherer(self._gathering)
        collector = self._gatherer.collector
        # Beam forbids changing elements, so they need not be copied.
        for first, batch in batches(iter(self._pairs), None, lambda item: item):
            if isinstance(batch, tuple):
                collector.add_columns(0, COLLECTION, self._seen + first, *batch)
                count = first + batch[1].num_rows
            else:
                collector.add_rows(0, COLLECTION, self._seen + first, batch)
                count = first + len(batch)
        self._seen += count
        self._pairs, self._size = [], 0


@dataclass(frozen=True)
class Commit:
    """Records which bundles of a collection count."""

    work: BuildFiles
    split: str

    def __call__(self, _: int, said: Iterable[Entry]) -> None:
        """Writes the entries of all bundles as one file."""
        with self.work.telling_failures():
            self.work.write_json(f"{self.work.generated(self.split)}/{COMMITTED}", list(said))
