"""Chooses piece sizes, prefetching and caching within a memory budget."""

import os
from dataclasses import dataclass

import numpy as np

from my_datasets.core.processes import cores
from my_datasets.core.sizes import in_bytes
from my_datasets.errors import InvalidOptionError
from my_datasets.input_pipeline.decode import pytree
from my_datasets.input_pipeline.decode.pytree import available_memory, size_of
from my_datasets.input_pipeline.plan.stages import Batch, Cache, Prefetch
from my_datasets.input_pipeline.read.source import IndexedExamples

# Examples from which the mean size is estimated.
_SAMPLE = 32
# The most examples and bytes in a piece: enough to spread the cost of a call.
_ROWS, _PIECE_BYTES = 4096, 4 << 20
_AHEAD = 2
# One piece in the making, and one ready.
_LEAST_HELD = 2
# The share of free memory that a pipeline may take, and the share of that for a cache.
_OF_FREE, _FOR_CACHE = 0.5, 0.5
# A byte of an image becomes a float32.
_FLOAT = 4


@dataclass(frozen=True)
class Budget:
    """How many bytes a pipeline may take; `is_given` if the user chose the size."""

    size: int
    is_given: bool

    @classmethod
    def of(cls, memory: int | str | None) -> "Budget":
        """Returns a budget such as `4GiB`, or half of the free memory.

        Raises:
          InvalidOptionError: The text is not a size.
        """
        if memory is None:
            return cls(int(available_memory() * _OF_FREE), is_given=False)
        return cls(in_bytes(memory), is_given=True)

    def without(self, kept: Cache | None) -> "Budget":
        """Returns what a cache leaves of the budget."""
        if kept is None or kept.kind != "memory":
            return self
        return Budget(self.size - kept.bytes_, self.is_given)


def _bytes_per_example(source: IndexedExamples, *, is_far: bool) -> int:
    """Estimates the size of a decoded example; from neighbouring ones if they must be fetched."""
    count = min(_SAMPLE, len(source))
    numbers = np.arange(count) * (1 if is_far else len(source) // count)
    return max(1, size_of(source.columns(numbers, 0)) // count)


def _threads(source: IndexedExamples) -> int:
    """Returns how many threads pay off.

    Images are decoded in parallel. Everything else is many short NumPy steps that hold the GIL:
    one thread is faster than two.
    """
    return cores() if any(leaf.form == "image" for leaf in pytree.columns_of(source.tree)) else 1


def prefetch(
    source: IndexedExamples,
    batch: Batch,
    workers: int | None,
    ahead: int | None,
    budget: Budget,
    *,
    images_become_floats: bool,
    most_rows: int | None,
) -> Prefetch:
    """Chooses the number of threads, pieces held ready, and examples in a piece.

    Args:
      source: The examples.
      batch: The batch size.
      workers: The number of threads; None for as many as pay off.
      ahead: The number of pieces held ready; None for two.
      budget: The memory for all pieces.
      images_become_floats: Whether images take more memory in batches than in the source.
      most_rows: The largest piece, for examples that must be fetched; None for no limit.

    Raises:
      InvalidOptionError: Two batches do not fit into the budget.
    """
    example = _bytes_per_example(source, is_far=most_rows is not None) * (
        _FLOAT if images_become_floats else 1
    )
    threads = workers if workers is not None else _threads(source)
    ahead = _AHEAD if ahead is None else ahead
    one = batch.size * example
    is_given = budget.is_given
    while is_given and (threads + ahead) * one > budget.size and threads + ahead > _LEAST_HELD:
        threads, ahead = max(1, threads - 1), max(min(1, ahead), ahead - 1)
    most = budget.size // (threads + ahead) if is_given else _PIECE_BYTES
    at_once = max(
        1, min(min(_ROWS, most_rows or _ROWS) // batch.size, min(_PIECE_BYTES, most) // one)
    )
    piece = at_once * one
    if is_given and (threads + ahead) * piece > budget.size:
        raise InvalidOptionError(
            f"memory={budget.size:,} bytes is too little for this pipeline.",
            f"A batch takes about {piece:,}; one in the making and one ready take twice that",
            fix=f"give memory={2 * piece:,} or more, or a smaller batch_size",
        )
    return Prefetch(threads, ahead, at_once * batch.size)


def cache(
    kind: str,
    directory: str | os.PathLike[str] | None,
    source: IndexedExamples,
    epochs: int | None,
    budget: Budget,
    *,
    is_far: bool,
) -> Cache | None:
    """Chooses the cache; the arguments are options of `plan`, and whether examples are fetched.

    Raises:
      InvalidOptionError: The examples do not fit, or cache_dir is needed.
    """
    most = int(budget.size * _FOR_CACHE)
    # Of all examples: with shuffling, each host sees all of them in the course of the epochs.
    size = _bytes_per_example(source, is_far=is_far) * len(source)
    if kind == "auto":
        kind = "memory" if epochs != 1 and size <= most else "none"
    if kind == "none":
        return None
    if kind == "memory" and size > most:
        raise InvalidOptionError(
            f"The decoded examples take about {size:,} bytes, which is too much to cache.",
            f"The cache may take {most:,}, half of memory=",
            fix="give more memory, or cache='disk'",
        )
    if kind == "disk" and directory is None:
        raise InvalidOptionError(
            "cache='disk' needs cache_dir=.", fix="give cache_dir='some/directory'"
        )
    if kind == "memory" or directory is None:
        return Cache("memory", None, size)
    return Cache("disk", os.path.abspath(os.path.expanduser(directory)), size)
