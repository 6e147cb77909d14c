"""The second stage, in the building process: cuts buckets, sorts them on Beam, checks totals."""

from collections.abc import Callable, Sequence

from my_datasets.building import runs
from my_datasets.building.engines.beam.pipelines import buckets, run_files, sorting
from my_datasets.building.engines.beam.pipelines.run_files import ChecksumTotals, Gathered
from my_datasets.building.engines.beam.pipelines.sorting import PART, REPORT, SortedBucket, Sorting
from my_datasets.building.engines.beam.pipelines.stage import Driver, NewFiles
from my_datasets.building.planning import limit
from my_datasets.building.units import SplitInput
from my_datasets.errors import DuplicateKeyError, LostExamplesError

_ALL_SORTED = "sorted.json"


def sort(driver: Driver, found: Sequence[Gathered]) -> list[list[SortedBucket]]:
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
        parts = driver.patiently(lambda: _reconciled(driver, sortings, found, sorted_buckets))
    except LostExamplesError:
        for item in inputs:
            driver.forget_parts(item.name)  # so that the next build makes them again
        raise
    if not are_all_sorted:
        driver.work.write_json(_ALL_SORTED, [])
    _forget_runs(driver)
    return parts


def _reconciled(
    driver: Driver,
    sortings: Sequence[Sorting],
    found: Sequence[Gathered],
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


def _forget_runs(driver: Driver) -> None:
    """Removes the runs, which are sorted now; their reports stay."""
    place = driver.work.place
    for item in driver.job.inputs:
        place.forget(driver.work.generated(item.name), runs.SUFFIX)


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
    found: Sequence[Gathered],
    wave: Sequence[Sequence[int]],
) -> None:
    tasks = [
        (number, counted)
        for number, one in enumerate(found)
        if wave[number]
        for counted in one.runs
    ]
    pipeline = driver.how.submission.pipeline()
    files = driver.work.write_tasks("runs", tasks)
    sorting.add_sorting(pipeline, files, sortings, wave, driver.surroundings)
    try:
        driver.run_pipeline("sorting", pipeline, _look(driver))
    except (DuplicateKeyError, LostExamplesError):
        for item in driver.job.inputs:
            if item.collection is not None:
                # The runner may have duplicated or lost elements; the next build makes them again.
                driver.forget_generated(item.name)
                driver.forget_parts(item.name)
        raise


def _sorting(driver: Driver, item: SplitInput, found: Gathered) -> Sorting:
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
