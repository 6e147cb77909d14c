"""What an interrupted run has found out is kept outside of the version, for the next one.

In a directory of its own for each version and level there are the notes on the shards, and a
journal with a line for each shard that was finished: what was found, what the shard's file was, and
the checksums of the notes. A line that is not there as a whole, or that fits no longer, is as none.
"""

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import filelock
import google_crc32c

from my_datasets.core.issue import Issue
from my_datasets.metadata.dataset_info import MALFORMED
from my_datasets.records import index
from my_datasets.storage.json_files import MOST_MANIFEST_BYTES
from my_datasets.storage.regular_files import open_regular, read_regular, write_whole

_JOURNAL = "journal.jsonl"
# What was left of versions that nobody has verified again for so long is deleted, in seconds.
_OLD = 14 * 24 * 3600.0
_READ_AT_ONCE = 4 << 20
# Processes whose parent was killed finish their shards first, in seconds.
_PATIENCE = 3.0


class Scratch:
    """A directory for notes on shards, and what is known of the shards that are finished.

    Attributes:
      directory: Where the notes are put.
    """

    def __init__(self, directory: Path, journal: Path | None = None) -> None:
        """Takes a directory.

        Args:
          directory: Where the notes are put.
          journal: What tells which shards were finished; None to keep nothing.
        """
        self.directory = directory
        self._journal = journal
        self._done = _lines(journal)
        self._stamps: dict[Path, list[Any]] = {}

    def kept(self, shard: Path, notes: Sequence[Path]) -> list[Issue] | None:
        """Returns what a run before has found in a shard; None if it has to be looked at.

        Args:
          shard: The shard.
          notes: The files that there must be then.
        """
        self._stamps[shard] = _stamp(shard)
        line = self._done.get(shard.name)
        if line is None or line["stamp"] != self._stamps[shard]:
            return None
        if line["notes"] != {path.name: _checksum(path) for path in notes}:
            return None
        try:
            return [Issue.from_json(one) for one in line["issues"]]
        except MALFORMED:
            return None

    def keep(self, shard: Path, issues: Sequence[Issue], notes: Sequence[Path]) -> None:
        """Notes what was found in a shard, unless it was changed meanwhile.

        Args:
          shard: The shard; `kept` was asked for it before it was read.
          issues: What was found.
          notes: The files with notes on it, which are finished.
        """
        if self._journal is None or _stamp(shard) != self._stamps[shard]:
            return
        line = {
            "shard": shard.name,
            "stamp": self._stamps[shard],
            "issues": [issue.to_json() for issue in issues],
            "notes": {path.name: _checksum(path) for path in notes},
        }
        # All that is lost if this fails is that the shard is read again.
        with contextlib.suppress(OSError), self._journal.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


@contextlib.contextmanager
def scratch(
    root: Path | None, path: Path, level: str, identity: Mapping[str, Any], *, restart: bool
) -> Iterator[Scratch]:
    """Gives a directory for notes; if its block is left by an exception, they are kept.

    Args:
      root: Where notes of all versions are kept; None to keep none.
      path: The directory of the version.
      level: How much is looked at.
      identity: What else the notes depend on, beside the shards; as JSON has it.
      restart: Whether what was kept is deleted first.
    """
    with contextlib.ExitStack() as stack:
        key = hashlib.sha256(f"{os.path.realpath(path)}\0{level}".encode(errors="surrogateescape"))
        directory = root / key.hexdigest()[:32] if root is not None else None
        if directory is None or not _begun(directory, dict(identity), restart, stack):
            yield Scratch(Path(stack.enter_context(tempfile.TemporaryDirectory())))
            return
        yield Scratch(directory, directory / _JOURNAL)
        shutil.rmtree(directory, ignore_errors=True)


def metadata_of(version_dir: Path) -> dict[str, str]:
    """Returns the SHA-256 of each file of a version's metadata that can be read."""
    found = {}
    for path in sorted([*version_dir.glob("*.json"), *version_dir.glob("*.labels.txt")]):
        with contextlib.suppress(OSError):
            found[path.name] = hashlib.sha256(read_regular(path, MOST_MANIFEST_BYTES)).hexdigest()
    return found


def _begun(
    directory: Path, identity: dict[str, Any], restart: bool, stack: contextlib.ExitStack
) -> bool:
    """Returns whether a directory is ours alone until the end, and has a journal of these notes."""
    root = directory.parent
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        _without_old(root)
        stack.enter_context(filelock.FileLock(f"{directory}.lock", timeout=_PATIENCE))
        directory.mkdir(exist_ok=True)
        journal = directory / _JOURNAL
        is_other = restart or _header(journal) != json.loads(json.dumps(identity))
        for path in directory.iterdir():
            # What a check puts there once all shards were looked at is made anew.
            if path.is_dir():
                shutil.rmtree(path)
            elif is_other:
                path.unlink()
        # Without the line in the midst of which a run was killed.
        _write(journal, [identity, *_lines(journal).values()])
    except (OSError, filelock.Timeout):
        # Nothing can be written there; or another run verifies the same. Then nothing is kept.
        return False
    return True


def _without_old(root: Path) -> None:
    """Deletes what nobody has asked for any more."""
    for lock in root.glob("*.lock"):
        directory = lock.with_suffix("")
        with contextlib.suppress(OSError, filelock.Timeout):
            paths = [path for path in (lock, directory, directory / _JOURNAL) if path.exists()]
            if time.time() - max(path.stat().st_mtime for path in paths) < _OLD:
                continue
            with filelock.FileLock(lock, timeout=0):
                shutil.rmtree(directory, ignore_errors=True)
                lock.unlink()


def _header(journal: Path) -> Any:
    """Returns the first line of a journal; None if there is none."""
    try:
        with journal.open(encoding="utf-8") as file:
            return json.loads(file.readline())
    except (OSError, ValueError):
        return None


def _lines(journal: Path | None) -> dict[str, dict[str, Any]]:
    """Returns the lines of a journal, by their shards, as far as they are whole."""
    found: dict[str, dict[str, Any]] = {}
    if journal is None:
        return found
    with contextlib.suppress(OSError, *MALFORMED):
        lines = journal.read_text("utf-8").splitlines()[1:]
        for line in map(json.loads, lines):
            if line.keys() >= {"shard", "stamp", "issues", "notes"}:
                found[line["shard"]] = line
    return found


def _write(path: Path, lines: Sequence[Any]) -> None:
    write_whole(path, "".join(json.dumps(line) + "\n" for line in lines), fsync=False)


def _stamp(shard: Path) -> list[Any]:
    """Returns what changes if the file of a shard does, or that of its record index."""
    found: list[Any] = []
    for path in (shard, index.path_of(shard)):
        try:
            state = path.stat()
        except OSError:
            found.append(None)
            continue
        # The time of its last change, too, which nobody can set.
        found.append([state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns,
                      state.st_ctime_ns])  # fmt: skip
    return found


def _checksum(path: Path) -> int | None:
    """Returns the CRC of a file; None if it is not there."""
    try:
        with open_regular(path) as file:
            found = google_crc32c.Checksum()
            while block := file.read(_READ_AT_ONCE):
                found.update(block)
    except OSError:
        return None
    return int.from_bytes(found.digest(), "big")
