"""Reads shards in this process, or in several where that pays off."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from my_datasets.building.engines import process_pool
from my_datasets.records import shard_reader

# Less data than this is read by a single process.
FEW_BYTES = 16 << 20


class Reader(Protocol):
    """Processes shards; it is copied into worker processes."""

    def handle(self, task: Any) -> Any:
        """Returns the result for a shard or a part of one."""

    def finish(self) -> None:
        """Ends the reader."""


def each(
    tasks: Sequence[Any],
    reader: Reader,
    workers: int,
    *,
    size: int,
    file_format: str,
    describe: Callable[[Any], str],
) -> Iterator[tuple[Any, Any]]:
    """Yields each task with the reader's result, in any order.

    Args:
      tasks: The shards, or parts of them, to read.
      reader: The reader.
      workers: The maximum number of processes.
      size: The total size of the tasks in bytes.
      file_format: The file format of the shards.
      describe: Returns a task's name for errors.
    """
    can_fork = process_pool.available() and shard_reader.can_be_read_forked(file_format)
    if workers == 1 or len(tasks) < 2 or size < FEW_BYTES or not can_fork:
        for task in tasks:
            yield task, reader.handle(task)
        return
    yield from process_pool.run(tasks, workers, lambda _: reader, lambda _: None, describe=describe)
