"""`plan`: chooses the stages of an input pipeline from a few options."""

import dataclasses
import os
from collections.abc import Mapping, Sequence

from my_datasets.errors import InvalidOptionError
from my_datasets.input_pipeline.decode import pytree
from my_datasets.input_pipeline.decode.missing import Missing, items_of
from my_datasets.input_pipeline.delivery import (
    host_part,
    opened_for_inspection,
    random_seed,
    with_delivery,
)
from my_datasets.input_pipeline.order.length_batching import is_list
from my_datasets.input_pipeline.plan import sizing
from my_datasets.input_pipeline.plan.options import checked
from my_datasets.input_pipeline.plan.plan import Plan
from my_datasets.input_pipeline.plan.sizing import Budget
from my_datasets.input_pipeline.plan.stages import (  # fmt: skip
    Batch,
    Bucket,
    CropKind,
    Decode,
    Pack,
    Read,
    Remainder,
    Shuffle,
    Stage,
    Tokenize,
    Undecodable,
)
from my_datasets.input_pipeline.read.prepared import (  # fmt: skip
    CACHED_WINDOWS,
    WINDOW,
    OpenedVersions,
    Split,
    find,
)
from my_datasets.input_pipeline.read.source import IndexedExamples, check_form
from my_datasets.input_pipeline.transform import text
from my_datasets.resolving.resolve_prepared import Reference
from my_datasets.storage import addresses

# The default bucket_window, in batches.
_WINDOW = 64
# Prefixes of the names of splits for evaluation.
_NOT_SHUFFLED = ("test", "val", "dev", "eval")


@checked()
def plan(
    reference: Reference,
    *,
    split: Split = "train",
    batch_size: int = 32,
    shuffle: bool | None = None,
    shuffle_window: int | None = None,
    seed: int | None = 0,
    epochs: int | None = 1,
    as_supervised: bool | None = None,
    columns: Sequence[str] | None = None,
    image_size: tuple[int, int] | None = None,
    image_dtype: str | None = None,
    crop: CropKind | None = None,
    crop_area: tuple[float, float] = (0.08, 1.0),
    undecodable: Undecodable = "fail",
    missing: Missing = "tfds",
    tokenizer: Mapping[str, str | os.PathLike[str]] | None = None,
    pack: int | None = None,
    pack_split: bool = False,
    bucket_by: str | None = None,
    bucket_window: int | None = None,
    cache: str = "none",
    cache_dir: str | os.PathLike[str] | None = None,
    shard: tuple[int, int] | str | None = None,
    remainder: Remainder = "pad",
    drop_remainder: bool = False,
    workers: int | None = None,
    prefetch: int | None = None,
    memory: int | str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    shards_dir: str | os.PathLike[str] | None = None,
) -> Plan:
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
    check_form(as_supervised=as_supervised, columns=columns)
    cache_dir = None if cache_dir is None else addresses.local_path(cache_dir, "cache_dir")
    found = find(reference, data_dir, shards_dir)
    versions = OpenedVersions(found)
    split = found.text_of(split)
    if as_supervised is None:
        as_supervised = columns is None and pack is None and found.schema.supervised is not None
    if columns is None and pack is not None and tokenizer:
        columns = tuple({one.partition("/")[0]: None for one in tokenizer})
    if pack is not None and bucket_by is not None:
        raise _conflict("bucket_by has no effect with pack: all rows have one length.",
                        "give pack, or bucket_by")  # fmt: skip
    if pack is not None and shuffle_window is not None:
        raise _conflict("shuffle_window has no effect with pack: rows are not stored in shards.",
                        "leave shuffle_window out")  # fmt: skip
    if bucket_window is not None and bucket_by is None:
        raise _conflict(f"bucket_window={bucket_window} has no effect without bucket_by.",
                        "give bucket_by, too")  # fmt: skip
    if cache_dir is not None and cache in ("none", "memory"):
        raise _conflict(f"cache_dir has no effect with cache={cache!r}.", "give cache='disk'")
    if pack_split and pack is None:
        raise _conflict("pack_split=True has no effect without pack.", "give pack, too")
    if crop == "random":
        if cache not in ("none", "auto"):
            raise _conflict(
                "Random crops differ in each epoch, so they cannot be cached.",
                "leave cache out, or crop with my_datasets.augment, after the cache",
            )
        cache = "none"
    part = None if shard is None else host_part(shard, remainder)
    is_shuffled, reason = (shuffle, "") if shuffle is not None else by_default(split)
    is_drawn = seed is None and (is_shuffled or bucket_by is not None or crop == "random")
    if seed is None:
        seed = random_seed(part) if is_drawn else 0
    decode = Decode(
        None if columns is None else tuple(columns), as_supervised, image_size, image_dtype,
        crop, crop_area, seed, undecodable, items_of(missing),
    )  # fmt: skip
    max_cached_shards, provider = None, found.provider
    if provider is not None:
        shuffle_window = Shuffle(seed, shuffle_window).window or WINDOW
        max_cached_shards = shuffle_window * CACHED_WINDOWS
    records = len(found.records(split, max_cached_shards))
    if not records:
        raise _conflict(f"{split!r} of {found.name} has no examples.", "choose another slice")
    read = Read(found.name, str(found.path), split, records, found.content)
    if provider is not None:
        if pack is not None or bucket_by is not None:
            raise _conflict(
                f"pack and bucket_by would read all examples of {provider.url} for their lengths.",
                "copy the version to this machine, and give that directory",
            )
        read = dataclasses.replace(
            read, path=provider.address, max_cached_shards=max_cached_shards,
            shards_dir=provider.shards_dir,
        )  # fmt: skip
    stages: list[Stage] = [
        read,
        Shuffle(
            seed if is_shuffled else None, shuffle_window if is_shuffled else None, reason, is_drawn
        ),
    ]
    if bucket_by is not None:
        group = batch_size * (1 if part is None else part.count)
        stages.append(Bucket(bucket_by, bucket_window or _WINDOW * group, group, seed))
    if part is not None:
        stages.append(part)
    stages += [decode, *_tokenize(tokenizer)]
    budget = Budget.of(memory)
    source, _ = opened_for_inspection(stages, versions)
    cache_stage = sizing.cache(
        cache, cache_dir, source, epochs, budget, is_far=provider is not None
    )
    if cache_stage is not None:
        stages.append(cache_stage)
    if pack is not None:
        stages.append(Pack(_only_column(source, found.name), pack, pack_split))
    batch = Batch(batch_size, drop_remainder)
    return with_delivery(
        stages, batch, epochs, workers, prefetch, budget.without(cache_stage), versions
    )


def by_default(split: str) -> tuple[bool, str]:
    """Returns whether a split is shuffled by default, and why."""
    names = [part.strip() for part in split.split("+")]
    is_shuffled = not all(name.lower().startswith(_NOT_SHUFFLED) for name in names)
    does, are = ("shuffles", "not all") if is_shuffled else ("does not shuffle", "all")
    first = ", ".join(f"{one}*" for one in _NOT_SHUFFLED)
    return is_shuffled, f"shuffle=None {does} {split!r}: {are} of its parts are named {first}"


def _tokenize(tokenizer: Mapping[str, str | os.PathLike[str]] | None) -> list[Stage]:
    found: list[Stage] = []
    for column, path in (tokenizer or {}).items():
        text.opened(os.fspath(path))
        found.append(Tokenize(column, os.path.abspath(path), text.content_of(os.fspath(path))))
    return found


def _conflict(problem: str, fix: str) -> InvalidOptionError:
    return InvalidOptionError(problem, fix=fix)


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
