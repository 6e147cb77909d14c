"""The record index of a shard, for random access, and the hashes of its examples' keys.

Both are sidecar files of the shard (`sidecars` defines their names), in NumPy's own format, which
TFDS's readers ignore, because they open shards by name.

* The index: uint64, shape [n + 1], with the byte offset of each framed record, then the size of the
  shard.
* The hashes, which identify examples regardless of their values: uint64, shape [n, 2], the upper
  and the lower half of the MD5 of the split's name and the key, by which TFDS shuffles.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from my_datasets.core.processes import unless_out_of_memory
from my_datasets.errors import CorruptShardError
from my_datasets.metadata import sidecars
from my_datasets.metadata.sidecars import Sidecar, offsets_of
from my_datasets.records import tfrecord
from my_datasets.storage.regular_files import open_regular, replaced


def path_of(shard: Path) -> Path:
    """Returns the path of a shard's index: where it is, or where to write it if there is none."""
    return sidecars.find(shard, Sidecar.OFFSETS)


def write(shard: Path, offsets: npt.NDArray[np.uint64]) -> None:
    """Writes a shard's index atomically, and syncs it to the disk.

    `offsets` are those of the records, then the end of the last one; shape [n + 1].
    """
    with replaced(path_of(shard)) as file:
        np.save(file, offsets.astype("<u8"))


def read(shard: Path) -> npt.NDArray[np.uint64]:
    """Returns a shard's index; shape [n + 1].

    Raises:
      FileNotFoundError: The shard has no index.
      CorruptShardError: The index cannot be read, or belongs to a shard of another size.
    """
    path, size = path_of(shard), shard.stat().st_size
    try:
        offsets = offsets_of(path)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, EOFError) as error:
        unless_out_of_memory(error)
        raise mismatch(shard, f"{path.name} cannot be read: {error}") from error
    if offsets.dtype != np.uint64 or offsets.ndim != 1 or not len(offsets) or offsets[0]:
        raise mismatch(shard, f"{path.name} is no index: {offsets.dtype} of {offsets.shape}")
    if int(offsets[-1]) != size:
        raise mismatch(shard, f"Indexed: {int(offsets[-1]):,} bytes; the shard has {size:,}")
    return offsets


def mismatch(shard: Path, found: str) -> CorruptShardError:
    """Returns the error for an index that does not belong to the shard."""
    return CorruptShardError(

            f"The record index of {shard} is not that of this shard.", found,
            fix=f"create it again: my-datasets index {shard.parent} --overwrite"
    )  # fmt: skip


def matches(shard: Path) -> bool:
    """Returns whether the records of a TFRecord shard begin where its index says.

    Also returns True if the shard has no index, or one that is not a valid index at all.
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
    """Returns the record offsets of a TFRecord shard, read from the shard itself.

    Reads only the record lengths and verifies their checksums.

    Raises:
      CorruptShardError: The shard is truncated, or a length is damaged.
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
                    f"{shard} is damaged at byte {offsets[-1]:,}.",
                    f"Record {len(offsets) - 1} (counted from 0) has no valid length, or goes "
                    f"beyond the end of the file at {size:,}",
                    fix="build or pull the version again",
                )
            offsets.append(end)
            file.seek(end)
    return np.array(offsets, np.uint64)


KeyHashes = npt.NDArray[np.uint64]


def keys_path(shard: Path) -> Path:
    """Returns the path of a shard's key hashes: where they are, or where to write them."""
    return sidecars.find(shard, Sidecar.KEYS)


def write_keys(path: Path, keys: KeyHashes) -> None:
    """Writes key hashes of shape [n, 2] to a file, and syncs it to the disk."""
    with replaced(path) as file:
        np.save(file, keys.astype("<u8", copy=False))


@dataclass(frozen=True)
class ShardKeys:
    """The hashes of a shard's example keys, in their file."""

    shard: Path
    examples: int

    @property
    def are_known(self) -> bool:
        """Whether the file exists and has one hash per example."""
        try:
            found = self.read()
        except (OSError, ValueError, EOFError):
            return False
        return found.dtype == np.uint64 and found.shape == (self.examples, 2)

    def read(self) -> KeyHashes:
        """Returns the hashes, memory-mapped; shape [examples, 2].

        The file stays open as long as they are used.
        """
        open_regular(keys_path(self.shard)).close()  # mapping a named pipe would block forever
        found: KeyHashes = np.lib.format.open_memmap(keys_path(self.shard), mode="r")
        return found
