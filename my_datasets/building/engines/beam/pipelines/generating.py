"""The first pipeline: units, or the elements of a collection, become runs."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow, GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from my_datasets.building.batches import batches, rough_size
from my_datasets.building.collector import SplitRules
from my_datasets.building.engines.beam.build_files import BuildFiles
from my_datasets.building.engines.beam.pipelines.run_files import COMMITTED, Gatherer, Gathering
from my_datasets.building.engines.beam.workers import Surroundings
from my_datasets.building.options import BuildOptions, Job
from my_datasets.building.progress import Meter
from my_datasets.building.units import COLLECTION, Generator, SplitInput, examples_of

# Elements of a collection are encoded in batches of this many, or of about this many bytes.
_ROWS = 1024
_BYTES = 4 << 20


@dataclass(frozen=True)
class UnitTask:
    """A unit to be gathered.

    Attributes:
      split: The number of its split.
      unit: Its own.
      name: What messages call it.
      item: What it is generated from.
    """

    split: int
    unit: int
    name: str
    item: Any


_here: dict[int, Any] = {}
# Never the same one twice: several builds may run in a process at the same time.
_numbers = itertools.count()


@dataclass(frozen=True)
class ProcessLocal:
    """Something that stays in this process, where all the work is done; only its number is sent.

    Beam's runner for one process pickles all the same. A class of a notebook is pickled by value,
    and what comes back takes the place of its methods, with the globals as they were.
    """

    number: int

    @classmethod
    def kept(cls, value: Any) -> "ProcessLocal":
        """Keeps something until `forget`."""
        found = cls(next(_numbers))
        _here[found.number] = value
        return found

    def forget(self) -> None:
        """Lets go of it."""
        _here.pop(self.number, None)


def _found(value: Any) -> Any:
    return _here[value.number] if isinstance(value, ProcessLocal) else value


def gathering_of(work: BuildFiles, job: Job, item: SplitInput, options: BuildOptions) -> Gathering:
    """Returns how a split is gathered."""
    rules = SplitRules(
        item.name, ordered=job.ordered, quarantine=options.on_error == "quarantine",
        # Of a collection no part is the first one.
        limit=None if item.collection is not None else job.max_examples,
        by_text=item.collection is not None,
    )  # fmt: skip
    return Gathering(work, rules, job.encoder, options.memory)


def gather_here(gathering: Gathering, item: SplitInput, threads: int, meter: Meter) -> None:
    """Gathers a plain generator, which no other process could run."""
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
    """Adds the gathering of units to a pipeline.

    Args:
      pipeline: The pipeline.
      files: Those with `UnitTask`s, by their names.
      gatherings: How each split is gathered.
      generators: The generator function of each split.
      surroundings: What workers must find.
    """
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
    """Adds the gathering of a collection to a pipeline.

    Args:
      pipeline: The pipeline.
      item: The split; its collection is a `PCollection` or a `PTransform` that makes one.
      gathering: How it is gathered.
      surroundings: What workers must find.
    """
    collection = item.collection
    if isinstance(collection, beam.PTransform):
        collection = pipeline | item.name >> collection
    if not collection.windowing.is_default():
        collection = collection | f"{item.name}: one window" >> beam.WindowInto(GlobalWindows())
    _ = (
        collection
        | f"{item.name}: gather" >> beam.ParDo(GatherCollection(gathering, surroundings))
        # All in one group: what is written in the end is whole, however often a runner starts
        # parts of the pipeline anew, and each bundle that it gave up is not in it.
        | f"{item.name}: all as one" >> beam.GroupByKey()
        | f"{item.name}: commit" >> beam.MapTuple(Commit(gathering.work, item.name))
    )


class GatherUnits(beam.DoFn):  # type: ignore[misc]
    """Gathers units; what it made is among the work, not in a collection."""

    def __init__(
        self,
        gatherings: Sequence[Gathering],
        generators: Sequence[Generator | ProcessLocal],
        surroundings: Surroundings,
    ) -> None:
        """Takes what a worker needs."""
        self._gatherings = [
            replace(one, memory=one.memory // len(gatherings)) for one in gatherings
        ]
        self._generators = list(generators)
        self._surroundings = surroundings
        self._work = gatherings[0].work
        self._gatherers: dict[int, Gatherer] = {}

    def setup(self) -> None:
        """Sees that this worker is like the building process."""
        with self._work.telling_failures():
            self._surroundings.check()

    def start_bundle(self) -> None:
        """Begins with nothing: a bundle that failed before has left what it held."""
        self._gatherers = {}

    def process(self, task: UnitTask) -> None:
        """Gathers a unit."""
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
        """Writes what is held."""
        with self._work.telling_failures():
            for gatherer in self._gatherers.values():
                gatherer.collector.flush()
            self._gatherers = {}


class GatherCollection(beam.DoFn):  # type: ignore[misc]
    """Gathers the elements of a collection; gives a line on each bundle."""

    def __init__(self, gathering: Gathering, surroundings: Surroundings) -> None:
        """Takes what a worker needs."""
        self._gathering = gathering
        self._surroundings = surroundings
        self._gatherer: Gatherer | None = None

    def setup(self) -> None:
        """Sees that this worker is like the building process."""
        with self._gathering.work.telling_failures():
            self._surroundings.check()

    def start_bundle(self) -> None:
        """Begins with nothing: a bundle that failed before has left what it held."""
        self._gatherer = None
        self._pairs: list[Any] = []
        self._seen = self._size = 0

    def process(self, pair: Any) -> None:
        """Takes an element, encoded together with those that follow."""
        with self._gathering.work.telling_failures():
            self._pairs.append(pair)
            self._size += rough_size(pair[1]) if isinstance(pair, tuple) else _BYTES
            if len(self._pairs) == _ROWS or self._size >= _BYTES:
                self._take()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """Writes what is held, and says what this bundle has made."""
        with self._gathering.work.telling_failures():
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
        # Beam allows nobody to change an element, so none has to be copied.
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
    """Writes down which bundles of a collection count."""

    work: BuildFiles
    split: str

    def __call__(self, _: int, said: Iterable[dict[str, Any]]) -> None:
        """Writes it in one file, at once."""
        with self.work.telling_failures():
            self.work.write_json(f"{self.work.generated(self.split)}/{COMMITTED}", list(said))
