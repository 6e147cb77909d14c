"""Versions whose shards are not here, but come when they are read: the seam to who brings them.

Where the shards of a directory come from and where they are kept is known from the state folder of
this machine's user, or from the process that sent the work; never from the directory, which may be
a stranger's.
"""

import contextlib
import hashlib
import json
import os
import random
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from my_datasets.errors import NotPreparedError, explain
from my_datasets.metadata.dataset_info import MALFORMED
from my_datasets.storage.regular_files import write_whole
from my_datasets.storage.user_folders import state_folder

# Of a directory with the metadata of a version: its shards come when they are read. What is in
# this file does not matter.
FILE_NAME = "my_datasets_attached.json"
_FORMAT = 2
# Notes on other directories that are looked at when one is attached.
_MOST_LOOKED_AT = 100


@dataclass(frozen=True)
class Attachment:
    """Where the shards of a directory come from, and where they are kept.

    Attributes:
      store: The store's address.
      cache: The directory of the shard cache, relative to the version's directory.
      most: How many bytes may lie there.
      record: The SHA-256 of the release's record.
    """

    store: str
    cache: str
    most: int
    record: str

    def write(self, version_dir: Path) -> None:
        """Notes in this user's state that a directory is attached so.

        Notes on directories that do not exist any more are removed.
        """
        path = _state_of(version_dir)
        whole = {"format": _FORMAT, "version_dir": os.path.realpath(version_dir), **asdict(self)}
        write_whole(path, (json.dumps(whole, indent=1) + "\n").encode())
        _forget_removed(path.parent)

    @classmethod
    def find(cls, version_dir: Path) -> "Attachment | None":
        """Returns what this user's state, or the sender of this work, says of a directory.

        Raises:
          DataDirError: There is no state folder that is safe.
        """
        received = _received.get(os.path.realpath(version_dir))
        if received is not None:
            return received
        try:
            whole = json.loads(_state_of(version_dir).read_bytes())
            if (whole["format"], whole["version_dir"]) != (_FORMAT, os.path.realpath(version_dir)):
                return None
            return cls.from_json(whole)
        except (OSError, *MALFORMED):
            return None

    @classmethod
    def from_json(cls, whole: Mapping[str, Any]) -> "Attachment":
        """Returns what `dataclasses.asdict` made of one."""
        return cls(
            str(whole["store"]), str(whole["cache"]), int(whole["most"]), str(whole["record"])
        )


# Of this process: what whoever sent its work says of directories that it shares with this machine.
_received: dict[str, Attachment] = {}


def attachments(version_dirs: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Returns what another process needs to read attached directories, for `receive` there."""
    found = {one: Attachment.find(Path(one)) for one in version_dirs if is_attached(Path(one))}
    return {one: asdict(what) for one, what in found.items() if what is not None}


def receive(given: Mapping[str, Mapping[str, Any]]) -> None:
    """Takes what `attachments` returned in the process that sends this one its work."""
    for version_dir, what in given.items():
        _received[os.path.realpath(version_dir)] = Attachment.from_json(what)


def is_attached(version_dir: Path) -> bool:
    """Returns whether a directory is said to have its shards elsewhere."""
    return (version_dir / FILE_NAME).is_file()


class Bringer(Protocol):
    """Brings shards here that come when they are read; it can be sent to other processes."""

    @property
    def most(self) -> int:
        """How many of them may stay open between reads; 0 if others may want their room."""

    @property
    def spare(self) -> int:
        """How many more of them have room than those that it was asked to have room for."""

    def __call__(self, path: Path) -> None:
        """Sees that a shard is here; it is about to be opened."""

    def ahead(self, paths: Iterable[Path]) -> None:
        """Begins to bring shards here that will be wanted."""

    def try_to_bring(self, path: Path) -> None:
        """Brings a shard here if it has room; never fails."""


class ShardProvider(Protocol):
    """Where the shards of a version come from."""

    @property
    def url(self) -> str:
        """The version's folder there, for people."""

    @property
    def address(self) -> str:
        """What finds the version again: a URL, or a directory with its metadata."""

    @property
    def held_at(self) -> str:
        """Where shards lie while they are read."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """The size of each file there, in bytes."""

    @property
    def modified(self) -> int:
        """When a file was written last, in nanoseconds of the epoch; 0 if they never change."""

    def bringer(self, names: Collection[str], held: int | None) -> Bringer:
        """Returns what brings some of the shards.

        Args:
          names: The shards.
          held: How many of them must have room here at a time; None for as many as have.

        Raises:
          InvalidOptionError: They have no room.
        """


_openers: list[Callable[[Path], ShardProvider]] = []


def register(opener: Callable[[Path], ShardProvider]) -> None:
    """Takes what knows the origin of a version, given its directory with a `FILE_NAME`."""
    _openers[:] = [opener]


def origin_of(version_dir: Path) -> ShardProvider | None:
    """Returns where the shards of a version come from; None if they are in its directory.

    Raises:
      NotPreparedError: This machine did not attach the directory.
    """
    if not is_attached(version_dir):
        return None
    if not _openers:
        raise NotPreparedError(
            explain(f"The shards of {version_dir} are in a store.", fix="import my_datasets first")
        )
    return _openers[0](version_dir)


def _state_of(version_dir: Path) -> Path:
    key = hashlib.sha256(os.fsencode(os.path.realpath(version_dir))).hexdigest()
    return state_folder("attached") / f"{key}.json"


def _forget_removed(folder: Path) -> None:
    """Removes what the state says of directories that are gone; of many, it looks at some."""
    with contextlib.suppress(OSError):
        notes = list(folder.glob("*.json"))
        for note in random.sample(notes, min(len(notes), _MOST_LOOKED_AT)):
            with contextlib.suppress(OSError, *MALFORMED):
                version_dir = json.loads(note.read_bytes())["version_dir"]
                try:
                    os.lstat(version_dir)
                except (FileNotFoundError, NotADirectoryError):
                    note.unlink()


def hold(file: int) -> None:
    """Says that a shard is being read, as long as it is open: others do not make room of it then.

    Args:
      file: Its descriptor.
    """
    # Where there are no such locks, it stays readable all the same once it has no name.
    with contextlib.suppress(OSError, ModuleNotFoundError):
        import fcntl

        fcntl.flock(file, fcntl.LOCK_SH)
