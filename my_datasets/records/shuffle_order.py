"""The order of examples: MD5 of split name and key, as in TFDS, vectorized over many keys.

TFDS orders a split's examples by `int(md5(split_name + key).hexdigest(), 16)`
(`tensorflow_datasets/core/hashing.py`). This module computes the same number as two unsigned 64-bit
halves, most significant first, by running MD5's rounds over whole columns of keys.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from my_datasets.errors import InvalidKeyError

Uint64 = npt.NDArray[np.uint64]
Hashes = tuple[Uint64, Uint64]

# RFC 1321: per-round left rotations, and floor(2**32 * abs(sin(i + 1))).
_ROTATIONS = (
    *((7, 12, 17, 22) * 4),
    *((5, 9, 14, 20) * 4),
    *((4, 11, 16, 23) * 4),
    *((6, 10, 15, 21) * 4),
)
_SINES = np.floor(np.abs(np.sin(np.arange(1, 65))) * 2**32).astype(np.uint32)
_START = (0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476)
_BLOCK = 64
# With this many keys at a time, MD5's working set stays in the processor's L2 cache.
_AT_ONCE = 8192
# Below this many keys, one hashlib call per key is faster than 64 rounds over an array.
_FEW = 200


def key_bytes(key: object) -> bytes:
    """Returns the bytes that TFDS hashes for a key.

    A key is a string (backslashes count as slashes, as in TFDS), bytes, an int, or an array with
    exactly one of them.

    Raises:
      InvalidKeyError: The key has another type, or is not valid Unicode.
    """
    if isinstance(key, bytes):
        return key
    if isinstance(key, str):
        try:
            return key.replace("\\", "/").encode()
        except UnicodeEncodeError as error:
            raise InvalidKeyError(
                f"{key!r} cannot be a key: {error}", fix="yield keys of valid Unicode, or bytes"
            ) from error
    if isinstance(key, int):
        return str(key).encode()
    if isinstance(key, np.ndarray) and key.size == 1:
        return key_bytes(key.item())
    raise InvalidKeyError(
        f"{key!r} is a {type(key).__name__}, which cannot be an example's key.",
        "Expected a text, bytes or an int",
        fix="yield (key, example) with a key that is unique within the split",
    )


def key_array(keys: Sequence[object] | pa.Array | pa.ChunkedArray) -> pa.LargeBinaryArray:
    """Returns the bytes to hash for each key.

    Keys are what `key_bytes` accepts, or an Arrow column of strings, binaries or integers.

    Raises:
      InvalidKeyError: A key is null or has another type.
    """
    if not isinstance(keys, (pa.Array, pa.ChunkedArray)):
        if set(map(type, keys)) != {str}:
            return pa.array([key_bytes(key) for key in keys], pa.large_binary())
        try:
            keys = pa.array(keys, pa.large_string())
        except UnicodeEncodeError:
            return pa.array([key_bytes(key) for key in keys], pa.large_binary())  # names the key
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    if pa.types.is_dictionary(keys.type):
        keys = keys.dictionary_decode()
    if keys.null_count:
        row = pc.index(keys.is_null(), True).as_py()
        raise InvalidKeyError(
            f"The key of row {row} is null.",
            f"{keys.null_count} of {len(keys)} keys are.",
            fix="choose a key column without nulls",
        )
    if pa.types.is_integer(keys.type):
        keys = keys.cast(pa.large_string())
    elif pa.types.is_string(keys.type) or pa.types.is_large_string(keys.type):
        keys = pc.replace_substring(keys, "\\", "/")
    elif not (pa.types.is_binary(keys.type) or pa.types.is_large_binary(keys.type)):
        raise InvalidKeyError(
            f"A column of type {keys.type} cannot hold keys.",
            "Expected texts, binaries or integers",
            fix="choose another key column, or cast this one",
        )
    return keys.cast(pa.large_binary())


def hash_keys(salt: str, keys: pa.LargeBinaryArray) -> Hashes:
    """Returns the MD5 of `salt + key` for each key, as `key_array` returns them, shape [n].

    The salt is the split's name; backslashes count as slashes, as in keys. Returns the upper and
    the lower 64 bits of each hash, read big-endian, each of shape [n].
    """
    n = len(keys)
    if n < _FEW:
        return _hash_one_by_one(salt, keys)
    high, low = np.empty(n, np.uint64), np.empty(n, np.uint64)
    start = np.frombuffer(key_bytes(salt), np.uint8)
    offsets = np.frombuffer(keys.buffers()[1], np.int64)[keys.offset : keys.offset + n + 1]
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
    lengths = np.diff(offsets)
    # A message needs blocks for its bytes, a one bit and its length (9 bytes in total).
    blocks = (len(start) + lengths + 9 + _BLOCK - 1) // _BLOCK
    for count in np.unique(blocks):
        rows = np.flatnonzero(blocks == count)
        for begin in range(0, len(rows), _AT_ONCE):
            some = rows[begin : begin + _AT_ONCE]
            high[some], low[some] = _md5(
                _padded(start, data, offsets[some], lengths[some], int(count))
            )
    return high, low


def _hash_one_by_one(salt: str, keys: pa.LargeBinaryArray) -> Hashes:
    salted = hashlib.md5(key_bytes(salt), usedforsecurity=False)
    digests = []
    for key in keys.to_pylist():
        digest = salted.copy()
        digest.update(key)
        digests.append(digest.digest())
    halves = np.frombuffer(b"".join(digests), ">u8").astype(np.uint64).reshape(-1, 2)
    return halves[:, 0].copy(), halves[:, 1].copy()


def _padded(
    salt: npt.NDArray[np.uint8],
    data: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    blocks: int,
) -> npt.NDArray[np.uint32]:
    """Returns MD5's padded messages as little-endian words, shape [blocks * 16, n]."""
    n, width = len(offsets), blocks * _BLOCK
    messages = np.zeros((n, width), np.uint8)
    messages[:, : len(salt)] = salt
    longest = int(lengths.max(initial=0))
    if longest:
        column = np.arange(longest)
        inside = column < lengths[:, None]
        where = np.minimum(offsets[:, None] + column, len(data) - 1)
        messages[:, len(salt) : len(salt) + longest] = np.where(inside, data[where], 0)
    ends = len(salt) + lengths
    messages[np.arange(n), ends] = 0x80
    messages[:, -8:] = (ends * 8).astype("<u8")[:, None].view(np.uint8)
    return np.ascontiguousarray(messages.view("<u4").T)


def _md5(words: npt.NDArray[np.uint32]) -> Hashes:
    n = words.shape[1]
    state = [np.full(n, word, np.uint32) for word in _START]
    for block in range(0, len(words), 16):
        a, b, c, d = state
        for i in range(64):
            if i < 16:
                mixed, word = d ^ (b & (c ^ d)), i
            elif i < 32:
                mixed, word = c ^ (d & (b ^ c)), (5 * i + 1) % 16
            elif i < 48:
                mixed, word = b ^ c ^ d, (3 * i + 5) % 16
            else:
                mixed, word = c ^ (b | ~d), (7 * i) % 16
            mixed += a
            mixed += words[block + word]
            mixed += _SINES[i]
            left = np.uint32(_ROTATIONS[i])
            rotated = (mixed << left) | (mixed >> (np.uint32(32) - left))
            rotated += b
            a, d, c, b = d, c, b, rotated
        state = [old + new for old, new in zip(state, (a, b, c, d), strict=True)]
    # The digest is the state's words in little-endian order, read as one big-endian number.
    w, x, y, z = (word.byteswap().astype(np.uint64) for word in state)
    shift = np.uint64(32)
    return w << shift | x, y << shift | z
