"""Inspects raw data: its columns, their values, the label, and what looks personal."""

import random
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from my_datasets import sources
from my_datasets.errors import InvalidOptionError, SourceError
from my_datasets.scaffolding.formats import FOLDERS, KINDS, ROWS, database_of, kind_of, options_of

# Parts of the names of columns that usually contain personal data.
_NAMES = re.compile(
    r"(^|_)(name|first_?name|last_?name|surname|full_?name|e_?mail|mail|phone|tel|telephone|mobile"
    r"|fax|address|street|zip|zip_?code|post_?code|postal|birth|birthday|birth_?date|dob|ssn"
    r"|passport|iban|card|ip|ip_?address|user|user_?name|login|password|license_?plate)(_|$)",
    re.IGNORECASE,
)
_VALUES = (
    re.compile(r"[^@\s]+@[^@\s]+\.[a-zA-Z]{2,}"),  # e-mail addresses
    re.compile(r"\+?\d[\d\s()/.-]{7,}\d"),  # telephone numbers
    re.compile(r"(\d{1,3}\.){3}\d{1,3}"),  # IPv4 addresses
)
# Minimum share of a column's texts that must match.
_MOST = 0.5


def looks_personal(column: str, values: Sequence[object]) -> bool:
    """Returns whether a column looks personal, by its name or some of its values."""
    if _NAMES.search(re.sub(r"\W+", "_", column)):
        return True
    texts = [value for value in values if isinstance(value, str) and value]
    return bool(texts) and any(
        sum(bool(pattern.fullmatch(text.strip())) for text in texts) >= _MOST * len(texts)
        for pattern in _VALUES
    )


def scrambled(value: object) -> object:
    """Returns a value of the same form with other letters and digits.

    The same value always maps to the same result, so equal values stay equal.
    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        return value
    chance = random.Random(value)  # noqa: S311 - the same value must map to the same result
    if isinstance(value, str):
        return "".join(_other(character, chance) for character in value)
    # A first digit of zero would make the number shorter.
    first = chance.choice("123456789")
    others = "".join(chance.choice(string.digits) for _ in str(abs(value))[1:])
    return int(first + others) if value >= 0 else -int(first + others)


def _other(character: str, chance: random.Random) -> str:
    if character.isdigit():
        return chance.choice(string.digits)
    if character.isalpha():
        letters = string.ascii_uppercase if character.isupper() else string.ascii_lowercase
        return chance.choice(letters)
    return character


# Maximum number of bytes to inspect.
_BYTES = 64 << 20
# Maximum number of classes to write into a builder.
_CLASSES = 1000
# Maximum number of splits that a column may define.
_SPLITS = 20
# Usual names of label columns.
_LABELS = ("label", "labels", "class", "target", "category", "y")


@dataclass(frozen=True)
class InspectedColumn:
    """An inspected column."""

    name: str  # in the data
    feature: str  # its name in the dataset
    kind: pa.DataType  # as stored
    doc: str  # a draft of its documentation, from the values seen
    classes: tuple[str, ...] | None = None  # if it is the label
    personal: bool = False  # whether its values look as if they identify a person


@dataclass(frozen=True)
class Inspection:
    """The inspected raw data."""

    kind: str  # the function of `my_datasets.sources` that reads the data
    options: Mapping[str, object]  # further keyword arguments of that function
    source: sources.Source
    columns: Sequence[InspectedColumn]  # without one that is only the key
    label: str | None  # the feature to predict; None if unknown
    sample: pa.Table  # some rows
    # The distinct values of columns that have few.
    values: Mapping[str, Sequence[object]] = field(default_factory=dict)
    table: str = ""  # of a database


def inspect(
    where: str,
    *,
    kind: str | None = None,
    label: str | None = None,
    split: str | None = None,
    key: str | None = None,
    table: str | None = None,
) -> Inspection:
    """Inspects raw data.

    Args:
      where: A file, a directory, a pattern or an archive.
      kind: One of `KINDS`; None to detect it.
      key: The key column; None for row numbers, or a database's primary key.
      table: The table or view of a database; None if there is only one.
      label: The column to predict; None to pick one with a usual name.
      split: The column whose values are the splits. It is read in full, as is the label.

    Raises:
      SourceError: There is nothing to read, a column does not exist, or it has too many values.
    """
    kind = kind or kind_of(where)
    if kind not in KINDS:
        raise InvalidOptionError(
            f"There is no kind {kind!r}.", fix=f"pass as --kind one of {', '.join(KINDS)}"
        )
    if kind == "sql":
        table, query = database_of(where, table, key)
        options: dict[str, object] = {**query}
        source = getattr(sources, kind)(database=where, **options)
    else:
        options = options_of(where, kind) | ({} if key is None else {"key": key})
        source = getattr(sources, kind)(where, **options)
    sample = _first_rows(source, FOLDERS.get(kind, ROWS))
    if not sample.num_rows:
        raise SourceError(f"{where} has no rows.", fix="pass other data")
    for option, column in (("--label", label), ("--split", split)):
        if column is not None and column not in sample.column_names:
            raise SourceError(
                f"There is no column {column!r}.",
                f"The columns: {', '.join(sample.column_names)}",
                fix=f"pass one of them with {option}",
            )
    chosen = label or next((n for n in sample.column_names if n.lower() in _LABELS), None)
    names = _feature_names(sample.column_names)
    columns = [
        InspectedColumn(
            name,
            feature=names[name],
            kind=values.type,
            doc=_doc(values),
            classes=_classes(source, name) if name == chosen else None,
            personal=looks_personal(name, values.slice(0, 200).to_pylist()),
        )
        for name, values in zip(sample.column_names, sample.columns, strict=True)
    ]
    values = {
        name: found
        for name in sample.column_names
        if (found := _few_values(sample.column(name))) is not None
    }
    if split is not None:
        values[split] = _all_values(source, split, _SPLITS, "--split")
    feature = names[chosen] if chosen is not None else None
    return Inspection(kind, options, source, columns, feature, sample, values, table or "")


def _first_rows(source: sources.Source, rows: int) -> pa.Table:
    """Returns the first rows, up to a limit that bounds memory use."""
    batches: list[pa.RecordBatch] = []
    count = size = 0
    for _, batch in source:
        if isinstance(batch, pa.RecordBatch):
            batches.append(batch.slice(0, rows - count))
            count += batches[-1].num_rows
            size += batches[-1].nbytes
            if count == rows or size >= _BYTES:
                break
    return pa.Table.from_batches(batches, batches[0].schema if batches else source.schema)


def _feature_names(columns: Sequence[str]) -> dict[str, str]:
    """Returns feature names for columns, with only letters, digits and underscores."""
    found: dict[str, str] = {}
    for column in columns:
        name = re.sub(r"\W+", "_", column).strip("_").lower() or "column"
        name = f"column_{name}" if name[0].isdigit() else name
        number = 2
        unique = name
        while unique in found.values():
            unique, number = f"{name}_{number}", number + 1
        found[column] = unique
    return found


def _classes(source: sources.Source, name: str) -> tuple[str, ...] | None:
    """Returns the classes of the label if it is a text."""
    if not pa.types.is_large_string(source.schema.field(name).type):
        return None
    return tuple(str(value) for value in _all_values(source, name, _CLASSES, "--label"))


def _all_values(source: sources.Source, name: str, most: int, option: str) -> list[object]:
    """Returns the distinct values of a column in all rows: missing a value would lose rows.

    Folder sources already know those of theirs.
    """
    if name in source.special:
        return list(source.special[name]().names)
    found: set[object] = set()
    for _, batch in source:
        if isinstance(batch, pa.RecordBatch):
            found.update(pc.unique(batch.column(name)).to_pylist())
        if None in found or len(found) > most:
            why = "rows without a value" if None in found else f"more than {most:,} values"
            raise SourceError(
                f"The column {name!r} cannot be used as {option}, because it has {why}.",
                fix=f"pass another with {option}",
            )
    return sorted(found, key=str)


def _doc(values: pa.ChunkedArray) -> str:
    """Returns draft documentation from the values seen, for the author to replace."""
    kind = values.type
    facts = []
    given = values.drop_null()
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        if len(given):
            bounds = pc.min_max(given).as_py()
            form = "d" if pa.types.is_integer(kind) else "g"
            facts.append(f"from {bounds['min']:{form}} to {bounds['max']:{form}}")
    elif pa.types.is_large_string(kind):
        facts.append(f"{len(pc.unique(given)):,} different texts")
    if values.null_count:
        facts.append(f"{values.null_count:,} of {len(values):,} missing")
    return f"To be described ({'; '.join(facts)})." if facts else "To be described."


def _few_values(values: pa.ChunkedArray) -> Sequence[object] | None:
    if pa.types.is_nested(values.type) or pa.types.is_large_binary(values.type):
        return None
    distinct = pc.unique(values)
    if len(distinct) > _SPLITS:
        return None
    return sorted((value for value in distinct.to_pylist() if value is not None), key=str)
