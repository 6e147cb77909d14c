"""Merges sorted runs into shards, at boundaries that depend on the data alone.

The range of hashes is cut into chunks that fit in memory. A first pass over the runs' indexes
counts and finds duplicate keys. Then each shard is written independently, from the chunks that it
overlaps.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from my_datasets.building import runs
from my_datasets.building.journal import Journal, SplitState
from my_datasets.building.options import BuildOptions, Job
from my_datasets.building.runs import INDEX_BYTES, Columns, Run, select
from my_datasets.building.units import SplitInput, UnitState
from my_datasets.errors import (
    DuplicateKeyError,
    EmptySplitError,
    LostExamplesError,
    QuarantineError,
)
from my_datasets.records import tfrecord
from my_datasets.records.tf_example import pieces

# Published guidance: 100 to 200 MB each, at least 10 MB, about ten for each reading host.
# https://www.tensorflow.org/tutorials/load_data/tfrecord, "TFRecord files using tf.data"
TARGET_SHARD_BYTES = 150 << 20
LEAST_SHARD_BYTES = 10 << 20
SHARDS_PER_READER = 10

# A chunk's index is in memory three times.
_INDEX_COPIES = 3
# Hashes to sample from each run, per chunk.
_SAMPLES = 4
_SORTED_BY_AND_WHERE = ("high", "low", "unit", "position", "size", "begin")


@dataclass(frozen=True)
class Sources:
    """The runs of a split, and which of their records count."""

    runs: Sequence[Run]
    # For each run, the units whose records do not count because they were not finished.
    excluded: Sequence[frozenset[int]]
    limit: tuple[int, int] | None  # the first (unit, position) beyond the wanted number of examples
    ignore_duplicates: bool  # keep the first example of each key instead of failing
    units: Sequence[str]  # the names of the units for messages


@dataclass(frozen=True)
class Chunk:
    """A range of hashes that is processed at once."""

    begins: npt.NDArray[np.int64]  # the first record of each run; shape [runs]
    ends: npt.NDArray[np.int64]  # one past the last record of each run; shape [runs]
    start: int  # the index of its first record in the split
    count: int  # its records that count


@dataclass(frozen=True)
class ShardPlan:
    """The contents of a split's shards."""

    sources: Sources
    chunks: Sequence[Chunk]  # in order
    num_examples: int
    num_bytes: int  # of the records, without framing


def plan_chunks(sources: Sources, chunk_bytes: int) -> ShardPlan:
    """Cuts the runs into chunks of about `chunk_bytes`, and checks that keys are unique.

    Raises:
      DuplicateKeyError: Two examples have the same key.
    """
    chunks = []
    num_examples = num_bytes = 0
    for begins, ends in pairwise(_cut(sources.runs, chunk_bytes)):
        index = _index(sources, begins, ends)
        count = len(index["high"])
        if count:
            chunks.append(Chunk(begins, ends, num_examples, count))
        num_examples += count
        num_bytes += int(index["size"].sum()) - count * tfrecord.OVERHEAD
    return ShardPlan(sources, chunks, num_examples, num_bytes)


def boundaries(num_examples: int, num_shards: int) -> list[int]:
    """Returns the `num_shards + 1` boundaries of the shards, as TFDS's own writer cuts them."""
    return [round(num_examples * i / num_shards) for i in range(num_shards + 1)]


def number_of_shards(num_bytes: int, num_examples: int, readers: int = 1) -> int:
    """Returns how many shards a split gets by default; `num_bytes` is without framing."""
    total = num_bytes + num_examples * tfrecord.OVERHEAD
    count = max(math.ceil(total / TARGET_SHARD_BYTES), SHARDS_PER_READER * readers)
    return max(1, min(count, total // LEAST_SHARD_BYTES, num_examples))


class Space:
    """A reusable buffer: the system has to clear and map new memory first."""

    def __init__(self) -> None:
        self._bytes = np.empty(0, np.uint8)

    def of(self, size: int) -> pieces.Bytes:
        """Returns `size` bytes of the buffer; they overlap those of earlier calls."""
        if size > len(self._bytes):
            self._bytes = np.empty(0, np.uint8)  # frees the old buffer first
            self._bytes = np.empty(size, np.uint8)
        return self._bytes[:size]


def records(
    plan: ShardPlan, begin: int, end: int, space: Space
) -> Iterator[tuple[pieces.Bytes, Columns]]:
    """Yields the framed records `begin` to `end` of the split, in portions.

    Yields:
      The bytes of some records in `space`, valid until the next portion, and their index columns.
    """
    for chunk in plan.chunks:
        first, last = max(begin, chunk.start), min(end, chunk.start + chunk.count)
        if first >= last:
            continue
        index = _index(plan.sources, chunk.begins, chunk.ends)
        index = select(index, slice(first - chunk.start, last - chunk.start))
        yield from _read(plan.sources.runs, index, space)


def _read(
    all_runs: Sequence[Run], index: Columns, space: Space
) -> Iterator[tuple[pieces.Bytes, Columns]]:
    """Yields the records of a sorted index."""
    sizes, which = index["size"], index["run"]
    # Each run is read in one go, from the first wanted record to the last.
    bases, length = np.zeros(len(all_runs), np.int64), 0
    spans = []
    for number in np.unique(which).tolist():
        rows = which == number
        begins, ends = index["begin"][rows], index["begin"][rows] + sizes[rows]
        low, high = int(begins.min()), int(ends.max())
        bases[number] = length - low
        spans.append((number, low, length, high - low))
        length += high - low
    data = space.of(length)
    for number, low, offset, span in spans:
        all_runs[number].read_into(data.data[offset : offset + span], low)
    starts = index["begin"].astype(np.int64) + bases[which]
    # Arrow arrays need adjacent values, so every other one is the gap, often empty, after a record.
    in_file = np.argsort(starts, kind="stable")
    offsets = np.stack([starts, starts + sizes.astype(np.int64)], axis=1)[in_file].reshape(-1)
    values = pieces.binary_array(pa.py_buffer(data), offsets)
    order = np.empty(len(sizes), np.int64)
    order[in_file] = np.arange(0, 2 * len(sizes), 2)
    ends = np.cumsum(sizes, dtype=np.uint64)
    begin = 0
    for portion in runs.reordered(values, order, ends):
        before = int(ends[begin - 1]) if begin else 0
        after = int(np.searchsorted(ends, before + len(portion), side="left")) + 1
        yield portion, select(index, slice(begin, after))
        begin = after


def _index(sources: Sources, begins: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> Columns:
    """Returns the sorted index of the records that count; `run` is the number of their run."""
    parts: list[Columns] = []
    for number in np.flatnonzero(ends > begins).tolist():
        begin, end = int(begins[number]), int(ends[number])
        part = sources.runs[number].columns(_SORTED_BY_AND_WHERE, begin, end)
        part["run"] = np.full(end - begin, number, np.int64)
        part["row"] = np.arange(begin, end)
        if excluded := sources.excluded[number]:
            part = select(part, ~np.isin(part["unit"], list(excluded)))
        if sources.limit is not None:
            part = select(part, within(part, sources.limit))
        parts.append(part)
    if not parts:
        return {name: np.zeros(0, np.int64) for name in ("high", "size", "run")}
    index = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    index = select(index, runs.sort_order(index))
    again = (index["high"][1:] == index["high"][:-1]) & (index["low"][1:] == index["low"][:-1])
    if again.any():
        if not sources.ignore_duplicates:
            raise _duplicate(sources, index, int(np.argmax(again)))
        index = select(index, np.concatenate([[True], ~again]))
    return index


def within(index: Columns, limit: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """Returns which records come before a (unit, position); shape [n]."""
    unit, position = limit
    is_same = index["unit"] == unit
    found: npt.NDArray[np.bool_] = (index["unit"] < unit) | (
        is_same & (index["position"] < position)
    )
    return found


def _duplicate(sources: Sources, index: Columns, row: int) -> DuplicateKeyError:
    run = sources.runs[int(index["run"][row])]
    both = slice(row, row + 2)
    names = [sources.units[unit] for unit in index["unit"][both].tolist()]
    places = list(zip(names, index["position"][both].tolist(), strict=True))
    return duplicate_key(run.key(int(index["row"][row])), places)


def duplicate_key(key: str, places: Sequence[tuple[str, int]]) -> DuplicateKeyError:
    """Returns the error for a key of two examples, with their units and positions if known."""
    facts = [
        f"{which}: unit {unit}, example {position} (counted from 0)"
        for which, (unit, position) in zip(("First", "Again"), places, strict=False)
    ]
    return DuplicateKeyError(
        f"Two examples have the key {key!r}.",
        *facts,
        fix="yield keys that are unique within the split, or pass ignore_duplicates to keep "
        "the first of each",
    )


def _cut(all_runs: Sequence[Run], chunk_bytes: int) -> list[npt.NDArray[np.int64]]:
    """Returns the boundaries of chunks of consecutive hashes: for each, an index in each run."""
    total = sum(run.data_bytes + run.count * INDEX_BYTES * _INDEX_COPIES for run in all_runs)
    cuts = _splitters(all_runs, math.ceil(total / max(1, chunk_bytes)))
    places = np.zeros((len(cuts) + 2, len(all_runs)), np.int64)
    for number, run in enumerate(all_runs):
        places[1:-1, number] = np.searchsorted(run.mapped("high"), cuts)
        places[-1, number] = run.count
    return list(places)


def _splitters(all_runs: Sequence[Run], pieces: int) -> npt.NDArray[np.uint64]:
    """Returns upper halves of hashes that cut all records into pieces of about equal size."""
    if pieces <= 1:
        return np.zeros(0, np.uint64)
    samples, weights = [], []
    for run in all_runs:
        count = min(run.count, pieces * _SAMPLES)
        rows = np.linspace(0, run.count - 1, count).astype(np.int64)
        samples.append(np.asarray(run.mapped("high")[rows]))
        weights.append(np.full(count, run.data_bytes / count))
    values, weight = np.concatenate(samples), np.concatenate(weights)
    order = np.argsort(values)
    reached = np.cumsum(weight[order])
    shares = reached[-1] * np.arange(1, pieces) / pieces
    return np.unique(values[order][np.searchsorted(reached, shares)])


# The part of a worker's memory for what is read of the runs at once while shards are written.
_CHUNK = 0.3


def planned(job: Job, item: SplitInput, journal: Journal, options: BuildOptions) -> ShardPlan:
    """Returns the plan of a split's shards.

    Raises:
      LostExamplesError: There are too few or too many records.
      QuarantineError: Too many examples do not fit.
      DuplicateKeyError: Two examples have the same key.
      EmptySplitError: There is no example.
    """
    state = journal.split(item.name)
    check_complete(item, state)
    _check_counts(item, state)
    check_keys_and_quarantine(item, state, options)
    sources = Sources(
        [run for run, _ in state.runs],
        [frozenset(excluded) for _, excluded in state.runs],
        limit=limit(job, item, state.units),
        ignore_duplicates=job.ignore_duplicates,
        units=item.unit_names(),
    )
    plan = plan_chunks(sources, int(options.memory / options.worker_count * _CHUNK))
    if not plan.num_examples:
        raise empty_split(item)
    return plan


def empty_split(item: SplitInput) -> EmptySplitError:
    """Returns the error for a split without examples."""
    return EmptySplitError(
        f"The split {item.name!r} has no example.",
        f"Its units: {len(item.units.items)}" if item.collection is None else "",
        fix="check that its generator finds its input, or leave the split out",
    )


def check_complete(item: SplitInput, state: SplitState) -> None:
    """Raises `LostExamplesError` unless all units of a split are complete."""
    if left := item.units_left(state.units):
        raise LostExamplesError(
            f"Unit {item.unit_name(left[0])} of split {item.name!r} is not finished.",
            fix="run the same again; if it fails again, please report it",
        )


def _check_counts(item: SplitInput, state: SplitState) -> None:
    """Compares the number of examples of each unit with the number of its records."""
    found = np.zeros(len(item.units.items), np.int64)
    for run, excluded in state.runs:
        counted = np.bincount(run.mapped("unit"), minlength=len(found))
        counted[list(excluded)] = 0
        found += counted
    for unit, count in enumerate(found.tolist()):
        expected = state.units[unit].seen - len(state.units[unit].quarantined)
        if count != expected:
            raise LostExamplesError(
                f"Unit {item.unit_name(unit)} of split {item.name!r} does not add up.",
                f"Expected: {expected:,} records; found: {count:,}",
                fix="build with --restart; if it fails again, please report it",
            )


def check_keys_and_quarantine(item: SplitInput, state: SplitState, options: BuildOptions) -> None:
    """Checks that a split's keys are of one kind, and that few enough examples were set aside.

    Raises:
      InvalidKeyError: Shuffling is disabled, and only some keys are ints.
      QuarantineError: Too many examples do not fit.
    """
    units = state.units.values()
    if {unit.ordered_by_key for unit in units} >= {True, False}:
        raise runs.mixed_keys()
    quarantined = sum(len(unit.quarantined) for unit in units)
    seen = sum(unit.seen for unit in units)
    if quarantined > options.max_quarantined * seen:
        first = next(entry for unit in units for entry in unit.quarantined)
        raise QuarantineError(
            f"{quarantined:,} of {seen:,} examples of split {item.name!r} do not fit.",
            f"Allowed: {options.max_quarantined:.2%}",
            f"One of them: unit {first.unit}, example {first.position}, key {first.key}, "
            f"feature {first.feature}: expected {first.expected}, found {first.found}",
            fix="fix the input or the builder, or raise max_quarantined",
        )


def limit(job: Job, item: SplitInput, units: Mapping[int, UnitState]) -> tuple[int, int] | None:
    """Returns the first (unit, position) beyond the wanted number of examples."""
    if job.max_examples is None:
        return None
    left = job.max_examples
    for unit in range(len(item.units.items)):
        if units[unit].seen >= left:
            return unit, left
        left -= units[unit].seen
    return None
