"""Detects the format of raw data and the options to read it with."""

import contextlib
import itertools
import posixpath
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from my_datasets import sources
from my_datasets.building.units import InvalidValue
from my_datasets.errors import SourceError
from my_datasets.sources.databases import quoted, sqlite_uri
from my_datasets.sources.file import CODECS, SourceFile
from my_datasets.sources.folders import files

# The kinds, with their file extensions.
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
# Kinds that are folders of files, with the number of files to inspect.
FOLDERS = {"image_folder": 50, "audio_folder": 50, "video_folder": 5}
# Number of rows to inspect in other data.
ROWS = 50_000
# Number of rows or batches used to verify types.
_TRIED = 200
_SHARD = re.compile(r"\.tfrecords?(-\d+-of-\d+)?$")
_TABLES = (
    "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'"
)
_HEADER = re.compile(r"[A-Za-z_][\w .()/%#-]{0,60}")


def kind_of(where: str) -> str:
    """Returns the most common kind of the files at a location, one of `KINDS`, by their names."""
    counted: Counter[str] = Counter()
    kinds = {ending: kind for kind, endings in _ENDINGS.items() for ending in endings}
    for file in files(where):
        name = file.name or file.location
        stem, ending = posixpath.splitext(name.lower())
        if ending in CODECS:
            ending = posixpath.splitext(stem)[1]
        # Shards have names like data.tfrecord-00000-of-00010.
        counted[".tfrecord" if _SHARD.search(name) else ending] += 1
    for ending, _ in counted.most_common():
        if ending in kinds:
            return kinds[ending]
    raise SourceError(
        f"The format of {where} is unknown.",
        f"File extensions found: {', '.join(counted)}",
        f"Known extensions: {', '.join(kinds)}",
        fix=f"pass its format with --kind: {', '.join(KINDS)}",
    )


def files_of(where: str, kind: str) -> list[SourceFile]:
    """Returns the files of a kind at a location."""
    if kind == "sql":
        # The path is a single file, even if it would match others as a pattern.
        return [SourceFile(where, "", Path(where).stat().st_size)]
    return files(where, () if kind == "tfrecords" else _ENDINGS[kind])


def database_of(where: str, table: str | None, key: str | None) -> tuple[str, dict[str, str]]:
    """Returns the table of an SQLite file to read, and the options of `sources.sql`.

    The table may be left out if there is only one, and the key if the table has a primary key.
    """
    if not Path(where).is_file():
        raise SourceError(f"The SQLite file {where} does not exist.", fix="pass the path of a file")
    try:
        with contextlib.closing(sqlite3.connect(sqlite_uri(where), uri=True)) as opened:
            named = [name for (name,) in opened.execute(_TABLES)]
            if table is None and len(named) == 1:
                (table,) = named
            if table is None or table not in named:
                found = f"no table {table!r}" if table else "several tables, or none"
                raise SourceError(
                    f"{where} has {found}.",
                    f"Its tables and views: {', '.join(named)}",
                    fix="choose one with --table",
                )
            columns = opened.execute("SELECT name, type, pk FROM pragma_table_info(?)", (table,))
            keys = [(name, kind) for name, kind, place in columns if place]
    except sqlite3.Error as error:
        raise SourceError(
            f"{where} cannot be read as an SQLite file: {error}", fix="check what it is"
        ) from error
    if key is None and len(keys) != 1:
        raise SourceError(
            f"The table {table!r} has no primary key of one column.",
            "The rows of a database have no guaranteed order, so row numbers cannot be keys",
            fix="pass a column that identifies a row with --key",
        )
    options = {"query": f"SELECT * FROM {quoted(table)}", "key": key or keys[0][0]}  # noqa: S608
    is_number = any(name == options["key"] and "INT" in kind.upper() for name, kind in keys)
    return table, options | ({"split_by": options["key"]} if is_number else {})


def options_of(where: str, kind: str) -> dict[str, object]:
    """Returns the options of a source function, besides the location."""
    if kind in FOLDERS:
        found = [file.name for file in files_of(where, kind)]
        return {} if len(found) > 1 and all(map(posixpath.dirname, found)) else {"labels": False}
    if kind == "tfrecords":
        return {"columns": _types_of_examples(sources.tfrecords(where))}
    if kind not in ("csv", "tsv"):
        return {}
    read = getattr(sources, kind)
    options: dict[str, object] = {}
    if _has_single_marks(read, where):
        options["quote"] = None
    first = read(where, **options)
    if not _is_header(first):
        columns = [f"column_{i}" for i in range(len(first.schema))]
        options["columns"] = columns
        first = read(where, **options)
    # Pin the types as inferred now, whatever the sample. Times are excluded, because they are read
    # as another type than the one in which they are stored.
    types = dict(zip(first.schema.names, first.schema.types, strict=True))
    while wrong := _misfits(read(where, **options, types=types)) & types.keys():
        for name in wrong:
            del types[name]
    return {**options, "types": types}


def _types_of_examples(source: sources.Source) -> dict[str, pa.DataType]:
    """Returns the types of `tf.Example` features, with bytes that are text as strings."""
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
    """Returns whether quotation marks are plain characters: as quotes, they would merge rows."""
    try:
        plain = read(where, quote=None)
    except SourceError:
        return False
    rows = plain.head(ROWS).num_rows
    return not _misfits(plain) and rows > read(where).head(ROWS).num_rows


def _misfits(source: sources.Source) -> set[str]:
    """Returns the columns whose first rows cannot be parsed."""
    some = itertools.islice(source, _TRIED)
    return {batch.feature for _, batch in some if isinstance(batch, InvalidValue)}


def _is_header(source: sources.Source) -> bool:
    """Returns whether the column names are names rather than a first row of values."""
    head = source.head(200)
    return all(
        _HEADER.fullmatch(name.strip()) and name not in set(head.column(name).to_pylist())
        for name in head.column_names
    )
