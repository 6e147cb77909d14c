"""The journal of a build, from which a killed build resumes.

A work directory `.<version>.work/` beside the version has the runs, the finished shards and
`journal.jsonl`, with one JSON object per line for each event. A line is written after its event.
Runs are not synced to disk one by one: the journal has their checksums, and a run that did not
survive a power loss is detected and made again.

A shard is written in a folder of its own, `drafts/<shard>/`, with its sidecar files. Once all of
them are synced, the folder is renamed to `shards/<shard>/`, and then the journal gets a line with
the size and checksum of each file. The files stay there, unchanged, until the whole version is in
place; the version's directory gets hard links to them. So a shard is finished if, and only if, the
journal lists it and its files match the journal.
"""

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from my_datasets.building import staging
from my_datasets.building.runs import SUFFIX, Run
from my_datasets.building.units import Entry, UnitState, update_states
from my_datasets.core.logs import get_logger
from my_datasets.records import tfrecord

_LOGGER = get_logger(__name__)
_JOURNAL = "journal.jsonl"
_SHARDS, _DRAFTS = "shards", "drafts"
# Errors of file systems without hard links.
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


@dataclass(frozen=True)
class FinishedShard:
    """A finished shard."""

    name: str  # of its file
    count: int  # of its records
    bytes: int
    checksum: int  # CRC-32C of the file
    sha256: str  # of the file, in hexadecimal
    # The size and CRC-32C of each sidecar file, by name.
    beside: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @property
    def files(self) -> dict[str, tuple[int, int]]:
        """The size and CRC-32C of all its files, by name."""
        beside = {name: (size, checksum) for name, (size, checksum) in self.beside.items()}
        return {self.name: (self.bytes, self.checksum), **beside}


@dataclass
class SplitState:
    """The state of one split."""

    # The runs, each with the units in it that no longer count.
    runs: list[tuple[Run, set[int]]] = field(default_factory=list)
    # The units of which examples were encoded.
    units: dict[int, UnitState] = field(default_factory=dict)


class Journal:
    """The journal of one version's build; one process writes it, under the version's lock."""

    def __init__(self, directory: Path, identity: Entry, *, resume: bool = True) -> None:
        """Opens the work directory, and resumes an earlier build with the same identity.

        The directory is created if need be. The identity is everything that the work depends on;
        work with another one is discarded.
        """
        self.directory = directory
        self.splits: dict[str, SplitState] = {}
        self.shards: dict[str, FinishedShard] = {}
        self._identity = identity
        is_resumed = self._load() if resume else False
        if not is_resumed:
            staging.discard(directory)
            self.splits, self.shards = {}, {}
            directory.mkdir(parents=True)
        self._file = (directory / _JOURNAL).open("a", encoding="utf-8")
        if is_resumed:
            self._drop_unfinished()
        else:
            self._append({"identity": identity})

    def split(self, name: str) -> SplitState:
        """Returns the state of a split."""
        return self.splits.setdefault(name, SplitState())

    def add_run(self, split: str, run: Run | None, units: dict[int, Entry]) -> None:
        """Records that a run was written, with the states of its units."""
        self._record({"split": split, "run": run.to_json() if run else None, "units": units})

    def write_shard(self, name: str, write: Callable[[Path], FinishedShard]) -> FinishedShard:
        """Writes the files of a shard, in any process; `add_shard` then records it in this one."""
        draft, finished = self.directory / _DRAFTS / name, self._folder(name)
        for old in (draft, finished):
            shutil.rmtree(old, ignore_errors=True)
        draft.mkdir(parents=True)
        shard = write(draft)
        finished.parent.mkdir(exist_ok=True)
        draft.rename(finished)
        return shard

    def add_shard(self, shard: FinishedShard) -> None:
        """Records that a shard was written and synced."""
        self._append({"shard": asdict(shard)})
        self.shards[shard.name] = shard

    def place_shards(self, names: Sequence[str], target: Path) -> None:
        """Links the files of finished shards into a directory on the same file system.

        On a file system without hard links the files are moved: if the build dies before the
        version is complete, those shards are written again.
        """
        for name in names:
            for file in self.shards[name].files:
                link(self._folder(name) / file, target / file)

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *exception: object) -> None:
        """Closes the file. The work directory stays if a build could resume from it."""
        self._file.close()
        self._remove_drafts()
        units = (unit for split in self.splits.values() for unit in split.units.values())
        if not any(unit.complete for unit in units):
            staging.discard(self.directory)

    def intact_shard(self, name: str) -> FinishedShard | None:
        """Returns a shard that an earlier build finished, if its files are intact."""
        shard = self.shards.get(name)
        if shard is None or not all(
            tfrecord.is_intact(self._folder(name) / file, found, size)
            for file, (size, found) in shard.files.items()
        ):
            return None
        return shard

    def _folder(self, shard: str) -> Path:
        return self.directory / _SHARDS / shard

    def _append(self, entry: Entry) -> None:
        self._file.write(json.dumps(entry, separators=(",", ":")) + "\n")
        self._file.flush()

    def _record(self, entry: Entry) -> None:
        self._append(entry)
        self._apply(entry)

    def _apply(self, entry: Entry) -> None:
        if "shard" in entry:
            self.shards[entry["shard"]["name"]] = FinishedShard(**entry["shard"])
            return
        split = self.split(entry["split"])
        if "lost" in entry:
            split.runs = [pair for pair in split.runs if Path(pair[0].path).name != entry["lost"]]
            return
        if "drop" in entry:
            for unit in entry["drop"]:
                split.units.pop(unit, None)
            for _, excluded in split.runs:
                excluded.update(entry["drop"])
            self.shards.clear()
            return
        update_states(split.units, entry["units"])
        if entry["run"] is not None:
            split.runs.append((Run.from_json(entry["run"], self.directory), set()))

    def _load(self) -> bool:
        """Loads earlier work; returns whether there is any with the same identity."""
        path = self.directory / _JOURNAL
        if not path.is_file():
            return False
        entries, whole = [], 0
        for line in path.read_bytes().splitlines(keepends=True):
            try:
                entries.append(json.loads(line))
            except ValueError:
                break  # the last line, if the build was killed while writing it
            if not line.endswith(b"\n"):
                entries.pop()
                break
            whole += len(line)
        if not entries or entries[0].get("identity") != json.loads(json.dumps(self._identity)):
            changed = "its journal is unreadable"
            if entries and (old := entries[0].get("identity")):
                changed = f"changed since: {changed_keys(old, self._identity)}"
            _LOGGER.warning("Discarding the unfinished work in %s: %s.", self.directory, changed)
            return False
        for entry in entries[1:]:
            self._apply(entry)
        # Otherwise the next line would be appended to a torn one.
        os.truncate(path, whole)
        return True

    def _drop_unfinished(self) -> None:
        """Drops units that were not finished, and units in damaged runs."""
        done = 0
        for name, split in self.splits.items():
            drop = {number for number, state in split.units.items() if not state.complete}
            for run, _ in list(split.runs):
                if not run.is_intact():
                    _LOGGER.warning("%s is damaged; generating its units again.", run.path)
                    self._record({"split": name, "lost": Path(run.path).name})
                    drop |= set(split.units)
            if drop:
                self._record({"split": name, "drop": sorted(drop)})
            done += len(split.units)
        self._remove_drafts()
        if done or self.shards:
            _LOGGER.warning(
                "Resuming the build in %s: %d units and %d shards are finished.",
                self.directory, done, len(self.shards),
            )  # fmt: skip

    def _remove_drafts(self) -> None:
        """Removes unfinished files; no worker may be running."""
        known = {Path(run.path).name for split in self.splits.values() for run, _ in split.runs}
        for path in self.directory.glob(f"*{SUFFIX}"):
            if path.name not in known:
                path.unlink(missing_ok=True)
        shutil.rmtree(self.directory / _DRAFTS, ignore_errors=True)


def changed_keys(old: Mapping[str, object], new: Mapping[str, object]) -> str:
    """Returns the names of values that differ, for a message."""
    return ", ".join(sorted(key for key in {**old, **new} if old.get(key) != new.get(key)))


def link(file: Path, target: Path) -> None:
    """Links a file to a second name; on a file system without hard links, renames it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        target.hardlink_to(file)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        file.rename(target)


def sync_directory(directory: Path) -> None:
    """Syncs a directory, so that its names survive a power loss, where the system can do that."""
    with contextlib.suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
