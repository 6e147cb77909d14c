"""Parses `tf.Example` bytes one record at a time, strictly by the wire format.

It reads whatever protocol buffers may write (protobuf.dev/programming-guides/encoding): unpacked
numbers, lists in several parts, repeated keys.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from my_datasets.records.tf_example.columns import Bytes, Column, Places, UnreadableRecordError
from my_datasets.records.tf_example.encoding import Kind

# Field 1, length-delimited: bytes or packed numbers.
_PACKED = 0x0A

_Lists = dict[bytes, tuple[Kind | None, list[object]]]


def columns_of(
    data: Bytes,
    names: Sequence[str],
    starts: Places,
    stops: Places,
    kinds: Mapping[str, Kind],
) -> dict[str, Column]:
    """Returns the columns of the keys `names` of records of any form.

    Records lie from `starts` to `stops`, shape [n] each. `kinds` has the expected kind of list of
    each key, where known.

    Raises:
      UnreadableRecordError: A record is not a `tf.Example`.
    """
    buffer = data.tobytes()
    rows: list[_Lists] = []
    for row, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
        try:
            rows.append(_example(buffer, start, stop))
        except (ValueError, struct.error, UnicodeDecodeError) as error:
            raise UnreadableRecordError(row, str(error)) from error
    return {name: _assembled(name.encode(), rows, kinds.get(name)) for name in names}


def _assembled(key: bytes, rows: Sequence[_Lists], expected: Kind | None) -> Column:
    found = [row.get(key, (None, [])) for row in rows]
    kinds = {kind for kind, values in found if values}
    if len(kinds) > 1:
        expected = expected or next(kind for kind, values in found if values)
        row = next(i for i, (kind, values) in enumerate(found) if values and kind is not expected)
        raise UnreadableRecordError(row, f"the values of {key.decode()!r} are of another kind")
    kind = kinds.pop() if kinds else None
    counts = np.array([len(values) for _, values in found], np.int64)
    flat = [value for _, values in found for value in values]
    if kind is Kind.BYTES:
        places = np.array(flat, np.int64).reshape(-1, 2)
        return Column(kind, counts, None, places[:, 0].copy(), places[:, 1].copy())
    if kind is None:
        return Column(None, counts)
    if kind is Kind.FLOAT:
        return Column(kind, counts, np.array(flat, np.float32))
    return Column(kind, counts, np.array(flat, np.int64))


def _example(data: bytes, start: int, stop: int) -> _Lists:
    found: _Lists = {}
    for number, features, end in fields(data, start, stop):
        if number != 1 or features is None:
            continue
        for entry_number, entry, entry_end in fields(data, features, end):
            if entry_number != 1 or entry is None:
                continue
            key = b""
            value: tuple[Kind | None, list[object]] = (None, [])
            for part, at, part_end in fields(data, entry, entry_end):
                if part == 1 and at is not None:
                    key = data[at:part_end]
                elif part == 2 and at is not None:
                    value = _feature(data, at, part_end)
            found[key] = value
    return found


def _feature(data: bytes, start: int, stop: int) -> tuple[Kind | None, list[object]]:
    kind: Kind | None = None
    values: list[object] = []
    for number, at, end in fields(data, start, stop):
        if number not in (1, 2, 3) or at is None:
            continue
        which = (Kind.BYTES, Kind.FLOAT, Kind.INT64)[number - 1]
        # The last list wins; if the same kind is repeated, its parts are concatenated.
        values = (
            [*values, *_values(data, at, end, which)]
            if which is kind
            else _values(data, at, end, which)
        )
        kind = which
    return kind, values


def _values(data: bytes, start: int, stop: int, kind: Kind) -> list[object]:
    found: list[object] = []
    at = start
    while at < stop:
        tag, at = _read_varint(data, at, stop)
        if kind is Kind.BYTES or tag & 7 == 2:
            size, at = _read_varint(data, at, stop)
            end = at + size
            if end > stop or tag != _PACKED:
                raise ValueError("a list holds something else than its values, or ends too late")
            if kind is Kind.BYTES:
                found.append((at, end))
            elif kind is Kind.FLOAT:
                found += struct.unpack(f"<{size // 4}f", data[at:end])
            else:
                while at < end:
                    value, at = _read_varint(data, at, end)
                    found.append(value - (1 << 64) if value >> 63 else value)
            at = end
        elif kind is Kind.FLOAT and tag == 0x0D:
            found.append(struct.unpack_from("<f", data, at)[0])
            at += 4
        elif kind is Kind.INT64 and tag == 0x08:
            value, at = _read_varint(data, at, stop)
            found.append(value - (1 << 64) if value >> 63 else value)
        else:
            raise ValueError(f"a list holds something else than its values: tag {tag}")
    return found


def fields(data: bytes, start: int, stop: int) -> Iterator[tuple[int, int | None, int]]:
    """Yields each field of a message: its number, start (None unless length-delimited) and end.

    Raises:
      ValueError: The bytes are not a valid message.
    """
    at = start
    while at < stop:
        tag, at = _read_varint(data, at, stop)
        wire = tag & 7
        begin: int | None = None
        if wire == 2:
            size, at = _read_varint(data, at, stop)
            begin, end = at, at + size
        elif wire == 0:
            _, end = _read_varint(data, at, stop)
        elif wire in (1, 5):
            end = at + (8 if wire == 1 else 4)
        else:
            raise ValueError(f"a field has the unknown wire type {wire}")
        if end > stop:
            raise ValueError("a field goes beyond the end of its message")
        yield tag >> 3, begin, end
        at = end


def _read_varint(data: bytes, at: int, stop: int) -> tuple[int, int]:
    value = shift = 0
    while at < stop and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value & (2**64 - 1), at
        shift += 7
    raise ValueError("a number does not end")
