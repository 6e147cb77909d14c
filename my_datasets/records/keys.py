"""The keys of a shard's examples, by their hashes: which example is which, whatever its values are.

A sidecar of each shard (`sidecars` says under which name), in NumPy's own format: uint64, shape
[n, 2], the upper and the lower half of the MD5 of the split's name and the key, by which TFDS
shuffles. TFDS's readers open the shards by name and do not notice it.
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
    """Returns where the keys of a shard's examples lie; where they are to be written if nowhere."""
    return sidecars.find(shard, Sidecar.KEYS)


def save(path: Path, keys: Keys) -> None:
    """Writes hashes of keys into a file, which has reached the disk in the end.

    Args:
      path: The file.
      keys: The hashes; shape [n, 2].
    """
    with replaced(path) as file:
        np.save(file, keys.astype("<u8", copy=False))


@dataclass(frozen=True)
class ShardKeys:
    """The hashes of the keys of a shard's examples, in their file.

    Attributes:
      shard: The shard.
      examples: How many it has.
    """

    shard: Path
    examples: int

    @property
    def are_known(self) -> bool:
        """Whether they are there, and those of so many examples."""
        try:
            found = self.read()
        except (OSError, ValueError, EOFError):
            return False
        return found.dtype == np.uint64 and found.shape == (self.examples, 2)

    def read(self) -> Keys:
        """Returns them; shape [examples, 2]. The file is open as long as they are used."""
        open_regular(path_of(self.shard)).close()  # mapping a named pipe would wait for ever
        found: Keys = np.lib.format.open_memmap(path_of(self.shard), mode="r")
        return found
