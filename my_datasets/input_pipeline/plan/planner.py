"""`plan` and `mix`: choose the stages of an input pipeline from a few options."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Unpack, get_args

from my_datasets.core.reference import DatasetReference
from my_datasets.errors import InvalidOptionError
from my_datasets.input_pipeline.decode import pytree
from my_datasets.input_pipeline.decode.missing import items_of
from my_datasets.input_pipeline.order import mixing
from my_datasets.input_pipeline.order.length_batching import is_list
from my_datasets.input_pipeline.plan import option_rules as rules
from my_datasets.input_pipeline.plan.delivery import (
    Budget,
    choose_cache,
    host_part,
    opened_for_inspection,
    random_seed,
    with_delivery,
)
from my_datasets.input_pipeline.plan.options import BatchOptions, PlanOptions, Workers, checked
from my_datasets.input_pipeline.plan.plan import Plan
from my_datasets.input_pipeline.plan.stages import (
    Batch,
    Bucket,
    Cache,
    Decode,
    Mix,
    Pack,
    Prefetch,
    Read,
    Repeat,
    Shard,
    Shuffle,
    Stage,
    Stop,
    Tokenize,
)
from my_datasets.input_pipeline.read.prepared import OpenedVersions, find
from my_datasets.input_pipeline.read.source import IndexedExamples, check_form
from my_datasets.input_pipeline.transform import text
from my_datasets.resolving.resolver import Reference
from my_datasets.resolving.shard_fetcher import CACHED_WINDOWS, WINDOW
from my_datasets.storage import addresses

# The default bucket_window, in batches.
_WINDOW = 64
# Prefixes of the names of splits for evaluation.
_NOT_SHUFFLED = ("test", "val", "dev", "eval")
# Stages that concern batches, not single examples.
_OF_BATCHES = (Batch, Repeat, Prefetch, Shard)


@checked()
def plan(reference: Annotated[Reference, rules.no_plan], **options: Unpack[PlanOptions]) -> Plan:
    """Returns the plan of an input pipeline for a prepared split.

    Args:
      reference: For example `"digits"` or `"digits:1.*.*"`; or a prepared version's directory.
      split: A split or slice such as `"train[:80%]"`, a TFDS `ReadInstruction`, or an item of
        `tfds.even_splits`.
      batch_size: The number of examples in a batch.
      shuffle: Whether to give each epoch an order of its own, a permutation of all examples. None
        to shuffle unless the name of every part of the split begins with `test`, `val`, `dev` or
        `eval`.
      shuffle_window: Shuffle the shards, and the examples of this many shards at a time. None to
        shuffle all examples at once; or 4 shards at a time if shards are fetched on demand, from
        an object store or for an attached release.
      seed: From 0 to 2^64 - 1; None for a random one, which the plan and saved positions contain.
      epochs: The number of epochs in an iteration; the next iteration continues after them. None
        for no end.
      as_supervised: Yield `(input, target)` instead of a dict; None to do so if the dataset
        declares them and no columns are chosen.
      columns: The names of the features to decode; None for all.
      image_size: (height, width) to resize images to; None to leave their size.
      image_dtype: `"float32"` for images from 0 to 1; None to leave their type.
      crop: `"center"` for the largest central part of an image with the aspect ratio of
        `image_size`, `"random"` for a random part, which differs in each epoch; None to distort
        images to `image_size`.
      crop_area: The smallest and the largest area of a random part, as fractions of the image's.
      undecodable: What to do if an image cannot be decoded, or a record does not match its
        checksum: `"fail"`, or `"skip"` to yield the next example of the split in its place, warn
        and count. The record index finds the next one even if a length is damaged. A truncated
        shard is always an error.
      missing: The value of missing optional features: `"tfds"` for that of TFDS (the smallest
        number of the type, minus infinity for float64, 0 for unsigned numbers, False, an empty
        text); `"mask"` for 0, False or an empty text, and an additional bool feature
        `NAME_is_missing` for each; or values by feature: `{"age": -1}`.
      tokenizer: The text feature to replace by token ids, and a tokenizer's file:
        `{"text": "words.json"}`. See `my_datasets.text.train_tokenizer`.
      pack: Pack the only feature, lists of tokens, into rows of this length; batches then also
        have `segments` and `positions`: see `packing.PackedSource`.
      pack_split: Whether a list may begin in one row and end in the next.
      bucket_by: A feature of lists or texts; each batch has examples of similar length.
      bucket_window: The number of consecutive examples of an epoch from which such batches are
        formed; None for 64 batches. Smaller windows mix more, larger ones match lengths better.
      cache: Keep decoded examples for later epochs: `"memory"`, `"disk"`, `"none"`, or `"auto"` to
        keep them in memory if there is more than one epoch and they fit.
      cache_dir: The directory for `cache="disk"`.
      shard: (index, count): take this one of count equal, disjoint parts; `"auto"` for this
        process's part according to PyTorch, JAX or the environment.
      remainder: See `stages.Shard`.
      drop_remainder: Drop an epoch's last batch if it is smaller.
      workers: The number of threads, or processes, that make batches; None for one per core if
        there are images, else one.
      prefetch: The number of pieces (a batch, or several small ones) held ready; 0 to make each
        when it is requested, without threads. None for two.
      memory: The limit for prefetched batches and the cache, in bytes or such as `"4GiB"`; None
        for half of the free memory.
      data_dir: The data directory, which may be in an object store; TFDS's default if None.
      shards_dir: The directory for shards fetched from an object store, those of three windows at
        a time; a folder of the user's cache if None.

    Raises:
      NotPreparedError, SplitNotFoundError, FeatureError: The version, split or feature does not
        exist.
      InvalidOptionError: An option is not valid, or there is too little memory.
    """
    return planned(reference, options)[0]


def planned(reference: Reference, options: PlanOptions) -> tuple[Plan, OpenedVersions]:
    """Returns the plan, and the version that it was made of, opened; the errors are `plan`'s."""
    as_supervised, columns, pack = options["as_supervised"], options["columns"], options["pack"]
    bucket_by, crop = options["bucket_by"], options["crop"]
    # Before the version is looked up, which may take long.
    check_form(as_supervised=as_supervised, columns=columns)
    if options["cache_dir"] is not None:
        options = {**options, "cache_dir": addresses.local_path(options["cache_dir"], "cache_dir")}
    found = find(reference, options["data_dir"], options["shards_dir"])
    versions = OpenedVersions(found)
    split = found.text_of(options["split"])
    if as_supervised is None:
        as_supervised = columns is None and pack is None and found.schema.supervised is not None
    if columns is None and pack is not None and options["tokenizer"]:
        columns = tuple({one.partition("/")[0]: None for one in options["tokenizer"]})
    _check_combinations(options)
    if crop == "random":
        options = {**options, "cache": "none"}
    part = host_part(options)
    is_shuffled, reason = options["shuffle"], ""
    if is_shuffled is None:
        is_shuffled, reason = default_shuffle(split)
    seed, is_drawn = options["seed"], False
    if seed is None:
        is_drawn = is_shuffled or bucket_by is not None or crop == "random"
        seed = random_seed(part) if is_drawn else 0
    decode = Decode(
        None if columns is None else tuple(columns), as_supervised, options["image_size"],
        options["image_dtype"], crop, options["crop_area"], seed, options["undecodable"],
        items_of(options["missing"]),
    )  # fmt: skip
    window, max_cached_shards = options["shuffle_window"], None
    if found.provider is not None:
        window = window or WINDOW
        max_cached_shards = window * CACHED_WINDOWS
    records = len(found.records(split, max_cached_shards))
    if not records:
        raise InvalidOptionError(
            f"{split!r} of {found.name} has no examples.", fix="choose another slice"
        )
    read = Read(found.name, str(found.path), split, records, found.content)
    if found.provider is not None:
        if pack is not None or bucket_by is not None:
            raise InvalidOptionError(
                f"pack and bucket_by would read all examples of {found.provider.url} for their "
                "lengths.",
                fix="copy the version to this machine, and give that directory",
            )
        read = dataclasses.replace(
            read, path=found.provider.address, max_cached_shards=max_cached_shards,
            shards_dir=found.provider.shards_dir,
        )  # fmt: skip
    shuffle = Shuffle(
        seed if is_shuffled else None, window if is_shuffled else None, reason, is_drawn
    )
    stages: list[Stage] = [read, shuffle]
    if bucket_by is not None:
        group = options["batch_size"] * (1 if part is None else part.count)
        stages.append(Bucket(bucket_by, options["bucket_window"] or _WINDOW * group, group, seed))
    if part is not None:
        stages.append(part)
    stages.append(decode)
    for column, path in (options["tokenizer"] or {}).items():
        text.opened(os.fspath(path))
        stages.append(Tokenize(column, os.path.abspath(path), text.content_of(os.fspath(path))))
    budget = Budget.of(options["memory"])
    source, _ = opened_for_inspection(stages, versions)
    cache = choose_cache(options, source, budget, is_far=found.provider is not None)
    if cache is not None:
        stages.append(cache)
    if pack is not None:
        stages.append(Pack(_only_column(source, found.name), pack, options["pack_split"]))
    budget = budget.without(cache)
    return with_delivery(stages, options, options["workers"], budget, versions), versions


def _check_combinations(options: PlanOptions) -> None:
    """Raises InvalidOptionError for options that contradict each other, or have no effect."""
    pack, window, cache = options["pack"], options["bucket_window"], options["cache"]
    for is_so, problem, fix in (
        (pack is not None and options["bucket_by"] is not None,
         "bucket_by has no effect with pack: all rows have one length.", "give pack, or bucket_by"),
        (pack is not None and options["shuffle_window"] is not None,
         "shuffle_window has no effect with pack: rows are not stored in shards.",
         "leave shuffle_window out"),
        (window is not None and options["bucket_by"] is None,
         f"bucket_window={window} has no effect without bucket_by.", "give bucket_by, too"),
        (options["cache_dir"] is not None and cache in ("none", "memory"),
         f"cache_dir has no effect with cache={cache!r}.", "give cache='disk'"),
        (options["pack_split"] and pack is None,
         "pack_split=True has no effect without pack.", "give pack, too"),
        (options["crop"] == "random" and cache not in ("none", "auto"),
         "Random crops differ in each epoch, so they cannot be cached.",
         "leave cache out, or crop with my_datasets.augment, after the cache"),
    ):  # fmt: skip
        if is_so:
            raise InvalidOptionError(problem, fix=fix)


def default_shuffle(split: str) -> tuple[bool, str]:
    """Returns whether a split is shuffled by default, and why."""
    names = [part.strip() for part in split.split("+")]
    is_shuffled = not all(name.lower().startswith(_NOT_SHUFFLED) for name in names)
    does, are = ("shuffles", "not all") if is_shuffled else ("does not shuffle", "all")
    first = ", ".join(f"{one}*" for one in _NOT_SHUFFLED)
    return is_shuffled, f"shuffle=None {does} {split!r}: {are} of its parts are named {first}"


def _only_column(source: IndexedExamples, name: str) -> str:
    leaves = pytree.columns_of(source.tree)
    is_one = isinstance(source.tree, Mapping) and len(leaves) == 1 and is_list(leaves[0])
    if not is_one or leaves[0].name in ("segments", "positions"):
        raise InvalidOptionError(
            f"pack takes one feature of {name}, which must be lists of numbers.",
            f"Found: {', '.join(leaf.name for leaf in leaves)}",
            fix="choose one with columns=[...]; texts need a tokenizer",
        )
    return str(leaves[0].name)


@checked()
def mix(
    parts: Annotated[Sequence[str | DatasetReference | Plan], rules.parts],
    *,
    weights: Annotated[Sequence[float] | None, rules.weights] = None,
    temperature: Annotated[float, rules.real(0, above=True)] = 1.0,
    stop: Annotated[Stop, rules.choice(*get_args(Stop))] = "first",
    workers: Workers = None,
    **options: Unpack[BatchOptions],
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
    part = host_part(options)
    seed, is_drawn = options["seed"], options["seed"] is None
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
    if any(one.the(Read).max_cached_shards is not None for one in plans):
        raise InvalidOptionError(
            "Datasets in an object store cannot be mixed: reading would evict their shards "
            "again and again.",
            fix="copy them to this machine",
        )
    tokenizers = [sorted(one.content for one in a_plan.stages if isinstance(one, Tokenize))
                  for a_plan in plans]  # fmt: skip
    if any(one != tokenizers[0] for one in tokenizers):
        raise InvalidOptionError(
            "The plans have different tokenizers.", fix="give all plans the same one"
        )
    budget = Budget.of(options["memory"])
    for one in plans:
        budget = budget.without(one.get(Cache))
    if budget.size <= 0:
        raise InvalidOptionError(
            "The caches of the plans take all the memory.",
            fix="give more memory=, or plans without caches",
        )
    versions = OpenedVersions()
    examples = tuple(
        tuple(stage for stage in one.stages if not isinstance(stage, _OF_BATCHES)) for one in plans
    )
    sizes = [opened_for_inspection(stages, versions)[1].size for stages in examples]
    mixture = Mix(examples, mixing.shares(sizes, weights, temperature), stop, seed, is_drawn)
    decode = plans[0].the(Decode)
    if any(one.the(Decode).image_dtype != decode.image_dtype for one in plans):
        raise InvalidOptionError(
            "The plans have images of different types.", fix="give all the same image_dtype"
        )
    stages: list[Stage] = [mixture, decode] if part is None else [mixture, part, decode]
    return with_delivery(stages, options, workers, budget, versions)


def _drawn(of: Plan, is_drawn: bool) -> Plan:
    """Records in a plan whether the mixture's seed, which it uses, was drawn at random."""
    return Plan(
        tuple(
            dataclasses.replace(one, is_drawn=is_drawn) if isinstance(one, Shuffle) else one
            for one in of.stages
        )
    )
