"""Parts of shards, the units of work of one worker."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from my_datasets.comparison.version_metadata import REBUILD
from my_datasets.core.hash_sets import Hashes
from my_datasets.errors import CorruptShardError, DataDirError, missing_shard
from my_datasets.metadata.dataset_info import Declared
from my_datasets.records import index, shard_reader
from my_datasets.records.random_access import RecordBatch, RecordReader, RecordShard
from my_datasets.records.tf_example import canonical
from my_datasets.records.tf_example.columns import UnreadableRecordError

# Maximum number of records in a part, and approximate maximum number of bytes.
_RECORDS = 1 << 15
BYTES = 8 << 20


@dataclass(frozen=True)
class ShardPart:
    """A part of a shard.

    Attributes:
      number: Its number among all parts.
      target: The file for the results.
      examples: The declared number of records in the shard.
      size: The approximate size in bytes.
      of: The number of examples in the split.
      begin: The first record.
      end: The record after the last one; None for the whole shard.
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


def values_of(target: Path, feature: int) -> Path:
    """Returns the file for the hashes of a feature's values, next to those of the examples."""
    return target.with_name(f"{target.name}-{feature}")


def parts_of(
    version_dir: Path, declared: Declared, scratch: Path, *, is_canonical: bool
) -> Iterator[ShardPart]:
    """Yields the parts of all shards, in order, with their results in `scratch`; see `cut`.

    Raises:
      CorruptShardError: A shard is missing or does not have the declared number of records.
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
    """Yields the parts of a shard, in order; they depend only on the shard.

    A shard is cut only if this package wrote its records (`is_canonical`).

    Raises:
      CorruptShardError: The shard does not have the declared number of records.
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
    """Yields the records of a part in batches of about `most` bytes, with their canonical hashes.

    The hashes leave out the features in `without`.

    Raises:
      CorruptShardError: The shard is damaged.
      DataDirError: The file format is not supported.
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
            f"{part.shard} has the file format {part.file_format}.",
            "Expected: tfrecord, array_record or parquet",
            fix="rebuild the version in one of these formats",
        ) from error
    except shard_reader.DamagedError as error:
        raise _damaged(part.shard, error.row, error.reason) from error
    except UnreadableRecordError as error:
        raise unreadable(part.shard, row + error.row, error.reason) from error


def _gathered(parts: Iterator[list[bytes]], most: int) -> Iterator[list[bytes]]:
    """Yields lists of records that are large enough to be parsed together."""
    found: list[bytes] = []
    size = 0
    for records in parts:
        found += records
        size += sum(map(len, records))
        if len(found) >= _RECORDS or size >= most:
            yield found
            found, size = [], 0
    if found:
        yield found


def check_count(shard: Path, expected: int, found: int) -> None:
    """Raises `CorruptShardError` unless a shard has the declared number of records."""
    if found != expected:
        raise CorruptShardError(
            f"{shard} has {found:,} records.",
            f"Expected: {expected:,}, from dataset_info.json",
            fix=REBUILD,
        )


def _damaged(shard: Path, row: int, reason: str) -> CorruptShardError:
    return CorruptShardError(
        f"{shard} is damaged at record {row:,} (counted from 0).", reason, fix=REBUILD
    )


def unreadable(shard: Path, row: int, reason: str) -> CorruptShardError:
    """Returns the error for a record that is not a `tf.Example`."""
    return _damaged(shard, row, f"It is not a tf.Example: {reason}.")
