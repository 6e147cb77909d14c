"""`plan`: chooses the stages of an input pipeline from a few options."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from my_datasets.core.machine import cores
from my_datasets.core.reference import DatasetReference
from my_datasets.core.sizes import in_bytes
from my_datasets.errors import InvalidOptionError, explain
from my_datasets.input_pipeline import trees
from my_datasets.input_pipeline.hosts import this_host
from my_datasets.input_pipeline.memory import available, size_of
from my_datasets.input_pipeline.opening import Source, open_examples
from my_datasets.input_pipeline.plan import Plan
from my_datasets.input_pipeline.prepared import find
from my_datasets.input_pipeline.stages import (
    Batch,
    Cache,
    CropKind,
    Decode,
    Prefetch,
    Read,
    Remainder,
    Repeat,
    Shard,
    Shuffle,
    Stage,
    Undecodable,
)

# Examples of which the size of all is guessed.
_SAMPLE = 32
# Pieces of work are of so many examples, which spreads the cost of a call, or of so many bytes.
_ROWS, _PIECE_BYTES = 4096, 4 << 20
_AHEAD = 2
# One in the making, and one ready.
_LEAST_HELD = 2
# The share of what is free that all may take, and the share of that which a cache may take.
_OF_FREE, _FOR_CACHE = 0.5, 0.5


def plan(
    reference: str | DatasetReference,
    *,
    split: str = "train",
    batch_size: int = 32,
    shuffle: bool | None = None,
    seed: int = 0,
    epochs: int | None = 1,
    as_supervised: bool | None = None,
    columns: Sequence[str] | None = None,
    image_size: tuple[int, int] | None = None,
    image_dtype: str | None = None,
    crop: CropKind | None = None,
    crop_area: tuple[float, float] = (0.08, 1.0),
    undecodable: Undecodable = "fail",
    cache: str = "none",
    cache_dir: str | os.PathLike[str] | None = None,
    shard: tuple[int, int] | str | None = None,
    remainder: Remainder = "pad",
    drop_remainder: bool = False,
    workers: int | None = None,
    memory: int | str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
) -> Plan:
    """Returns the plan of an input pipeline for a prepared split.

    Args:
      reference: For example `"digits"` or `"digits:1.*.*"`; or a prepared version's directory.
      split: A split or slice such as `"train[:80%]"`.
      batch_size: How many examples make a batch.
      shuffle: Whether each epoch has an order of its own: a permutation of all examples. None for
        splits that are called `train`, or are slices of that.
      seed: Makes another order.
      epochs: How often all examples are given; None for ever.
      as_supervised: Give `(input, target)` in place of a dict; None to do so if the dataset
        declares them, and no columns are chosen.
      columns: The features that are wanted, by their names; others are not decoded.
      image_size: (height, width) to which images are resized; None to leave them.
      image_dtype: `"float32"` for images from 0 to 1; None to leave them as they are stored.
      crop: `"center"` to take the largest part in the middle of images that has the shape of
        `image_size`, `"random"` for a part at random, which is another one in each epoch; None for
        the whole image, whatever becomes of its shape.
      crop_area: The least and the most that a random part has of an image's area, of 1.
      undecodable: `"fail"` for an error if an image cannot be decoded; `"skip"` for the next
        example of the split in its place, a warning, and a count.
      cache: Keep decoded examples for later epochs: `"memory"`, `"disk"`, `"none"`, or `"auto"` for
        in memory if there is more than one epoch and they fit.
      cache_dir: Where those on disk lie.
      shard: (index, count): take this part of count equal ones, each of other examples; `"auto"`
        for this process's part, as PyTorch, JAX or the environment tell.
      remainder: See `stages.Shard`.
      drop_remainder: Leave an epoch's last batch out if it is smaller.
      workers: How many threads, or processes, make batches; None for one for each core if there
        are images, else one.
      memory: How much the batches held ready and the cache may take, in bytes or as `"4GiB"`; None
        for half of what is free.
      data_dir: The data directory; TFDS's default if None.

    Raises:
      NotPreparedError, SplitNotFoundError, FeatureError: There is no such thing.
      InvalidOptionError: A value makes no sense, or the memory is too little.
    """
    found = find(reference, data_dir)
    if as_supervised is None:
        as_supervised = columns is None and found.schema.supervised is not None
    decode = Decode(
        None if columns is None else tuple(columns), as_supervised, image_size, image_dtype,
        crop, crop_area, seed, undecodable,
    )  # fmt: skip
    source = open_examples(found, split, decode, warns=False)
    if not len(source):
        raise InvalidOptionError(
            explain(f"{split!r} of {found.name} has no examples.", mend="choose another slice")
        )
    batch = Batch(batch_size, drop_remainder)
    if crop == "random" and cache not in ("none", "auto"):
        raise InvalidOptionError(
            explain(
                "Random parts of images are others in each epoch: they cannot be kept.",
                mend="leave cache out, or crop with my_datasets.augment, after the cache",
            )
        )
    part = None if shard is None else _shard(shard, remainder)
    _check_batch(batch, part or Shard(0, 1), len(source), split)
    example = _bytes_per_example(source)
    budget = in_bytes(memory) if memory is not None else int(available() * _OF_FREE)
    if crop == "random":
        cache = "none"
    kept = _cache(cache, cache_dir, example, len(source), epochs, int(budget * _FOR_CACHE))
    if kept is not None and kept.kind == "memory":
        budget -= kept.bytes_
    # Images of one byte for each value become four, in batches but not in the cache.
    in_batches = example * (4 if image_dtype is not None else 1)
    prefetch = _prefetch(source, batch, in_batches, workers, budget, is_given=memory is not None)
    stages: list[Stage] = [Read(found.name, str(found.path), split, len(source), found.content)]
    if shuffle if shuffle is not None else split.partition("[")[0] == "train":
        stages.append(Shuffle(seed))
    stages += [stage for stage in (part, decode, kept) if stage is not None]
    return Plan((*stages, batch, Repeat(epochs), prefetch))


def _shard(shard: tuple[int, int] | str, remainder: Remainder) -> Shard:
    if shard == "auto":
        shard = this_host()
    if isinstance(shard, str):
        raise InvalidOptionError(
            explain(f"shard={shard!r} is unknown.", mend="use 'auto' or (index, count)")
        )
    return Shard(*shard, remainder)


def _check_batch(batch: Batch, shard: Shard, examples: int, split: str) -> None:
    """Sees that an epoch has a batch: else one would wait for the first one for ever."""
    given = shard.examples(examples)
    if given < (batch.size if batch.drop_remainder else 1):
        raise InvalidOptionError(
            explain(
                f"No batch of {batch.size} can be made of {split!r}.",
                f"This part of it has {given:,} examples",
                mend="give a smaller batch_size, drop_remainder=False, or remainder='pad'",
            )
        )


def _bytes_per_example(source: Source) -> int:
    """Returns how many bytes a decoded example has, about, from some of them."""
    count = min(_SAMPLE, len(source))
    numbers = np.arange(count) * len(source) // count
    return max(1, size_of(source.columns(numbers, 0)) // count)


def _threads(source: Source) -> int:
    """Returns how many threads are worth it.

    Images are decoded in parallel. All else is done by NumPy in many short steps, for which threads
    would take turns: one alone is faster than two.
    """
    return cores() if any(leaf.form == "image" for leaf in trees.columns_of(source.tree)) else 1


def _prefetch(
    source: Source,
    batch: Batch,
    example: int,
    workers: int | None,
    budget: int,
    *,
    is_given: bool,
) -> Prefetch:
    threads = workers if workers is not None else _threads(source)
    if threads < 1:
        raise InvalidOptionError(explain(f"workers={workers} are none.", mend="give 1 or more"))
    ahead = _AHEAD
    one = batch.size * example
    while is_given and (threads + ahead) * one > budget and threads + ahead > _LEAST_HELD:
        threads, ahead = max(1, threads - 1), max(1, ahead - 1)
    most = budget // (threads + ahead) if is_given else _PIECE_BYTES
    at_once = max(1, min(_ROWS // batch.size, min(_PIECE_BYTES, most) // one))
    piece = at_once * one
    if is_given and (threads + ahead) * piece > budget:
        raise InvalidOptionError(
            explain(
                f"memory={budget:,} bytes are too little for this pipeline.",
                f"A batch has about {piece:,}; one in the making and one ready take twice that",
                mend=f"give memory={2 * piece:,} or more, or a smaller batch_size",
            )
        )
    return Prefetch(threads, ahead, at_once * batch.size)


def _cache(
    kind: str, directory: Any, example: int, examples: int, epochs: int | None, budget: int
) -> Cache | None:
    if kind not in ("none", "memory", "disk", "auto"):
        raise InvalidOptionError(
            explain(f"cache={kind!r} is unknown.", mend="use 'none', 'memory', 'disk' or 'auto'")
        )
    # Shuffled, each part sees all examples in the course of the epochs.
    size = example * examples
    if kind == "auto":
        kind = "memory" if epochs != 1 and size <= budget else "none"
    if kind == "none":
        return None
    if kind == "memory" and size > budget:
        raise InvalidOptionError(
            explain(
                f"The decoded examples take about {size:,} bytes: too many for the memory.",
                f"The cache may take {budget:,}, half of memory=",
                mend="give more memory, or cache='disk'",
            )
        )
    if kind == "disk" and directory is None:
        raise InvalidOptionError(
            explain("cache='disk' needs a place.", mend="give cache_dir='some/directory'")
        )
    where = None if kind == "memory" else os.path.abspath(os.path.expanduser(directory))
    return Cache("memory" if kind == "memory" else "disk", where, size)
