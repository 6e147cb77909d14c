"""Versions whose shards are fetched on demand, and the interface to what fetches them.

The origin of a directory's shards and the location of their cache come from the state folder of
this machine's user, or from the process that sent the work; never from the directory itself, which
may be untrusted.
"""

import contextlib
import hashlib
import json
import os
import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from my_datasets.metadata.dataset_info import MALFORMED
from my_datasets.storage.regular_files import write_whole
from my_datasets.storage.user_folders import state_folder

# Marks a directory that has a version's metadata and whose shards are fetched on demand. The file's
# content is ignored.
FILE_NAME = "my_datasets_attached.json"
_FORMAT = 2
# Maximum number of state files of other directories that are checked when one is attached.
_MOST_LOOKED_AT = 100


@dataclass(frozen=True)
class Attachment:
    """The origin of a directory's shards, and the location of their cache.

    Attributes:
      store: The store's address.
      cache: The directory of the shard cache, relative to the version's directory.
      most: The maximum size of the cache in bytes.
      record: The SHA-256 of the release's record.
    """

    store: str
    cache: str
    most: int
    record: str

    def write(self, version_dir: Path) -> None:
        """Records in this user's state folder that a directory is attached.

        Also removes state files of directories that no longer exist.
        """
        path = _state_of(version_dir)
        whole = {"format": _FORMAT, "version_dir": os.path.realpath(version_dir), **asdict(self)}
        write_whole(path, (json.dumps(whole, indent=1) + "\n").encode())
        _forget_removed(path.parent)

    @classmethod
    def find(cls, version_dir: Path) -> "Attachment | None":
        """Returns the attachment of a directory from this user's state or the sender of this work.

        Raises:
          DataDirError: There is no safe state folder.
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
    def from_json(cls, whole: Mapping[str, str | int]) -> "Attachment":
        """Returns the attachment from the result of `dataclasses.asdict`."""
        return cls(
            str(whole["store"]), str(whole["cache"]), int(whole["most"]), str(whole["record"])
        )


# Attachments of shared directories, received by this process from the one that sent its work.
_received: dict[str, Attachment] = {}


def attachments(version_dirs: Iterable[str]) -> dict[str, dict[str, str | int]]:
    """Returns what another process needs to read attached directories, for `receive` there."""
    found = {one: Attachment.find(Path(one)) for one in version_dirs if is_attached(Path(one))}
    return {one: asdict(what) for one, what in found.items() if what is not None}


def receive(given: Mapping[str, Mapping[str, str | int]]) -> None:
    """Accepts the result of `attachments` from the process that sends this one its work."""
    for version_dir, what in given.items():
        _received[os.path.realpath(version_dir)] = Attachment.from_json(what)


def is_attached(version_dir: Path) -> bool:
    """Returns whether a directory is marked as having its shards elsewhere."""
    return (version_dir / FILE_NAME).is_file()


class Fetcher(Protocol):
    """Fetches shards on demand; it can be sent to other processes."""

    @property
    def max_open(self) -> int:
        """How many shards may stay open between reads; 0 if they must be closed for eviction."""

    @property
    def spare(self) -> int:
        """How many more shards fit in the cache than were requested to fit."""

    def __call__(self, path: Path) -> None:
        """Fetches a shard that is about to be opened, unless it is already here."""

    def prefetch(self, paths: Iterable[Path]) -> None:
        """Starts fetching shards that will be needed."""

    def try_fetch(self, path: Path) -> None:
        """Fetches a shard if it fits in the cache; never fails."""


class ShardProvider(Protocol):
    """The remote source of a version's shards."""

    @property
    def url(self) -> str:
        """The URL of the version's folder there, for display."""

    @property
    def address(self) -> str:
        """The address to find the version again: a URL, or a directory with its metadata."""

    @property
    def shards_dir(self) -> str:
        """The location of the shards while they are read."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """The size of each file there, in bytes."""

    @property
    def modified(self) -> int:
        """The last modification time of any file, in ns since the epoch; 0 if they never change."""

    def fetcher(self, names: Collection[str], max_cached_shards: int | None) -> Fetcher:
        """Returns the object that fetches some of the shards.

        Args:
          names: The shards.
          max_cached_shards: How many of them must fit in the cache at a time; None for as many
            as fit.

        Raises:
          InvalidOptionError: They do not fit.
        """


def _state_of(version_dir: Path) -> Path:
    key = hashlib.sha256(os.fsencode(os.path.realpath(version_dir))).hexdigest()
    return state_folder("attached") / f"{key}.json"


def _forget_removed(folder: Path) -> None:
    """Removes the state of directories that no longer exist; checks a sample if there are many."""
    with contextlib.suppress(OSError):
        notes = list(folder.glob("*.json"))
        for note in random.sample(notes, min(len(notes), _MOST_LOOKED_AT)):
            with contextlib.suppress(OSError, *MALFORMED):
                version_dir = json.loads(note.read_bytes())["version_dir"]
                try:
                    os.lstat(version_dir)
                except (FileNotFoundError, NotADirectoryError):
                    note.unlink()


def lock_shard(file: int) -> None:
    """Locks a shard against eviction for as long as it is open.

    Args:
      file: Its descriptor.
    """
    # Without such locks, the open file stays readable even after it is unlinked.
    with contextlib.suppress(OSError, ModuleNotFoundError):
        import fcntl

        fcntl.flock(file, fcntl.LOCK_SH)


def unlock_shard(file: int, process: int) -> None:
    """Unlocks a shard that is about to be closed, unless the parent of this process locked it.

    Closing alone leaves the lock to children that were forked while the shard was open, for as long
    as they live.

    Args:
      file: Its descriptor.
      process: The process that locked it.
    """
    if process == os.getpid():
        with contextlib.suppress(OSError, ModuleNotFoundError):
            import fcntl

            fcntl.flock(file, fcntl.LOCK_UN)
