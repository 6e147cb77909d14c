"""Who reads shards: this process, or several where that is worth it."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from my_datasets.building.engines import process_pool
from my_datasets.records import shard_reader

# Less than this is read by one process.
FEW_BYTES = 16 << 20


class Reader(Protocol):
    """Reads shards; it is taken along into other processes."""

    def handle(self, task: Any) -> Any:
        """Returns what it makes of a shard, or of a part of one."""

    def finish(self) -> None:
        """Ends."""


def each(
    tasks: Sequence[Any],
    reader: Reader,
    workers: int,
    *,
    size: int,
    file_format: str,
    describe: Callable[[Any], str],
) -> Iterator[tuple[Any, Any]]:
    """Yields tasks with what a reader makes of them, in any order.

    Args:
      tasks: What is read.
      reader: Who reads it.
      workers: How many processes there may be.
      size: How many bytes there are.
      file_format: Of which format it is.
      describe: Names a task in an error.
    """
    can_fork = process_pool.available() and shard_reader.can_be_read_forked(file_format)
    if workers == 1 or len(tasks) < 2 or size < FEW_BYTES or not can_fork:
        for task in tasks:
            yield task, reader.handle(task)
        return
    yield from process_pool.run(tasks, workers, lambda _: reader, lambda _: None, describe=describe)
