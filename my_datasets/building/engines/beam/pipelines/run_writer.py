"""What a worker gathers: runs, and a report of each of them.

A unit may be done more than once, and a bundle may die half-way. So all runs of one bundle have
one mark, its attempt, and the building process takes, of each unit, the runs of one attempt that
came to its end. The elements of a collection have no such identity: there the attempts count that
Beam has committed, see `generating`.
"""

import secrets
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from my_datasets.building.collector import Collector, Rules
from my_datasets.building.engines.beam.pipelines import checksum_totals
from my_datasets.building.engines.beam.workspace.build_files import BuildFiles
from my_datasets.building.runs import Run
from my_datasets.building.units import Encoder

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
    rules: Rules
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
    found = checksum_totals.by_unit(
        data, np.asarray(run.mapped("size")), np.asarray(run.mapped("unit"))
    )
    return {unit: one.to_json() for unit, one in found.items()}


def _samples(run: Run) -> list[int]:
    """Returns upper halves of hashes that cut a run into about equal pieces of data."""
    at = np.linspace(0, run.data_bytes, min(run.count, _SAMPLES), endpoint=False)
    rows = np.minimum(np.searchsorted(run.mapped("begin"), at), run.count - 1)
    return [int(value) for value in run.mapped("high")[np.unique(rows)]]
