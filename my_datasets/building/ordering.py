"""The order of examples where shuffling is disabled: by int keys, or as they were generated."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from my_datasets.errors import InvalidKeyError, explain
from my_datasets.records import shuffle_order
from my_datasets.records.tf_example import pieces

# Room for 2**40 examples in each of 2**22 units.
_POSITION_BITS = 40


def numbers(
    unit: int, positions: npt.NDArray[np.uint64], keys: Any
) -> tuple[bool, shuffle_order.Hashes]:
    """Returns numbers that sort as TFDS sorts where shuffling is disabled: by int keys.

    Returns:
      Whether the keys give the order; the numbers, in place of hashes.

    Raises:
      InvalidKeyError: Some keys are ints and some are not, or one is out of range.
    """
    values = _whole_numbers(keys)
    by_key = values is not None
    if values is None:
        values = (unit << _POSITION_BITS) + positions.astype(np.int64)
    # Shifted so that the order of the unsigned numbers is that of the signed ones.
    high = values.view(np.uint64) ^ np.uint64(1 << 63)
    return by_key, (high, np.zeros(len(values), np.uint64))


def of_texts(keys: pa.LargeBinaryArray) -> shuffle_order.Hashes:
    """Returns numbers that sort as keys do, as far as their first 16 bytes tell.

    Where there is no order of generation, texts give the order: byte by byte, the shorter first.

    Args:
      keys: As from `hashing.key_array`, shape [n].
    """
    begins = pieces.offsets_of(keys)
    data = np.append(pieces.bytes_of(keys), np.zeros(16, np.uint8))
    column = np.arange(16)
    inside = column < np.diff(begins)[:, None]
    where = np.minimum((begins[:-1] - begins[0])[:, None] + column, len(data) - 1)
    halves = np.where(inside, data[where], np.uint8(0)).view(">u8").astype(np.uint64)
    return halves[:, 0].copy(), halves[:, 1].copy()


def mixed_keys() -> InvalidKeyError:
    """Returns the error for int keys beside others where shuffling is disabled."""
    return InvalidKeyError(
        explain(
            "Where shuffling is disabled, keys are all ints or none is.",
            fix="yield ints that give the order, or texts to keep that of generation",
        )
    )


def _whole_numbers(keys: Any) -> npt.NDArray[np.int64] | None:
    """Returns int keys as an array; None if they are no ints."""
    if isinstance(keys, (pa.Array, pa.ChunkedArray)):
        if not pa.types.is_integer(keys.type):
            return None
        values = keys.to_numpy(zero_copy_only=False)
    else:
        whole = [isinstance(key, (int, np.integer)) for key in keys]
        if not any(whole):
            return None
        if not all(whole):
            raise mixed_keys()
        values = np.array(keys)
    # Python's ints beyond 64 bits make an array of objects.
    if values.dtype.kind not in "iu" or (values > np.int64(2**63 - 1)).any():
        raise InvalidKeyError(
            explain(
                "Where shuffling is disabled, an int key must fit in 64 bits with its sign.",
                f"Keys from {min(keys)} to {max(keys)}",
                fix="yield smaller numbers, or texts to keep the order of generation",
            )
        )
    whole_numbers: npt.NDArray[np.int64] = values.astype(np.int64)
    return whole_numbers
