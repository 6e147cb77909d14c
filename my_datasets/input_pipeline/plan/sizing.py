"""How many examples are made at once and held ready, and what is kept, within a memory budget."""

import os
from dataclasses import dataclass

import numpy as np

from my_datasets.core.machine import cores
from my_datasets.core.sizes import in_bytes
from my_datasets.errors import InvalidOptionError, explain
from my_datasets.input_pipeline.decode import pytree
from my_datasets.input_pipeline.decode.pytree import available_memory, size_of
from my_datasets.input_pipeline.plan.stages import Batch, Cache, Prefetch
from my_datasets.input_pipeline.read.source import IndexedExamples

# Examples of which the size of all is guessed.
_SAMPLE = 32
# Pieces of work are of so many examples, which spreads the cost of a call, or of so many bytes.
_ROWS, _PIECE_BYTES = 4096, 4 << 20
_AHEAD = 2
# One in the making, and one ready.
_LEAST_HELD = 2
# The share of what is free that all may take, and the share of that which a cache may take.
_OF_FREE, _FOR_CACHE = 0.5, 0.5
# A byte of an image becomes a float32.
_FLOAT = 4


@dataclass(frozen=True)
class Budget:
    """How much memory a pipeline may take.

    Attributes:
      size: In bytes.
      is_given: Whether somebody asked for it; else it is what is reasonable.
    """

    size: int
    is_given: bool

    @classmethod
    def of(cls, memory: int | str | None) -> "Budget":
        """Returns a budget such as `4GiB`, or half of what is free.

        Raises:
          InvalidOptionError: It is no size.
        """
        if memory is None:
            return cls(int(available_memory() * _OF_FREE), is_given=False)
        return cls(in_bytes(memory), is_given=True)

    def without(self, kept: Cache | None) -> "Budget":
        """Returns what a cache leaves of it."""
        if kept is None or kept.kind != "memory":
            return self
        return Budget(self.size - kept.bytes_, self.is_given)


def _bytes_per_example(source: IndexedExamples, *, is_far: bool) -> int:
    """Returns how many bytes a decoded example has, about, from some of them.

    Args:
      source: The examples.
      is_far: Whether they are fetched for it: then those that lie together are taken.
    """
    count = min(_SAMPLE, len(source))
    numbers = np.arange(count) * (1 if is_far else len(source) // count)
    return max(1, size_of(source.columns(numbers, 0)) // count)


def _threads(source: IndexedExamples) -> int:
    """Returns how many threads are worth it.

    Images are decoded in parallel. All else is done by NumPy in many short steps, for which threads
    would take turns: one alone is faster than two.
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
    """Returns how many examples are made at once, and held ready.

    Args:
      source: The examples.
      batch: How many make a batch.
      workers: How many threads make them; None for as many as are worth it.
      ahead: How many pieces are held ready; None for two.
      budget: What all of them may take.
      images_become_floats: Whether they take more in batches than before.
      most_rows: How many examples may be made at once, where they are fetched for it; None for any.

    Raises:
      InvalidOptionError: The budget is too little for two batches.
    """
    example = _bytes_per_example(source, is_far=most_rows is not None) * (
        _FLOAT if images_become_floats else 1
    )
    threads = workers if workers is not None else _threads(source)
    if threads < 1:
        raise InvalidOptionError(explain(f"workers={workers} are none.", fix="give 1 or more"))
    if ahead is not None and ahead < 0:
        raise InvalidOptionError(explain(f"prefetch={ahead} is none.", fix="give 0 or more"))
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
            explain(
                f"memory={budget.size:,} bytes are too little for this pipeline.",
                f"A batch has about {piece:,}; one in the making and one ready take twice that",
                fix=f"give memory={2 * piece:,} or more, or a smaller batch_size",
            )
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
    """Returns what is kept of some examples.

    Args:
      kind: `none`, `memory`, `disk`, or `auto`.
      directory: Where those on disk lie.
      source: The examples.
      epochs: How often they are wanted.
      budget: What the whole pipeline may take.
      is_far: Whether examples are fetched to see how large they are.

    Raises:
      InvalidOptionError: They do not fit, or an option makes no sense.
    """
    most = int(budget.size * _FOR_CACHE)
    if kind not in ("none", "memory", "disk", "auto"):
        raise InvalidOptionError(
            explain(f"cache={kind!r} is unknown.", fix="use 'none', 'memory', 'disk' or 'auto'")
        )
    # Shuffled, each part sees all examples in the course of the epochs.
    size = _bytes_per_example(source, is_far=is_far) * len(source)
    if kind == "auto":
        kind = "memory" if epochs != 1 and size <= most else "none"
    if kind == "none":
        return None
    if kind == "memory" and size > most:
        raise InvalidOptionError(
            explain(
                f"The decoded examples take about {size:,} bytes: too many for the memory.",
                f"The cache may take {most:,}, half of memory=",
                fix="give more memory, or cache='disk'",
            )
        )
    if kind == "disk" and directory is None:
        raise InvalidOptionError(
            explain("cache='disk' needs a place.", fix="give cache_dir='some/directory'")
        )
    if kind == "memory" or directory is None:
        return Cache("memory", None, size)
    return Cache("disk", os.path.abspath(os.path.expanduser(directory)), size)
