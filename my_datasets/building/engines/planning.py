"""The second stage: what was gathered is counted, and laid out as a split."""

from collections.abc import Mapping

import numpy as np

from my_datasets.building import ordering, shards
from my_datasets.building.job import Job
from my_datasets.building.journal import Journal, SplitState
from my_datasets.building.options import BuildOptions
from my_datasets.building.shards import ShardPlan, Sources
from my_datasets.building.units import SplitInput, UnitState
from my_datasets.errors import EmptySplitError, LostExamplesError, QuarantineError, explain

# Of a worker's share of the memory: what is read of the runs at once while shards are written.
_CHUNK = 0.3


def planned(job: Job, item: SplitInput, journal: Journal, options: BuildOptions) -> ShardPlan:
    """Returns what a split's shards will hold.

    Raises:
      LostExamplesError: Records are missing, or too many.
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
        explain(
            f"The split {item.name!r} has no example.",
            f"Its units: {len(item.units.items)}" if item.collection is None else "",
            fix="see that its generator finds its input, or leave the split out",
        )
    )


def check_complete(item: SplitInput, state: SplitState) -> None:
    """Sees that all units of a split were gathered.

    Raises:
      LostExamplesError: One was not.
    """
    for unit in range(len(item.units.items)):
        if not state.is_complete(unit):
            raise LostExamplesError(
                explain(
                    f"Unit {item.unit_name(unit)} of split {item.name!r} is not finished.",
                    fix="run the same again; if it stays, please report it",
                )
            )


def _check_counts(item: SplitInput, journal: Journal) -> None:
    """Compares, for each unit, the examples that were seen with the records that are there."""
    state = journal.split(item.name)
    found = np.zeros(len(item.units.items), np.int64)
    for run, excluded in state.runs:
        units = run.mapped("unit")
        counted = np.bincount(units, minlength=len(found))
        counted[list(excluded)] = 0
        found += counted
    for unit, there in enumerate(found.tolist()):
        expected = state.units[unit].seen - len(state.units[unit].quarantined)
        if there != expected:
            raise LostExamplesError(
                explain(
                    f"Unit {item.unit_name(unit)} of split {item.name!r} does not add up.",
                    f"Expected: {expected:,} records; found: {there:,}",
                    fix="build with --restart; if it stays, please report it",
                )
            )


def check_keys_and_quarantine(item: SplitInput, state: SplitState, options: BuildOptions) -> None:
    """Sees that the keys of a split are of one kind, and that not too much was set aside.

    Raises:
      InvalidKeyError: Shuffling is disabled, and some keys are ints and some are not.
      QuarantineError: Too many examples do not fit.
    """
    units = state.units.values()
    if {unit.ordered_by_key for unit in units} >= {True, False}:
        raise ordering.mixed_keys()
    quarantined = sum(len(unit.quarantined) for unit in units)
    seen = sum(unit.seen for unit in units)
    if quarantined > options.max_quarantined * seen:
        first = next(entry for unit in units for entry in unit.quarantined)
        raise QuarantineError(
            explain(
                f"{quarantined:,} of {seen:,} examples of split {item.name!r} do not fit.",
                f"Allowed: {options.max_quarantined:.2%}",
                f"One of them: unit {first.unit}, example {first.position}, key {first.key}, "
                f"feature {first.feature}: expected {first.expected}, found {first.found}",
                fix="fix the input or the builder, or allow more with max_quarantined",
            )
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
