"""What was gathered of a split: which of the runs count, and whether they add up."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from my_datasets.building.engines import planning
from my_datasets.building.engines.beam.pipelines.checksum_totals import Tally
from my_datasets.building.engines.beam.pipelines.run_writer import REPORT
from my_datasets.building.engines.beam.workspace.build_files import BuildFiles
from my_datasets.building.journal import SplitState
from my_datasets.building.options import BuildOptions
from my_datasets.building.runs import Run
from my_datasets.building.units import SplitInput, UnitState
from my_datasets.core.logs import get_logger
from my_datasets.errors import LostExamplesError, explain

_LOGGER = get_logger(__name__)

COMMITTED = "committed.json"
_CHOSEN = "chosen.json"
_NAMES = "units.json"


@dataclass(frozen=True)
class CountedRun:
    """A run, and what of it counts.

    Attributes:
      run: The run.
      excluded: Units of which another attempt counts, or none yet.
      is_witness: Whether its records only have to be there already. A bundle wrote it and came to
        its end, but Beam does not say that it counts: it was done again, or it was lost.
    """

    run: Run
    excluded: frozenset[int] = frozenset()
    is_witness: bool = False


@dataclass
class Gathered:
    """What was gathered of a split.

    Attributes:
      runs: The runs of which something counts.
      state: The units; of a collection, the attempts that count.
      tally: What the records that count add up to, as those said who made them.
      samples: Upper halves of hashes and how many bytes each stands for, where they were taken.
      chosen: The attempt that counts of each unit that is complete.
    """

    runs: list[CountedRun] = field(default_factory=list)
    state: SplitState = field(default_factory=SplitState)
    tally: Tally = field(default_factory=Tally)
    samples: list[tuple[int, float]] = field(default_factory=list)
    chosen: dict[int, str] = field(default_factory=dict)

    @property
    def data_bytes(self) -> int:
        """The size of the framed records that are moved."""
        return sum(counted.run.data_bytes for counted in self.runs)


@dataclass
class _Attempt:
    """All that one bundle said."""

    reports: list[dict[str, Any]] = field(default_factory=list)
    units: dict[int, UnitState] = field(default_factory=dict)

    def add(self, report: dict[str, Any]) -> None:
        self.reports.append(report)
        for number, said in report["units"].items():
            state = UnitState.from_json(said)
            before = self.units.get(int(number))
            if before is not None:
                state.quarantined = before.quarantined + state.quarantined
            self.units[int(number)] = state

    @property
    def is_complete(self) -> bool:
        return bool(self.units) and all(state.complete for state in self.units.values())


def read(work: BuildFiles, item: SplitInput) -> Gathered:
    """Returns what is there of a split, which may be only a part of it."""
    folder = work.generated(item.name)
    # Those of an attempt in their order.
    names = sorted(name for name in work.place.sizes(folder) if name.endswith(REPORT))
    attempts: dict[str, _Attempt] = {}
    for report in work.read_all(f"{folder}/{name}" for name in names):
        attempts.setdefault(report["attempt"], _Attempt()).add(report)
    if item.collection is not None:
        return _of_collection(item, work, attempts)
    said = work.read_json(f"{folder}/{_CHOSEN}") or {}
    return _of_units({int(unit): name for unit, name in said.items()}, attempts)


def _of_units(chosen: dict[int, str], attempts: Mapping[str, _Attempt]) -> Gathered:
    if not chosen:
        for name in sorted(attempts):
            for unit, state in attempts[name].units.items():
                if state.complete:
                    chosen.setdefault(unit, name)
    found = Gathered(chosen=chosen)
    for unit, name in sorted(chosen.items()):
        found.state.units[unit] = attempts[name].units[unit]
    for name, attempt in attempts.items():
        for report in attempt.reports:
            others = {
                unit for unit in map(int, report.get("tallies", {})) if chosen.get(unit) != name
            }
            _add(found, report, frozenset(others))
    return found


def _of_collection(
    item: SplitInput, work: BuildFiles, attempts: Mapping[str, _Attempt]
) -> Gathered:
    said_to_count = work.read_json(f"{work.generated(item.name)}/{COMMITTED}") or []
    committed = {one["attempt"]: one for one in said_to_count}
    found = Gathered()
    for name, attempt in attempts.items():
        if name not in committed and not attempt.is_complete:
            continue  # of a bundle that died
        for report in attempt.reports:
            _add(found, report, is_witness=name not in committed)
    for number, (name, said) in enumerate(sorted(committed.items())):
        there = attempts.get(name, _Attempt())
        seen = sum(state.seen for state in there.units.values())
        if (len(there.reports), seen) != (said["reports"], said["seen"]):
            raise LostExamplesError(
                explain(
                    f"A part of split {item.name!r} is not as it was made.",
                    f"Expected: {said['seen']:,} examples in {said['reports']} runs; found: "
                    f"{seen:,} in {len(there.reports)}",
                    f"In {work.place}",
                    fix="run the same again; if it stays, please report it",
                )
            )
        found.state.units[number] = there.units[0]
    return found


def _add(
    found: Gathered,
    report: Mapping[str, Any],
    excluded: frozenset[int] = frozenset(),
    *,
    is_witness: bool = False,
) -> None:
    tallies = {int(unit): Tally.from_json(said) for unit, said in report.get("tallies", {}).items()}
    if excluded >= tallies.keys():
        return
    run = Run(**report["run"])
    found.runs.append(CountedRun(run, excluded, is_witness))
    samples = report.get("samples", [])
    found.samples += [(high, run.data_bytes / len(samples)) for high in samples]
    if not is_witness:
        counting = (one for unit, one in tallies.items() if unit not in excluded)
        found.tally = sum(counting, found.tally)


def complete(work: BuildFiles, item: SplitInput, options: BuildOptions) -> Gathered:
    """Returns what was gathered of a split, all of it, and keeps to that choice from now on.

    Raises:
      LostExamplesError: Units are missing, or records.
      InvalidKeyError: Shuffling is disabled, and some keys are ints and some are not.
      QuarantineError: Too many examples do not fit.
      EmptySplitError: There is no example.
    """
    found = read(work, item)
    planning.check_complete(item, found.state)
    if item.collection is None:
        name = f"{work.generated(item.name)}/{_CHOSEN}"
        if work.read_json(name) is None:
            # Of a worker given up for dead, more may come at any time.
            work.write_json(name, found.chosen)
    _check_counts(item, found)
    planning.check_keys_and_quarantine(item, found.state, options)
    if not found.tally.count:
        if any(counted.is_witness for counted in found.runs):
            raise lost(item.name, "gathered", found.runs[0].run.count, 0)
        raise planning.empty_split(item)
    witnesses = sum(counted.is_witness for counted in found.runs)
    if witnesses:
        _LOGGER.warning(
            "Split %s: %d runs were finished, but Beam did not say that they count. It is compared "
            "whether their examples are there.", item.name, witnesses,
        )  # fmt: skip
    return found


def write_unit_names(work: BuildFiles, item: SplitInput) -> None:
    """Leaves for workers what messages call the units."""
    names = [item.unit_name(unit) for unit in range(len(item.units.items))]
    work.write_json(f"{work.generated(item.name)}/{_NAMES}", names)


def unit_names(work: BuildFiles, split: str) -> list[str]:
    """Returns what messages call the units of a split."""
    names: list[str] = work.read_json(f"{work.generated(split)}/{_NAMES}")
    return names


def _check_counts(item: SplitInput, found: Gathered) -> None:
    """Compares the examples that generators gave with the records that were made of them."""
    units = found.state.units.values()
    expected = sum(unit.seen - len(unit.quarantined) for unit in units)
    if expected != found.tally.count:
        raise lost(item.name, "gathered", expected, found.tally.count)


def lost(split: str, done: str, expected: object, there: object) -> LostExamplesError:
    """Returns the error for records that are not there, or are too many.

    Args:
      split: The split.
      done: What was done when they were lost, in the past tense.
      expected: What there should be.
      there: What there is.
    """
    return LostExamplesError(
        explain(
            f"Examples of split {split!r} were lost or doubled while they were {done}.",
            f"Expected: {expected}",
            f"Found: {there}",
            "Nothing is published.",
            fix="run the same again; if it stays, use another runner, and please report it",
        )
    )
