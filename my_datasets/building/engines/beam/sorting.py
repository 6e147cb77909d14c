"""The second pipeline: groups slices of runs by bucket, and writes buckets as sorted parts."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from my_datasets.building import runs
from my_datasets.building.engines.beam import buckets, build_files, run_files
from my_datasets.building.engines.beam.buckets import Buckets
from my_datasets.building.engines.beam.build_files import BuildFiles
from my_datasets.building.engines.beam.run_files import (
    ChecksumTotals,
    CountedRun,
    GeneratedRuns,
    unit_names,
)
from my_datasets.building.engines.beam.stage import Driver, NewFiles
from my_datasets.building.engines.beam.workers import CheckedDoFn, WorkerEnvironment
from my_datasets.building.runs import Columns, Run
from my_datasets.building.shards import duplicate_key, limit, within
from my_datasets.building.units import Entry, SplitInput
from my_datasets.errors import DuplicateKeyError, LostExamplesError
from my_datasets.records.tf_example import pieces
from my_datasets.records.tf_example.pieces import Bytes

_Rows = npt.NDArray[np.int64]
# The suffixes of a part and of its report.
PART, REPORT = runs.SUFFIX, ".json"


@dataclass(frozen=True)
class Sorting:
    """The settings for sorting a split; workers get a copy of it."""

    work: BuildFiles
    buckets: Buckets
    ignore_duplicates: bool  # keep the first example of each key
    # The first (unit, position) beyond the wanted number of examples; None for all.
    limit: tuple[int, int] | None
    # Whether the examples come from units, and so have positions, not from a collection.
    has_units: bool
    by_text: bool  # whether prefixes of keys replace hashes


@dataclass(frozen=True)
class SortedBucket:
    """A sorted bucket, from its report."""

    number: int
    run: Run | None  # the part's file; None if it has no records
    kept: ChecksumTotals
    dropped: ChecksumTotals  # of records over the limit, and of duplicates

    @classmethod
    def of(cls, number: int, said: Entry, sizes: Mapping[str, int]) -> "SortedBucket | None":
        """Returns the part of a report; None unless its file is in `sizes` as reported."""
        run = Run(**said["run"]) if said["run"] else None
        if run is not None and sizes.get(run.path) != run.file_bytes:
            return None
        return cls(
            number,
            run,
            ChecksumTotals.from_json(said["kept"]),
            ChecksumTotals.from_json(said["dropped"]),
        )


def _ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Returns the ranges of sorted numbers: the first of each, and one past its last."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number:
            found[-1] = (found[-1][0], number + 1)
        else:
            found.append((number, number + 1))
    return found


# Beam's key is one int, from the numbers of split and bucket, which all runners compare and
# distribute alike.
_SPLIT = 1 << 32


class CutRuns(CheckedDoFn):
    """Cuts runs where buckets begin."""

    def __init__(
        self,
        sortings: Sequence[Sorting],
        buckets: Sequence[Sequence[int]],
        environment: WorkerEnvironment,
    ) -> None:
        super().__init__(sortings[0].work, environment)
        self._sortings = list(sortings)
        self._ranges = list(map(_ranges, buckets))
        self._edges: dict[int, npt.NDArray[np.uint64]] = {}

    def process(self, task: tuple[int, CountedRun]) -> Iterator[tuple[int, bytes]]:
        """Yields pairs of a bucket's key and a block of its records."""
        split, counted = task
        with self._work.reporting_failures():
            edges = self._edges_of(split)
            with build_files.open_run(self._work.place, counted.run) as run:
                part_run = replace(counted, run=run.run)
                high = run.run.mapped("high")
                for first, last in self._ranges[split]:
                    begin = int(np.searchsorted(high, edges[first - 1])) if first else 0
                    is_last = last > len(edges)
                    end = len(high) if is_last else int(np.searchsorted(high, edges[last - 1]))
                    run.fetch(begin, end, with_keys=True)
                    for bucket, first_row, last_row in _by_bucket(high[begin:end], edges, begin):
                        for block in _blocks(part_run, first_row, last_row):
                            yield split * _SPLIT + bucket, block

    def _edges_of(self, split: int) -> npt.NDArray[np.uint64]:
        if split not in self._edges:
            self._edges[split] = self._sortings[split].buckets.edges(self._work)
        return self._edges[split]


def _by_bucket(
    high: npt.NDArray[np.uint64], edges: npt.NDArray[np.uint64], begin: int
) -> Iterator[tuple[int, int, int]]:
    """Yields the buckets of some records, each with the range of its records."""
    which = np.searchsorted(edges, high, side="right")
    starts = np.flatnonzero(np.diff(which, prepend=-1))
    ends = np.append(starts, len(which))[1:]
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        yield int(which[start]), begin + start, begin + end


def _blocks(counted: CountedRun, begin: int, end: int) -> Iterator[bytes]:
    run = counted.run
    sizes = run.mapped("size")
    for first, last in buckets.ranges(sizes, begin, end):
        yield from _block(counted, run.columns(list(runs.COLUMNS), first, last), first)


def _block(counted: CountedRun, index: Columns, first: int) -> Iterator[bytes]:
    run = counted.run
    data = np.empty(int(index["size"].sum()), np.uint8)
    run.read_into(data.data, int(index["begin"][0]))
    key_begin = int(run.mapped("key_end")[first - 1]) if first else 0
    index["key_size"] = np.diff(index["key_end"], prepend=np.uint64(key_begin))
    index["witness"] = np.full(len(index["size"]), counted.is_witness, np.uint8)
    keys = run.keys(key_begin, int(index["key_end"][-1]))
    if counted.excluded:
        rows = np.flatnonzero(~np.isin(index["unit"], list(counted.excluded)))
        if not len(rows):
            return
        data, keys = _select(data, index["size"], rows), _select(keys, index["key_size"], rows)
        index = runs.select(index, rows)
    yield buckets.packed(index, data, keys)


def _select(data: Bytes, sizes: npt.NDArray[np.uint64], rows: _Rows) -> Bytes:
    values = pieces.binary_array(pa.py_buffer(data), pieces.offsets_from(sizes))
    return pieces.bytes_of(values.take(pa.array(rows)))


class SortBucket(CheckedDoFn):
    """Sorts a bucket into a part."""

    def __init__(self, sortings: Sequence[Sorting], environment: WorkerEnvironment) -> None:
        super().__init__(sortings[0].work, environment)
        self._sortings = list(sortings)

    def process(self, group: tuple[int, Iterable[bytes]]) -> None:
        """Writes a part and its report."""
        key, values = group
        with self._work.reporting_failures():
            sorting, bucket = self._sortings[key // _SPLIT], key % _SPLIT
            index, records, keys = buckets.unpacked(values)
            order, dropped = _chosen(sorting, index, records, keys)
            name = self._work.part(sorting.buckets.split, bucket)
            _write(self._work, name, index, records, order, _tally(records, dropped))


def _write(
    work: BuildFiles, name: str, index: Columns, records: pa.LargeBinaryArray, order: _Rows,
    dropped: ChecksumTotals,
) -> None:  # fmt: skip
    said = None
    if len(order):
        # Keys are only for error messages of this stage.
        no_keys = pieces.binary_array(pa.py_buffer(b""), np.zeros(len(records) + 1, np.int64))
        with work.place.draft() as directory:
            path = Path(directory) / "part"
            run = replace(runs.write(path, index, records, no_keys, order), path=f"{name}{PART}")
            work.place.put(path, run.path)
        said = asdict(run)
    totals = _tally(records, order)
    report = {"run": said, "kept": totals.to_json(), "dropped": dropped.to_json()}
    work.write_json(f"{name}{REPORT}", report)


def _tally(records: pa.LargeBinaryArray, rows: _Rows) -> ChecksumTotals:
    offsets = pieces.offsets_of(records)
    ends = offsets[1:] - offsets[0]
    return run_files.of_some(pieces.bytes_of(records), ends[rows], np.diff(offsets)[rows])


def _chosen(
    sorting: Sorting, index: Columns, records: pa.LargeBinaryArray, keys: pa.LargeBinaryArray
) -> tuple[_Rows, _Rows]:
    """Returns the rows that count, sorted, and those that do not."""
    order = runs.sort_order(index)
    none = np.zeros(0, np.int64)
    over = none
    if sorting.limit is not None:
        is_within = within(index, sorting.limit)[order]
        order, over = order[is_within], order[~is_within]
    high, low = index["high"][order], index["low"][order]
    again = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
    if not again.any() and not index["witness"].any():
        return order, over
    chosen, dropped = [], [over]
    starts = np.flatnonzero(np.concatenate([[True], ~again]))
    for group in np.split(order, starts[1:]):
        if len(group) == 1 and not index["witness"][group[0]]:
            chosen.append(group)
            continue
        for same in _of_one_key(sorting, group, keys):
            first, others = _first(sorting, same, index, records, keys)
            chosen.append(np.array([first]))
            dropped.append(others)
    return np.concatenate([none, *chosen]), np.concatenate(dropped)


def _of_one_key(sorting: Sorting, group: _Rows, keys: pa.LargeBinaryArray) -> Iterator[_Rows]:
    """Divides rows with equal numbers into the rows of each key, in the order of keys."""
    if not sorting.by_text:
        yield group
        return
    by_key: dict[bytes, list[int]] = {}
    for row in group.tolist():
        by_key.setdefault(keys[row].as_py(), []).append(row)
    for _, rows in sorted(by_key.items()):
        yield np.array(rows)


def _first(
    sorting: Sorting, same: _Rows, index: Columns, records: pa.LargeBinaryArray,
    keys: pa.LargeBinaryArray,
) -> tuple[int, _Rows]:  # fmt: skip
    """Returns, for the rows of one key, the row to keep and the rows to drop."""
    witnesses = index["witness"][same].astype(bool)
    counting = same[~witnesses]
    key = keys[int(same[0])].as_py().decode(errors="backslashreplace")
    if not len(counting):
        raise run_files.lost_or_duplicated(
            f"Examples of split {sorting.buckets.split!r} were lost while they were gathered.",
            f"A worker has written examples that the runner lost; one has the key {key!r}.",
        )
    if len(counting) == 1:
        return int(counting[0]), counting[1:]
    if sorting.has_units and len(set(_places(counting, index))) < len(counting):
        raise run_files.lost_or_duplicated(
            f"Examples of split {sorting.buckets.split!r} were duplicated while they were sorted.",
            f"The runner delivered an example twice; it has the key {key!r}.",
        )
    if not sorting.ignore_duplicates:
        names = unit_names(sorting.work, sorting.buckets.split) if sorting.has_units else ()
        places = _places(counting[:2], index) if sorting.has_units else ()
        raise duplicate_key(key, [(names[unit], position) for unit, position in places])
    if not sorting.has_units:
        # Without positions the content decides which is the first, on any runner.
        counting = np.array(sorted(counting.tolist(), key=lambda row: records[row].as_py()))
    return int(counting[0]), counting[1:]


def _places(rows: _Rows, index: Columns) -> list[tuple[int, int]]:
    return list(zip(index["unit"][rows].tolist(), index["position"][rows].tolist(), strict=True))


_ALL_SORTED = "sorted.json"


def sort(driver: Driver, found: Sequence[GeneratedRuns]) -> list[list[SortedBucket]]:
    """Sorts the runs of all splits, and returns the parts of each split in order.

    Raises:
      MyDatasetsError: See `engine.build`.
    """
    inputs = driver.job.inputs
    driver.meter.begin("sorting", expected_bytes=sum(one.data_bytes for one in found))
    sortings = [_sorting(driver, *pair) for pair in zip(inputs, found, strict=True)]
    sorted_buckets: list[dict[int, SortedBucket]] = [{} for _ in sortings]
    are_all_sorted = driver.work.read_json(_ALL_SORTED) is not None
    waves = _waves(driver, sortings, sorted_buckets)
    if waves and are_all_sorted:
        raise LostExamplesError(
            f"Sorted parts are missing in {driver.work.place}.",
            fix="build with --restart; if it fails again, please report it",
        )
    if waves:
        left = sum(
            one.buckets.bucket_bytes * sum(len(wave[i]) for wave in waves)
            for i, one in enumerate(sortings)
        )
        driver.work.place.require_room(int(left), "The sorted parts take")
    for wave in waves:
        _sort_wave(driver, sortings, found, wave)
    try:
        parts = driver.retry_until_visible(
            lambda: _reconciled(driver, sortings, found, sorted_buckets)
        )
    except LostExamplesError:
        for item in inputs:
            driver.remove_parts(item.name)  # so that the next build makes them again
        raise
    if not are_all_sorted:
        driver.work.write_json(_ALL_SORTED, [])
    for item in inputs:  # the runs are sorted now; their reports stay
        driver.work.place.remove(driver.work.generated(item.name), runs.SUFFIX)
    return parts


def _reconciled(
    driver: Driver,
    sortings: Sequence[Sorting],
    found: Sequence[GeneratedRuns],
    sorted_buckets: Sequence[dict[int, SortedBucket]],
) -> list[list[SortedBucket]]:
    """Returns the parts of each split; raises `LostExamplesError` unless their totals match."""
    left = _left(sortings, sorted_buckets)
    _read_parts(driver, sortings, left, sorted_buckets)
    parts = [[each[number] for number in sorted(each)] for each in sorted_buckets]
    for item, one, its in zip(driver.job.inputs, found, parts, strict=True):
        total = sum((part.kept + part.dropped for part in its), ChecksumTotals())
        if total != one.tally:
            raise run_files.lost(item.name, "sorted", one.tally, total)
    return parts


def _left(
    sortings: Sequence[Sorting], sorted_buckets: Sequence[dict[int, SortedBucket]]
) -> list[list[int]]:
    return [
        [number for number in range(one.buckets.count) if number not in parts]
        for one, parts in zip(sortings, sorted_buckets, strict=True)
    ]


def _sort_wave(
    driver: Driver,
    sortings: Sequence[Sorting],
    found: Sequence[GeneratedRuns],
    wave: Sequence[Sequence[int]],
) -> None:
    tasks = [
        (number, counted)
        for number, one in enumerate(found)
        if wave[number]
        for counted in one.runs
    ]
    pipeline = driver.how.submission.pipeline()
    cut_runs = beam.ParDo(CutRuns(sortings, wave, driver.environment))
    _ = (
        driver.distribute(pipeline, "runs", tasks)
        | "Cut runs" >> cut_runs.with_output_types(tuple[int, bytes])
        | "Group by bucket" >> beam.GroupByKey()
        | "Sort buckets" >> beam.ParDo(SortBucket(sortings, driver.environment))
    )
    try:
        driver.run_pipeline("sorting", pipeline, _look(driver))
    except (DuplicateKeyError, LostExamplesError):
        for item in driver.job.inputs:
            if item.collection is not None:
                # The runner may have duplicated or lost elements; the next build makes them again.
                driver.remove_generated(item.name)
                driver.remove_parts(item.name)
        raise


def _sorting(driver: Driver, item: SplitInput, found: GeneratedRuns) -> Sorting:
    is_collection = item.collection is not None
    is_ordered = driver.job.ordered
    return Sorting(
        driver.work,
        buckets.cut(
            driver.work, item.name, found, driver.options.memory, spread_evenly=not is_ordered
        ),
        driver.job.ignore_duplicates,
        None if is_collection else limit(driver.job, item, found.state.units),
        has_units=not is_collection,
        by_text=is_collection and is_ordered,
    )


def _waves(
    driver: Driver, sortings: Sequence[Sorting], sorted_buckets: Sequence[dict[int, SortedBucket]]
) -> list[list[tuple[int, ...]]]:
    """Returns, for each pipeline, the buckets of each split that it sorts."""
    _read_parts(driver, sortings, [range(one.buckets.count) for one in sortings], sorted_buckets)
    left = _left(sortings, sorted_buckets)
    at_once = driver.how.submission.at_once(driver.options.memory)
    if at_once is None:
        return [[tuple(numbers) for numbers in left]] if any(left) else []
    return [
        [some if other == number else () for other in range(len(sortings))]
        for number, one in enumerate(sortings)
        for some in one.buckets.waves(left[number], at_once)
    ]


def _read_parts(
    driver: Driver,
    sortings: Sequence[Sorting],
    wanted: Sequence[Sequence[int]],
    sorted_buckets: Sequence[dict[int, SortedBucket]],
) -> None:
    work = driver.work
    for one, numbers, parts in zip(sortings, wanted, sorted_buckets, strict=True):
        folder = work.parts(one.buckets.split)
        sizes = {f"{folder}/{name}": size for name, size in work.place.sizes(folder).items()}
        names = {number: work.part(one.buckets.split, number) + REPORT for number in numbers}
        reported = [number for number, name in names.items() if name in sizes]
        said = work.read_all(names[number] for number in reported)
        found = (SortedBucket.of(*each, sizes) for each in zip(reported, said, strict=True))
        parts |= {part.number: part for part in found if part is not None}


def _look(driver: Driver) -> Callable[[], None]:
    """Returns a function that counts new parts."""
    new = [
        (item.name, NewFiles(driver.work.place, driver.work.parts(item.name), PART))
        for item in driver.job.inputs
    ]

    def look() -> None:
        for split, files in new:
            for _, size in files.look():
                driver.meter.add(split, 0, size)

    return look
