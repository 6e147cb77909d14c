"""What raw data are: of which kind, with which columns, and which of them is the label."""

import itertools
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from my_datasets import sources
from my_datasets.building.units import Misfit
from my_datasets.errors import SourceError, explain
from my_datasets.scaffolding.personal import looks_personal
from my_datasets.sources.listing import files

# The kinds, by the endings of their files.
_ENDINGS = {
    "csv": (".csv",),
    "tsv": (".tsv", ".tab"),
    "json_lines": (".jsonl", ".ndjson", ".json"),
    "parquet": (".parquet", ".pq"),
    "feather": (".feather", ".arrow", ".ipc"),
    "text_lines": (".txt",),
    "image_folder": (".jpg", ".jpeg", ".png", ".bmp"),
    "audio_folder": (".wav", ".flac", ".ogg", ".mp3"),
}
KINDS = tuple(_ENDINGS)
_PACKED = (".gz", ".bz2", ".zst", ".lz4")
# Rows that are looked at.
_ROWS = 50_000
# Rows, or batches, that tell whether types are right.
_TRIED = 200
# The most classes that are written into a builder.
_CLASSES = 1000
# What a column of labels tends to be called.
_LABELS = ("label", "labels", "class", "target", "category", "y")
_HEADER = re.compile(r"[A-Za-z_][\w .()/%#-]{0,60}")


@dataclass(frozen=True)
class Column:
    """What is known of a column.

    Attributes:
      name: What it is called in the data.
      feature: What it is to be called in the dataset.
      kind: Its Arrow type, as it is stored.
      doc: What was seen in it, in words.
      classes: The names of its classes, if it is the label.
      personal: Whether it looks as if it told who somebody is.
    """

    name: str
    feature: str
    kind: pa.DataType
    doc: str
    classes: tuple[str, ...] | None = None
    personal: bool = False


@dataclass(frozen=True)
class Inspection:
    """What raw data are.

    Attributes:
      kind: The function of `my_datasets.sources` that reads them.
      options: What else it is given.
      source: The rows.
      columns: The columns, without what is only the key.
      label: The feature that is to be learned; None if nobody knows.
      sample: Some rows.
      values: The distinct values of columns that have few.
    """

    kind: str
    options: Mapping[str, Any]
    source: sources.Source
    columns: Sequence[Column]
    label: str | None
    sample: pa.Table
    values: Mapping[str, Sequence[Any]] = field(default_factory=dict)


def inspect(where: str, *, kind: str | None = None, label: str | None = None) -> Inspection:
    """Returns what raw data are.

    Args:
      where: A file, a directory, a pattern, an archive.
      kind: One of `KINDS`; None to find it out.
      label: The column to be learned; None to take one that is called so.

    Raises:
      SourceError: Nothing can be read there, or there is no such column.
    """
    kind = kind or _kind_of(where)
    options = _options(where, kind)
    source: sources.Source = getattr(sources, kind)(where, **options)
    sample = source.head(_ROWS)
    if not sample.num_rows:
        raise SourceError(explain(f"There is no row in {where}.", mend="give other data"))
    if label is not None and label not in sample.column_names:
        raise SourceError(
            explain(
                f"There is no column {label!r}.",
                f"The columns: {', '.join(sample.column_names)}",
                mend="choose one of them with --label",
            )
        )
    chosen = label or next((n for n in sample.column_names if n.lower() in _LABELS), None)
    names = _feature_names(sample.column_names)
    columns = [
        _column(name, names[name], sample.column(name), is_label=name == chosen)
        for name in sample.column_names
    ]
    values = {
        name: found
        for name in sample.column_names
        if (found := _few_values(sample.column(name))) is not None
    }
    feature = names[chosen] if chosen is not None else None
    return Inspection(kind, options, source, columns, feature, sample, values)


def _kind_of(where: str) -> str:
    counted: Counter[str] = Counter()
    for file in files(where):
        name = file.name or file.location
        stem, ending = posixpath.splitext(name.lower())
        counted[posixpath.splitext(stem)[1] if ending in _PACKED else ending] += 1
    kinds = {ending: kind for kind, endings in _ENDINGS.items() for ending in endings}
    for ending, _ in counted.most_common():
        if ending in kinds:
            return kinds[ending]
    raise SourceError(
        explain(
            f"It is not known how to read {where}.",
            f"The endings of its files: {', '.join(counted)}",
            f"Known are: {', '.join(kinds)}",
            mend=f"say what it is with --kind: {', '.join(KINDS)}",
        )
    )


def _options(where: str, kind: str) -> dict[str, Any]:
    """Returns what the function of a source is to be given beside the place."""
    if kind in ("image_folder", "audio_folder"):
        found = [file.name for file in files(where, _ENDINGS[kind])]
        return {} if len(found) > 1 and all(map(posixpath.dirname, found)) else {"labels": False}
    if kind not in ("csv", "tsv"):
        return {}
    read = getattr(sources, kind)
    options: dict[str, Any] = {}
    if _has_single_marks(read, where):
        options["quote"] = None
    first = read(where, **options)
    if not _is_header(first):
        columns = [f"column_{i}" for i in range(len(first.schema))]
        options["columns"] = columns
        first = read(where, **options)
    # As they were guessed now, of whatever sample. Not those of times: they are read as another
    # type than that in which they are stored.
    types = dict(zip(first.schema.names, first.schema.types, strict=True))
    while wrong := _misfits(read(where, **options, types=types)) & types.keys():
        for name in wrong:
            del types[name]
    return {**options, "types": types}


def _has_single_marks(read: Callable[..., sources.Source], where: str) -> bool:
    """Returns whether quotation marks are only marks: as quotes they would take up more rows."""
    try:
        plain = read(where, quote=None)
    except SourceError:
        return False
    rows = plain.head(_ROWS).num_rows
    return not _misfits(plain) and rows > read(where).head(_ROWS).num_rows


def _misfits(source: sources.Source) -> set[str]:
    """Returns the columns in which the first rows cannot be read."""
    some = itertools.islice(source, _TRIED)
    return {batch.feature for _, batch in some if isinstance(batch, Misfit)}


def _is_header(source: sources.Source) -> bool:
    """Returns whether the names of the columns are names, and not a first row of values."""
    head = source.head(200)
    return all(
        _HEADER.fullmatch(name.strip()) and name not in set(head.column(name).to_pylist())
        for name in head.column_names
    )


def _feature_names(columns: Sequence[str]) -> dict[str, str]:
    """Returns names of features for columns: of letters, digits and underscores."""
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


def _column(name: str, feature: str, values: pa.ChunkedArray, *, is_label: bool) -> Column:
    classes = None
    kind = values.type
    if is_label and pa.types.is_large_string(kind):
        names = sorted(value for value in pc.unique(values).to_pylist() if value is not None)
        if len(names) > _CLASSES or values.null_count:
            why = "nulls" if values.null_count else f"more than {_CLASSES:,} values"
            raise SourceError(
                explain(
                    f"The column {name!r} cannot be the label: it has {why}.",
                    mend="choose another with --label",
                )
            )
        classes = tuple(names)
    some = values.slice(0, 200).to_pylist()
    return Column(name, feature, kind, _doc(values), classes, looks_personal(name, some))


def _doc(values: pa.ChunkedArray) -> str:
    """Returns what was seen in a column, for its author to replace by what it means."""
    kind = values.type
    said = []
    given = values.drop_null()
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        if len(given):
            bounds = pc.min_max(given).as_py()
            said.append(f"from {bounds['min']:g} to {bounds['max']:g}")
    elif pa.types.is_large_string(kind):
        distinct = len(pc.unique(given))
        said.append(f"{distinct:,} different texts")
    if values.null_count:
        said.append(f"{values.null_count:,} of {len(values):,} missing")
    return f"To be described ({'; '.join(said)})." if said else "To be described."


def _few_values(values: pa.ChunkedArray) -> Sequence[Any] | None:
    if pa.types.is_nested(values.type) or pa.types.is_large_binary(values.type):
        return None
    distinct = pc.unique(values)
    if len(distinct) > 20:
        return None
    return sorted((value for value in distinct.to_pylist() if value is not None), key=str)
