"""What is noted of each shard while its examples are taken apart, and looked at in the end."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from my_datasets.core.issue import Issue
from my_datasets.records import shard_reader

# Takes the values of some examples, as the features nest them; in the order of the shard.
Take = Callable[[Any], None]


class ExampleObserver(Protocol):
    """Notes something of each example, in a file for each shard.

    `repr` says all that the notes depend on beside the shard: they may be used by a later run.
    """

    @property
    def name(self) -> str:
        """A short name, other than that of other watches; for files."""

    def noting(self, target: Path) -> AbstractContextManager[Take]:
        """Returns what takes the values of a shard's examples, and notes them in a file."""


@dataclass(frozen=True)
class ObservedShard:
    """A shard whose examples were all taken apart.

    Attributes:
      path: The shard.
      file_format: Its format.
      examples: How many it has.
      notes: What the names of the files of its notes begin with.
    """

    path: Path
    file_format: str
    examples: int
    notes: Path

    def of(self, watch: ExampleObserver) -> Path:
        """Returns the file with what was noted of it."""
        return file_of(self.notes, watch)

    def record(self, row: int) -> bytes:
        """Returns a record, read anew.

        Raises:
          IndexError: There is none, any more.
        """
        begin = 0
        for records in shard_reader.records(self.path, self.file_format):
            if row < begin + len(records):
                return records[row - begin]
            begin += len(records)
        raise IndexError(row)


class Check(Protocol):
    """A check that needs all shards: of notes on them."""

    @property
    def watches(self) -> Sequence[ExampleObserver]:
        """What notes them."""

    @property
    def not_checked(self) -> Sequence[str]:
        """What it could not look at, and why; known after `issues`."""

    def issues(self, splits: Mapping[str, Sequence[ObservedShard]]) -> Iterator[Issue]:
        """Yields what is wrong, given the shards of each split in their order."""


def file_of(notes: Path, watch: ExampleObserver) -> Path:
    """Returns the file of a watch's notes, given what the names of such files begin with."""
    return notes.with_name(f"{notes.name}.{watch.name}")


def place(shards: Sequence[ObservedShard], number: int) -> tuple[ObservedShard, int]:
    """Returns the shard in which an example lies, and its number there.

    Args:
      shards: Those of its split.
      number: Of the example within the split.
    """
    for shard in shards:
        if number < shard.examples:
            return shard, number
        number -= shard.examples
    raise IndexError(number)


def shown(shards: Sequence[ObservedShard], number: int) -> str:
    """Returns where an example lies, for a message."""
    shard, row = place(shards, number)
    return f"{shard.path.name}, record {row:,}"
