"""The file of one shard, of any format, from a stream of records."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from my_datasets.building.job import WriteShard
from my_datasets.building.journal import FinishedShard
from my_datasets.building.runs import Columns
from my_datasets.errors import LostExamplesError, explain
from my_datasets.metadata import sidecars
from my_datasets.metadata.sidecars import Sidecar
from my_datasets.records import checksum, index, tfrecord
from my_datasets.records import keys as keys_of
from my_datasets.records.keys import Keys
from my_datasets.records.tf_example.pieces import Bytes

# Framed records one after the other, in portions, with their columns `high`, `low` and `size`.
Records = Iterator[tuple[Bytes, Columns]]


def write(
    path: Path, count: int, records: Records, write_shard: WriteShard | None
) -> tuple[FinishedShard, npt.NDArray[np.uint64] | None, Keys]:
    """Writes a shard; in the end it has reached the disk.

    Args:
      path: Where it is written, under its name.
      count: How many records it is to have.
      records: The records.
      write_shard: Writes another format than TFRecord; None for TFRecord.

    Returns:
      The shard; where its records begin if they are TFRecords; the hashes of its examples' keys,
      shape [n, 2], which are the numbers that sort them where the order is another one.

    Raises:
      LostExamplesError: There are not as many records.
    """
    name = path.name
    keys = [np.zeros((0, 2), np.uint64)]
    if write_shard is not None:
        shard = _by_library(path, count, records, write_shard, keys)
        return shard, None, np.concatenate(keys)
    ends = [np.zeros(1, np.uint64)]
    written = 0
    whole = hashlib.sha256()
    with checksum.writing(path, to_be_synced=True) as file:
        for data, columns in records:
            file.write(data)
            whole.update(data.data)
            ends.append(ends[-1][-1] + np.cumsum(columns["size"], dtype=np.uint64))
            keys.append(_keys(columns))
            written += len(columns["size"])
        file.sync()
    if written != count or file.size != int(ends[-1][-1]):
        raise LostExamplesError(
            explain(
                f"The shard {name} does not add up.",
                f"Expected: {count:,} records; written: {written:,}",
                fix="build with --restart; if it stays, please report it",
            )
        )
    shard = FinishedShard(name, written, file.size, file.checksum, whole.hexdigest())
    return shard, np.concatenate(ends), np.concatenate(keys)


def with_sidecars(
    shard: FinishedShard, path: Path, offsets: npt.NDArray[np.uint64] | None, keys: Keys | None
) -> FinishedShard:
    """Writes the files that belong beside a shard, and returns the shard with them.

    Args:
      shard: The shard.
      path: Where it is; nothing else is in its folder. In the end all has reached the disk.
      offsets: Where its records begin, shape [n + 1]; None if it is no TFRecord file.
      keys: The hashes of its examples' keys, shape [n, 2]; None where they tell nothing.
    """
    if offsets is not None:
        index.write(path, offsets)
    if keys is not None:
        keys_of.save(keys_of.path_of(path), keys)
    there = {
        os.fspath(each.relative_to(path.parent)): checksum.of_file(each)[::-1]
        for each in sorted(path.parent.rglob("*"))
        if each.is_file() and each != path
    }
    return replace(shard, beside=there)


def beside(path: Path) -> tuple[Path, ...]:
    """Returns a shard's file, and those that may belong beside it."""
    return path, *(path.with_name(sidecars.name_of(path.name, kind)) for kind in Sidecar)


def _keys(columns: Columns) -> Keys:
    return np.stack([columns["high"], columns["low"]], axis=1).astype(np.uint64, copy=False)


def _by_library(
    path: Path, count: int, records: Records, write_shard: WriteShard, keys: list[Keys]
) -> FinishedShard:
    write_shard(path, _unframed(records, keys))
    with path.open("rb") as written:
        os.fsync(written.fileno())
    found, size = checksum.of_file(path)
    with path.open("rb") as written:
        whole = hashlib.file_digest(written, "sha256").hexdigest()
    return FinishedShard(path.name, count, size, found, whole)


def _unframed(records: Records, keys: list[Keys]) -> Iterator[tuple[int, bytes]]:
    for data, columns in records:
        keys.append(_keys(columns))
        start = 0
        hashes = zip(columns["high"].tolist(), columns["low"].tolist(), strict=True)
        for (high, low), size in zip(hashes, columns["size"].tolist(), strict=True):
            record = data[start + tfrecord.HEADER : start + size - tfrecord.FOOTER]
            yield high << 64 | low, record.tobytes()
            start += size
