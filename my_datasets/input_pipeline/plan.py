"""The plan of an input pipeline: what will be done, before anything is."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from my_datasets.core.reference import DatasetReference
from my_datasets.core.schema import leaves_of
from my_datasets.errors import InvalidOptionError, PlanError, explain
from my_datasets.input_pipeline import prepared as prepared_version
from my_datasets.input_pipeline.decoding import Decoder
from my_datasets.input_pipeline.hosts import this_host
from my_datasets.input_pipeline.memory import available, in_bytes, size_of
from my_datasets.input_pipeline.prepared import Prepared
from my_datasets.input_pipeline.source import ExampleSource, chosen_features
from my_datasets.input_pipeline.stages import (
    KINDS,
    Batch,
    Cache,
    Decode,
    Prefetch,
    Read,
    Remainder,
    Repeat,
    Shard,
    Shuffle,
    Stage,
)
from my_datasets.input_pipeline.state import State

_FORMAT = 1
# Examples of which the size of all is guessed.
_SAMPLE = 32
# Pieces of work are of so many examples, which spreads the cost of a call, or of so many bytes.
_ROWS, _PIECE_BYTES = 4096, 4 << 20
_AHEAD = 2
# One in the making, and one ready.
_LEAST_HELD = 2
# The share of a memory budget, or of what is free, that a cache may take.
_FOR_CACHE = 0.5
_S = TypeVar("_S", bound=Stage)


@dataclass(frozen=True)
class Plan:
    """The stages of an input pipeline, in the order of the data's way.

    Attributes:
      stages: The stages.
    """

    stages: tuple[Stage, ...]

    def explain(self) -> str:
        """Returns what each stage does, a line each."""
        width = max(len(type(stage).__name__) for stage in self.stages)
        return "\n".join(
            f"{type(stage).__name__.lower():<{width}}  {stage.explain()}" for stage in self.stages
        )

    def __str__(self) -> str:
        return self.explain()

    def get(self, kind: type[_S]) -> _S | None:
        """Returns the stage of a kind; None if there is none."""
        return next((stage for stage in self.stages if isinstance(stage, kind)), None)

    def the(self, kind: type[_S]) -> _S:
        """Returns the stage of a kind that every plan has."""
        found = self.get(kind)
        if found is None:
            raise PlanError(
                explain(f"The plan has no stage {kind.__name__.lower()!r}.", mend="make it anew")
            )
        return found

    @property
    def beginning(self) -> State:
        """The state before the first batch: it names all that decides the order of the examples."""
        read, shuffle = self.the(Read), self.get(Shuffle)
        seed = None if shuffle is None else shuffle.seed
        return State(read.dataset, read.split, read.content, seed)

    def to_json(self) -> str:
        """Returns the plan as JSON, from which `from_json` makes it again."""
        stages = [_written(stage) for stage in self.stages]
        return json.dumps({"format": _FORMAT, "stages": stages}, indent=2)

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        """Returns the plan that `to_json` wrote.

        Raises:
          PlanError: The text is none, or of a later version of this package.
        """
        try:
            given = json.loads(text)
            if given["format"] != _FORMAT:
                raise ValueError(f"format {given['format']!r}")
            return cls(tuple(_read(stage) for stage in given["stages"]))
        except (KeyError, TypeError, ValueError) as error:
            raise PlanError(
                explain(
                    f"The text is no plan: {error}",
                    f"Expected what Plan.to_json wrote, format {_FORMAT}",
                    mend="make the plan anew",
                )
            ) from error

    def source(self) -> ExampleSource:
        """Returns the examples, as the plan decodes them.

        Raises:
          PlanError: The data are others than those that the plan was made for.
        """
        read, decode = self.the(Read), self.the(Decode)
        found = prepared_version.find(read.path)
        if _content(found) != read.content:
            raise PlanError(
                explain(
                    f"{read.path} holds other data than the plan was made for.",
                    f"Expected: {read.dataset}, content {read.content[:12]}",
                    f"Found: {found.name}, content {_content(found)[:12]}",
                    mend="make the plan anew",
                )
            )
        return _source(found, read.split, decode)


def _written(stage: Stage) -> Any:
    return {"stage": type(stage).__name__.lower(), **dataclasses.asdict(stage)}


def _read(given: Mapping[str, Any]) -> Stage:
    kind = KINDS[given["stage"]]
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in given.items()
        if name != "stage"
    }
    return kind(**values)


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
    found = prepared_version.find(reference, data_dir)
    if as_supervised is None:
        as_supervised = columns is None and found.schema.supervised is not None
    decode = Decode(
        None if columns is None else tuple(columns), as_supervised, image_size, image_dtype
    )
    source = _source(found, split, decode)
    if not len(source):
        raise InvalidOptionError(
            explain(f"{split!r} of {found.name} has no examples.", mend="choose another slice")
        )
    example = _bytes_per_example(source)
    # Images of one byte for each value become four, in batches but not in the cache.
    in_batches = example * (4 if image_dtype is not None else 1)
    budget = in_bytes(memory) if memory is not None else int(available() * _FOR_CACHE)
    batch = Batch(batch_size, drop_remainder)
    prefetch = _prefetch(source, batch, in_batches, workers, budget, is_given=memory is not None)
    stages: list[Stage] = [Read(found.name, str(found.path), split, len(source), _content(found))]
    _check_batch(batch, _shard(shard, remainder), len(source), split)
    if shuffle if shuffle is not None else split.partition("[")[0] == "train":
        stages.append(Shuffle(seed))
    if shard is not None:
        stages.append(_shard(shard, remainder))
    stages.append(decode)
    kept = _cache(cache, cache_dir, example, len(source), epochs, int(budget * _FOR_CACHE))
    if kept is not None:
        stages.append(kept)
    return Plan((*stages, batch, Repeat(epochs), prefetch))


def _shard(shard: tuple[int, int] | str | None, remainder: Remainder) -> Shard:
    if shard == "auto":
        shard = this_host()
    if isinstance(shard, str):
        raise InvalidOptionError(
            explain(f"shard={shard!r} is unknown.", mend="use 'auto' or (index, count)")
        )
    return Shard(*(shard or (0, 1)), remainder)


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


def _source(found: Prepared, split: str, decode: Decode) -> ExampleSource:
    tree = chosen_features(found, as_supervised=decode.as_supervised, columns=decode.columns)
    decoder = Decoder(tree, decode.image_size)
    return ExampleSource(found.name, split, found.records(split), decoder)


def _content(found: Prepared) -> str:
    """Returns a hash of the shards' names, sizes and lengths."""
    shards = [
        (shard.path.name, shard.length, shard.path.stat().st_size if shard.path.exists() else -1)
        for some in found.shards.values()
        for shard in some
    ]
    return hashlib.sha256(json.dumps([found.name, shards]).encode()).hexdigest()


def _bytes_per_example(source: ExampleSource) -> int:
    """Returns how many bytes a decoded example has, about, from some of them."""
    count = min(_SAMPLE, len(source))
    numbers = [i * len(source) // count for i in range(count)]
    return max(1, size_of(source.columns(numbers)) // count)


def _threads(source: ExampleSource) -> int:
    """Returns how many threads are worth it.

    Images are decoded in parallel. All else is done by NumPy in many short steps, for which threads
    would take turns: one alone is faster than two.
    """
    has_images = any(leaf.form == "image" for leaf in leaves_of(source.decoder.tree))
    return (os.cpu_count() or 1) if has_images else 1


def _prefetch(
    source: ExampleSource,
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
