"""Encodes `tf.Example`s a column at a time, with sorted keys.

The wire format is that of `tensorflow/core/example/{example,feature}.proto`, where a record is one
`Example { Features { map<string, Feature> } }`. Protocol buffers leave the order of map entries
open, even with deterministic serialization; here entries are sorted by the bytes of their keys, so
the same example always has the same bytes.

A column of n values becomes pieces (`my_datasets.records.tf_example.pieces`), which are joined row
by row.
"""

from collections.abc import Iterable, Sequence
from enum import Enum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from my_datasets.core.arrays import Array
from my_datasets.records.tf_example.pieces import (
    Bytes,
    Piece,
    binary_array,
    by_length,
    joined,
    offsets_from,
    offsets_of,
    widths,
)

# Field numbers and wire types, as `number << 3 | 2` (length-delimited); all are below 16.
_FIRST = b"\x0a"  # Example.features, Features.feature, a map entry's key, a list's value
_SECOND = b"\x12"  # a map entry's value

# Bytes scattered at once; their target positions stay in the processor's cache.
_SCATTERED = 1 << 17
_VARINT_STEPS = np.array([1 << (7 * i) for i in range(1, 10)], np.uint64)


class Kind(Enum):
    """The kind of list in a `Feature`, by its tag on the wire."""

    BYTES = b"\x0a"
    FLOAT = b"\x12"
    INT64 = b"\x1a"


def floats(key: str, values: Array) -> list[Piece]:
    """Returns the map entries of `key` for float values of shape [n, values per row]."""
    with np.errstate(over="ignore"):  # values too large for float32 become infinite, as in protobuf
        packed = np.ascontiguousarray(values, "<f4")
    return _entries(key, Kind.FLOAT, packed.view(np.uint8).reshape(len(values), -1))


def ragged_floats(key: str, values: Array, lengths: npt.NDArray[np.int64]) -> list[Piece]:
    """Returns the map entries of `key`, where row i has `lengths[i]` of the flat `values`."""
    with np.errstate(over="ignore"):
        packed = np.ascontiguousarray(values, "<f4")
    return _entries(key, Kind.FLOAT, binary_array(pa.py_buffer(packed), offsets_from(lengths) * 4))


def integers(key: str, values: Array) -> list[Piece]:
    """Returns the map entries of `key` for integer values of shape [n, values per row]."""
    n = len(values)
    packed, sizes = _varints(values.reshape(-1))
    return _packed_integers(key, packed, sizes.reshape(n, -1).sum(axis=1, dtype=np.int64))


def ragged_integers(key: str, values: Array, lengths: npt.NDArray[np.int64]) -> list[Piece]:
    """Returns the map entries of `key`, where row i has `lengths[i]` of the flat `values`.

    Bools are encoded as 0 and 1; 64-bit unsigned values keep their bits, as in TFDS.
    """
    packed, sizes = _varints(values)
    return _packed_integers(
        key, packed, np.diff(offsets_from(sizes)[offsets_from(lengths)]).astype(np.int64)
    )


def _packed_integers(key: str, packed: Bytes, sizes: npt.NDArray[np.int64]) -> list[Piece]:
    if len(sizes) and (sizes == sizes[0]).all():
        return _entries(key, Kind.INT64, packed.reshape(len(sizes), -1))
    data = pa.py_buffer(np.ascontiguousarray(packed))
    return _entries(key, Kind.INT64, binary_array(data, offsets_from(sizes)))


def binaries(key: str, values: pa.LargeBinaryArray) -> list[Piece]:
    """Returns the map entries of `key` with one binary value per row."""
    return _entries(key, Kind.BYTES, values, one_value=True)


def ragged_binaries(
    key: str, values: pa.LargeBinaryArray, lengths: npt.NDArray[np.int64]
) -> list[Piece]:
    """Returns the map entries of `key`, where row i has `lengths[i]` of the flat `values`."""
    sizes = np.diff(offsets_of(values))
    tags = by_length(sizes, lambda size: _FIRST + _varint(size))
    tagged = joined([tags, values], len(values))
    offsets = offsets_of(tagged)[offsets_from(lengths)]
    data = tagged.buffers()[2] or pa.py_buffer(b"")
    return _entries(key, Kind.BYTES, binary_array(data, np.ascontiguousarray(offsets)), tagged=True)


def raw(entries: Sequence[bytes]) -> list[Piece]:
    """Returns map entries that are already encoded, one bytes object per row."""
    return [pa.array(entries, pa.large_binary())]


def messages(entries: Sequence[Piece]) -> list[Piece]:
    """Returns serialized `tf.Example`s, from the map entries of all features, sorted by key."""
    return [by_length(widths(entries), lambda width: _FIRST + _varint(width)), *entries]


def entry(key: str, feature: bytes) -> bytes:
    """Returns one map entry, given a serialized `Feature`."""
    name = key.encode()
    inner = _FIRST + _varint(len(name)) + name + _SECOND + _varint(len(feature)) + feature
    return _FIRST + _varint(len(inner)) + inner


def of_entries(entries: Iterable[bytes]) -> bytes:
    """Returns one serialized `tf.Example`, given its map entries sorted by key."""
    features = b"".join(entries)
    return _FIRST + _varint(len(features)) + features


def _entries(
    key: str, kind: Kind, payload: Piece, *, one_value: bool = False, tagged: bool = False
) -> list[Piece]:
    """Returns the headers and payloads of a column of map entries.

    The payload is the packed numbers of each row, the one binary, or tagged binaries: values that
    already have their own tags and lengths. With `one_value`, it is a single value, which is
    written even if it is empty.
    """
    name = key.encode()

    def header(size: int) -> bytes:
        inner = b"" if tagged or not (size or one_value) else _FIRST + _varint(size)
        in_list = len(inner) + size
        feature = kind.value + _varint(in_list) + inner
        entry = _FIRST + _varint(len(name)) + name + _SECOND + _varint(len(feature) + size)
        return _FIRST + _varint(len(entry) + len(feature) + size) + entry + feature

    return [by_length(widths([payload]), header), payload]


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varints(values: Array) -> tuple[Bytes, Bytes]:
    """Returns the concatenated base-128 varints of the values, and the size of each."""
    if values.dtype in (np.bool_, np.uint8):
        narrow = values.view(np.uint8) if values.dtype == np.bool_ else values
        return _byte_varints(np.ascontiguousarray(narrow))
    # Sign-extend to 64 bits, as protobuf does: a negative value takes ten bytes.
    wide = values.astype(np.int64).view(np.uint64) if values.dtype != np.uint64 else values
    sizes = np.searchsorted(_VARINT_STEPS, wide, side="right").astype(np.uint8) + np.uint8(1)
    longest = int(sizes.max(initial=1))
    column = np.arange(longest)
    groups = (wide[:, None] >> (column * 7).astype(np.uint64)).astype(np.uint8) & np.uint8(0x7F)
    last = sizes[:, None].astype(np.int8) - np.int8(1)
    groups |= np.where(column < last, np.uint8(0x80), np.uint8(0))
    all_the_same = int(sizes.min(initial=longest)) == longest
    return (groups.reshape(-1) if all_the_same else groups[column <= last]), sizes


def _byte_varints(values: Bytes) -> tuple[Bytes, Bytes]:
    large = (values >= 0x80).view(np.uint8)
    sizes = large + np.uint8(1)
    total = len(values) + int(np.count_nonzero(large))
    if total == len(values):
        return values, sizes
    # A value above 127 keeps its top bit as the continuation bit; its second byte is always 1.
    packed = np.ones(total, np.uint8)
    places = np.zeros(min(len(values), _SCATTERED) + 1, np.intp)
    begin = 0
    for first in range(0, len(values), _SCATTERED):
        some = values[first : first + _SCATTERED]
        ends = places[1 : len(some) + 1]
        np.cumsum(sizes[first : first + _SCATTERED], out=ends)
        packed[begin : begin + ends[-1]][places[: len(some)]] = some
        begin += int(ends[-1])
    return packed, sizes
