"""Versions whose shards are fetched on demand.

The origin of a directory's shards and the location of their cache come from the state folder of
this machine's user, or from the process that sent the work; never from the directory itself, which
may be untrusted.
"""

import contextlib
import hashlib
import json
import os
import random
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from my_datasets.metadata.dataset_info import MALFORMED
from my_datasets.storage.regular_files import write_whole
from my_datasets.storage.user_folders import state_folder

# Marks a directory that has a version's metadata and whose shards are fetched on demand. The file's
# content is ignored.
FILE_NAME = "my_datasets_attached.json"
_FORMAT = 2
# Maximum number of state files of other directories that are checked when one is attached.
_MAX_CHECKED = 100


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


def attachments_of(version_dirs: Iterable[str]) -> dict[str, dict[str, str | int]]:
    """Returns what another process needs to read attached directories, for `receive` there."""
    found = {one: Attachment.find(Path(one)) for one in version_dirs if is_attached(Path(one))}
    return {one: asdict(what) for one, what in found.items() if what is not None}


def receive(given: Mapping[str, Mapping[str, str | int]]) -> None:
    """Accepts the result of `attachments_of` from the process that sends this one its work."""
    for version_dir, what in given.items():
        _received[os.path.realpath(version_dir)] = Attachment.from_json(what)


def is_attached(version_dir: Path) -> bool:
    """Returns whether a directory is marked as having its shards elsewhere."""
    return (version_dir / FILE_NAME).is_file()


def _state_of(version_dir: Path) -> Path:
    key = hashlib.sha256(os.fsencode(os.path.realpath(version_dir))).hexdigest()
    return state_folder("attached") / f"{key}.json"


def _forget_removed(folder: Path) -> None:
    """Removes the state of directories that no longer exist; checks a sample if there are many."""
    with contextlib.suppress(OSError):
        notes = list(folder.glob("*.json"))
        for note in random.sample(notes, min(len(notes), _MAX_CHECKED)):
            with contextlib.suppress(OSError, *MALFORMED):
                version_dir = json.loads(note.read_bytes())["version_dir"]
                try:
                    os.lstat(version_dir)
                except (FileNotFoundError, NotADirectoryError):
                    note.unlink()
