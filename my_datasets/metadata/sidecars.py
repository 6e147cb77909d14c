"""The names of the sidecar files of shards: record indexes and hashes of keys.

A sidecar lies beside its shard as `my_datasets_<kind>_<hash>.npy`, where the hash is the first 16
hexadecimal digits of the SHA-256 of the shard's file name. That name contains neither the dataset,
nor the split, nor the file format, so no glob for shards (`*-train*`, `*.tfrecord*`) matches it:
see `docs/decisions/0015-sidecars.md`.

Earlier versions have `<shard>.<kind>.npy`, which is read, and only ever replaced, not created.
"""

import hashlib
import re
from enum import StrEnum
from pathlib import Path

import numpy as np
import numpy.typing as npt

from my_datasets.errors import CorruptShardError
from my_datasets.storage.regular_files import open_regular
from my_datasets.storage.verified_files import VerifiedFiles

# In a TFRecord: the bytes of a record's length and of both checksums.
_OVERHEAD = 16
# Larger indexes are mapped, which takes a descriptor while they are open.
_MAPPED = 1 << 20
_NAME = re.compile(r"my_datasets_(offsets|keys)_[0-9a-f]{16}\.npy")
_DIGITS = 16


class Sidecar(StrEnum):
    """What a shard's sidecar contains."""

    OFFSETS = "offsets"
    KEYS = "keys"


def name_of(shard: str, kind: Sidecar) -> str:
    """Returns the file name that a shard's sidecar gets, by that of the shard."""
    digits = hashlib.sha256(shard.encode(errors="surrogateescape")).hexdigest()[:_DIGITS]
    return f"my_datasets_{kind}_{digits}.npy"


def old_name_of(shard: str, kind: Sidecar) -> str:
    """Returns the file name that a shard's sidecar had in earlier versions."""
    return f"{shard}.{kind}.npy"


def names_of(shard: str, *kinds: Sidecar) -> tuple[str, ...]:
    """Returns all file names that sidecars of a shard may have; of all kinds if none is given."""
    return tuple(name(shard, kind) for kind in kinds or Sidecar for name in (name_of, old_name_of))


def find(shard: Path, kind: Sidecar) -> Path:
    """Returns the path of a shard's sidecar: where it is, or where to write it."""
    path = shard.with_name(name_of(shard.name, kind))
    old = shard.with_name(old_name_of(shard.name, kind))
    return old if not path.exists() and old.exists() else path


def kind_of(name: str) -> Sidecar | None:
    """Returns the kind of sidecar that a file name means; None if it is not a sidecar."""
    if found := _NAME.fullmatch(name):
        return Sidecar(found.group(1))
    return next((kind for kind in Sidecar if name.endswith(f".{kind}.npy")), None)


def check_index(shard: Path, sha256: str, verified: VerifiedFiles) -> None:
    """Checks that the index of a verified TFRecord shard, if any, says where all its records begin.

    The index decides which bytes are records. It is compared once with the shard, whose SHA-256 is
    given, on this machine, and again if it changes.

    Raises:
      CorruptShardError: The index is another one, or cannot be read.
      FileNotFoundError: The shard is not there.
    """
    found = find(shard, Sidecar.OFFSETS)
    try:
        path = found.resolve(strict=True)
    except FileNotFoundError:
        return
    key = hashlib.sha256(f"record index of {sha256}".encode()).hexdigest()
    if verified.knows(path, key):
        return
    shard.stat()
    try:
        offsets = offsets_of(path)
        is_right = offsets.dtype == np.uint64 and leads_through(shard, offsets)
        problem = "it says that records begin elsewhere, or is no index of uint64"
    except FileNotFoundError:
        raise
    except Exception as error:  # of a damaged header, NumPy raises whatever Python's parser does
        is_right, problem = False, f"it cannot be read: {error}"
    if not is_right:
        raise CorruptShardError(
            f"The record index of {shard} is not that of this shard.",
            f"Found: {found.name}: {problem}",
            fix=f"create it again: my-datasets index {shard.parent} --overwrite",
        )
    verified.remember(path, key)


def offsets_of(path: Path) -> npt.NDArray[np.uint64]:
    """Returns the content of a record index; shape [n + 1].

    Raises:
      OSError, ValueError, EOFError: It cannot be read.
    """
    offsets: npt.NDArray[np.uint64]
    if path.stat().st_size > _MAPPED:
        offsets = np.lib.format.open_memmap(path, mode="r")
    else:
        with open_regular(path) as file:  # in TFDS's test case np.load takes nothing else
            offsets = np.load(file, allow_pickle=False)
    return offsets


def leads_through(shard: Path, offsets: npt.NDArray[np.uint64]) -> bool:
    """Returns whether offsets are exactly where the records of a TFRecord shard begin.

    The first begins at byte 0, the length of each says where the next one begins, and the last one
    ends with the file: no other offsets do that. The last of the offsets, of shape [n + 1], is the
    size of the shard.
    """
    size = shard.stat().st_size
    if offsets.ndim != 1 or not len(offsets) or offsets[0] != 0 or offsets[-1] != size:
        return False
    begins, ends = offsets[:-1], offsets[1:]
    if (ends <= begins).any() or (ends - begins < _OVERHEAD).any():
        return False
    if not len(begins):
        return True
    data = np.memmap(shard, np.uint8, "r")
    lengths = np.ndarray((size - 7,), "<u8", data, strides=(1,))[begins]
    return bool((lengths == ends - begins - np.uint64(_OVERHEAD)).all())
