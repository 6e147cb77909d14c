"""The files of a source, wherever they lie: this machine, or an object store."""

import fnmatch
import functools
import itertools
import os
import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from my_datasets.errors import SourceError, explain

Where = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

# File name endings of streams that pyarrow decompresses on the fly.
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
_WILDCARDS = frozenset("*?[")
# The object stores that pyarrow itself reads; fsspec is asked for all others.
_BY_PYARROW = ("s3", "gs", "hdfs")


@dataclass(frozen=True)
class File:
    """A file to be read.

    Attributes:
      location: Its path, or its URL in an object store.
      name: What tells it from the other files of the source, whatever directory they all lie in;
        empty if it is the only one.
      size: Its size in bytes.
    """

    location: str
    name: str
    size: int

    @property
    def codec(self) -> str | None:
        """How it is compressed, by the ending of its name; None if it is not."""
        return _CODECS.get(posixpath.splitext(self.location)[1].lower())

    def open(self) -> Any:
        """Returns the file for reading from anywhere in it, as a `pyarrow.NativeFile`."""
        system, path = file_system(self.location)
        return system.open_input_file(path)

    def stream(self) -> Any:
        """Returns the file for reading from its beginning, decompressed."""
        system, path = file_system(self.location)
        return system.open_input_stream(path, compression=self.codec)

    def __str__(self) -> str:
        return self.location


def files(where: Where, endings: Iterable[str] = ()) -> list[File]:
    """Returns the files of a source, in the order of their names.

    Args:
      where: A file, a directory (with all below it; names that start with `.` or `_` are left
        out), a pattern with `*`, `?` or `[...]` in its last parts, or several of those: paths of
        this machine, or URLs such as `s3://bucket/folder` and `gs://bucket/folder`.
      endings: Which files of a directory are meant, by the endings of their names, compressed or
        not; all if empty.

    Raises:
      SourceError: There is no such file.
    """
    given = [where] if isinstance(where, (str, os.PathLike)) else list(where)
    found: dict[str, int] = {}
    for one in given:
        text = os.fspath(one)
        matches = dict(_matches(text, tuple(endings)))
        if not matches:
            raise SourceError(
                explain(
                    f"There is no file to read at {text}.",
                    f"Expected files that end with {', '.join(endings)}" if endings else "",
                    mend="give a file, a directory or a pattern such as 'folder/*.csv'",
                )
            )
        found.update(matches)
    if len(found) == 1:
        ((location, size),) = found.items()
        return [File(location, "", size)]
    common = _common_directory(found)
    named = [File(location, location[len(common) :], size) for location, size in found.items()]
    return sorted(named, key=lambda file: file.name)


def file_system(location: str) -> tuple[Any, str]:
    """Returns the file system of a location, and the path in it.

    Raises:
      SourceError: Nothing that is installed reads such a URL.
    """
    scheme, separator, rest = location.partition("://")
    if not separator:
        return pafs.LocalFileSystem(), location
    if scheme == "file":
        return pafs.LocalFileSystem(), rest
    try:
        if scheme in _BY_PYARROW:
            # Connections do not survive a fork: each process makes its own.
            return _by_pyarrow(f"{scheme}://{rest.partition('/')[0]}", os.getpid()), rest
        import fsspec

        system, path = fsspec.core.url_to_fs(location)
        return pafs.PyFileSystem(pafs.FSSpecHandler(system)), str(path)
    except (ImportError, ValueError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SourceError(
            explain(
                f"{location} cannot be read here: {error}",
                mend="install the fsspec backend for it (adlfs, huggingface_hub, ...)",
            )
        ) from error


@functools.lru_cache(maxsize=32)
def _by_pyarrow(url: str, process: int) -> Any:  # noqa: ARG001
    return pafs.FileSystem.from_uri(url)[0]


def _matches(text: str, endings: tuple[str, ...]) -> Iterable[tuple[str, int]]:
    system, path = file_system(text)
    prefix = text[: len(text) - len(path)]
    fixed, pattern = _fixed_part(path)
    info = system.get_file_info(fixed or ".")
    if pattern is None and info.type == pafs.FileType.File:
        yield text, info.size
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
                yield prefix + below.path, below.size
        elif not _is_hidden(relative) and _ends(relative, endings):
            yield prefix + below.path, below.size


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
    return not endings or (stem if last in _CODECS else name.lower()).endswith(endings)


def _common_directory(locations: Iterable[str]) -> str:
    """Returns how the directory above all locations begins each of them; they may be URLs."""
    parts = zip(*(location.split("/")[:-1] for location in locations), strict=False)
    common = itertools.takewhile(lambda same: len(set(same)) == 1, parts)
    return "".join(f"{same[0]}/" for same in common)
