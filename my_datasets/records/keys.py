"""Hashes of a shard's example keys, which identify examples regardless of their values.

They are in a sidecar file of each shard (`sidecars` defines its name), in NumPy's own format:
uint64, shape [n, 2], the upper and the lower half of the MD5 of the split's name and the key, by
which TFDS shuffles. TFDS's readers open shards by name and ignore it.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from my_datasets.metadata import sidecars
from my_datasets.metadata.sidecars import Sidecar
from my_datasets.storage.regular_files import open_regular, replaced

Keys = npt.NDArray[np.uint64]


def path_of(shard: Path) -> Path:
    """Returns the path of a shard's key hashes: where they are, or where to write them."""
    return sidecars.find(shard, Sidecar.KEYS)


def save(path: Path, keys: Keys) -> None:
    """Writes key hashes to a file, and syncs it to the disk.

    Args:
      path: The file.
      keys: The hashes; shape [n, 2].
    """
    with replaced(path) as file:
        np.save(file, keys.astype("<u8", copy=False))


@dataclass(frozen=True)
class ShardKeys:
    """The hashes of a shard's example keys, in their file.

    Attributes:
      shard: The shard.
      examples: The number of examples in the shard.
    """

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

    def read(self) -> Keys:
        """Returns the hashes, memory-mapped; shape [examples, 2].

        The file stays open as long as they are used.
        """
        open_regular(path_of(self.shard)).close()  # mapping a named pipe would block forever
        found: Keys = np.lib.format.open_memmap(path_of(self.shard), mode="r")
        return found
