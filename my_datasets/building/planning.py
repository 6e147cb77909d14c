"""The second stage: checks that the runs are complete, and plans the shards.

Where shuffling is disabled, examples are ordered by int keys, or as they were generated.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from my_datasets.building import shards
from my_datasets.building.journal import Journal, SplitState
from my_datasets.building.options import BuildOptions, Job
from my_datasets.building.shards import ShardPlan, Sources
from my_datasets.building.units import SplitInput, UnitState
from my_datasets.errors import EmptySplitError, InvalidKeyError, LostExamplesError, QuarantineError
from my_datasets.records import shuffle_order
from my_datasets.records.tf_example import pieces

# Room for 2**40 examples in each of 2**22 units.
_POSITION_BITS = 40

# The part of a worker's memory for what is read of the runs at once while shards are written.
_CHUNK = 0.3


def numbers(
    unit: int, positions: npt.NDArray[np.uint64], keys: Sequence[object] | pa.Array
) -> tuple[bool, shuffle_order.Hashes]:
    """Returns numbers that sort as TFDS sorts where shuffling is disabled: by int keys.

    Returns:
      Whether the keys give the order; the numbers that replace hashes, shape [n] each.

    Raises:
      InvalidKeyError: Some keys are ints and some are not, or one is out of range.
    """
    values = _whole_numbers(keys)
    by_key = values is not None
    if values is None:
        values = (unit << _POSITION_BITS) + positions.astype(np.int64)
    # Flipping the sign bit makes unsigned numbers sort like the signed ones.
    high = values.view(np.uint64) ^ np.uint64(1 << 63)
    return by_key, (high, np.zeros(len(values), np.uint64))


def of_texts(keys: pa.LargeBinaryArray) -> shuffle_order.Hashes:
    """Returns numbers that sort like the first 16 bytes of the keys.

    A Beam collection has no order of generation, so its keys give the order, byte by byte.

    Args:
      keys: The result of `shuffle_order.key_array`, shape [n].
    """
    begins = pieces.offsets_of(keys)
    data = np.append(pieces.bytes_of(keys), np.zeros(16, np.uint8))
    column = np.arange(16)
    inside = column < np.diff(begins)[:, None]
    where = np.minimum((begins[:-1] - begins[0])[:, None] + column, len(data) - 1)
    halves = np.where(inside, data[where], np.uint8(0)).view(">u8").astype(np.uint64)
    return halves[:, 0].copy(), halves[:, 1].copy()


def mixed_keys() -> InvalidKeyError:
    """Returns the error for a mix of int and other keys where shuffling is disabled."""
    return InvalidKeyError(
        "Where shuffling is disabled, either all keys are ints or none is.",
        fix="yield ints that give the order, or strings to keep the order of generation",
    )


def _whole_numbers(keys: Sequence[object] | pa.Array) -> npt.NDArray[np.int64] | None:
    """Returns int keys as an array; None if no key is an int."""
    if isinstance(keys, (pa.Array, pa.ChunkedArray)):
        if not pa.types.is_integer(keys.type):
            return None
        values = keys.to_numpy(zero_copy_only=False)
    else:
        whole = [isinstance(key, (int, np.integer)) for key in keys]
        if not any(whole):
            return None
        if not all(whole):
            raise mixed_keys()
        values = np.array(keys)
    # Python ints beyond 64 bits make an array of objects.
    if values.dtype.kind not in "iu" or (values > np.int64(2**63 - 1)).any():
        raise InvalidKeyError(
            "Where shuffling is disabled, an int key must fit in a signed 64-bit integer.",
            f"Keys from {values.min()} to {values.max()}",
            fix="yield smaller numbers, or strings to keep the order of generation",
        )
    return np.asarray(values, np.int64)


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
    _check_counts(item, journal)
    check_keys_and_quarantine(item, state, options)
    names = ["0 (the whole split)"] if item.is_plain else [
        item.unit_name(unit) for unit in range(len(item.units.items))
    ]  # fmt: skip
    sources = Sources(
        [run for run, _ in state.runs],
        [frozenset(excluded) for _, excluded in state.runs],
        limit=limit(job, item, state.units),
        ignore_duplicates=job.ignore_duplicates,
        units=names,
    )
    plan = shards.plan(sources, int(options.memory / options.worker_count * _CHUNK))
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
    for unit in range(len(item.units.items)):
        if not state.is_complete(unit):
            raise LostExamplesError(
                f"Unit {item.unit_name(unit)} of split {item.name!r} is not finished.",
                fix="run the same again; if it fails again, please report it",
            )


def _check_counts(item: SplitInput, journal: Journal) -> None:
    """Compares the number of examples of each unit with the number of its records."""
    state = journal.split(item.name)
    found = np.zeros(len(item.units.items), np.int64)
    for run, excluded in state.runs:
        units = run.mapped("unit")
        counted = np.bincount(units, minlength=len(found))
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
        raise mixed_keys()
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
