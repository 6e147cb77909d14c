"""The runs and reports that workers write in the first stage, and which of them count.

Checksum totals detect examples that a runner lost, duplicated or changed. They are computed where
examples are encoded, and again from the bytes of the written shards. Beam's own counters are not
used: they said 18,000 when 17,948 examples had been written.

A runner may repeat a unit, and a bundle may die half-way. So all runs of one bundle are marked with
its attempt, and the building process uses, for each unit, the runs of one finished attempt. The
elements of a collection have no such identity; there the attempts that Beam has committed count,
see `generating`.
"""

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from my_datasets.building import shards
from my_datasets.building.collector import Collector, SplitRules, States
from my_datasets.building.engines.beam.build_files import BuildFiles
from my_datasets.building.journal import SplitState
from my_datasets.building.options import BuildOptions
from my_datasets.building.runs import Run
from my_datasets.building.units import Encoder, Entry, SplitInput, UnitState, update_states
from my_datasets.core.logs import get_logger
from my_datasets.errors import LostExamplesError
from my_datasets.records import tfrecord
from my_datasets.records.tf_example.pieces import Bytes

_WRAP = 1 << 64

# The part of a worker's memory for records that wait to be written as a run.
_BUFFER_SHARE = 0.125
# Hashes of a run to report where they are not spread evenly.
_SAMPLES = 64
# The suffix of reports, and of no other file in their folder.
REPORT = ".report.json"

_LOGGER = get_logger(__name__)
COMMITTED = "committed.json"
_CHOSEN = "chosen.json"
_NAMES = "units.json"


@dataclass(frozen=True)
class ChecksumTotals:
    """The totals of some records, independent of their order."""

    count: int = 0
    bytes: int = 0  # with framing
    checksums: int = 0  # the sum of the CRC-32Cs that follow the records, modulo 2**64

    def __add__(self, other: "ChecksumTotals") -> "ChecksumTotals":
        return ChecksumTotals(
            self.count + other.count,
            self.bytes + other.bytes,
            (self.checksums + other.checksums) % _WRAP,
        )

    def to_json(self) -> list[int]:
        """Returns the report's entry."""
        return [self.count, self.bytes, self.checksums]

    @classmethod
    def from_json(cls, entry: list[int]) -> "ChecksumTotals":
        """Returns the totals in a report's entry."""
        return cls(*entry)

    def __str__(self) -> str:
        return f"{self.count:,} records of {self.bytes:,} bytes, checksum {self.checksums:016x}"


def of_some(
    data: Bytes, ends: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> ChecksumTotals:
    """Returns the totals of some framed records.

    Args:
      data: Bytes that contain the records.
      ends: The offset in `data` where each record ends; shape [n].
      sizes: The size of each; shape [n].
    """
    return ChecksumTotals(
        len(ends), int(sizes.sum()), int(_footers(data, ends).sum(dtype=np.uint64))
    )


def by_unit(
    data: Bytes, sizes: npt.NDArray[np.uint64], units: npt.NDArray[np.uint32]
) -> dict[int, ChecksumTotals]:
    """Returns the totals of each unit.

    Args:
      data: Adjacent framed records.
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
    """Returns the stored checksums that follow the records; shape [n]."""
    if not len(ends):
        return np.zeros(0, np.uint32)
    last: npt.NDArray[np.uint32] = np.ndarray(
        (len(data) - tfrecord.FOOTER + 1,), "<u4", data, strides=(1,)
    )
    return last[ends - tfrecord.FOOTER].astype(np.uint32)


@dataclass(frozen=True)
class SplitEncoding:
    """The settings for encoding a split; workers get a copy of it."""

    work: BuildFiles
    rules: SplitRules
    encoder: Encoder
    memory: int  # bytes that a worker may use


class BundleEncoder:
    """Encodes the examples of one bundle."""

    def __init__(self, encoding: SplitEncoding) -> None:
        self.attempt = secrets.token_hex(8)
        self._units: set[int] = set()
        self.reports = 0
        self._work = encoding.work
        self._folder = encoding.work.generated(encoding.rules.split)
        # Removed with this object, however its bundle ends.
        self._draft = encoding.work.place.draft()
        self._takes_samples = encoding.rules.ordered
        self.collector = Collector(
            Path(self._draft.name), encoding.rules, encoding.encoder,
            int(encoding.memory * _BUFFER_SHARE), self._report,
        )  # fmt: skip

    def begins(self, unit: int) -> bool:
        """Returns whether this bundle sees a unit for the first time."""
        if unit in self._units:
            return False
        self._units.add(unit)
        return True

    def _report(self, run: Run | None, states: States) -> None:
        entry: Entry = {
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
    """Returns upper halves of hashes that cut a run into pieces of about equal size."""
    at = np.linspace(0, run.data_bytes, min(run.count, _SAMPLES), endpoint=False)
    rows = np.minimum(np.searchsorted(run.mapped("begin"), at), run.count - 1)
    return [int(value) for value in run.mapped("high")[np.unique(rows)]]


@dataclass(frozen=True)
class CountedRun:
    """A run, and which of its records count."""

    run: Run
    # Units in it that do not count, because another attempt does, or none yet.
    excluded: frozenset[int] = frozenset()
    # Whether its records only serve as a check: other runs must contain them too. A finished bundle
    # wrote the run, but Beam did not commit the bundle: it was repeated, or lost.
    is_witness: bool = False


@dataclass
class GeneratedRuns:
    """The runs of a split."""

    runs: list[CountedRun] = field(default_factory=list)  # the runs of which some records count
    # The units; of a collection, the attempts that count.
    state: SplitState = field(default_factory=SplitState)
    # The totals of the records that count, as their workers reported them.
    tally: ChecksumTotals = field(default_factory=ChecksumTotals)
    # Sampled upper halves of hashes, and the bytes that each stands for.
    samples: list[tuple[int, float]] = field(default_factory=list)
    # The attempt that counts of each complete unit.
    chosen: dict[int, str] = field(default_factory=dict)

    @property
    def data_bytes(self) -> int:
        """The size of the framed records to move."""
        return sum(counted.run.data_bytes for counted in self.runs)


@dataclass
class _Attempt:
    """All reports of one bundle."""

    reports: list[Entry] = field(default_factory=list)
    units: dict[int, UnitState] = field(default_factory=dict)

    def add(self, report: Entry) -> None:
        self.reports.append(report)
        update_states(self.units, report["units"])

    @property
    def is_complete(self) -> bool:
        return bool(self.units) and all(state.complete for state in self.units.values())


def read(work: BuildFiles, item: SplitInput) -> GeneratedRuns:
    """Returns the runs of a split so far, which may be only a part of it."""
    folder = work.generated(item.name)
    # Sorted, so that the reports of an attempt are in their order.
    names = sorted(name for name in work.place.sizes(folder) if name.endswith(REPORT))
    attempts: dict[str, _Attempt] = {}
    for report in work.read_all(f"{folder}/{name}" for name in names):
        attempts.setdefault(report["attempt"], _Attempt()).add(report)
    if item.collection is not None:
        return _of_collection(item, work, attempts)
    said = work.read_json(f"{folder}/{_CHOSEN}") or {}
    return _of_units({int(unit): name for unit, name in said.items()}, attempts)


def _of_units(chosen: dict[int, str], attempts: Mapping[str, _Attempt]) -> GeneratedRuns:
    if not chosen:
        for name in sorted(attempts):
            for unit, state in attempts[name].units.items():
                if state.complete:
                    chosen.setdefault(unit, name)
    found = GeneratedRuns(chosen=chosen)
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
) -> GeneratedRuns:
    said_to_count = work.read_json(f"{work.generated(item.name)}/{COMMITTED}") or []
    committed = {one["attempt"]: one for one in said_to_count}
    found = GeneratedRuns()
    for name, attempt in attempts.items():
        if name not in committed and not attempt.is_complete:
            continue  # the bundle died
        for report in attempt.reports:
            _add(found, report, is_witness=name not in committed)
    for number, (name, said) in enumerate(sorted(committed.items())):
        found_attempt = attempts.get(name, _Attempt())
        seen = sum(state.seen for state in found_attempt.units.values())
        if (len(found_attempt.reports), seen) != (said["reports"], said["seen"]):
            raise LostExamplesError(
                f"A part of split {item.name!r} is not as it was written.",
                f"Expected: {said['seen']:,} examples in {said['reports']} runs; found: "
                f"{seen:,} in {len(found_attempt.reports)}",
                f"In {work.place}",
                fix="run the same again; if it fails again, please report it",
            )
        found.state.units[number] = found_attempt.units[0]
    return found


def _add(
    found: GeneratedRuns,
    report: Entry,
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


def complete(work: BuildFiles, item: SplitInput, options: BuildOptions) -> GeneratedRuns:
    """Returns the runs of a complete split, and records which attempts count.

    Raises:
      LostExamplesError: Units or records are missing.
      InvalidKeyError: Shuffling is disabled, and only some keys are ints.
      QuarantineError: Too many examples do not fit.
      EmptySplitError: There is no example.
    """
    found = read(work, item)
    shards.check_complete(item, found.state)
    if item.collection is None:
        name = f"{work.generated(item.name)}/{_CHOSEN}"
        if work.read_json(name) is None:
            # A worker that was given up for dead may still add runs.
            work.write_json(name, found.chosen)
    _check_counts(item, found)
    shards.check_keys_and_quarantine(item, found.state, options)
    if not found.tally.count:
        if any(counted.is_witness for counted in found.runs):
            raise lost(item.name, "gathered", found.runs[0].run.count, 0)
        raise shards.empty_split(item)
    witnesses = sum(counted.is_witness for counted in found.runs)
    if witnesses:
        _LOGGER.warning(
            "Split %s: Beam did not commit %d finished runs. The build checks that other runs have "
            "their examples.", item.name, witnesses,
        )  # fmt: skip
    return found


def write_unit_names(work: BuildFiles, item: SplitInput) -> None:
    """Writes the names of the units for workers' messages."""
    names = [item.unit_name(unit) for unit in range(len(item.units.items))]
    work.write_json(f"{work.generated(item.name)}/{_NAMES}", names)


def unit_names(work: BuildFiles, split: str) -> list[str]:
    """Returns the names of a split's units for messages."""
    names: list[str] = work.read_json(f"{work.generated(split)}/{_NAMES}")
    return names


def _check_counts(item: SplitInput, found: GeneratedRuns) -> None:
    """Compares the number of examples that generators yielded with the number of records."""
    units = found.state.units.values()
    expected = sum(unit.seen - len(unit.quarantined) for unit in units)
    if expected != found.tally.count:
        raise lost(item.name, "gathered", expected, found.tally.count)


def lost(split: str, done: str, expected: object, found: object) -> LostExamplesError:
    """Returns the error for missing or surplus records; `done` is a participle: `sorted`."""
    return lost_or_duplicated(
        f"Examples of split {split!r} were lost or duplicated while they were {done}.",
        f"Expected: {expected}",
        f"Found: {found}",
    )


def lost_or_duplicated(problem: str, *facts: str) -> LostExamplesError:
    """Returns the error for a runner that lost or duplicated examples."""
    return LostExamplesError(
        problem,
        *facts,
        "Nothing is published.",
        fix="run the same again; if it fails again, use another runner, and please report it",
    )
