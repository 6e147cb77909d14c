"""`plan`: chooses the stages of an input pipeline from a few options."""

import dataclasses
import os
from collections.abc import Mapping, Sequence

from my_datasets.errors import InvalidOptionError, explain
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
    WINDOW,
    WINDOWS_HELD,
    OpenedVersions,
    Split,
    find,
)
from my_datasets.input_pipeline.read.source import IndexedExamples, check_form
from my_datasets.input_pipeline.transform import text
from my_datasets.resolving.resolve_prepared import Reference
from my_datasets.storage import addresses

# Batches out of which those of similar length are made.
_WINDOW = 64
# How the names of splits begin that are evaluated on.
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
      split: A split or slice such as `"train[:80%]"`, or TFDS's `ReadInstruction`, or one of what
        `tfds.even_splits` returns.
      batch_size: How many examples make a batch.
      shuffle: Whether each epoch has an order of its own: a permutation of all examples. None to
        shuffle unless each part of the split has a name that begins with `test`, `val`, `dev` or
        `eval`.
      shuffle_window: Permute the examples of so many shards at a time, the shards being in an order
        of their own in each epoch; None for all at once, and for 4 if they come when they are read:
        from an object store, or of a release that is attached.
      seed: Makes another order, from 0 to 2^64 - 1; None for a random one, which the plan and saved
        positions name.
      epochs: How many epochs an iteration has; the next one is of those after them. None for ever.
      as_supervised: Give `(input, target)` in place of a dict; None to do so if the dataset
        declares them, and no columns are chosen.
      columns: The features that are wanted, by their names; others are not decoded.
      image_size: (height, width) to which images are resized; None to leave them.
      image_dtype: `"float32"` for images from 0 to 1; None to leave them as they are stored.
      crop: `"center"` to take the largest part in the middle of images that has the shape of
        `image_size`, `"random"` for a part at random, which is another one in each epoch; None for
        the whole image, whatever becomes of its shape.
      crop_area: The least and the most that a random part has of an image's area, of 1.
      undecodable: `"fail"` for an error if an image cannot be decoded, or a record does not fit its
        checksum; `"skip"` for the next example of the split in its place, a warning, and a count.
        The record index finds the next one, also where a length is damaged. A shard that is cut
        off is an error.
      missing: What stands for missing values of optional features: `"tfds"` for what TFDS gives
        (the least number of the type, minus infinity for float64, 0 for unsigned numbers, False,
        an empty text); `"mask"` for 0, False or an empty text, and beside each such feature
        another one, `NAME_is_missing`, of bools; or what stands for them by the feature's name:
        `{"age": -1}`.
      tokenizer: The feature of texts that becomes the numbers of its tokens, and the file of a
        tokenizer: `{"text": "words.json"}`. See `my_datasets.text.train_tokenizer`.
      pack: Make rows of so many tokens of the only feature, which is one of lists; a batch then has
        `segments` and `positions` beside them: see `packing.PackedSource`.
      pack_split: Whether a list may begin in one row and end in the next.
      bucket_by: A feature of lists or texts: batches are of examples that are about as long.
      bucket_window: Out of how many of an epoch's examples, in its order, they are chosen; None for
        64 batches. Fewer are more alike in length, more are more alike in all else.
      cache: Keep decoded examples for later epochs: `"memory"`, `"disk"`, `"none"`, or `"auto"` for
        in memory if there is more than one epoch and they fit.
      cache_dir: Where those on disk lie.
      shard: (index, count): take this part of count equal ones, each of other examples; `"auto"`
        for this process's part, as PyTorch, JAX or the environment tell.
      remainder: See `stages.Shard`.
      drop_remainder: Leave an epoch's last batch out if it is smaller.
      workers: How many threads, or processes, make batches; None for one for each core if there
        are images, else one.
      prefetch: How many pieces (a batch, or several small ones) are held ready; 0 to make each when
        it is asked for, without threads. None for two.
      memory: How much the batches held ready and the cache may take, in bytes or as `"4GiB"`; None
        for half of what is free.
      data_dir: The data directory, which may be in an object store; TFDS's default if None.
      shards_dir: Where shards of an object store lie while they are read: those of three windows.
        A folder of the user's cache if None.

    Raises:
      NotPreparedError, SplitNotFoundError, FeatureError: There is no such thing.
      InvalidOptionError: A value makes no sense, or the memory is too little.
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
        raise InvalidOptionError(
            explain("Rows of tokens have one length.", fix="give pack, or bucket_by")
        )
    if bucket_window is not None and bucket_by is None:
        raise InvalidOptionError(
            explain(
                f"bucket_window={bucket_window} has no effect without bucket_by.",
                fix="give bucket_by, too",
            )
        )
    if cache_dir is not None and cache in ("none", "memory"):
        raise InvalidOptionError(
            explain(f"cache_dir has no effect with cache={cache!r}.", fix="give cache='disk'")
        )
    if pack_split and pack is None:
        raise InvalidOptionError(
            explain("pack_split=True splits rows that there are not.", fix="give pack, too")
        )
    part = None if shard is None else host_part(shard, remainder)
    is_shuffled, reason = (shuffle, "") if shuffle is not None else by_default(split)
    is_drawn = seed is None and (is_shuffled or bucket_by is not None or crop == "random")
    if seed is None:
        seed = random_seed(part) if is_drawn else 0
    decode = Decode(
        None if columns is None else tuple(columns), as_supervised, image_size, image_dtype,
        crop, crop_area, seed, undecodable, items_of(missing),
    )  # fmt: skip
    held, origin = None, found.origin
    if origin is not None:
        shuffle_window = Shuffle(seed, shuffle_window).window or WINDOW
        held = shuffle_window * WINDOWS_HELD
    records = len(found.records(split, held))
    if not records:
        raise InvalidOptionError(
            explain(f"{split!r} of {found.name} has no examples.", fix="choose another slice")
        )
    read = Read(found.name, str(found.path), split, records, found.content)
    if origin is not None:
        if pack is not None or bucket_by is not None:
            raise _far_away(origin.url)
        read = dataclasses.replace(read, path=origin.address, held=held, held_at=origin.held_at)
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
    if crop == "random":
        cache = _uncached(cache)
    kept = sizing.cache(cache, cache_dir, source, epochs, budget, is_far=origin is not None)
    if kept is not None:
        stages.append(kept)
    if pack is not None:
        if shuffle_window is not None:
            raise InvalidOptionError(
                explain(
                    "Rows of tokens are no longer in shards: there are no windows of them.",
                    fix="leave shuffle_window out",
                )
            )
        stages.append(Pack(_only_column(source, found.name), pack, pack_split))
    batch = Batch(batch_size, drop_remainder)
    return with_delivery(stages, batch, epochs, workers, prefetch, budget.without(kept), versions)


def by_default(split: str) -> tuple[bool, str]:
    """Returns whether a split is shuffled if nobody says so, and why."""
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


def _far_away(url: str) -> InvalidOptionError:
    return InvalidOptionError(
        explain(
            f"{url} is far away: to go through it for the lengths of all examples takes long.",
            fix="copy the version here, and give that directory",
        )
    )


def _uncached(cache: str) -> str:
    """Returns the cache of images of which random parts are taken: none."""
    if cache not in ("none", "auto"):
        raise InvalidOptionError(
            explain(
                "Random parts of images are others in each epoch: they cannot be kept.",
                fix="leave cache out, or crop with my_datasets.augment, after the cache",
            )
        )
    return "none"


def _only_column(source: IndexedExamples, name: str) -> str:
    leaves = pytree.columns_of(source.tree)
    is_one = isinstance(source.tree, Mapping) and len(leaves) == 1 and is_list(leaves[0])
    if not is_one or leaves[0].name in ("segments", "positions"):
        raise InvalidOptionError(
            explain(
                f"Only lists of numbers can be packed, one feature of {name} at a time.",
                f"Found: {', '.join(leaf.name for leaf in leaves)}",
                fix="choose one with columns=[...]; texts need a tokenizer",
            )
        )
    return str(leaves[0].name)
