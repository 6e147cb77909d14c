"""Adds the stages that make batches of examples to a plan, for the host that this process is."""

import dataclasses
import json
import os
import secrets
import sys
from collections.abc import Sequence

from my_datasets.errors import InvalidOptionError
from my_datasets.input_pipeline.order.permutation import EpochOrder, WindowOrder
from my_datasets.input_pipeline.plan import sizing
from my_datasets.input_pipeline.plan.plan import Plan
from my_datasets.input_pipeline.plan.sizing import Budget
from my_datasets.input_pipeline.plan.stages import (
    Batch,
    Cache,
    Decode,
    Mix,
    Read,
    Remainder,
    Repeat,
    Shard,
    Stage,
)
from my_datasets.input_pipeline.read.opening import opened
from my_datasets.input_pipeline.read.prepared import OpenedVersions
from my_datasets.input_pipeline.read.source import IndexedExamples

# The bits of a random seed: few enough to copy it by hand.
_SEED_BITS = 32


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
        return _checked(os.environ["RANK"], os.environ["WORLD_SIZE"], "RANK and WORLD_SIZE")
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


def _checked(index: str, count: str, where: str) -> tuple[int, int]:
    if not (index.isdecimal() and count.isdecimal() and int(index) < int(count)):
        raise InvalidOptionError(
            f"{where} claim that this is process {index!r} of {count!r}.",
            fix="correct them, or give shard=(index, count)",
        )
    return int(index), int(count)


def with_delivery(
    stages: Sequence[Stage],
    batch: Batch,
    epochs: int | None,
    workers: int | None,
    ahead: int | None,
    budget: Budget,
    versions: OpenedVersions,
) -> Plan:
    """Completes a plan with the stages that make batches; the arguments are options of `plan`.

    Raises:
      InvalidOptionError: There would be no batch, or there is too little memory.
    """
    source, order = opened_for_inspection(stages, versions)
    given = (Plan(tuple(stages)).get(Shard) or Shard(0, 1)).examples(order.size)
    if not order.size:
        raise InvalidOptionError(
            "There are no tokens; all lists are empty.", fix="choose another feature"
        )
    if given < (batch.size if batch.drop_remainder else 1):
        # An endless pipeline would look for the first batch forever.
        raise InvalidOptionError(
            f"No batch of {batch.size} can be made.",
            f"This part of an epoch has {given:,} examples",
            fix="give a smaller batch_size, drop_remainder=False, or remainder='pad'",
        )
    dtype = next(one.image_dtype for one in stages if isinstance(one, Decode))
    found = sizing.prefetch(
        source, batch, workers, ahead, budget, images_become_floats=dtype is not None,
        most_rows=_of_a_window(stages, order),
    )  # fmt: skip
    return Plan((*stages, batch, Repeat(epochs), found))


def _of_a_window(stages: Sequence[Stage], order: EpochOrder) -> int | None:
    """Returns the mean number of examples in a window of shards, if shards are fetched."""
    read = Plan(tuple(stages)).get(Read)
    if read is None or read.max_cached_shards is None or not isinstance(order, WindowOrder):
        return None
    return max(1, order.size * order.window // len(order.runs))


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
    """Draws a seed, for `seed=None`.

    Raises:
      InvalidOptionError: There are several hosts, each of which would draw another seed.
    """
    if part is not None and part.count > 1:
        raise InvalidOptionError(
            "seed=None draws a random seed, which would differ between hosts.",
            f"This is part {part.index} of {part.count}",
            fix="give all hosts the same number as seed",
        )
    return secrets.randbits(_SEED_BITS)


def host_part(shard: tuple[int, int] | str, remainder: Remainder) -> Shard:
    """Returns this host's part, from (index, count), or from the environment if `auto`.

    Raises:
      InvalidOptionError: There is no such part.
    """
    index, count = this_host() if isinstance(shard, str) else shard
    return Shard(index, count, remainder)
