"""Parses `tf.Example` bytes: the inverse of `my_datasets.records.tf_example.encoding`.

Tries the fastest parser first: for records of identical layout, then for records with the entries
of the first one in its order, then for entries in any order, and finally one that reads any valid
form, record by record.

Records by the same writer with the same number of values have the same layout. They are treated as
rows of a matrix: everything except the values is compared with the first record in a few steps,
regardless of the number of keys, and each key's values are some of the columns.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from my_datasets.core.arrays import Array
from my_datasets.records.tf_example import columns, reference_parser
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
from my_datasets.records.tf_example.vectorized_parser import (
    LONGEST_KEY,
    VectorizedParser,
    fingerprint,
)


class Parser:
    """Parses records with known keys into columns."""

    def __init__(self, keys: Sequence[str], kinds: Mapping[str, Kind] | None = None) -> None:
        """Prepares to parse some keys; others are skipped.

        `kinds` has the expected kind of list of each key, where known. If records disagree, the
        error names the one of another kind.
        """
        self._kinds = kinds or {}
        self._keys = [key.encode() for key in keys]
        self._names = list(keys)
        # Keys with the same fingerprint would have to be compared byte by byte.
        prints = [fingerprint(key) for key in self._keys]
        self._is_plain = len(set(prints)) == len(prints) and all(
            len(key) <= LONGEST_KEY for key in self._keys
        )
        self._uniform = UniformParser(self._keys)
        self._order = np.argsort(np.array(prints, np.uint64))
        self._prints = np.array(prints, np.uint64)[self._order]

    def __call__(self, data: Bytes, starts: Places, stops: Places) -> dict[str, Column]:
        """Returns the columns of the records from `starts` to `stops`, of shape [n] each.

        `data` has `PADDING` bytes after the records.

        Raises:
          UnreadableRecordError: A record is not a `tf.Example`.
        """
        if not len(starts):
            return {name: Column(None, np.zeros(0, np.int64)) for name in self._names}
        with contextlib.suppress(UncommonError):
            return self._named(self._uniform.columns(data, starts, stops))
        if self._is_plain:
            reader = VectorizedParser(data, self._keys, self._prints, self._order)
            for read in (reader.columns_in_first_order, reader.columns):
                # A damaged length may point beyond the buffer.
                with contextlib.suppress(UncommonError, IndexError):
                    return self._named(read(starts, stops))
        return reference_parser.columns_of(data, self._names, starts, stops, self._kinds)

    def _named(self, columns: Sequence[Column]) -> dict[str, Column]:
        return dict(zip(self._names, columns, strict=True))


# Maximum number of distinct record sizes: a few integers may each take a byte more or less.
_MOST_SIZES = 4
# Maximum number of cached layouts: enough for a few kinds of batches.
_MOST_LAYOUTS = 64
# Longer values are skipped when records are compared, not masked.
_LONG = 64
# Bits of a byte that must match: for integers, only the continuation bit.
_ALL, _CONTINUES, _NOTHING = 0xFF, 0x80, 0x00

_KINDS = {kind.value[0]: kind for kind in Kind}

_Place = tuple[int, int]


@dataclass(frozen=True)
class Layout:
    """The positions of the values in records of one size.

    Attributes:
      lists: By key, the kind of its list, None if it has no values; and the start and end of its
        values: of each value for bytes, of all of them together for numbers.
      same: The ranges to compare: the offset, the expected bytes, and the mask of bits that must
        match.
    """

    lists: Mapping[bytes, tuple[Kind | None, Sequence[_Place]]]
    same: Sequence[tuple[int, Bytes, Bytes]]

    @classmethod
    def of(cls, record: bytes) -> "Layout":
        """Returns the layout of a record.

        Raises:
          UncommonError: The record is not in the form of common writers.
        """
        try:
            lists = dict(_lists(record))
        except ValueError:
            raise UncommonError from None
        mask = np.full(len(record), _ALL, np.uint8)
        for kind, places in lists.values():
            for begin, end in places:
                mask[begin:end] = _CONTINUES if kind is Kind.INT64 else _NOTHING
        return cls(lists, _stretches(np.frombuffer(record, np.uint8), mask))


class UniformParser:
    """Parses records of identical layout."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = keys
        self._layouts: dict[int, Layout] = {}

    def columns(self, data: Bytes, starts: Places, stops: Places) -> list[Column]:
        """Returns the columns of the records from `starts` to `stops`, of shape [n] each; n >= 1.

        Raises:
          UncommonError: The layouts of the records differ.
        """
        sizes = stops - starts
        if (sizes == sizes[0]).all():
            return self._of_one_size(data, starts, stops)
        found = np.unique(sizes)
        require(len(found) <= _MOST_SIZES)
        rows = [np.flatnonzero(sizes == size) for size in found]
        parts = [self._of_one_size(data, starts[some], stops[some]) for some in rows]
        return [_merged(columns, rows) for columns in zip(*parts, strict=True)]

    def _of_one_size(self, data: Bytes, starts: Places, stops: Places) -> list[Column]:
        rows = _Rows.of(data, starts, stops)
        size = int(stops[0] - starts[0])
        layout = self._layouts.get(size)
        if layout is None or not rows.have(layout):
            layout = Layout.of(data[starts[0] : stops[0]].tobytes())
            require(rows.have(layout))
            if len(self._layouts) >= _MOST_LAYOUTS:
                self._layouts.clear()
            self._layouts[size] = layout
        return [_column(layout, key, rows, starts) for key in self._keys]


@dataclass(frozen=True)
class _Rows:
    """Records of one size, from offset `first` of the buffer on, at a stride of `step` bytes."""

    data: Bytes
    first: int
    step: int
    count: int

    @classmethod
    def of(cls, data: Bytes, starts: Places, stops: Places) -> "_Rows":
        """Returns records of one size, copied to be contiguous if their stride is not constant."""
        n, first = len(starts), int(starts[0])
        step = int(starts[1]) - first if n > 1 else 0
        if step >= 0 and (n <= 2 or (np.diff(starts) == step).all()):
            return cls(data, first, step, n)
        return cls(gathered(data, starts, stops), 0, int(stops[0]) - first, n)

    def columns(self, begin: int, count: int, dtype: str) -> Array:
        """Returns a view of the values at offset `begin` of each record; shape [n, count]."""
        width = np.dtype(dtype).itemsize
        return np.ndarray(
            (self.count, count), dtype, self.data, self.first + begin, (self.step, width)
        )

    def have(self, layout: Layout) -> bool:
        """Returns whether everything except the values matches a layout."""
        for begin, expected, mask in layout.same:
            found = self.columns(begin, len(expected), "u1") ^ expected
            found &= mask
            if found.any():
                return False
        return True


def _column(layout: Layout, key: bytes, rows: _Rows, starts: Places) -> Column:
    n = rows.count
    kind, places = layout.lists.get(key, (None, ()))
    if kind is None:
        return Column(None, np.zeros(n, np.int64))
    if kind is Kind.BYTES:
        begins, ends = np.array(places, np.int64).T
        at = starts[:, np.newaxis]
        counts = np.full(n, len(places), np.int64)
        return Column(kind, counts, None, (at + begins).reshape(-1), (at + ends).reshape(-1))
    ((begin, end),) = places
    if kind is Kind.FLOAT:
        count = (end - begin) // 4
        floats = rows.columns(begin, count, "<f4").astype(np.float32).reshape(-1)
        return Column(kind, np.full(n, count, np.int64), floats)
    packed = rows.columns(begin, end - begin, "u1").reshape(-1)
    integers = columns.consecutive(packed, np.flatnonzero(packed < _CONTINUES))
    return Column(kind, np.full(n, len(integers) // n, np.int64), integers)


def _merged(parts: Sequence[Column], rows: Sequence[Places]) -> Column:
    """Returns the columns of several groups of records as one, in the original order of the rows.

    Raises:
      UncommonError: The groups differ in kind or in the number of values per record.
    """
    kind, each = parts[0].kind, int(parts[0].counts[0])
    require(all(part.kind is kind and int(part.counts[0]) == each for part in parts))
    counts = np.full(sum(map(len, rows)), each, np.int64)

    def joined(*some: Any) -> Any:
        if some[0] is None:
            return None
        found = np.empty((len(counts), each), some[0].dtype)
        for where, one in zip(rows, some, strict=True):
            found[where] = one.reshape(-1, each)
        return found.reshape(-1)

    values = joined(*(part.values for part in parts))
    starts = joined(*(part.starts for part in parts))
    stops = joined(*(part.stops for part in parts))
    return Column(kind, counts, values, starts, stops)


def _stretches(record: Bytes, mask: Bytes) -> list[tuple[int, Bytes, Bytes]]:
    """Returns the parts of a record between its long values, with their masks."""
    edges = np.flatnonzero(np.diff(mask != _NOTHING, prepend=True, append=True))
    found, at = [], 0
    for begin, end in edges.reshape(-1, 2).tolist():
        if end - begin > _LONG:
            found.append((at, begin))
            at = end
    return [
        (begin, record[begin:end] & mask[begin:end], mask[begin:end])
        for begin, end in [*found, (at, len(record))]
        if begin < end
    ]


def _lists(record: bytes) -> Iterator[tuple[bytes, tuple[Kind | None, list[_Place]]]]:
    """Yields the keys of a record and the positions of their values, in the record's order.

    Raises:
      UncommonError, ValueError: The record is not in the form of common writers.
    """
    seen = set()
    for begin, end in _parts(record, (0, len(record)), most=1):
        for entry in _parts(record, (begin, end)):
            key, value = _entry(record, entry)
            require(key not in seen)
            seen.add(key)
            yield key, _values(record, value)


def _entry(record: bytes, place: _Place) -> tuple[bytes, _Place]:
    """Returns the key of a map entry, and the position of its value."""
    found = list(fields(record, *place))
    require([number for number, _, _ in found] == [1, 2])
    (_, key, key_end), (_, value, value_end) = found
    if key is None or value is None:
        raise UncommonError
    return record[key:key_end], (value, value_end)


def _values(record: bytes, place: _Place) -> tuple[Kind | None, list[_Place]]:
    """Returns the kind of a feature's values, and their positions."""
    found = list(fields(record, *place))
    require(len(found) <= 1)
    for _, begin, end in found:
        kind = _KINDS.get(record[place[0]])
        if kind is None or begin is None:
            raise UncommonError
        places = _parts(record, (begin, end), most=None if kind is Kind.BYTES else 1)
        if kind is not Kind.BYTES:
            places = [(a, b) for a, b in places if a < b]
            require(kind is not Kind.FLOAT or all((b - a) % 4 == 0 for a, b in places))
            require(all(record[b - 1] < _CONTINUES for _, b in places) or kind is Kind.FLOAT)
        if places:
            return kind, places
    return None, []


def _parts(record: bytes, place: _Place, most: int | None = None) -> list[_Place]:
    """Returns the positions of a message's fields, which must all be messages with number 1."""
    found = list(fields(record, *place))
    require(most is None or len(found) <= most)
    require(all(number == 1 for number, _, _ in found))
    places = [(begin, end) for _, begin, end in found if begin is not None]
    require(len(places) == len(found))
    return places
