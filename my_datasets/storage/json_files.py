"""JSON that anyone may have written, parsed with limits.

Python's own parser accepts numbers that no other program reads, keeps the last of two members with
one name, and ends in a `RecursionError` or a `MemoryError` if a file is crafted for it. TFDS, or a
reader that compares a file with its checksum, might then read something other than what we checked.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec

from my_datasets.printable import PrintableError, clipped
from my_datasets.storage.regular_files import open_regular, read_beginning

# No other file of metadata is larger: all of it is read into memory. `dataset_info.json` has 12 MB
# for 700,000 shards.
MOST_BYTES = 64 << 20
# A manifest has several lines for each shard.
MOST_MANIFEST_BYTES = 256 << 20
# How many values a document may have: `[],` has three bytes, and takes 64 of memory. A manifest of
# 700,000 shards has 4 million.
MOST_VALUES = 8_000_000
_BYTES_OF_VALUE = MOST_MANIFEST_BYTES // MOST_VALUES
# Quoted strings, even if the closing quote is missing.
_QUOTED = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
# TFDS's own parser of messages gives up at 100 levels.
MOST_LEVELS = 100
# Larger numbers fit in no array, and exceed what a float can represent.
_MOST_BITS = 128

_Document = TypeVar("_Document")


class MalformedJsonError(PrintableError, ValueError):
    """A text is not JSON, or is JSON crafted to harm its readers."""


def read_json(path: Path, most_bytes: int | None = None) -> Any:
    """Returns the JSON document in a file of at most `most_bytes`, by default `MOST_BYTES`.

    It may have a value for each 33 bytes of that limit.

    Raises:
      OSError: It cannot be read.
      MalformedJsonError: It is not JSON, or larger than metadata can be.
    """
    most = MOST_BYTES if most_bytes is None else most_bytes
    with open_regular(path) as file:
        data = read_beginning(file, most + 1)
    if len(data) > most:
        raise MalformedJsonError(f"it is larger than {most:,} bytes")
    return parse_json(data, most // _BYTES_OF_VALUE)


def parse_json(data: str | bytes, most_values: int = MOST_VALUES) -> Any:
    """Returns a JSON document.

    Raises:
      MalformedJsonError: It is not JSON in UTF-8; it has a number that is not finite or has more
        than 128 bits, a text that UTF-8 cannot hold, two members with one name, more than 100
        levels, or more than `most_values` values.
    """
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        _check_count(text, most_values)
        value = json.loads(
            text, object_pairs_hook=_object, parse_constant=_refused_constant, parse_int=_integer,
            parse_float=_number,
        )  # fmt: skip
        _check_levels_and_texts(value)
    except MalformedJsonError:
        raise
    except UnicodeDecodeError as error:
        raise MalformedJsonError(f"it is not UTF-8: byte {error.start}") from error
    except RecursionError:
        raise MalformedJsonError(f"it has more than {MOST_LEVELS} levels") from None
    except ValueError as error:
        raise MalformedJsonError(f"it is not JSON: {error}") from error
    return value


def convert_json(value: object, into: type[_Document]) -> _Document:
    """Returns what `parse_json` returned as an instance of a dataclass; ignores unknown members.

    Its fields may be `Annotated` with `msgspec.Meta`.

    Raises:
      MalformedJsonError: It does not match the type; the message names the member.
    """
    try:
        return msgspec.convert(value, into)
    except msgspec.ValidationError as error:
        raise MalformedJsonError(str(error)) from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise MalformedJsonError(f"two members are called {clipped(twice)!r}")
    return found


def _refused_constant(text: str) -> NoReturn:
    raise MalformedJsonError(f"{text} is not a number of JSON")


def _integer(text: str) -> int:
    if len(text) > _MOST_BITS or (found := int(text)).bit_length() > _MOST_BITS:
        raise MalformedJsonError(f"the number {text[:20]}... has more than {_MOST_BITS} bits")
    return found


def _number(text: str) -> float:
    found = float(text)
    if found in (float("inf"), float("-inf")):
        raise MalformedJsonError(f"the number {text[:20]} is too large")
    return found


def _check_count(text: str, most: int) -> None:
    """Refuses a document with too many values before any of them is created."""
    if _separators(text) > most and _separators(_QUOTED.sub("", text)) > most:
        raise MalformedJsonError(f"it has more than {most:,} values")


def _separators(text: str) -> int:
    return sum(map(text.count, ",[{"))


def _check_levels_and_texts(value: Any) -> None:
    """Walks a whole document without recursion and without a list of pending values."""
    levels: list[Iterator[Any]] = [iter((value,))]
    while levels:
        for one in levels[-1]:
            if isinstance(one, str):
                _check_text(one)
            elif isinstance(one, (dict, list)) and one:
                if len(levels) > MOST_LEVELS:
                    raise MalformedJsonError(f"it has more than {MOST_LEVELS} levels")
                levels.append(iter(_inner(one)))
                break
        else:
            levels.pop()


def _inner(one: dict[str, Any] | list[Any]) -> Iterable[Any]:
    if isinstance(one, list):
        return one
    for name in one:
        _check_text(name)
    return one.values()


def _check_text(text: str) -> None:
    try:
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError:
        raise MalformedJsonError("a text has half of a surrogate pair") from None
