"""A job: what an engine is to build, and what it has built."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from my_datasets.building.units import Encoder, Quarantined, SplitInput
from my_datasets.metadata.content import ShardContent

WriteShard = Callable[[Path, Iterable[tuple[int, bytes]]], None]
# Looks at a shard that was just written: gets its path, its examples, those of its split, and an
# empty folder for files. What it returns can be pickled.
Examine = Callable[[Path, int, int, Path], Any]


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is to be built, told in the engine's terms.

    Attributes:
      inputs: The splits, in their order.
      encoder: Makes the records.
      ordered: Keep the order of generation.
      ignore_duplicates: Keep the first example of each key.
      max_examples: At most so many examples of each split; None for all.
      number_of_shards: Says how many shards a split has, from (bytes, examples).
      shard_name: Says the file name of a shard, from (split, number, number of shards).
      write_shard: Writes a shard in another format than TFRecord; None for TFRecord.
    """

    inputs: Sequence[SplitInput]
    encoder: Encoder
    ordered: bool
    ignore_duplicates: bool
    max_examples: int | None
    number_of_shards: Callable[[int, int], int]
    shard_name: Callable[[str, int, int], str]
    write_shard: WriteShard | None = None


@dataclass(frozen=True)
class SplitResult:
    """A split as it was built.

    Attributes:
      name: The split.
      shards: Its shards.
      num_bytes: The size of the records, without framing.
      quarantined: The examples that were set aside.
      sidecars: The size and SHA-256 of the files beside shards that were not written to this
        machine, as the manifest has them, by name.
    """

    name: str
    shards: tuple[ShardContent, ...]
    num_bytes: int
    quarantined: list[Quarantined]
    sidecars: Mapping[str, Any] = field(default_factory=dict)
