"""Versions whose shards are not here, but come when they are read: the seam to who brings them."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from my_datasets.errors import NotPreparedError, explain

if TYPE_CHECKING:  # `import my_datasets` comes here, and loads no NumPy
    from my_datasets.records.reading import Bringer

# Of a directory with the metadata of a version: says where the shards come from.
FILE_NAME = "my_datasets_attached.json"


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

    def bringer(self, names: Collection[str], held: int | None) -> "Bringer":
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
