"""The record index: where each record of a TFRecord shard begins, for random access.

A sidecar of each shard (`sidecars` says under which name), in NumPy's own format: uint64, shape
[n + 1], the byte at which each framed record begins, then the size of the shard. TFDS's readers
open the shards by name and do not notice it.
"""

import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from my_datasets.core.machine import unless_out_of_memory
from my_datasets.errors import CorruptShardError, explain
from my_datasets.metadata import sidecars
from my_datasets.metadata.sidecars import Sidecar, offsets_of
from my_datasets.records import tfrecord
from my_datasets.storage.regular_files import open_regular, replaced


def path_of(shard: Path) -> Path:
    """Returns where the index of a shard lies; where it is to be written if there is none."""
    return sidecars.find(shard, Sidecar.OFFSETS)


def write(shard: Path, offsets: npt.NDArray[np.uint64]) -> None:
    """Writes a shard's index: whole or not at all; it has reached the disk in the end.

    Args:
      shard: The shard.
      offsets: Where records begin, then where the last one ends; shape [n + 1].
    """
    with replaced(path_of(shard)) as file:
        np.save(file, offsets.astype("<u8"))


def read(shard: Path) -> npt.NDArray[np.uint64]:
    """Returns a shard's index; shape [n + 1].

    Raises:
      FileNotFoundError: The shard has none.
      CorruptShardError: It cannot be read, or belongs to a shard of another size.
    """
    path, size = path_of(shard), shard.stat().st_size
    try:
        offsets = offsets_of(path)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, EOFError) as error:
        unless_out_of_memory(error)
        raise not_of(shard, f"{path.name} cannot be read: {error}") from error
    if offsets.dtype != np.uint64 or offsets.ndim != 1 or not len(offsets) or offsets[0]:
        raise not_of(shard, f"{path.name} is no index: {offsets.dtype} of {offsets.shape}")
    if int(offsets[-1]) != size:
        raise not_of(shard, f"Indexed: {int(offsets[-1]):,} bytes; the shard has {size:,}")
    return offsets


def not_of(shard: Path, found: str) -> CorruptShardError:
    """Returns the error for an index that is not the shard's."""
    return CorruptShardError(
        explain(
            f"The record index of {shard} is not that of this shard.", found,
            fix=f"make it anew: my-datasets index {shard.parent} --overwrite",
        )
    )  # fmt: skip


def is_of(shard: Path) -> bool:
    """Returns whether the records of a TFRecord shard begin where its index says.

    True also if it has no index, or one that cannot be an index at all.
    """
    try:
        offsets = offsets_of(path_of(shard))
        open_regular(shard).close()
        size = shard.stat().st_size
    except (OSError, ValueError, EOFError) as error:
        unless_out_of_memory(error)
        return True
    if offsets.dtype != np.uint64 or offsets.ndim != 1 or len(offsets) < 2 or offsets[-1] != size:
        return True
    return sidecars.leads_through(shard, offsets)


def scan(shard: Path) -> npt.NDArray[np.uint64]:
    """Returns where the records of a TFRecord shard begin, from the shard itself.

    Only lengths are read, and their checksums compared.

    Raises:
      CorruptShardError: The shard is cut off, or a length is damaged.
    """
    size = shard.stat().st_size
    offsets = [0]
    with open_regular(shard) as file:
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
                        fix="build or pull the version anew",
                    )
                )
            offsets.append(end)
            file.seek(end)
    return np.array(offsets, np.uint64)
