"""Parts of shards, each of which one worker reads at a time."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from my_datasets.core.hash_sets import Hashes
from my_datasets.errors import CorruptShardError, DataDirError, explain, missing_shard
from my_datasets.metadata.dataset_info import Declared
from my_datasets.records import index, shard_reader
from my_datasets.records.random_access import RecordBatch, RecordReader, RecordShard
from my_datasets.records.tf_example import canonical
from my_datasets.records.tf_example.columns import UnreadableRecordError

# Records that are a part, and about how many bytes of them at most.
_RECORDS = 1 << 15
BYTES = 8 << 20


@dataclass(frozen=True)
class ShardPart:
    """A part of a shard.

    Attributes:
      number: Its number among all parts.
      split: Its split.
      shard: The shard.
      file_format: The shard's.
      target: Where what is made of it is to be put.
      examples: How many the shard is said to have.
      size: How many bytes it has, about.
      of: How many examples the split has.
      begin: The first of its records.
      end: The one after its last; None for all of the shard.
    """

    number: int
    split: str
    shard: Path
    file_format: str
    target: Path
    examples: int
    size: int
    of: int
    begin: int = 0
    end: int | None = None

    def values(self, feature: int) -> Path:
        """Returns where the hashes of a feature's values are put."""
        return values_of(self.target, feature)


def values_of(target: Path, feature: int) -> Path:
    """Returns where the hashes of a feature's values are put, beside those of examples."""
    return target.with_name(f"{target.name}-{feature}")


def parts_of(
    version_dir: Path, declared: Declared, scratch: Path, *, is_canonical: bool
) -> Iterator[ShardPart]:
    """Yields the parts of all shards, in their order.

    Args:
      version_dir: The version's directory.
      declared: What it declares.
      scratch: Where what is made of each part is to be put.
      is_canonical: Whether records are as this package writes them, so that shards are cut.

    Raises:
      CorruptShardError: A shard is not there, or has another number of records than is declared.
    """
    number = 0
    form = declared.file_format
    for name, shards in declared.splits.items():
        total = sum(shard.examples for shard in shards)
        for shard in shards:
            path = version_dir / shard.name
            if not path.is_file():
                raise missing_shard(path)
            size = path.stat().st_size
            whole = ShardPart(
                number, name, path, form, scratch / str(number), shard.examples, size, total
            )
            parts = list(cut(whole, is_canonical=is_canonical))
            yield from parts
            number += len(parts)


def cut(whole: ShardPart, *, is_canonical: bool) -> Iterator[ShardPart]:
    """Yields parts of a shard, in their order; only the shard decides which.

    Args:
      whole: All of it.
      is_canonical: Whether records are as this package writes them, so that shards are cut.

    Raises:
      CorruptShardError: It has another number of records than is declared.
    """
    if whole.file_format != "tfrecord" or not is_canonical or not whole.examples:
        yield whole
        return
    check_count(whole.shard, whole.examples, len(index.read(whole.shard)) - 1)
    step = max(1, min(_RECORDS, BYTES * whole.examples // max(whole.size, 1)))
    for i, begin in enumerate(range(0, whole.examples, step)):
        end = min(begin + step, whole.examples)
        number = whole.number + i
        yield replace(
            whole, number=number, target=whole.target.with_name(str(number)), begin=begin, end=end,
            size=whole.size * (end - begin) // whole.examples,
        )  # fmt: skip


def batches(
    part: ShardPart, most: int, *, is_canonical: bool, without: frozenset[str]
) -> Iterator[tuple[RecordBatch, Hashes]]:
    """Yields records of a part, some at a time, and the hashes of what they hold.

    Args:
      part: The part.
      most: About how many bytes are yielded at a time.
      is_canonical: Whether records are as this package writes them.
      without: Features that do not count.

    Raises:
      CorruptShardError: The shard is damaged.
      DataDirError: It is of a format that is not read here.
    """
    if part.end is not None:
        step = max(1, (part.end - part.begin) * most // max(part.size, 1))
        shard = RecordReader([RecordShard(part.shard, part.examples)], [(0, part.examples)])
        for begin in range(part.begin, part.end, step):
            batch = shard.read(np.arange(begin, min(begin + step, part.end)))
            view, sha256 = batch.data.data, hashlib.sha256
            places = zip(batch.starts.tolist(), batch.stops.tolist(), strict=True)
            yield batch, canonical.joined([sha256(view[a:b]).digest() for a, b in places])
        return
    row = 0
    try:
        for records in _gathered(shard_reader.records(part.shard, part.file_format), most):
            if is_canonical:
                hashes = canonical.joined([hashlib.sha256(one).digest() for one in records])
            else:
                hashes = canonical.hashes(records, without)
            yield RecordBatch.of(records), hashes
            row += len(records)
    except shard_reader.UnknownFormatError as error:
        raise DataDirError(
            explain(
                f"{part.shard} is of the format {part.file_format}.",
                "Expected: tfrecord, array_record or parquet",
                fix="build the version in one of those",
            )
        ) from error
    except shard_reader.DamagedError as error:
        raise _damaged(part.shard, error.row, error.reason) from error
    except UnreadableRecordError as error:
        raise unreadable(part.shard, row + error.row, error.reason) from error


def _gathered(parts: Iterator[list[bytes]], most: int) -> Iterator[list[bytes]]:
    """Yields as many records together as are best taken apart together."""
    found: list[bytes] = []
    held = 0
    for records in parts:
        found += records
        held += sum(map(len, records))
        if len(found) >= _RECORDS or held >= most:
            yield found
            found, held = [], 0
    if found:
        yield found


def check_count(shard: Path, expected: int, found: int) -> None:
    """Looks whether a shard has as many records as it is said to have.

    Raises:
      CorruptShardError: It has not.
    """
    if found != expected:
        raise CorruptShardError(
            explain(
                f"{shard} has {found:,} records.",
                f"Expected: {expected:,}, as dataset_info.json says",
                fix="build or pull the version anew",
            )
        )


def _damaged(shard: Path, row: int, reason: str) -> CorruptShardError:
    return CorruptShardError(
        explain(
            f"{shard} is damaged at record {row:,} (counted from 0).",
            reason,
            fix="build or pull the version anew",
        )
    )


def unreadable(shard: Path, row: int, reason: str) -> CorruptShardError:
    """Returns the error for a record that is no `tf.Example`."""
    return _damaged(shard, row, f"It is no tf.Example: {reason}.")
