"""Reads many varints at once, as in protocol buffers: seven bits per byte, the lowest first."""

import numpy as np
import numpy.typing as npt

from my_datasets.records.tf_example.columns import Bytes, Places, UncommonError


def leading(word: npt.NDArray[np.uint64], *, most: int = 5) -> tuple[Places, Places]:
    """Returns the varint at the beginning of each word, and its size in bytes.

    Args:
      word: The words.
      most: The maximum size of a varint in bytes.

    Raises:
      UncommonError: A varint is longer.
    """
    value = (word & np.uint64(0x7F)).astype(np.int64)
    going = (word & np.uint64(0x80)) != 0
    width = np.ones(len(word), np.int64)
    if not going.any():
        return value, width
    for i in range(1, most):
        part = word >> np.uint64(8 * i)
        value |= np.where(going, (part & np.uint64(0x7F)).astype(np.int64) << (7 * i), 0)
        width += going
        going = going & ((part & np.uint64(0x80)) != 0)
        if not going.any():
            return value, width
    raise UncommonError


def consecutive(data: Bytes, last: Places) -> Places:
    """Returns the values of consecutive varints, given the position of each one's last byte."""
    if len(last) == len(data):
        return data.astype(np.int64)
    first = np.empty_like(last)
    first[0] = 0
    first[1:] = last[:-1] + 1
    more = last - first
    values = (data[first] & np.uint8(0x7F)).astype(np.uint64)
    longest = int(more.max())
    if longest > 9:
        raise UncommonError
    for i in range(1, longest + 1):
        where = np.flatnonzero(more >= i)
        part = (data[first[where] + i] & np.uint8(0x7F)).astype(np.uint64)
        values[where] |= part << np.uint64(7 * i)
    return values.view(np.int64)
