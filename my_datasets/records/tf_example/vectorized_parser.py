"""Parses `tf.Example` bytes of many records at once.

All records are walked in lockstep, one map entry at a time, by gathering the eight bytes at the
current position of each.
"""

import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from my_datasets.records.tf_example import columns
from my_datasets.records.tf_example.columns import (
    Bytes,
    Column,
    Places,
    UncommonError,
    gathered,
    require,
)
from my_datasets.records.tf_example.encoding import Kind
from my_datasets.records.tf_example.reference_parser import fields

Words = npt.NDArray[np.uint64]

LONGEST_KEY = 127
_KEY, _VALUE, _LIST = 0x0A, 0x12, 0x0A
_FLOAT, _INT64 = Kind.FLOAT.value[0], Kind.INT64.value[0]
# A mask for the first n bytes of a word.
_FIRST = np.array([(1 << (8 * n)) - 1 for n in range(8)] + [2**64 - 1], np.uint64)
_MIX = np.uint64(0x9E3779B97F4A7C15)


def fingerprint(key: bytes) -> int:
    """Returns a number that distinguishes keys by their length, first and last bytes."""
    header = bytes([_KEY, min(len(key), LONGEST_KEY)])
    padded = header + key + bytes(8)
    first = int.from_bytes(padded[1:8], "little") & int(_FIRST[min(len(key), 6) + 1])
    last = int.from_bytes((header + key)[-8:], "little") if len(key) > 6 else 0
    return (first * int(_MIX) ^ last) & (2**64 - 1)


class VectorizedParser:
    """Parses records that all have common forms; raises `UncommonError` if some do not."""

    def __init__(
        self, data: Bytes, keys: Sequence[bytes], prints: Words, order: npt.NDArray[np.intp]
    ) -> None:
        """Prepares to parse a buffer of records, with `PADDING` bytes after the last one.

        `prints` are the fingerprints of the keys, sorted, and `order` has the index of the key for
        each.
        """
        self._data = data
        self._keys = keys
        self._prints = prints
        self._order = order
        # Overlapping words: the eight bytes at each position.
        self._words: Words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))

    def columns_in_first_order(self, starts: Places, stops: Places) -> list[Column]:
        """Returns the columns of records with the same entries as the first one, in its order."""
        nothing = Column(None, np.zeros(len(starts), np.int64))
        found = [nothing] * len(self._keys)
        at, bounds = self._inside(starts, stops, _KEY)
        try:
            slots = _slots(self._data, int(at[0]), int(bounds[0]))
        except ValueError:
            raise UncommonError from None
        places = {key: i for i, key in enumerate(self._keys)}
        for key, tag in slots:
            column = places.get(key)
            if tag in (_FLOAT, _INT64) and len(key) < 100:
                begin, stop = self._numbers_of(at, key, tag)
                require(stop <= bounds)
                if column is not None:
                    read = self._floats if tag == _FLOAT else self._integers
                    found[column] = read(begin, stop)
            else:
                begin, stop = self._value_of(at, key)
                require(stop <= bounds)
                if column is not None:
                    found[column] = self._column(begin, stop)
            at = stop
        require(at == bounds)
        return found

    def _numbers_of(self, at: Places, key: bytes, tag: int) -> tuple[Places, Places]:
        """Returns the position of the packed numbers in the next entry, which must have `key`."""
        size = (self._words[at] >> np.uint64(8)) & np.uint64(0xFF)
        if size.max() >= 0x80:
            begin, stop = self._value_of(at, key)
            lists, ends = self._inside(begin, stop, tag)
            return self._inside(lists, ends, _LIST)
        headers, width = _headers(key, tag)
        require(size >= width - 2)
        for i in range(headers.shape[1]):
            mask = _FIRST[min(8, width - 8 * i)]
            require((self._words[at + 8 * i] & mask) == headers[size, i])
        return at + width, at + 2 + size.astype(np.int64)

    def _value_of(self, at: Places, key: bytes) -> tuple[Places, Places]:
        """Returns the position of the value of the next entry, which must have `key`."""
        inner, stop = self._tagged(at, _KEY)
        expected = bytes([_KEY, len(key)]) + key
        self._require_bytes(inner, expected)
        value, end = self._tagged(inner + len(expected), _VALUE)
        require(end == stop)
        return value, stop

    def columns(self, starts: Places, stops: Places) -> list[Column]:
        """Returns the columns of records with entries in any order."""
        n = len(starts)
        begins = np.zeros((len(self._keys), n), np.int64)
        ends = np.zeros((len(self._keys), n), np.int64)
        # Rows that still have entries, and the position of the next one.
        at, bounds = self._inside(starts, stops, _KEY)
        rows: Places | None = None  # all
        while True:
            going = at < bounds
            if not going.all():
                rows = np.flatnonzero(going) if rows is None else rows[going]
                at, bounds = at[going], bounds[going]
            if not len(at):
                break
            at = self._entry(at, bounds, rows, begins, ends)
        return [self._column(*places) for places in zip(begins, ends, strict=True)]

    def _entry(
        self, at: Places, bounds: Places, rows: Places | None, begins: Places, ends: Places
    ) -> Places:
        """Stores the position of the value in each row's next entry; returns the entry's end."""
        inner, stop = self._tagged(at, _KEY)
        word = self._words[inner]
        length = (word >> np.uint64(8)) & np.uint64(0xFF)
        require((word & np.uint64(0xFF)) == _KEY)
        require((length <= LONGEST_KEY) & (stop <= bounds))
        key_end = inner + 2 + length.astype(np.int64)
        value, value_end = self._tagged(key_end, _VALUE)
        require(value_end == stop)
        column, is_one = self._column_of(word, length, inner + 2, key_end)
        if is_one is not None:
            if is_one >= 0:
                where = slice(None) if rows is None else rows
                require(ends[is_one, where] == 0)
                begins[is_one, where] = value
                ends[is_one, where] = stop
            return stop
        known = column >= 0
        picked = (np.arange(len(at)) if rows is None else rows)[known]
        require(ends[column[known], picked] == 0)
        begins[column[known], picked] = value[known]
        ends[column[known], picked] = stop[known]
        return stop

    def _column_of(
        self, word: Words, length: Words, key: Places, key_end: Places
    ) -> tuple[Places, int | None]:
        """Returns the column of each row's key, -1 for none.

        The second value is the column if it is the same in all rows, else None.
        """
        short = np.minimum(length, np.uint64(6)).astype(np.intp)
        prints = ((word >> np.uint64(8)) & _FIRST[short + 1]) * _MIX
        is_long = length > np.uint64(6)
        if is_long.all():
            prints ^= self._words[key_end - 8]
        elif is_long.any():
            prints[is_long] ^= self._words[key_end[is_long] - 8]
        if (prints == prints[0]).all():
            column = self._lookup(prints[:1])
            self._compare(int(column[0]), key, length)
            return column, int(column[0])
        column = self._lookup(prints)
        for one in np.unique(column):
            chosen = column == one
            self._compare(int(one), key[chosen], length[chosen])
        return column, None

    def _lookup(self, prints: Words) -> Places:
        place = np.minimum(np.searchsorted(self._prints, prints), len(self._prints) - 1)
        if not len(self._prints):
            return np.full(len(prints), -1)
        found = self._prints[place] == prints
        return np.where(found, self._order[place], -1)

    def _compare(self, column: int, key: Places, length: Words) -> None:
        """Requires that keys with a column's fingerprint are that column's key."""
        if column < 0:
            return
        expected = self._keys[column]
        require(length == len(expected))
        self._require_bytes(key, expected)

    def _require_bytes(self, at: Places, expected: bytes) -> None:
        """Requires that the same bytes are at all positions."""
        for begin in range(0, len(expected), 8):
            part = expected[begin : begin + 8]
            word = self._words[at + begin] & _FIRST[len(part)]
            require(word == int.from_bytes(part, "little"))

    def _tagged(self, at: Places, tag: int) -> tuple[Places, Places]:
        """Returns the start and end of the message after a tag and a length."""
        word = self._words[at]
        require((word & np.uint64(0xFF)) == tag)
        size, width = columns.leading(word >> np.uint64(8))
        begin = at + 1 + width
        return begin, begin + size

    def _inside(self, starts: Places, stops: Places, tag: int) -> tuple[Places, Places]:
        """Returns the position of the only field in each message, which may be missing."""
        if (starts < stops).all():
            begin, end = self._tagged(starts, tag)
            require(end == stops)
            return begin, end
        begin, end = starts.copy(), stops.copy()
        given = starts < stops
        if given.any():
            begin[given], end[given] = self._inside(starts[given], stops[given], tag)
        return begin, end

    def _column(self, begins: Places, ends: Places) -> Column:
        """Returns the values of a feature, given the position of its message in each row."""
        given = begins < ends
        if not given.any():
            return Column(None, np.zeros(len(begins), np.int64))
        tags = self._data[begins[given]]
        require(tags == tags[0])
        tag = int(tags[0])
        lists, list_ends = self._inside(begins, ends, tag)
        if tag == Kind.BYTES.value[0]:
            return self._binaries(lists, list_ends)
        require(tag in (_FLOAT, _INT64))
        packed, packed_ends = self._inside(lists, list_ends, _LIST)
        if tag == _FLOAT:
            return self._floats(packed, packed_ends)
        return self._integers(packed, packed_ends)

    def _floats(self, begins: Places, ends: Places) -> Column:
        sizes = ends - begins
        counts = sizes >> 2
        require(sizes == counts << 2)
        if (sizes == 4).all():
            values = self._words[begins].astype(np.uint32)
        else:
            values = gathered(self._data, begins, ends).view("<u4")
        return Column(Kind.FLOAT, counts, values.view(np.float32))

    def _integers(self, begins: Places, ends: Places) -> Column:
        sizes = ends - begins
        if sizes.max(initial=0) <= 8 and sizes.min(initial=1):
            # One number per row, if only its last byte has no continuation bit.
            value, width = columns.leading(self._words[begins] & _FIRST[sizes], most=8)
            if (width == sizes).all():
                return Column(Kind.INT64, np.ones(len(begins), np.int64), value)
        data = gathered(self._data, begins, ends)
        last = data < 0x80
        require(last[np.cumsum(sizes)[sizes > 0] - 1])
        bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(last, dtype=np.int64)])
        counts = np.diff(before[bounds])
        return Column(Kind.INT64, counts, columns.consecutive(data, np.flatnonzero(last)))

    def _binaries(self, begins: Places, ends: Places) -> Column:
        counts = np.zeros(len(begins), np.int64)
        rows = np.flatnonzero(begins < ends)
        at, bounds = begins[rows], ends[rows]
        found: list[tuple[Places, Places, Places]] = []
        while len(rows):
            start, stop = self._tagged(at, _LIST)
            require(stop <= bounds)
            counts[rows] += 1
            found.append((rows, start, stop))
            going = stop < bounds
            rows, at, bounds = rows[going], stop[going], bounds[going]
        if not found:
            return Column(None, counts)
        if len(found) == 1:
            return Column(Kind.BYTES, counts, None, found[0][1], found[0][2])
        order = np.argsort(np.concatenate([some for some, _, _ in found]), kind="stable")
        starts = np.concatenate([start for _, start, _ in found])[order]
        stops = np.concatenate([stop for _, _, stop in found])[order]
        return Column(Kind.BYTES, counts, None, starts, stops)


def _slots(data: Bytes, start: int, stop: int) -> list[tuple[bytes, int]]:
    """Returns the keys of a record in its order, and the tags of their lists; 0 for no list."""
    buffer = data[start:stop].tobytes()
    found: list[tuple[bytes, int]] = []
    for _, entry, entry_end in fields(buffer, 0, len(buffer)):
        key, tag = b"", 0
        for number, at, end in fields(buffer, entry or 0, entry_end):
            if number == 1 and at is not None:
                key = buffer[at:end]
            elif number == 2 and at is not None and at < end:
                tag = buffer[at]
        found.append((key, tag))
    if len({key for key, _ in found}) < len(found) or any(
        len(key) > LONGEST_KEY for key, _ in found
    ):
        raise UncommonError
    return found


@functools.lru_cache(maxsize=4096)
def _headers(key: bytes, tag: int) -> tuple[Words, int]:
    """Returns the bytes before packed numbers, by the size of the entry, and their number.

    As all lengths are below 128, each is the length of the enclosing message minus a constant.
    """
    width = len(key) + 10
    padded = -(-width // 8) * 8
    table = np.zeros((0x80, padded), np.uint8)
    for size in range(width - 2, 0x80):
        value = size - len(key) - 4
        header = [_KEY, size, _KEY, len(key), *key, _VALUE, value, tag, value - 2, _LIST, value - 4]
        table[size, :width] = header
    return table.view("<u8"), width
