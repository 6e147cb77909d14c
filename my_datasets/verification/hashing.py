"""What is in a shard: read once, hashed as a file and example by example."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from my_datasets.core import content
from my_datasets.core.content import Content, ShardContent, SplitContent
from my_datasets.core.declared import Declared
from my_datasets.core.hashes import Hashes
from my_datasets.errors import CorruptShardError, DataDirError, explain
from my_datasets.records import canonical, stored
from my_datasets.records.columns import UnreadableRecordError

_READ_AT_ONCE = 4 << 20


@dataclass(frozen=True)
class Hashed:
    """A shard that was read.

    Attributes:
      content: The shard.
      hashes: Those of its examples, uint8 of shape [n, 32].
    """

    content: ShardContent
    hashes: Hashes


def sha256_of(path: Path) -> str:
    """Returns the SHA-256 of a file, in hexadecimal."""
    found = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while block := file.read(_READ_AT_ONCE):
            found.update(block)
    return found.hexdigest()


def hashed(path: Path, file_format: str) -> Hashed:
    """Returns what is in a shard.

    Raises:
      CorruptShardError: It is damaged, or a record in it is no `tf.Example`.
      DataDirError: It is of a format that is not read here.
    """
    parts: list[Hashes] = []
    try:
        # What came before a failure stays: it says which record failed.
        parts.extend(map(canonical.hashes, stored.records(path, file_format)))
    except stored.UnknownFormatError as error:
        raise DataDirError(
            explain(
                f"{path} is of the format {file_format}.",
                "Expected: tfrecord, array_record or parquet",
                mend="build the version in one of those",
            )
        ) from error
    except stored.DamagedError as error:
        raise _corrupt(path, error.row, error.reason) from error
    except UnreadableRecordError as error:
        row = sum(map(len, parts)) + error.row
        raise _corrupt(path, row, f"It is no tf.Example: {error.reason}.") from error
    hashes = np.concatenate(parts) if parts else canonical.joined([])
    found = ShardContent(path.name, path.stat().st_size, len(hashes), sha256_of(path))
    return Hashed(found, hashes)


def _corrupt(path: Path, row: int, reason: str) -> CorruptShardError:
    return CorruptShardError(
        explain(
            f"{path} is damaged at record {row:,} (counted from 0).",
            reason,
            mend="build or pull the version anew",
        )
    )


def split_of(shards: Sequence[Hashed]) -> SplitContent:
    """Returns what is in a split, given its shards in their order."""
    hashes = [one.hashes for one in shards]
    return SplitContent(
        sum(map(len, hashes)),
        content.ordered(hashes),
        content.unordered(hashes),
        tuple(one.content for one in shards),
    )


def version_of(version_dir: Path, declared: Declared, shards: Mapping[str, Hashed]) -> Content:
    """Returns what is in a version, given its shards by their names."""
    splits = {
        name: split_of([shards[one.name] for one in some]) for name, some in declared.splits.items()
    }
    return Content(content.schema_of(version_dir), splits)


def shard_names(declared: Declared) -> Iterator[str]:
    """Yields the names of all shards."""
    for some in declared.splits.values():
        for one in some:
            yield one.name
