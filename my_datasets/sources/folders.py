"""Lists the files of a source, and reads folders of files, each of which is an example.

Files are named by paths, directories, patterns and archives.
"""

import dataclasses
import fnmatch
import functools
import itertools
import os
import posixpath
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import tensorflow_datasets as tfds

from my_datasets.building.units import InvalidValue
from my_datasets.core.arrays import Array
from my_datasets.errors import SourceError
from my_datasets.sources import archives
from my_datasets.sources.file import CODECS, SourceFile
from my_datasets.sources.source import Source
from my_datasets.sources.types import Rows
from my_datasets.storage.file_systems import file_system

Where = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_WILDCARDS = frozenset("*?[")

# Files per unit, and the approximate number of their bytes that are kept in memory at once.
_FILES, _BYTES = 256, 16 << 20
# A larger file is considered an error.
LARGEST_FILE = 1 << 30


def files(where: Where, endings: Iterable[str] = ()) -> list[SourceFile]:
    """Returns the files of a source, sorted by name.

    Args:
      where: A file, a directory (recursively, without names that start with `.` or `_`), a pattern
        with `*`, `?` or `[...]` in its last parts, or several of those: local paths, or URLs such
        as `s3://bucket/folder` and `gs://bucket/folder`. A zip or tar archive counts as a
        directory; `photos.zip::cats/*.jpg` selects some of its files.
      endings: The file name suffixes to include from a directory, compressed or not; all files if
        empty.

    Raises:
      SourceError: There is no such file, or an archive cannot be read.
    """
    endings = tuple(endings)
    found: dict[str, SourceFile] = {}
    for one in [where] if isinstance(where, (str, os.PathLike)) else where:
        text = os.fspath(one)
        archive, inside = archives.split(text)
        matches = list(
            _in_archive(archive, inside, endings) if archive else _matches(text, endings)
        )
        if not matches:
            raise SourceError(
                f"There is no file to read at {text}.",
                f"Expected files that end with {', '.join(endings)}" if endings else "",
                fix="pass a file, a directory or a pattern such as 'folder/*.csv'",
            )
        found.update((file.location, file) for file in matches)
    if len(found) == 1:
        return [dataclasses.replace(file, name="") for file in found.values()]
    # Locations may be URLs, which os.path.commonpath does not know.
    parts = zip(*(location.split("/")[:-1] for location in found), strict=False)
    same = itertools.takewhile(lambda part: len(set(part)) == 1, parts)
    common = sum(len(part[0]) + 1 for part in same)
    named = [dataclasses.replace(file, name=at[common:]) for at, file in found.items()]
    return sorted(named, key=_order)


def _order(file: SourceFile) -> tuple[str, int, str]:
    # Compressed tars can only be read sequentially, so their files stay in archive order.
    if isinstance(file, archives.Member) and file.at is not None:
        return file.archive, file.at, ""
    return "", 0, file.name


def _in_archive(archive: str, inside: str, endings: tuple[str, ...]) -> Iterator[archives.Member]:
    folder, pattern = _fixed_part(inside)
    below = f"{folder}/" if folder else ""
    for file in _matches(archive, ()):
        for member in archives.members(file.location):
            if member.name == inside or (
                member.name.startswith(below)
                and _is_wanted(member.name.removeprefix(below), pattern, endings)
            ):
                yield member


def _matches(text: str, endings: tuple[str, ...]) -> Iterator[SourceFile]:
    system, path = file_system(text)
    prefix = text[: len(text) - len(path)]
    folder, pattern = _fixed_part(path)
    info = system.get_file_info(folder or ".")
    if pattern is None and info.type == pafs.FileType.File:
        yield SourceFile(text, "", info.size, modified=info.mtime_ns)
    if info.type != pafs.FileType.Directory:
        return
    selector = pafs.FileSelector(folder or ".", recursive=True)
    for file in sorted(system.get_file_info(selector), key=lambda item: item.path):
        relative = posixpath.relpath(file.path, folder or ".")
        if file.type == pafs.FileType.File and _is_wanted(relative, pattern, endings):
            yield SourceFile(prefix + file.path, "", file.size, modified=file.mtime_ns)


def _is_wanted(relative: str, pattern: str | None, endings: tuple[str, ...]) -> bool:
    """Returns whether a file matches the pattern, or without one, the suffixes."""
    if pattern is not None:
        return fnmatch.fnmatchcase(relative, pattern) and relative.count("/") == pattern.count("/")
    is_hidden = any(part.startswith((".", "_")) for part in relative.split("/"))
    stem, last = posixpath.splitext(relative.lower())
    name = stem if last in CODECS else relative.lower()
    return not is_hidden and (not endings or name.endswith(endings))


def _fixed_part(path: str) -> tuple[str, str | None]:
    """Returns the directory above the first wildcard, and the pattern below; None without one."""
    parts = path.split("/")
    for i, part in enumerate(parts):
        if _WILDCARDS & set(part):
            return "/".join(parts[:i]) or ("/" if path.startswith("/") else ""), "/".join(parts[i:])
    return path, None


# A file's bytes, a decoded recording, or the encoded frames of a video.
Value = bytes | Array | list[bytes]
# Converts a file's bytes to an example's value, or describes what is wrong with them.
Convert = Callable[[bytes], Value | InvalidValue]


def binary_files(
    where: Where, *, endings: Sequence[str] = (), column: str = "data", labels: bool = False
) -> Source:
    """Returns the contents of files, with their paths below the common directory as keys.

    Args:
      where: A directory, a pattern such as `folder/*.bin`, or several files; paths, or URLs in an
        object store.
      endings: The file name suffixes to include from a directory; all files if empty.
      column: The name of the column of the contents. There is a second column, `file_name`.
      labels: Whether the name of a file's directory is its class, in a third column.

    Raises:
      SourceError: There is no such file, or one is in no directory that could be its class.
    """
    return folder(files(where, endings), column, labels=labels)


def folder(
    found: list[SourceFile],
    column: str,
    *,
    labels: bool,
    convert: Convert | None = None,
    kind: pa.DataType | None = None,
    feature: Callable[[], tfds.features.FeatureConnector] | None = None,
) -> Source:
    """Returns an example for each file: its value, `file_name`, and `label` if requested.

    With `labels`, the name of a file's directory is its class. `convert` makes the value, of type
    `kind`, of a file's bytes; without it, the value is the bytes. `feature` creates the feature of
    the values; None for the default of their type.

    Raises:
      SourceError: A file is in no directory that could be its class.
    """
    fields = [(column, kind or pa.large_binary()), ("file_name", pa.large_string())]
    special = {column: feature} if feature is not None else {}
    if labels:
        classes = [_class_of(file) for file in found]
        if len(found) > 1 and not all(posixpath.dirname(file.name) for file in found):
            loose = next(file for file in found if not posixpath.dirname(file.name))
            raise SourceError(
                f"{loose} is not in a directory that could be its class.",
                f"Expected one directory per class, such as {classes[0]}",
                fix="pass the parent directory of the classes, or labels=False",
            )
        fields.append(("label", pa.large_string()))
        special["label"] = functools.partial(tfds.features.ClassLabel, names=sorted(set(classes)))
    schema = pa.schema(fields)
    units = [found[i : i + _FILES] for i in range(0, len(found), _FILES)]
    return Source(_FileReader(schema, convert), units, schema, special=special)


@dataclass(frozen=True)
class _FileReader:
    schema: pa.Schema
    convert: Convert | None = None

    def __call__(self, group: Sequence[SourceFile]) -> Iterator[Rows]:
        column = self.schema.names[0]
        rows: list[tuple[SourceFile, Value]] = []
        size = 0
        for file in group:
            key = _name(file)
            if file.size > LARGEST_FILE:
                expected = f"at most {LARGEST_FILE:,} bytes"
                yield key, InvalidValue(column, expected, f"{file.size:,} bytes")
                continue
            try:
                with file.open() as stream:
                    data: bytes = stream.read()
            except SourceError as error:
                yield key, caused(error, column, "a complete file", "a damaged one")
                continue
            value = data if self.convert is None else self.convert(data)
            if isinstance(value, InvalidValue):
                yield key, value
                continue
            rows.append((file, value))
            if isinstance(value, np.ndarray):
                size += value.nbytes
            else:
                size += len(value) if isinstance(value, bytes) else sum(map(len, value))
            if size >= _BYTES:
                yield self._batch(rows)
                rows, size = [], 0
        if rows:
            yield self._batch(rows)

    def _batch(self, rows: list[tuple[SourceFile, Value]]) -> tuple[pa.Array, pa.RecordBatch]:
        names = [_name(file) for file, _ in rows]
        columns: list[list[Any]] = [[value for _, value in rows], names]
        if "label" in self.schema.names:
            columns.append([_class_of(file) for file, _ in rows])
        arrays = [_column(c, kind) for c, kind in zip(columns, self.schema.types, strict=True)]
        return pa.array(names), pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if not isinstance(values[0], np.ndarray):
        return pa.array(values, kind)
    flat = pa.array(np.concatenate([value.reshape(-1) for value in values]))
    if values[0].ndim == 2:
        flat = pa.FixedSizeListArray.from_arrays(flat, values[0].shape[1])
    ends = np.cumsum([0, *map(len, values)], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), flat)


def caused(error: Exception, column: str, expected: str, found: str) -> InvalidValue:
    """Returns an `InvalidValue` for a value, with the error that revealed it as its cause."""
    invalid = InvalidValue(column, expected, found)
    invalid.__cause__ = error
    return invalid


def _name(file: SourceFile) -> str:
    return file.name or posixpath.basename(file.location)


def _class_of(file: SourceFile) -> str:
    return posixpath.basename(posixpath.dirname(file.location))
