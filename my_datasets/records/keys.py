"""The keys of a shard's examples, by their hashes: which example is which, whatever its values are.

A sidecar `<shard>.keys.npy` beside each shard, in NumPy's own format: uint64, shape [n, 2], the
upper and the lower half of the MD5 of the split's name and the key, by which TFDS shuffles. TFDS's
readers open the shards by name and do not notice it.
"""

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

SUFFIX = ".keys.npy"
Keys = npt.NDArray[np.uint64]


def path_of(shard: Path) -> Path:
    """Returns where the keys of a shard's examples lie."""
    return shard.with_name(shard.name + SUFFIX)


def save(path: Path, keys: Keys) -> None:
    """Writes hashes of keys into a file, which has reached the disk in the end.

    Args:
      path: The file.
      keys: The hashes; shape [n, 2].
    """
    with path.open("wb") as file:
        np.save(file, keys.astype("<u8", copy=False))
        file.flush()
        os.fsync(file.fileno())


def read(shard: Path, examples: int) -> Keys | None:
    """Returns the hashes of the keys of a shard's examples; shape [examples, 2].

    Args:
      shard: The shard.
      examples: How many it has.

    Returns:
      None if they are not there, or not those of so many examples.
    """
    try:
        found: Keys = np.load(os.fspath(path_of(shard)), mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return found if found.dtype == np.uint64 and found.shape == (examples, 2) else None
