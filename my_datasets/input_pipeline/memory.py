"""How much memory there is, and how much values take."""

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from my_datasets.errors import InvalidOptionError, explain
from my_datasets.input_pipeline.ragged import Ragged

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)
_MEMINFO = Path("/proc/meminfo")
# EIGEN_MAX_ALIGN_BYTES, where it is largest.
_ALIGNMENT = 64
# What CPython needs for an object of bytes, beside them, and the reference to it.
_OBJECT = 33 + 8


def in_bytes(size: int | str) -> int:
    """Returns a size such as `4GiB`, `500 MB` or `1000` in bytes.

    Raises:
      InvalidOptionError: It is none.
    """
    match = _SIZE.fullmatch(str(size).strip())
    if match is None:
        raise InvalidOptionError(
            explain(f"{size!r} is no size.", mend="write it as '4GiB', '500MB', or in bytes")
        )
    base = 1024 if match[3] else 1000
    return int(float(match[1]) * base ** " KMGT".index(match[2].upper() or " "))


def aligned(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Returns an array to be filled, which TensorFlow takes without a copy."""
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    raw = np.empty(size + _ALIGNMENT, np.uint8)
    begin = -raw.ctypes.data % _ALIGNMENT
    return raw[begin : begin + size].view(kind).reshape(shape)


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
