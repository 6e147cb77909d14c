"""The stages that make batches of examples, whatever they are of."""

import dataclasses
import json
import os
import secrets
import sys
from collections.abc import Sequence

from my_datasets.errors import InvalidOptionError, explain
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


def this_host() -> tuple[int, int]:
    """Returns (index, count) of this process among those that train together.

    From PyTorch if `torch.distributed` is initialised; from JAX if it knows several processes; else
    from the environment: `RANK` and `WORLD_SIZE` as `torchrun` sets them, or `TF_CONFIG` as
    `tf.distribute` reads it. (0, 1) without any of those. No framework is imported for it.

    Raises:
      InvalidOptionError: The environment says what cannot be.
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
        # The chief is a worker, too, and the first one.
        workers = [
            (kind, i) for kind in ("chief", "worker") for i in range(len(cluster.get(kind, [])))
        ]
        here = (task.get("type", "worker"), int(task.get("index", 0)))
        if here in workers:
            return workers.index(here), len(workers)
    return 0, 1


def _checked(index: str, count: str, where: str) -> tuple[int, int]:
    if not (index.isdecimal() and count.isdecimal() and int(index) < int(count)):
        raise InvalidOptionError(
            explain(
                f"{where} say that this is process {index!r} of {count!r}.",
                fix="correct them, or give shard=(index, count)",
            )
        )
    return int(index), int(count)


# Of random seeds: short enough to be copied by hand.
_SEED_BITS = 32


def with_delivery(
    stages: Sequence[Stage],
    batch: Batch,
    epochs: int | None,
    workers: int | None,
    ahead: int | None,
    budget: Budget,
    versions: OpenedVersions,
) -> Plan:
    """Returns the plan with the stages that make batches of examples.

    Args:
      stages: Those that make examples.
      batch: How many make a batch.
      epochs: How often all examples are given; None for ever.
      workers: How many threads make them; None for as many as are worth it.
      ahead: How many pieces are held ready; None for two.
      budget: What all that is held may take.
      versions: What this call has opened.

    Raises:
      InvalidOptionError: There is no batch, or the memory is too little.
    """
    source, order = opened_for_inspection(stages, versions)
    given = (Plan(tuple(stages)).get(Shard) or Shard(0, 1)).examples(order.size)
    if not order.size:
        raise InvalidOptionError(
            explain("There are no tokens: all lists are empty.", fix="choose another feature")
        )
    if given < (batch.size if batch.drop_remainder else 1):
        # Else one would wait for the first one for ever.
        raise InvalidOptionError(
            explain(
                f"No batch of {batch.size} can be made.",
                f"This part of an epoch has {given:,} examples",
                fix="give a smaller batch_size, drop_remainder=False, or remainder='pad'",
            )
        )
    dtype = next(one.image_dtype for one in stages if isinstance(one, Decode))
    found = sizing.prefetch(
        source,
        batch,
        workers,
        ahead,
        budget,
        images_become_floats=dtype is not None,
        most_rows=_of_a_window(stages, order),
    )
    return Plan((*stages, batch, Repeat(epochs), found))


def _of_a_window(stages: Sequence[Stage], order: EpochOrder) -> int | None:
    """Returns how many examples a window of shards has, about, if they come from far away."""
    read = Plan(tuple(stages)).get(Read)
    if read is None or read.held is None or not isinstance(order, WindowOrder):
        return None
    return max(1, order.size * order.window // len(order.runs))


def opened_for_inspection(
    stages: Sequence[Stage], versions: OpenedVersions
) -> tuple[IndexedExamples, EpochOrder]:
    """Opens what is only looked at: a plan that nobody uses yet leaves nothing behind.

    Returns the examples and their order; the errors are those of `opened`.
    """
    return opened(Plan(_as_stored(stages)), versions, warns=False)


def _as_stored(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Returns stages of which nothing is kept, and images stay of the type that a cache keeps."""
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
    """Returns a seed that nobody chose, for `seed=None`.

    Raises:
      InvalidOptionError: Several hosts share the epochs, each of which would draw its own.
    """
    if part is not None and part.count > 1:
        raise InvalidOptionError(
            explain(
                "seed=None draws a random seed, which would be another one on each host.",
                f"This is part {part.index} of {part.count}",
                fix="give all hosts the same number as seed",
            )
        )
    return secrets.randbits(_SEED_BITS)


def host_part(shard: tuple[int, int] | str, remainder: Remainder) -> Shard:
    """Returns the part that is this host's.

    Args:
      shard: (index, count), or `auto` to ask the framework or the environment.
      remainder: See `Shard`.

    Raises:
      InvalidOptionError: There is no such part.
    """
    if shard == "auto":
        shard = this_host()
    if isinstance(shard, str):
        raise InvalidOptionError(
            explain(f"shard={shard!r} is unknown.", fix="use 'auto' or (index, count)")
        )
    return Shard(*shard, remainder)
