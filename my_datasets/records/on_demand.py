"""Versions whose shards are not here, but come when they are read: the seam to who brings them."""

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from my_datasets.errors import NotPreparedError, explain

# Of a directory with the metadata of a version: says where the shards come from.
FILE_NAME = "my_datasets_attached.json"


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


class Origin(Protocol):
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


_openers: list[Callable[[Path], Origin]] = []


def register(opener: Callable[[Path], Origin]) -> None:
    """Takes what knows the origin of a version, given its directory with a `FILE_NAME`."""
    _openers[:] = [opener]


def origin_of(version_dir: Path) -> Origin | None:
    """Returns where the shards of a version come from; None if they are in its directory.

    Raises:
      NotPreparedError: Nobody here knows how to bring them.
    """
    if not (version_dir / FILE_NAME).is_file():
        return None
    if not _openers:
        raise NotPreparedError(
            explain(f"The shards of {version_dir} are in a store.", mend="import my_datasets first")
        )
    return _openers[0](version_dir)


def hold(file: int) -> None:
    """Says that a shard is being read, as long as it is open: others do not make room of it then.

    Args:
      file: Its descriptor.
    """
    # Where there are no such locks, it stays readable all the same once it has no name.
    with contextlib.suppress(OSError, ModuleNotFoundError):
        import fcntl

        fcntl.flock(file, fcntl.LOCK_SH)
