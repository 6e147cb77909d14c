"""`mix`: chooses the stages of an input pipeline over several datasets."""

import dataclasses
from collections.abc import Sequence

from my_datasets.core.reference import DatasetReference
from my_datasets.errors import InvalidOptionError
from my_datasets.input_pipeline.delivery import (
    host_part,
    opened_for_inspection,
    random_seed,
    with_delivery,
)
from my_datasets.input_pipeline.order import mixing
from my_datasets.input_pipeline.plan.options import checked
from my_datasets.input_pipeline.plan.plan import Plan
from my_datasets.input_pipeline.plan.planner import plan
from my_datasets.input_pipeline.plan.sizing import Budget
from my_datasets.input_pipeline.plan.stages import (
    Batch,
    Cache,
    Decode,
    Mix,
    Prefetch,
    Read,
    Remainder,
    Repeat,
    Shard,
    Shuffle,
    Stage,
    Stop,
    Tokenize,
)
from my_datasets.input_pipeline.read.prepared import OpenedVersions

# Stages that concern batches, not single examples.
_OF_BATCHES = (Batch, Repeat, Prefetch, Shard)


@checked()
def mix(
    parts: Sequence[str | DatasetReference | Plan],
    *,
    weights: Sequence[float] | None = None,
    temperature: float = 1.0,
    stop: Stop = "first",
    batch_size: int = 32,
    seed: int | None = 0,
    epochs: int | None = 1,
    shard: tuple[int, int] | str | None = None,
    remainder: Remainder = "pad",
    drop_remainder: bool = False,
    workers: int | None = None,
    prefetch: int | None = None,
    memory: int | str | None = None,
) -> Plan:
    """Returns the plan of a mixture of datasets, each with its share of every batch.

    A dataset that runs out of examples begins an epoch of its own; one that has some left when the
    mixture's epoch ends continues with them in the next.

    `parts` are prepared datasets, or plans, which choose split, features and order; the batches,
    epochs and hosts of those plans are ignored. `weights` are their relative frequencies, by
    default their sizes; a `temperature` above 1 makes weights more alike, by raising them to the
    power of 1 / temperature. An epoch ends when `"first"`, one dataset, or `"all"` of them have
    yielded all their examples: `stop`. All other options are those of `plan`; `seed` applies also
    to parts that are not plans.

    Raises:
      PlanError: The datasets have different features.
      InvalidOptionError: An option is not valid, or there is too little memory.
    """
    part = None if shard is None else host_part(shard, remainder)
    is_drawn = seed is None
    if seed is None:
        seed = random_seed(part)
    plans = [
        one if isinstance(one, Plan) else _drawn(plan(one, seed=seed), is_drawn) for one in parts
    ]
    if not plans or any(one.get(Mix) is not None for one in plans):
        raise InvalidOptionError(
            "An empty list, or plans of mixtures, cannot be mixed.",
            fix="give plans of one dataset each",
        )
    of_examples = [
        tuple(stage for stage in one.stages if not isinstance(stage, _OF_BATCHES)) for one in plans
    ]
    if any(one.the(Read).max_cached_shards is not None for one in plans):
        raise InvalidOptionError(
            "Datasets in an object store cannot be mixed: reading would evict their shards "
            "again and again.",
            fix="copy them to this machine",
        )
    if len({tuple(_contents(one)) for one in plans}) > 1:
        raise InvalidOptionError(
            "The plans have different tokenizers.", fix="give all plans the same one"
        )
    budget = Budget.of(memory)
    for one in plans:
        budget = budget.without(one.get(Cache))
    if budget.size <= 0:
        raise InvalidOptionError(
            "The caches of the plans take all the memory.",
            fix="give more memory=, or plans without caches",
        )
    versions = OpenedVersions()
    sizes = [opened_for_inspection(stages, versions)[1].size for stages in of_examples]
    found = Mix(
        tuple(of_examples), mixing.shares(sizes, weights, temperature), stop, seed, is_drawn
    )
    decodes = [one.the(Decode) for one in plans]
    if len({decode.image_dtype for decode in decodes}) > 1:
        raise InvalidOptionError(
            "The plans have images of different types.", fix="give all the same image_dtype"
        )
    batch = Batch(batch_size, drop_remainder)
    of_host = [] if part is None else [part]
    given: list[Stage] = [found, *of_host, decodes[0]]
    return with_delivery(given, batch, epochs, workers, prefetch, budget, versions)


def _drawn(of: Plan, is_drawn: bool) -> Plan:
    """Records in a plan whether the mixture's seed, which it uses, was drawn at random."""
    return Plan(
        tuple(
            dataclasses.replace(one, is_drawn=is_drawn) if isinstance(one, Shuffle) else one
            for one in of.stages
        )
    )


def _contents(plan: Plan) -> list[str]:
    return sorted(stage.content for stage in plan.stages if isinstance(stage, Tokenize))
