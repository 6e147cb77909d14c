"""The stages of a plan that make batches, for this host and within a memory budget."""

import dataclasses
import json
import os
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from my_datasets.core.processes import cores
from my_datasets.core.sizes import in_bytes
from my_datasets.errors import InvalidOptionError
from my_datasets.input_pipeline.decode import pytree
from my_datasets.input_pipeline.decode.pytree import available_memory, size_of
from my_datasets.input_pipeline.order.permutation import EpochOrder, WindowOrder
from my_datasets.input_pipeline.plan.options import BatchOptions, LoaderOptions
from my_datasets.input_pipeline.plan.plan import Plan
from my_datasets.input_pipeline.plan.stages import (
    Batch,
    Cache,
    Decode,
    Mix,
    Prefetch,
    Read,
    Repeat,
    Shard,
    Stage,
)
from my_datasets.input_pipeline.read.opening import opened
from my_datasets.input_pipeline.read.prepared import OpenedVersions
from my_datasets.input_pipeline.read.source import IndexedExamples

# Examples from which the mean size is estimated.
_SAMPLE = 32
# The most examples and bytes in a piece: enough to spread the cost of a call.
_ROWS, _PIECE_BYTES = 4096, 4 << 20
_AHEAD = 2
# The share of free memory that a pipeline may take, and the share of that for a cache.
_OF_FREE, _FOR_CACHE = 0.5, 0.5
# A byte of an image becomes a float32.
_FLOAT = 4
# The bits of a random seed: few enough to copy it by hand.
_SEED_BITS = 32


@dataclass(frozen=True)
class Budget:
    """How many bytes a pipeline may take; `is_given` if the user chose the size."""

    size: int
    is_given: bool

    @classmethod
    def of(cls, memory: int | str | None) -> "Budget":
        """Returns a budget such as `4GiB`, or half of the free memory."""
        if memory is None:
            return cls(int(available_memory() * _OF_FREE), is_given=False)
        return cls(in_bytes(memory), is_given=True)

    def without(self, cache: Cache | None) -> "Budget":
        """Returns what a cache leaves of the budget."""
        if cache is None or cache.kind != "memory":
            return self
        return Budget(self.size - cache.bytes_, self.is_given)


def _bytes_per_example(source: IndexedExamples, *, is_far: bool) -> int:
    """Estimates the size of a decoded example; from neighbouring ones if they must be fetched."""
    count = min(_SAMPLE, len(source))
    numbers = np.arange(count) * (1 if is_far else len(source) // count)
    return max(1, size_of(source.columns(numbers, 0)) // count)


def choose_cache(
    options: LoaderOptions, source: IndexedExamples, budget: Budget, *, is_far: bool
) -> Cache | None:
    """Chooses the cache; `is_far` says that examples are fetched.

    Raises:
      InvalidOptionError: The examples do not fit, or cache_dir is needed.
    """
    kind, directory = options["cache"], options["cache_dir"]
    most = int(budget.size * _FOR_CACHE)
    # Of all examples: with shuffling, each host sees all of them in the course of the epochs.
    size = _bytes_per_example(source, is_far=is_far) * len(source)
    if kind == "auto":
        kind = "memory" if options["epochs"] != 1 and size <= most else "none"
    if kind == "none":
        return None
    if kind == "memory":
        if size > most:
            raise InvalidOptionError(
                f"The decoded examples take about {size:,} bytes, which is too much to cache.",
                f"The cache may take {most:,}, half of memory=",
                fix="give more memory, or cache='disk'",
            )
        return Cache("memory", None, size)
    if directory is None:
        raise InvalidOptionError(
            "cache='disk' needs cache_dir=.", fix="give cache_dir='some/directory'"
        )
    return Cache("disk", os.path.abspath(os.path.expanduser(directory)), size)


def with_delivery(
    stages: Sequence[Stage],
    options: BatchOptions,
    workers: int | None,
    budget: Budget,
    versions: OpenedVersions,
) -> Plan:
    """Completes a plan with the stages that make batches.

    Raises:
      InvalidOptionError: There would be no batch, or there is too little memory.
    """
    unfinished = Plan(tuple(stages))
    batch = Batch(options["batch_size"], options["drop_remainder"])
    source, order = opened_for_inspection(stages, versions)
    if not order.size:
        raise InvalidOptionError(
            "There are no tokens; all lists are empty.", fix="choose another feature"
        )
    examples = (unfinished.get(Shard) or Shard(0, 1)).examples(order.size)
    if examples < (batch.size if batch.drop_remainder else 1):
        # An endless pipeline would look for the first batch forever.
        raise InvalidOptionError(
            f"No batch of {batch.size} can be made.",
            f"This part of an epoch has {examples:,} examples",
            fix="give a smaller batch_size, drop_remainder=False, or remainder='pad'",
        )
    most_rows, read = None, unfinished.get(Read)
    if read is not None and read.max_cached_shards is not None and isinstance(order, WindowOrder):
        # Shards are fetched: no more than the mean number of examples in a window of them.
        most_rows = max(1, order.size * order.window // len(order.runs))
    row_bytes = _bytes_per_example(source, is_far=most_rows is not None)
    if unfinished.the(Decode).image_dtype is not None:
        row_bytes *= _FLOAT
    if workers is None:
        # Images are decoded in parallel. Everything else is many short NumPy steps that hold the
        # GIL: one thread is faster than two.
        has_images = any(leaf.form == "image" for leaf in pytree.columns_of(source.tree))
        workers = cores() if has_images else 1
    prefetch = _prefetch(batch.size, row_bytes, most_rows or _ROWS, workers, options, budget)
    return Plan((*stages, batch, Repeat(options["epochs"]), prefetch))


def _prefetch(
    batch_size: int,
    row_bytes: int,
    most_rows: int,
    threads: int,
    options: BatchOptions,
    budget: Budget,
) -> Prefetch:
    """Chooses the number of threads, pieces held ready, and examples in a piece.

    Raises:
      InvalidOptionError: Two batches, one in the making and one ready, do not fit into the budget.
    """
    ahead = _AHEAD if options["prefetch"] is None else options["prefetch"]
    batch_bytes, most = batch_size * row_bytes, _PIECE_BYTES
    if budget.is_given:
        while (threads + ahead) * batch_bytes > budget.size and threads + ahead > 2:
            threads, ahead = max(1, threads - 1), max(min(1, ahead), ahead - 1)
        most = min(most, budget.size // (threads + ahead))
    at_once = max(1, min(min(_ROWS, most_rows) // batch_size, most // batch_bytes))
    piece = at_once * batch_bytes
    if budget.is_given and (threads + ahead) * piece > budget.size:
        raise InvalidOptionError(
            f"memory={budget.size:,} bytes is too little for this pipeline.",
            f"A batch takes about {piece:,}; one in the making and one ready take twice that",
            fix=f"give memory={2 * piece:,} or more, or a smaller batch_size",
        )
    return Prefetch(threads, ahead, at_once * batch_size)


def opened_for_inspection(
    stages: Sequence[Stage], versions: OpenedVersions
) -> tuple[IndexedExamples, EpochOrder]:
    """Opens the examples of an unfinished plan, and their order, without creating a cache.

    The errors are those of `opened`.
    """
    return opened(Plan(_as_stored(stages)), versions, warns=False)


def _as_stored(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Returns the stages without caches, and with images of the type that a cache would keep."""
    found: list[Stage] = []
    for stage in stages:
        if isinstance(stage, Mix):
            found.append(dataclasses.replace(stage, parts=tuple(map(_as_stored, stage.parts))))
        elif isinstance(stage, Decode):
            found.append(dataclasses.replace(stage, image_dtype=None))
        elif not isinstance(stage, Cache):
            found.append(stage)
    return tuple(found)


def random_seed(part: Shard | None) -> int:
    """Draws a seed; InvalidOptionError if several hosts would each draw another."""
    if part is not None and part.count > 1:
        raise InvalidOptionError(
            "seed=None draws a random seed, which would differ between hosts.",
            f"This is part {part.index} of {part.count}",
            fix="give all hosts the same number as seed",
        )
    return secrets.randbits(_SEED_BITS)


def host_part(options: BatchOptions) -> Shard | None:
    """Returns this host's part, from the environment if `shard` is `auto`; None for everything.

    Raises:
      InvalidOptionError: There is no such part.
    """
    shard = options["shard"]
    if shard is None:
        return None
    index, count = this_host() if isinstance(shard, str) else shard
    return Shard(index, count, options["remainder"])


def this_host() -> tuple[int, int]:
    """Returns (index, count) of this process among those that train together.

    The source is PyTorch if `torch.distributed` is initialised; else JAX if it has several
    processes; else the environment: `RANK` and `WORLD_SIZE` as set by `torchrun`, or `TF_CONFIG` of
    `tf.distribute`. The default is (0, 1). No framework is imported for this.

    Raises:
      InvalidOptionError: The environment variables contradict each other.
    """
    torch = sys.modules.get("torch")
    if (
        torch is not None
        and torch.distributed.is_available()
        and torch.distributed.is_initialized()
    ):
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    jax = sys.modules.get("jax")
    if jax is not None and jax.process_count() > 1:
        return jax.process_index(), jax.process_count()
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        rank, size = os.environ["RANK"], os.environ["WORLD_SIZE"]
        if not (rank.isdecimal() and size.isdecimal() and int(rank) < int(size)):
            raise InvalidOptionError(
                f"RANK and WORLD_SIZE claim that this is process {rank!r} of {size!r}.",
                fix="correct them, or give shard=(index, count)",
            )
        return int(rank), int(size)
    if os.environ.get("TF_CONFIG"):
        config = json.loads(os.environ["TF_CONFIG"])
        task, cluster = config.get("task", {}), config.get("cluster", {})
        # The chief is the first worker.
        workers = [
            (kind, i) for kind in ("chief", "worker") for i in range(len(cluster.get(kind, [])))
        ]
        own_task = (task.get("type", "worker"), int(task.get("index", 0)))
        if own_task in workers:
            return workers.index(own_task), len(workers)
    return 0, 1
