"""Lists the files of a source: from paths, directories, patterns and archives."""

import dataclasses
import fnmatch
import itertools
import os
import posixpath
from collections.abc import Iterable, Iterator, Sequence

import pyarrow.fs as pafs

from my_datasets.errors import SourceError, explain
from my_datasets.sources.files import archives
from my_datasets.sources.files.file import CODECS, SourceFile
from my_datasets.storage.file_systems import file_system

Where = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_WILDCARDS = frozenset("*?[")


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
    given = [where] if isinstance(where, (str, os.PathLike)) else list(where)
    endings = tuple(endings)
    found: dict[str, SourceFile] = {}
    for one in given:
        text = os.fspath(one)
        archive, inside = archives.split(text)
        found_at = _in_archive(archive, inside, endings) if archive else _matches(text, endings)
        matches = list(found_at)
        if not matches:
            raise SourceError(
                explain(
                    f"There is no file to read at {text}.",
                    f"Expected files that end with {', '.join(endings)}" if endings else "",
                    fix="give a file, a directory or a pattern such as 'folder/*.csv'",
                )
            )
        found.update((file.location, file) for file in matches)
    if len(found) == 1:
        return [dataclasses.replace(file, name="") for file in found.values()]
    common = len(_common_directory(found))
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
    return not _is_hidden(relative) and _ends(relative, endings)


def _fixed_part(path: str) -> tuple[str, str | None]:
    """Returns the directory above the first wildcard, and the pattern below; None without one."""
    parts = path.split("/")
    for i, part in enumerate(parts):
        if _WILDCARDS & set(part):
            return "/".join(parts[:i]) or ("/" if path.startswith("/") else ""), "/".join(parts[i:])
    return path, None


def _is_hidden(relative: str) -> bool:
    return any(part.startswith((".", "_")) for part in relative.split("/"))


def _ends(name: str, endings: tuple[str, ...]) -> bool:
    stem, last = posixpath.splitext(name.lower())
    return not endings or (stem if last in CODECS else name.lower()).endswith(endings)


def _common_directory(locations: Iterable[str]) -> str:
    """Returns the common directory prefix of all locations, which may be URLs."""
    parts = zip(*(location.split("/")[:-1] for location in locations), strict=False)
    common = itertools.takewhile(lambda same: len(set(same)) == 1, parts)
    return "".join(f"{same[0]}/" for same in common)
