"""Tallies: what is compared to see that no example was lost, doubled or altered on the way.

A tally is made where examples are encoded, and once more from the bytes of the written shards.
Both are arithmetic on bytes that are there, and neither asks Beam how much it has moved: its own
counters said 18,000 when 17,948 examples had been written.

A unit may be done more than once, and a bundle may die half-way. So all runs of one bundle have
one mark, its attempt, and the building process takes, of each unit, the runs of one attempt that
came to its end. The elements of a collection have no such identity: there the attempts count that
Beam has committed, see `generating`.
"""

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from my_datasets.building import planning
from my_datasets.building.collector import Collector, SplitRules
from my_datasets.building.engines.beam.build_files import BuildFiles
from my_datasets.building.journal import SplitState
from my_datasets.building.options import BuildOptions
from my_datasets.building.runs import Run
from my_datasets.building.units import Encoder, SplitInput, UnitState
from my_datasets.core.logs import get_logger
from my_datasets.errors import LostExamplesError, explain
from my_datasets.records import tfrecord
from my_datasets.records.tf_example.pieces import Bytes

_WRAP = 1 << 64


@dataclass(frozen=True)
class ChecksumTotals:
    """What some records add up to, in whatever order they are.

    Attributes:
      count: How many there are.
      bytes: Their size with framing.
      checksums: The sum of the CRC-32Cs that stand behind them, modulo 2**64.
    """

    count: int = 0
    bytes: int = 0
    checksums: int = 0

    def __add__(self, other: "ChecksumTotals") -> "ChecksumTotals":
        return ChecksumTotals(
            self.count + other.count,
            self.bytes + other.bytes,
            (self.checksums + other.checksums) % _WRAP,
        )

    def to_json(self) -> list[int]:
        """Returns it for a report."""
        return [self.count, self.bytes, self.checksums]

    @classmethod
    def from_json(cls, entry: list[int]) -> "ChecksumTotals":
        """Returns what a report says."""
        return cls(*entry)

    def __str__(self) -> str:
        return f"{self.count:,} records of {self.bytes:,} bytes, checksum {self.checksums:016x}"


def of_some(
    data: Bytes, ends: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> ChecksumTotals:
    """Returns the tally of some framed records.

    Args:
      data: Bytes in which they are.
      ends: Where each one ends, counted from the beginning of `data`; shape [n].
      sizes: The size of each; shape [n].
    """
    return ChecksumTotals(
        len(ends), int(sizes.sum()), int(_footers(data, ends).sum(dtype=np.uint64))
    )


def by_unit(
    data: Bytes, sizes: npt.NDArray[np.uint64], units: npt.NDArray[np.uint32]
) -> dict[int, ChecksumTotals]:
    """Returns a tally for each unit that has records here.

    Args:
      data: The bytes of framed records that follow each other.
      sizes: The size of each; shape [n].
      units: The unit of each; shape [n].
    """
    ends = np.cumsum(sizes, dtype=np.int64)
    order = np.argsort(units, kind="stable")
    distinct, firsts = np.unique(units[order], return_index=True)
    return {
        unit: of_some(data, ends[rows], sizes[rows].astype(np.int64))
        for unit, rows in zip(distinct.tolist(), np.split(order, firsts[1:]), strict=True)
    }


def _footers(data: Bytes, ends: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """Returns the checksums behind records, as they are stored; shape [n]."""
    if not len(ends):
        return np.zeros(0, np.uint32)
    last: npt.NDArray[np.uint32] = np.ndarray(
        (len(data) - tfrecord.FOOTER + 1,), "<u4", data, strides=(1,)
    )
    return last[ends - tfrecord.FOOTER].astype(np.uint32)


# Of the memory a worker may use: records that are held before they are written as a run.
_HELD = 0.125
# Hashes of a run that are told, where they do not spread evenly by themselves.
_SAMPLES = 64
# How the names of reports end, and those of no other file in their folder.
REPORT = ".report.json"


@dataclass(frozen=True)
class Gathering:
    """How a split is gathered; workers get a copy of it.

    Attributes:
      work: Where runs are put.
      rules: What holds for the split's examples.
      encoder: Makes the records.
      memory: What a worker may use, in bytes.
    """

    work: BuildFiles
    rules: SplitRules
    encoder: Encoder
    memory: int


class Gatherer:
    """Gathers the examples of one bundle."""

    def __init__(self, gathering: Gathering) -> None:
        """Starts an attempt."""
        self.attempt = secrets.token_hex(8)
        self._units: set[int] = set()
        self.reports = 0
        self._work = gathering.work
        self._folder = gathering.work.generated(gathering.rules.split)
        # Removed with this object, however its bundle ends.
        self._draft = gathering.work.place.draft()
        self._takes_samples = gathering.rules.ordered
        self.collector = Collector(
            Path(self._draft.name), gathering.rules, gathering.encoder,
            int(gathering.memory * _HELD), self._report,
        )  # fmt: skip

    def begins(self, unit: int) -> bool:
        """Returns whether a unit is to be gathered: not if a runner gives it a second time."""
        if unit in self._units:
            return False
        self._units.add(unit)
        return True

    def _report(self, run: Run | None, states: dict[int, dict[str, Any]]) -> None:
        entry: dict[str, Any] = {
            "attempt": self.attempt, "number": self.reports, "units": states, "run": None,
        }  # fmt: skip
        if run is not None:
            named = replace(run, path=f"{self._folder}/{Path(run.path).name}")
            entry |= {"run": asdict(named), "tallies": _tallies(run)}
            if self._takes_samples:
                entry["samples"] = _samples(run)
            self._work.place.put(Path(run.path), named.path)
        self._work.write_json(f"{self._folder}/{self.attempt}-{self.reports:06d}{REPORT}", entry)
        self.reports += 1


def _tallies(run: Run) -> dict[int, list[int]]:
    data = np.memmap(run.path, np.uint8, "r", shape=(run.data_bytes,))
    found = by_unit(data, np.asarray(run.mapped("size")), np.asarray(run.mapped("unit")))
    return {unit: one.to_json() for unit, one in found.items()}


def _samples(run: Run) -> list[int]:
    """Returns upper halves of hashes that cut a run into about equal pieces of data."""
    at = np.linspace(0, run.data_bytes, min(run.count, _SAMPLES), endpoint=False)
    rows = np.minimum(np.searchsorted(run.mapped("begin"), at), run.count - 1)
    return [int(value) for value in run.mapped("high")[np.unique(rows)]]


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
    tally: ChecksumTotals = field(default_factory=ChecksumTotals)
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
    tallies = {
        int(unit): ChecksumTotals.from_json(said)
        for unit, said in report.get("tallies", {}).items()
    }
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
