"""Which files are meant: by paths, directories, patterns, and in archives."""

import dataclasses
import fnmatch
import itertools
import os
import posixpath
from collections.abc import Iterable, Iterator, Sequence

import pyarrow.fs as pafs

from my_datasets.errors import SourceError, explain
from my_datasets.sources import archives
from my_datasets.sources.files import CODECS, File, file_system

Where = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_WILDCARDS = frozenset("*?[")


def files(where: Where, endings: Iterable[str] = ()) -> list[File]:
    """Returns the files of a source, in the order of their names.

    Args:
      where: A file, a directory (with all below it; names that start with `.` or `_` are left
        out), a pattern with `*`, `?` or `[...]` in its last parts, or several of those: paths of
        this machine, or URLs such as `s3://bucket/folder` and `gs://bucket/folder`. A zip or tar
        archive counts as a directory; `photos.zip::cats/*.jpg` are some of the files in it.
      endings: Which files of a directory are meant, by the endings of their names, compressed or
        not; all if empty.

    Raises:
      SourceError: There is no such file, or an archive cannot be read.
    """
    given = [where] if isinstance(where, (str, os.PathLike)) else list(where)
    found: dict[str, File] = {}
    for one in given:
        text = os.fspath(one)
        archive, inside = archives.split(text)
        matches: list[File]
        if archive:
            matches = list(_in_archive(archive, inside, tuple(endings)))
        else:
            matches = [File(*match) for match in _matches(text, tuple(endings))]
        if not matches:
            raise SourceError(
                explain(
                    f"There is no file to read at {text}.",
                    f"Expected files that end with {', '.join(endings)}" if endings else "",
                    mend="give a file, a directory or a pattern such as 'folder/*.csv'",
                )
            )
        found.update((file.location, file) for file in matches)
    if len(found) == 1:
        return [dataclasses.replace(file, name="") for file in found.values()]
    common = len(_common_directory(found))
    named = [dataclasses.replace(file, name=at[common:]) for at, file in found.items()]
    return sorted(named, key=_order)


def _order(file: File) -> tuple[str, int, str]:
    # Compressed tars can only be read on, not from anywhere: in the order of their files.
    if isinstance(file, archives.Member) and file.at is not None:
        return file.archive, file.at, ""
    return "", 0, file.name


def _in_archive(archive: str, inside: str, endings: tuple[str, ...]) -> Iterator[archives.Member]:
    for found, _, _ in _matches(archive, ()):
        seen = set()
        for member in archives.members(found):
            if member.location in seen:
                raise SourceError(
                    explain(
                        f"{found} holds two files called {member.name!r}.",
                        mend="unpack it yourself, and give the directory",
                    )
                )
            seen.add(member.location)
            if _is_meant(member.name, inside, endings):
                yield member


def _is_meant(name: str, inside: str, endings: tuple[str, ...]) -> bool:
    """Returns whether a file in an archive is one of those asked for."""
    if name == inside:
        return True
    if _WILDCARDS & set(inside):
        return fnmatch.fnmatchcase(name, inside) and name.count("/") == inside.count("/")
    below = name.removeprefix(f"{inside}/") if inside else name
    return (below != name or not inside) and not _is_hidden(below) and _ends(below, endings)


def _matches(text: str, endings: tuple[str, ...]) -> Iterator[tuple[str, str, int]]:
    """Yields the location, no name, and the size of each file."""
    system, path = file_system(text)
    prefix = text[: len(text) - len(path)]
    fixed, pattern = _fixed_part(path)
    info = system.get_file_info(fixed or ".")
    if pattern is None and info.type == pafs.FileType.File:
        yield text, "", info.size
        return
    if info.type != pafs.FileType.Directory:
        return
    selector = pafs.FileSelector(fixed or ".", recursive=True)
    for below in sorted(system.get_file_info(selector), key=lambda item: item.path):
        if below.type != pafs.FileType.File:
            continue
        relative = posixpath.relpath(below.path, fixed or ".")
        if pattern is not None:
            if fnmatch.fnmatchcase(relative, pattern) and relative.count("/") == pattern.count("/"):
                yield prefix + below.path, "", below.size
        elif not _is_hidden(relative) and _ends(relative, endings):
            yield prefix + below.path, "", below.size


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
    """Returns how the directory above all locations begins each of them; they may be URLs."""
    parts = zip(*(location.split("/")[:-1] for location in locations), strict=False)
    common = itertools.takewhile(lambda same: len(set(same)) == 1, parts)
    return "".join(f"{same[0]}/" for same in common)
