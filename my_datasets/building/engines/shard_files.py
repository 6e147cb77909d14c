"""The file of one shard, of any format, from a stream of records."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from my_datasets.building.job import WriteShard
from my_datasets.building.journal import Shard
from my_datasets.building.runs import Columns
from my_datasets.errors import LostExamplesError, explain
from my_datasets.records import checksum, tfrecord
from my_datasets.records.pieces import Bytes

# Framed records one after the other, in portions, with their columns `high`, `low` and `size`.
Records = Iterator[tuple[Bytes, Columns]]


def write(
    name: str, count: int, path: Path, records: Records, write_shard: WriteShard | None
) -> tuple[Shard, npt.NDArray[np.uint64] | None]:
    """Writes a shard; in the end it has reached the disk.

    Args:
      name: The name it is going to have.
      count: How many records it is to have.
      path: Where it is written.
      records: The records.
      write_shard: Writes another format than TFRecord; None for TFRecord.

    Returns:
      The shard, and where its records begin if they are TFRecords.

    Raises:
      LostExamplesError: There are not as many records.
    """
    if write_shard is not None:
        return _by_library(name, count, path, records, write_shard), None
    ends = [np.zeros(1, np.uint64)]
    written = 0
    whole = hashlib.sha256()
    with checksum.writing(path, to_be_synced=True) as file:
        for data, columns in records:
            file.write(data)
            whole.update(data.data)
            ends.append(ends[-1][-1] + np.cumsum(columns["size"], dtype=np.uint64))
            written += len(columns["size"])
        file.sync()
    if written != count or file.size != int(ends[-1][-1]):
        raise LostExamplesError(
            explain(
                f"The shard {name} does not add up.",
                f"Expected: {count:,} records; written: {written:,}",
                mend="build with --restart; if it stays, please report it",
            )
        )
    shard = Shard(name, written, file.size, file.checksum, whole.hexdigest())
    return shard, np.concatenate(ends)


def _by_library(
    name: str, count: int, path: Path, records: Records, write_shard: WriteShard
) -> Shard:
    write_shard(path, _unframed(records))
    with path.open("rb") as written:
        os.fsync(written.fileno())
    found, size = checksum.of_file(path)
    with path.open("rb") as written:
        whole = hashlib.file_digest(written, "sha256").hexdigest()
    return Shard(name, count, size, found, whole)


def _unframed(records: Records) -> Iterator[tuple[int, bytes]]:
    for data, columns in records:
        start = 0
        hashes = zip(columns["high"].tolist(), columns["low"].tolist(), strict=True)
        for (high, low), size in zip(hashes, columns["size"].tolist(), strict=True):
            record = data[start + tfrecord.HEADER : start + size - tfrecord.FOOTER]
            yield high << 64 | low, record.tobytes()
            start += size
