"""Keeps the results of an interrupted run, outside the version, for the next run.

Each version and level has a directory with the notes on its shards, and a journal with a line for
each finished shard: its issues, the identity of its file, and the checksums of the notes. Lines
that are incomplete or no longer match are ignored.
"""

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import filelock
import google_crc32c

from my_datasets.core.issue import Issue
from my_datasets.core.json_types import Json, JsonObject
from my_datasets.metadata.dataset_info import MALFORMED
from my_datasets.records import index
from my_datasets.storage.json_files import MOST_MANIFEST_BYTES
from my_datasets.storage.regular_files import open_regular, read_regular, write_whole

_JOURNAL = "journal.jsonl"
# Seconds after which unused directories are deleted.
_OLD = 14 * 24 * 3600.0
_READ_AT_ONCE = 4 << 20
# Seconds to wait for the lock: processes whose parent was killed first finish their shards.
_PATIENCE = 3.0


class Scratch:
    """A directory for notes on shards, and the results of finished shards."""

    def __init__(self, directory: Path, journal: Path | None = None) -> None:
        """Takes the directory, and the journal of finished shards; None to keep nothing."""
        self.directory = directory
        self._journal = journal
        self._done = _lines(journal)
        self._stamps: dict[Path, Json] = {}

    def reusable(self, shard: Path, notes: Sequence[Path]) -> list[Issue] | None:
        """Returns the issues that an earlier run found in a shard; None if it must be read.

        The files with notes on the shard must be unchanged.
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

    def record(self, shard: Path, issues: Sequence[Issue], notes: Sequence[Path]) -> None:
        """Records the issues and notes of a shard, unless it has changed since `reusable`."""
        if self._journal is None or _stamp(shard) != self._stamps[shard]:
            return
        line = {
            "shard": shard.name,
            "stamp": self._stamps[shard],
            "issues": [issue.to_json() for issue in issues],
            "notes": {path.name: _checksum(path) for path in notes},
        }
        # If this fails, the shard is read again.
        with contextlib.suppress(OSError), self._journal.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


@contextlib.contextmanager
def scratch(
    root: Path | None, path: Path, level: str, identity: JsonObject, *, restart: bool
) -> Iterator[Scratch]:
    """Yields a directory below `root` for notes on a version, which is kept if the block raises.

    Without a root, nothing is kept. `identity` is what the notes depend on besides the shards;
    `restart` discards earlier notes.
    """
    with contextlib.ExitStack() as stack:
        key = hashlib.sha256(f"{os.path.realpath(path)}\0{level}".encode(errors="surrogateescape"))
        directory = root / key.hexdigest()[:32] if root is not None else None
        if directory is None or not _begin(directory, dict(identity), restart, stack):
            yield Scratch(Path(stack.enter_context(tempfile.TemporaryDirectory())))
            return
        yield Scratch(directory, directory / _JOURNAL)
        shutil.rmtree(directory, ignore_errors=True)


def metadata_of(version_dir: Path) -> dict[str, str]:
    """Returns the SHA-256 of each readable metadata file of a version."""
    found = {}
    for path in sorted([*version_dir.glob("*.json"), *version_dir.glob("*.labels.txt")]):
        with contextlib.suppress(OSError):
            found[path.name] = hashlib.sha256(read_regular(path, MOST_MANIFEST_BYTES)).hexdigest()
    return found


def _begin(
    directory: Path, identity: JsonObject, restart: bool, stack: contextlib.ExitStack
) -> bool:
    """Locks a directory and prepares its journal; returns whether that was possible."""
    root = directory.parent
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        _delete_old(root)
        stack.enter_context(filelock.FileLock(f"{directory}.lock", timeout=_PATIENCE))
        directory.mkdir(exist_ok=True)
        journal = directory / _JOURNAL
        is_other = restart or _identity(journal) != json.loads(json.dumps(identity))
        for path in directory.iterdir():
            # Created by checks that run after all shards.
            if path.is_dir():
                shutil.rmtree(path)
            elif is_other:
                path.unlink()
        # Drops a line that a killed run left incomplete.
        lines = [identity, *_lines(journal).values()]
        write_whole(journal, "".join(json.dumps(line) + "\n" for line in lines), fsync=False)
    except (OSError, filelock.Timeout):
        # Not writable, or in use by another run: nothing is kept.
        return False
    return True


def _delete_old(root: Path) -> None:
    """Deletes directories that have not been used for a while."""
    for lock in root.glob("*.lock"):
        directory = lock.with_suffix("")
        with contextlib.suppress(OSError, filelock.Timeout):
            paths = [path for path in (lock, directory, directory / _JOURNAL) if path.exists()]
            if time.time() - max(path.stat().st_mtime for path in paths) < _OLD:
                continue
            with filelock.FileLock(lock, timeout=0):
                shutil.rmtree(directory, ignore_errors=True)
                lock.unlink()


def _identity(journal: Path) -> object:
    try:
        with journal.open(encoding="utf-8") as file:
            return json.loads(file.readline())
    except (OSError, ValueError):
        return None


def _lines(journal: Path | None) -> dict[str, JsonObject]:
    """Returns the complete lines of a journal, by shard."""
    found: dict[str, JsonObject] = {}
    if journal is None:
        return found
    with contextlib.suppress(OSError, *MALFORMED):
        lines = journal.read_text("utf-8").splitlines()[1:]
        for line in map(json.loads, lines):
            if line.keys() >= {"shard", "stamp", "issues", "notes"}:
                found[line["shard"]] = line
    return found


def _stamp(shard: Path) -> Json:
    """Returns the identity of a shard's file and its record index."""
    found: list[Json] = []
    for path in (shard, index.path_of(shard)):
        try:
            state = path.stat()
        except OSError:
            found.append(None)
            continue
        # Includes ctime, which users cannot set.
        found.append([state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns,
                      state.st_ctime_ns])  # fmt: skip
    return found


def _checksum(path: Path) -> int | None:
    """Returns the CRC of a file; None if it cannot be read."""
    try:
        with open_regular(path) as file:
            found = google_crc32c.Checksum()
            while block := file.read(_READ_AT_ONCE):
                found.update(block)
    except OSError:
        return None
    return int.from_bytes(found.digest(), "big")
