"""Pieces of bytes that are concatenated row by row, for many rows at once.

A piece is one of three things: bytes that are the same in every row, an array of shape [n, width]
for bytes of the same width in each row, or an Arrow array of n binaries.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Bytes: TypeAlias = npt.NDArray[np.uint8]
Piece: TypeAlias = "bytes | Bytes | pa.LargeBinaryArray"
# One width for all rows, or the width of each, shape [n].
Widths: TypeAlias = "int | npt.NDArray[np.int64]"

# Narrower columns are copied as one value per row, wider ones byte by byte.
_NARROW = 64


def binary_array(data: pa.Buffer, offsets: npt.NDArray[np.int64]) -> pa.LargeBinaryArray:
    """Returns an Arrow array over bytes split at `offsets`, shape [n + 1], without a copy."""
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), data]
    )


def offsets_of(array: pa.LargeBinaryArray) -> npt.NDArray[np.int64]:
    """Returns the offsets of the values of `array`, then the end of the last one; shape [n + 1]."""
    offsets = np.frombuffer(array.buffers()[1], np.int64)
    return offsets[array.offset : array.offset + len(array) + 1]


def bytes_of(array: pa.LargeBinaryArray) -> Bytes:
    """Returns the concatenated values of `array`, without a copy."""
    offsets = offsets_of(array)
    data = np.frombuffer(array.buffers()[2] or b"", np.uint8)
    return data[offsets[0] : offsets[-1]]


def offsets_from(lengths: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Returns the offsets of values of these lengths, then the end of the last; shape [n + 1]."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def widths(pieces: Iterable[Piece]) -> Widths:
    """Returns the total width of the pieces."""
    return sum(map(_width, pieces), 0)


def by_length(lengths: Widths, text: Callable[[int], bytes]) -> Piece:
    """Returns the bytes `text(length)` for each row; calls `text` once per distinct length."""
    if isinstance(lengths, int):
        return text(lengths)
    distinct, which = _distinct(lengths)
    texts = [text(length) for length in distinct.tolist()]
    if len(texts) <= 1:
        return texts[0] if texts else b""
    if len({len(t) for t in texts}) == 1:
        table = np.frombuffer(b"".join(texts), np.uint8).reshape(len(texts), -1)
        return table[which]
    return pa.array(texts, pa.large_binary()).take(pa.array(which))


def joined(pieces: Iterable[Piece], n: int) -> pa.LargeBinaryArray:
    """Returns the pieces of n rows, concatenated row by row from left to right.

    The memory is newly allocated and writable.
    """
    blocks: list[Piece] = []
    for is_ragged, group in groupby(pieces, lambda piece: isinstance(piece, pa.Array)):
        some = list(group)
        if is_ragged:
            blocks += some
        elif all(isinstance(piece, bytes) for piece in some):
            blocks.append(b"".join(piece for piece in some if isinstance(piece, bytes)))
        else:
            blocks.append(_side_by_side(some, n))
    if not any(isinstance(block, pa.Array) for block in blocks):
        return _fixed(_side_by_side(blocks, n))
    nothing = pa.scalar(b"", pa.large_binary())
    return pc.binary_join_element_wise(*map(_for_arrow, blocks), nothing)


def spread(pieces: Iterable[Piece], present: npt.NDArray[np.bool_]) -> pa.LargeBinaryArray:
    """Returns the pieces concatenated in the rows that are present, and empty bytes in the others.

    Pieces are those of the present rows only, from left to right; `present` has shape [n].
    """
    found = joined(pieces, int(np.count_nonzero(present)))
    lengths = np.zeros(len(present), np.int64)
    lengths[present] = np.diff(offsets_of(found))
    return binary_array(pa.py_buffer(bytes_of(found)), offsets_from(lengths))


def put(rows: Bytes, at: int, values: Bytes) -> None:
    """Copies a byte column of shape [n, width] into contiguous rows, starting at byte `at`."""
    n, width = values.shape
    if not 0 < width <= _NARROW:
        rows[:, at : at + width] = values
        return
    kind = np.dtype((np.void, width))
    target: npt.NDArray[np.void] = np.ndarray((n,), kind, rows.data, at, (rows.shape[1],))
    target[...] = np.ascontiguousarray(values).view(kind)[:, 0]


def _distinct(
    lengths: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Returns the distinct lengths, and the index of each row's length among them."""
    if lengths.max(initial=0) > 4 * len(lengths):
        return np.unique(lengths, return_inverse=True)
    # Counting is faster than sorting.
    found = np.bincount(lengths) > 0
    return np.flatnonzero(found), (np.cumsum(found) - 1)[lengths]


def _width(piece: Piece) -> Widths:
    if isinstance(piece, bytes):
        return len(piece)
    if isinstance(piece, np.ndarray):
        return int(piece.shape[1])
    return np.diff(offsets_of(piece))


def _side_by_side(pieces: Sequence[Piece], n: int) -> Bytes:
    """Returns pieces of fixed width concatenated as rows, shape [n, width]."""
    sizes = [int(_width(piece)) for piece in pieces]
    rows = np.empty((n, sum(sizes)), np.uint8)
    same = sum(len(piece) for piece in pieces if isinstance(piece, bytes))
    at_once = 2 * same > rows.shape[1]
    if at_once:
        # Copying a whole row is faster than writing many short pieces into it.
        row = b"".join(
            piece if isinstance(piece, bytes) else bytes(size)
            for piece, size in zip(pieces, sizes, strict=True)
        )
        rows[:] = np.frombuffer(row, np.uint8)
    at = 0
    for piece, size in zip(pieces, sizes, strict=True):
        if isinstance(piece, np.ndarray):
            put(rows, at, piece)
        elif not at_once:
            rows[:, at : at + size] = np.frombuffer(piece, np.uint8)
        at += size
    return rows


def _fixed(rows: Bytes) -> pa.LargeBinaryArray:
    n, width = rows.shape
    return binary_array(pa.py_buffer(rows), np.arange(n + 1, dtype=np.int64) * width)


def _for_arrow(piece: Piece) -> pa.LargeBinaryArray | pa.LargeBinaryScalar:
    if isinstance(piece, bytes):
        return pa.scalar(piece, pa.large_binary())
    return _fixed(piece) if isinstance(piece, np.ndarray) else piece
