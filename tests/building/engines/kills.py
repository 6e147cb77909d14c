"""All that kills can leave of a build: each state of the disk is found, and built on from there.

A build is a row of changes to the file system. A kill before one of them leaves the changes before
it, so the states that kills can leave are the prefixes of that row: one build, stopped before each
of its changes while its directory is copied, gives them all. From each of them the next build is
run in the same way, which gives the states that a second kill can leave, and so on, until no new
ones come: then every number of kills has been seen. That the copies are what real kills leave is
shown by `killed`, with real kills.
"""

import hashlib
import json
import logging
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests import file_events
from tests.file_events import Event

# Names that are made up anew by each process: only which of them are equal counts.
_TOKEN = re.compile(
    r"(?<![0-9a-zA-Z])(?:[0-9a-f]{16}|[0-9a-f]{8}|tmp[0-9a-z_]{8})(?![0-9a-z])|incomplete\.\w{6}_"
)
_TEXT = (".json", ".jsonl")
_NO_CHANGE = frozenset({"fsync", "fdatasync", "sync_file_range"})


@dataclass
class Found:
    """What an exploration has seen.

    Attributes:
      states: The number of different states, by the kills that led to them first.
      builds: Builds that were run.
      events: The events of the undisturbed build, by system call.
      kills: Points of death that were covered, by system call.
    """

    states: Counter[int] = field(default_factory=Counter)
    builds: int = 0
    events: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    is_closed: bool = False

    def __str__(self) -> str:
        """Returns the counts in one line."""
        by_kills = ", ".join(f"{n} after {depth}" for depth, n in sorted(self.states.items()))
        return (
            f"{sum(self.events.values())} events; {sum(self.kills.values())} points of death; "
            f"states: {by_kills} kills; {self.builds} builds; "
            f"{'all' if self.is_closed else 'not all'} states seen; {dict(self.kills)}"
        )


@dataclass(frozen=True)
class Build:
    """A build that is killed.

    Attributes:
      run: Runs it, in a directory.
      start: Makes what is there before the first one; in this process.
      version: The version's directory, relative to that one.
      may_be_gone: Whether the old version may be gone for a moment: the system cannot swap names.
    """

    run: Callable[[Path], object]
    start: Callable[[Path], object]
    version: str
    may_be_gone: bool = False


def quietly(build: Build, directory: Path) -> Callable[[], None]:
    """Returns the build as the work of a child."""

    def work() -> None:
        logging.disable()
        null = os.open(os.devnull, os.O_RDWR)
        if "KILLS_LOUD" not in os.environ:
            os.dup2(null, 1)
        build.run(directory)

    return work


def explore(
    build: Build, folder: Path, *, kills: int | None, most: int | None = None, thinned: int = 2
) -> Found:
    """Builds on from every state that so many kills can leave.

    Args:
      build: The build.
      folder: An empty directory.
      kills: How many kills in a row; None for any number.
      most: Of the states that `thinned` kills or more led to first so many are built on, evenly
        chosen; None for all.
      thinned: From how many kills on not all are built on.

    Raises:
      AssertionError: Something partial was to be seen, the next build failed or had other files,
        something was left behind, or a shard that was finished was written again.
    """
    start, work, saved = folder / "start", folder / "work", folder / "saved"
    for each in (start, saved):
        each.mkdir()
    build.start(start)
    allowed = [_files(start / build.version)]
    copy(start, work)
    outcome = file_events.run(quietly(build, work), work)
    assert outcome.code == 0, "the undisturbed build fails"
    allowed.append(_files(work / build.version))
    whole = _tree(work)
    found = Found(events=Counter(event.call for event in outcome.events))
    frontier, seen = [(start, "no kill")], {State(start).key()}
    depth = 0
    while frontier and (kills is None or depth <= kills):
        following = _States(most if depth + 1 >= thinned else None)
        chosen = frontier
        if most is not None and depth >= thinned and len(frontier) > most:
            chosen = [frontier[i * len(frontier) // most] for i in range(most)]
        for state, told in chosen:
            shutil.rmtree(work)
            copy(state, work)
            finished = finished_shards(work)
            look = _Look(work, build, allowed, told, saved, seen, following)
            is_last = kills is not None and depth == kills
            outcome = file_events.run(quietly(build, work), work, None if is_last else look)
            if not is_last:
                found.kills.update(event.call for event in outcome.events)
            found.builds += 1
            found.states[depth] += 1
            assert outcome.code == 0, f"{told}: the next build fails; {state}"
            end = _tree(work)
            assert _files(work / build.version) == allowed[-1], f"{told}: other files; {state}"
            assert end == whole, f"{told}: left behind: {sorted(set(end) ^ set(whole))}; {state}"
            again = finished & written_shards(outcome.events)
            assert not again, f"{told}: written again: {sorted(again)}; {state}"
            if state != start:
                shutil.rmtree(state)
        frontier = following.saved
        depth += 1
    found.is_closed = not frontier and most is None
    return found


class _States:
    """Copies of states, evenly chosen among those that come: at most twice `most` lie on disk."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._count = 0
        self._every = 1
        self.saved: list[tuple[Path, str]] = []

    def add(self, directory: Path, target: Path, told: str) -> None:
        if self._count % self._every == 0:
            copy(directory, target)
            self.saved.append((target, told))
        self._count += 1
        if self._most is not None and len(self.saved) > 2 * self._most:
            for dropped, _ in self.saved[1::2]:
                shutil.rmtree(dropped)
            self.saved = self.saved[::2]
            self._every *= 2


class _Look:
    """Looks at a build before each of its events, and copies what was not seen before."""

    def __init__(
        self, work: Path, build: Build, allowed: Sequence[Mapping[str, str]], told: str,
        saved: Path, seen: set[str], following: "_States",
    ) -> None:  # fmt: skip
        self._work = work
        self._build = build
        self._allowed = allowed
        self._told = told
        self._saved = saved
        self._seen = seen
        self._state = State(work)
        self._last: Event | None = None
        self._following = following

    def __call__(self, number: int, event: Event) -> bool:
        if self._last is not None and self._last.call in _NO_CHANGE:
            self._last = event
            return True
        self._state.forget(self._last)
        self._last = event
        key = self._state.key()
        if key not in self._seen:
            self._seen.add(key)
            name = f"{self._told}; before {number} {event}"
            there = _files(self._work / self._build.version)
            may_be_gone = self._build.may_be_gone and not there
            assert there in self._allowed or may_be_gone, f"{name}: partial version"
            self._following.add(self._work, self._saved / str(len(self._seen)), name)
        return True


def killed(build: Build, folder: Path, number: int) -> tuple[int, str]:
    """Kills a build before an event by SIGKILL; returns its exit code and the state it left."""
    if not folder.exists():
        folder.mkdir()
        build.start(folder)
    outcome = file_events.run(quietly(build, folder), folder, lambda at, _: at < number)
    return outcome.code, State(folder).key()


def states(build: Build, folder: Path) -> list[tuple[str, str]]:
    """Returns the system call and the state before it, for each event of an undisturbed build."""
    folder.mkdir()
    build.start(folder)
    found: list[tuple[str, str]] = []

    def before(_: int, event: Event) -> bool:
        found.append((event.call, State(folder).key()))
        return True

    assert file_events.run(quietly(build, folder), folder, before).code == 0
    return found


def finished_shards(directory: Path) -> set[str]:
    """Returns the shards that the journal, or a report of Beam's, says are finished.

    Not of work that is being discarded: its version is in its place.
    """
    found = set()
    for journal in directory.rglob(".*.work/journal.jsonl"):
        for line in journal.read_text("utf-8").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                break
            if "shard" in entry:
                found.add(entry["shard"]["name"])
    for report in directory.rglob(".*.work/*/shard reports/*.json"):
        found.add(report.name.removesuffix(".json"))
    return found


def written_shards(events: list[Event]) -> set[str]:
    """Returns the shards that were put among the finished ones."""
    named = (event.paths[-1] for event in events if event.call.startswith("rename"))
    found = (re.search(r"/shards/([^/]+)$", path) for path in named)
    return {match[1] for match in found if match}


def _files(directory: Path) -> dict[str, str]:
    """Returns the SHA-256 of each file below a directory, by its name."""
    return {
        os.path.relpath(path, directory): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def _tree(directory: Path) -> list[str]:
    return sorted(os.path.relpath(path, directory) for path in directory.rglob("*"))


def copy(source: Path, target: Path) -> None:
    """Copies a directory, with its hard links."""
    links: dict[int, Path] = {}
    for parent, _, names in os.walk(source):
        there = target / os.path.relpath(parent, source)
        there.mkdir(exist_ok=True)
        for name in names:
            path = Path(parent, name)
            first = links.setdefault(path.stat().st_ino, there / name)
            if first == there / name:
                shutil.copyfile(path, first)
            else:
                os.link(first, there / name)


class State:
    """What tells states of a directory apart: names, contents and links, however tokens run."""

    def __init__(self, directory: Path) -> None:
        self._directory = os.fspath(directory)
        self._known: dict[str, tuple[str, str, int]] = {}

    def forget(self, event: Event | None) -> None:
        """Looks again at what an event has changed."""
        for changed in event.paths if event else ():
            for path in [path for path in self._known if path.startswith(changed)]:
                del self._known[path]

    def key(self) -> str:
        """Returns the same for two states if, and only if, they are alike."""
        rows = []
        for parent, directories, names in os.walk(self._directory):
            inside = os.path.relpath(parent, self._directory)
            prefix = "" if inside == "." else f"{inside}/"
            rows += [(prefix + name, "", "", 0) for name in directories]
            for name in names:
                path = prefix + name
                if path not in self._known:
                    self._known[path] = self._read(path)
                rows.append((path, *self._known[path]))
        bare = {text: _TOKEN.sub("*", text) for row in rows for text in row[:2]}
        rows.sort(key=lambda row: (bare[row[0]], bare[row[1]], row[2], row[0]))
        tokens: dict[str, str] = {}
        inodes: dict[int, int] = {}

        def named(match: re.Match[str]) -> str:
            return tokens.setdefault(match[0], f"<{len(tokens)}>")

        whole = hashlib.sha256()
        for path, text, digest, inode in rows:
            link = inodes.setdefault(inode, len(inodes)) if inode else -1
            said = (_TOKEN.sub(named, path), _TOKEN.sub(named, text), digest, link)
            whole.update(repr(said).encode())
        return whole.hexdigest()

    def _read(self, name: str) -> tuple[str, str, int]:
        path = Path(self._directory, name)
        data, inode = path.read_bytes(), path.stat().st_ino
        if name.endswith(_TEXT):
            return data.decode("utf-8", errors="replace"), "", inode
        # Tasks are pickled, with tokens in them.
        return "", "" if path.parent.name == "tasks" else hashlib.sha256(data).hexdigest(), inode
