"""Notes on the examples of shards, written while reading them, and checks of all notes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from my_datasets.core.issue import Issue
from my_datasets.records import shard_reader

# Takes the decoded values of some examples, nested like the features, in order.
Take = Callable[[Any], None]


class ExampleObserver(Protocol):
    """Writes notes on examples, to one file per shard.

    `repr` must show all that the notes depend on besides the shard: a later run may reuse them.
    """

    @property
    def name(self) -> str:
        """A short unique name, for files."""

    def noting(self, target: Path) -> AbstractContextManager[Take]:
        """Returns a function that takes a shard's examples, and writes notes to a file."""


@dataclass(frozen=True)
class ObservedShard:
    """A shard whose examples were all decoded; paths of its notes begin with `notes`."""

    path: Path
    file_format: str
    examples: int
    notes: Path

    def of(self, watch: ExampleObserver) -> Path:
        """Returns the file of a watch's notes."""
        return file_of(self.notes, watch)

    def record(self, row: int) -> bytes:
        """Reads a record again.

        Raises:
          IndexError: The shard no longer has this record.
        """
        begin = 0
        for records in shard_reader.records(self.path, self.file_format):
            if row < begin + len(records):
                return records[row - begin]
            begin += len(records)
        raise IndexError(row)


class Check(Protocol):
    """A check of the notes on all shards."""

    @property
    def watches(self) -> Sequence[ExampleObserver]:
        """The watches that write the notes."""

    @property
    def not_checked(self) -> Sequence[str]:
        """What could not be checked, and why; complete after `issues`."""

    def issues(self, splits: Mapping[str, Sequence[ObservedShard]]) -> Iterator[Issue]:
        """Yields issues, given the shards of each split in order."""


def file_of(notes: Path, watch: ExampleObserver) -> Path:
    """Returns the file of a watch's notes, given the prefix of such files."""
    return notes.with_name(f"{notes.name}.{watch.name}")


def place(shards: Sequence[ObservedShard], number: int) -> tuple[ObservedShard, int]:
    """Returns the shard of a split's example, and its row in the shard."""
    for shard in shards:
        if number < shard.examples:
            return shard, number
        number -= shard.examples
    raise IndexError(number)


def shown(shards: Sequence[ObservedShard], number: int) -> str:
    """Returns the place of a split's example, for a message."""
    shard, row = place(shards, number)
    return f"{shard.path.name}, record {row:,}"
