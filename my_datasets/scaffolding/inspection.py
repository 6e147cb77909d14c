"""What raw data are: of which kind, with which columns, and which of them is the label."""

import contextlib
import itertools
import posixpath
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from my_datasets import sources
from my_datasets.building.units import Misfit
from my_datasets.errors import InvalidOptionError, SourceError, explain
from my_datasets.scaffolding.personal import looks_personal
from my_datasets.sources.databases import quoted
from my_datasets.sources.files import CODECS, File
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
    "video_folder": (".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".mpg", ".mpeg"),
    "arrays": (".npz", ".npy"),
    "tfrecords": (".tfrecord", ".tfrecords"),
    "sql": (".db", ".sqlite", ".sqlite3"),
}
KINDS = tuple(_ENDINGS)
# Those that are files in folders, and how many are looked at.
FOLDERS = {"image_folder": 50, "audio_folder": 50, "video_folder": 5}
# Rows that are looked at, or as many as have so many bytes.
_ROWS, _BYTES = 50_000, 64 << 20
# Rows, or batches, that tell whether types are right.
_TRIED = 200
# The most classes that are written into a builder.
_CLASSES = 1000
# The most splits that a column may name.
_SPLITS = 20
# What a column of labels tends to be called.
_LABELS = ("label", "labels", "class", "target", "category", "y")
_SHARD = re.compile(r"\.tfrecords?(-\d+-of-\d+)?$")
_TABLES = (
    "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'"
)
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
      options: What else it is given by name.
      source: The rows.
      columns: The columns, without what is only the key.
      label: The feature that is to be learned; None if nobody knows.
      sample: Some rows.
      values: The distinct values of columns that have few.
      table: The table of a database.
    """

    kind: str
    options: Mapping[str, Any]
    source: sources.Source
    columns: Sequence[Column]
    label: str | None
    sample: pa.Table
    values: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    table: str = ""


def inspect(
    where: str,
    *,
    kind: str | None = None,
    label: str | None = None,
    split: str | None = None,
    key: str | None = None,
    table: str | None = None,
) -> Inspection:
    """Returns what raw data are.

    Args:
      where: A file, a directory, a pattern, an archive.
      kind: One of `KINDS`; None to find it out.
      key: The column of the keys; None for the numbers of the rows, or a database's own key.
      table: The table of a database, or a view; None if there is only one.
      label: The column to be learned; None to take one that is called so.
      split: The column whose values are the splits; all rows are read for it, as for the label.

    Raises:
      SourceError: Nothing can be read there, there is no such column, or it has too many values.
    """
    kind = kind or _kind_of(where)
    if kind not in KINDS:
        raise InvalidOptionError(
            explain(f"There is no kind {kind!r}.", mend=f"--kind is one of {', '.join(KINDS)}")
        )
    if kind == "sql":
        table, options = _database(where, table, key)
        source = sources.sql(database=where, **options)
    else:
        options = _options(where, kind) | ({} if key is None else {"key": key})
        source = getattr(sources, kind)(where, **options)
    sample = _looked_at(source, FOLDERS.get(kind, _ROWS))
    if not sample.num_rows:
        raise SourceError(explain(f"There is no row in {where}.", mend="give other data"))
    for option, column in (("--label", label), ("--split", split)):
        if column is not None and column not in sample.column_names:
            raise SourceError(
                explain(
                    f"There is no column {column!r}.",
                    f"The columns: {', '.join(sample.column_names)}",
                    mend=f"choose one of them with {option}",
                )
            )
    chosen = label or next((n for n in sample.column_names if n.lower() in _LABELS), None)
    names = _feature_names(sample.column_names)
    columns = [
        _column(name, names[name], sample.column(name), _classes(source, name, name == chosen))
        for name in sample.column_names
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


def _looked_at(source: sources.Source, rows: int) -> pa.Table:
    """Returns the first rows, not more than the memory should hold."""
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


def _kind_of(where: str) -> str:
    counted: Counter[str] = Counter()
    kinds = {ending: kind for kind, endings in _ENDINGS.items() for ending in endings}
    for file in files(where):
        name = file.name or file.location
        stem, ending = posixpath.splitext(name.lower())
        if ending in CODECS:
            ending = posixpath.splitext(stem)[1]
        # Shards are called data.tfrecord-00000-of-00010.
        counted[".tfrecord" if _SHARD.search(name) else ending] += 1
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


def files_of(where: str, kind: str) -> list[File]:
    """Returns the files of a kind at a place."""
    return files(where, () if kind == "tfrecords" else _ENDINGS[kind])


def _database(where: str, table: str | None, key: str | None) -> tuple[str, dict[str, Any]]:
    """Returns the table of an SQLite file that is meant, and how it is read."""
    if not Path(where).is_file():
        raise SourceError(
            explain(f"There is no SQLite file {where}.", mend="give the path of one file")
        )
    try:
        with contextlib.closing(sqlite3.connect(f"file:{where}?mode=ro", uri=True)) as opened:
            named = [name for (name,) in opened.execute(_TABLES)]
            if table is None and len(named) == 1:
                (table,) = named
            if table is None or table not in named:
                said = f"no table {table!r}" if table else "several tables, or none"
                raise SourceError(
                    explain(
                        f"{where} has {said}.",
                        f"Its tables and views: {', '.join(named)}",
                        mend="choose one with --table",
                    )
                )
            columns = opened.execute("SELECT name, type, pk FROM pragma_table_info(?)", (table,))
            keys = [(name, kind) for name, kind, place in columns if place]
    except sqlite3.Error as error:
        raise SourceError(
            explain(f"{where} is no SQLite file that can be read: {error}", mend="see what it is")
        ) from error
    if key is None and len(keys) != 1:
        raise SourceError(
            explain(
                f"The table {table!r} has no primary key of one column.",
                "A database promises no order of rows: their numbers would not identify them",
                mend="choose a column that identifies a row with --key",
            )
        )
    options = {"query": f"SELECT * FROM {quoted(table)}", "key": key or keys[0][0]}  # noqa: S608
    is_number = any(name == options["key"] and "INT" in kind.upper() for name, kind in keys)
    return table, options | ({"split_by": options["key"]} if is_number else {})


def _options(where: str, kind: str) -> dict[str, Any]:
    """Returns what the function of a source is to be given beside the place."""
    if kind in FOLDERS:
        found = [file.name for file in files_of(where, kind)]
        return {} if len(found) > 1 and all(map(posixpath.dirname, found)) else {"labels": False}
    if kind == "tfrecords":
        return {"columns": _types_of_examples(sources.tfrecords(where))}
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


def _types_of_examples(source: sources.Source) -> dict[str, pa.DataType]:
    """Returns the features of `tf.Example`s, with those that hold texts as such."""
    sample = source.head(_TRIED)
    found = {}
    for name, kind in zip(source.schema.names, source.schema.types, strict=True):
        is_list = pa.types.is_nested(kind)
        values = sample.column(name).combine_chunks()
        of = kind.value_type if is_list else kind
        if pa.types.is_large_binary(of) and _are_texts(
            (values.flatten() if is_list else values).to_pylist()
        ):
            of = pa.large_string()
        found[name] = pa.list_(of) if is_list else of
    return found


def _are_texts(values: Sequence[bytes]) -> bool:
    try:
        return all(value.decode().isprintable() or b"\n" in value for value in values)
    except UnicodeDecodeError:
        return False


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


def _classes(source: sources.Source, name: str, is_label: bool) -> tuple[str, ...] | None:
    """Returns the classes of a column of texts that is the label; folders know theirs already."""
    if not is_label or not pa.types.is_large_string(source.schema.field(name).type):
        return None
    if name in source.special:
        return tuple(source.special[name]().names)
    return tuple(_all_values(source, name, _CLASSES, "--label"))


def _all_values(source: sources.Source, name: str, most: int, option: str) -> list[Any]:
    """Returns the distinct values of a column, of all rows: one that is left out is lost."""
    if name in source.special:
        return list(source.special[name]().names)
    found: set[Any] = set()
    for _, batch in source:
        if isinstance(batch, pa.RecordBatch):
            found.update(pc.unique(batch.column(name)).to_pylist())
        if None in found or len(found) > most:
            why = "rows without a value" if None in found else f"more than {most:,} values"
            raise SourceError(
                explain(
                    f"The column {name!r} cannot be that of {option}: it has {why}.",
                    mend=f"choose another with {option}",
                )
            )
    return sorted(found, key=str)


def _column(
    name: str, feature: str, values: pa.ChunkedArray, classes: tuple[str, ...] | None
) -> Column:
    some = values.slice(0, 200).to_pylist()
    return Column(name, feature, values.type, _doc(values), classes, looks_personal(name, some))


def _doc(values: pa.ChunkedArray) -> str:
    """Returns what was seen in a column, for its author to replace by what it means."""
    kind = values.type
    said = []
    given = values.drop_null()
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        if len(given):
            bounds = pc.min_max(given).as_py()
            form = "d" if pa.types.is_integer(kind) else "g"
            said.append(f"from {bounds['min']:{form}} to {bounds['max']:{form}}")
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
    if len(distinct) > _SPLITS:
        return None
    return sorted((value for value in distinct.to_pylist() if value is not None), key=str)
