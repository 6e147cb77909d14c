"""The record index: where each record of a TFRecord shard begins, for random access.

A sidecar `<shard>.offsets.npy` beside each shard, in NumPy's own format: uint64, shape [n + 1],
the byte at which each framed record begins, then the size of the shard. TFDS's readers open the
shards by name and do not notice it.
"""

import os
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from my_datasets.errors import CorruptShardError, explain
from my_datasets.records import tfrecord

SUFFIX = ".offsets.npy"
# A larger one is mapped, which takes a descriptor as long as it is open.
_MAPPED = 1 << 20


def path_of(shard: Path) -> Path:
    """Returns where the index of a shard lies."""
    return shard.with_name(shard.name + SUFFIX)


def write(shard: Path, offsets: npt.NDArray[np.uint64]) -> None:
    """Writes a shard's index: whole or not at all.

    Args:
      shard: The shard.
      offsets: Where records begin, then where the last one ends; shape [n + 1].
    """
    partial = path_of(shard).with_name(path_of(shard).name + ".partial")
    save(partial, offsets)
    partial.rename(path_of(shard))


def save(path: Path, offsets: npt.NDArray[np.uint64]) -> None:
    """Writes an index into a file, which has reached the disk in the end.

    Args:
      path: The file.
      offsets: Where records begin, then where the last one ends; shape [n + 1].
    """
    with path.open("wb") as file:
        np.save(file, offsets.astype("<u8"))
        file.flush()
        os.fsync(file.fileno())


def read(shard: Path) -> npt.NDArray[np.uint64]:
    """Returns a shard's index; shape [n + 1].

    Raises:
      FileNotFoundError: The shard has none.
      CorruptShardError: It belongs to a shard of another size.
    """
    offsets = offsets_of(path_of(shard))
    size = shard.stat().st_size
    if int(offsets[-1]) != size:
        raise CorruptShardError(
            explain(
                f"The record index of {shard} is not that of this shard.",
                f"Indexed: {int(offsets[-1]):,} bytes; the shard has {size:,}",
                mend=f"my-datasets index {shard.parent} makes it anew",
            )
        )
    return offsets


def offsets_of(path: Path) -> npt.NDArray[np.uint64]:
    """Returns what is in an index; shape [n + 1].

    Raises:
      OSError, ValueError, EOFError: It cannot be read.
    """
    offsets: npt.NDArray[np.uint64]
    if path.stat().st_size > _MAPPED:
        offsets = np.lib.format.open_memmap(path, mode="r")
    else:
        with path.open("rb") as file:  # in TFDS's test case np.load takes nothing else
            offsets = np.load(file, allow_pickle=False)
    return offsets


def is_of(shard: Path) -> bool:
    """Returns whether the records of a TFRecord shard begin where its index says.

    True also if it has no index, or one that cannot be an index at all.
    """
    try:
        offsets = offsets_of(path_of(shard)).astype(np.int64)
        data = np.memmap(shard, np.uint8, "r")
    except (OSError, ValueError, EOFError):
        return True
    if offsets.ndim != 1 or len(offsets) < 2 or offsets[-1] != len(data):
        return True
    begins = offsets[:-1]
    if begins[0] != 0 or (np.diff(offsets) < tfrecord.OVERHEAD).any():
        return False
    # From each record's length follows where the next one begins, and from the first one all.
    lengths = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))[begins]
    return bool((begins + lengths.astype(np.int64) + tfrecord.OVERHEAD == offsets[1:]).all())


def scan(shard: Path) -> npt.NDArray[np.uint64]:
    """Returns where the records of a TFRecord shard begin, from the shard itself.

    Only lengths are read, and their checksums compared.

    Raises:
      CorruptShardError: The shard is cut off, or a length is damaged.
    """
    size = shard.stat().st_size
    offsets = [0]
    with shard.open("rb") as file:
        while offsets[-1] < size:
            header = file.read(tfrecord.HEADER)
            length = struct.unpack("<Q", header[:8])[0] if len(header) == tfrecord.HEADER else 0
            end = offsets[-1] + length + tfrecord.OVERHEAD
            if len(header) < tfrecord.HEADER or tfrecord.header(length) != header or end > size:
                raise CorruptShardError(
                    explain(
                        f"{shard} is damaged at byte {offsets[-1]:,}.",
                        f"Record {len(offsets) - 1} (counted from 0) has no valid length, or goes "
                        f"beyond the end of the file at {size:,}",
                        mend="build or pull the version anew",
                    )
                )
            offsets.append(end)
            file.seek(end)
    return np.array(offsets, np.uint64)
