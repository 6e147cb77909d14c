"""How much memory there is, and how much values take."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from my_datasets.input_pipeline.decode.ragged import Ragged

_MEMINFO = Path("/proc/meminfo")
# What CPython needs for an object of bytes, beside them, and the reference to it.
_OBJECT = 33 + 8


def available() -> int:
    """Returns how many bytes of memory are free, or can be made so."""
    if _MEMINFO.is_file():
        for line in _MEMINFO.read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def size_of(values: Any) -> int:
    """Returns how many bytes columns take."""
    if isinstance(values, Mapping):
        return sum(map(size_of, values.values()))
    if isinstance(values, tuple):
        return sum(map(size_of, values))
    if isinstance(values, Ragged):
        return size_of(values.values) + sum(lengths.nbytes for lengths in values.lengths)
    if isinstance(values, np.ndarray) and values.dtype == object:
        return sum(
            _OBJECT + (one.nbytes if isinstance(one, np.ndarray) else len(one))
            for one in values.reshape(-1)
        )
    return int(values.nbytes)
