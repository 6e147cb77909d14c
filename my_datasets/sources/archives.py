"""Reads files inside zip and tar archives in place, without unpacking anything to disk.

No name in an archive can therefore lead out of it. Other attacks by a hostile archive (links, sizes
that exhaust memory) are refused when its file list is read.
"""

import bz2
import gzip
import io
import lzma
import posixpath
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa

from my_datasets.core.processes import cached_per_process
from my_datasets.errors import SourceError
from my_datasets.sources.file import SourceFile
from my_datasets.storage.file_systems import buffered, file_system

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# Separates the path of an archive from that of a file in it.
SEPARATOR = "::"
_TARS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
# An archive is considered a bomb if its files exceed this total size and this multiple of its own
# size: text compresses to a tenth or a hundredth, and no legitimate data to less than 1/300.
_BOMB_SIZE, _BOMB_RATIO = 4 << 30, 300
# The list of files is kept in memory: about 1 KB for each.
_MOST_FILES = 10_000_000
# Errors that archive readers raise for corrupt data.
_UNREADABLE = (
    OSError, EOFError, zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError,
)  # fmt: skip
_UNPACK = "if you trust it, unpack it and pass the directory"
# Files that need random access are read into memory.
_LARGEST_IN_MEMORY = 1 << 30


@dataclass(frozen=True)
class Member(SourceFile):
    """A file in an archive."""

    archive: str  # its path or URL; a change of a local archive is a change of its files
    at: int | None  # the offset of its bytes in a tar archive; None in a zip
    entry: str  # its name in the archive

    @property
    def is_splittable(self) -> bool:
        """Always False: only an uncompressed tar would allow random access."""
        return False

    def open(self) -> pa.BufferReader:
        """Returns the file, read into memory.

        Raises:
          SourceError: It is too large for that, or corrupt.
        """
        if self.size > _LARGEST_IN_MEMORY:
            raise SourceError(
                f"{self} has {self.size:,} bytes, which is too much to read into memory.",
                f"Expected at most {_LARGEST_IN_MEMORY:,} bytes for such a file in an archive",
                fix="unpack the archive first",
            )
        with self._raw() as stream:
            return pa.BufferReader(stream.read())

    def stream(self) -> pa.NativeFile:
        """Opens the file for sequential reading, decompressed."""
        found = pa.PythonFile(self._raw(), mode="r")
        return pa.CompressedInputStream(found, self.codec) if self.codec else found

    def _raw(self) -> "_Bytes":
        opened = _opened(self.archive)
        if isinstance(opened, zipfile.ZipFile):
            opened = opened.open(self.entry)
        return _Bytes(opened, self)


class _Bytes(io.RawIOBase):
    """The bytes of a member, read sequentially; `stream` has only them if it is in a zip."""

    def __init__(self, stream: io.BufferedIOBase | IO[bytes], member: Member) -> None:
        self._stream = stream
        self._member = member
        self._left = member.size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer).cast("B")
        size = min(len(view), self._left)
        try:
            if self._member.at is not None:
                self._stream.seek(self._member.at + self._member.size - self._left)
            data = self._stream.read(size)
        except _UNREADABLE as error:
            raise self._damaged(str(error)) from error
        if size and not data:
            raise self._damaged("it ends too early")
        view[: len(data)] = data
        self._left -= len(data)
        return len(data)

    def _damaged(self, reason: str) -> SourceError:
        return SourceError(f"{self._member} is damaged: {reason}", fix="download the archive again")


def split(path: str) -> tuple[str, str]:
    """Splits a path into the archive and a path or pattern in it, which is empty for all files.

    The archive is empty if the path does not lead to one.
    """
    archive, separator, inside = path.partition(SEPARATOR)
    if separator or path.lower().endswith((".zip", *_TARS)):
        return archive, inside.strip("/")
    return "", ""


def members(archive: str) -> list[Member]:
    """Returns the files of an archive, in archive order.

    Raises:
      SourceError: It is not an archive, is corrupt or encrypted, has two files of the same name, or
        may be an attack.
    """
    system, path = file_system(archive)
    size = system.get_file_info(path).size or 0
    _opened.cache_clear()  # the archive at this path may have been replaced
    try:
        found = list(_in_tar(archive, size) if _is_tar(archive) else _in_zip(archive))
    except _UNREADABLE as error:
        raise SourceError(
            f"{archive} cannot be read as an archive: {error}",
            "Expected a zip file, or a tar file, uncompressed or with gzip, bzip2 or xz",
            fix="check that the file is complete, and what it is",
        ) from error
    _check_size(archive, sum(member.size for member in found), size)
    for name, count in Counter(member.name for member in found).items():
        if count > 1:
            raise SourceError(f"{archive} contains two files called {name!r}.", fix=_UNPACK)
    return found


def _in_zip(archive: str) -> Iterator[Member]:
    infos = _opened(archive).infolist()
    _check_count(archive, len(infos))
    for info in infos:
        if info.is_dir():
            continue
        kind = info.external_attr >> 28
        if kind not in (0, 8):  # the file type of a Unix mode; 8 is a regular file
            _refuse(archive, info.filename, "is a link or a device")
        if info.flag_bits & 1:
            _refuse(archive, info.filename, "is encrypted")
        yield _member(archive, info.filename, info.file_size, None)


def _in_tar(archive: str, compressed: int) -> Iterator[Member]:
    with _decompressed(archive) as stream, tarfile.open(fileobj=stream, mode="r:") as opened:
        for number, info in enumerate(opened, 1):
            _check_count(archive, number)
            # Before reading as much as it claims to contain.
            _check_size(archive, info.offset_data + info.size, compressed)
            if info.isdir():
                continue
            if not info.isreg() or info.issparse():
                _refuse(archive, info.name, "is a link, a device or a sparse file")
            yield _member(archive, info.name, info.size, info.offset_data)


def _member(archive: str, entry: str, size: int, at: int | None) -> Member:
    parts = entry.replace("\\", "/").split("/")
    if ".." in parts or not parts[0] or parts[0].endswith(":"):
        _refuse(archive, entry, "has a name that leads out of it")
    name = posixpath.normpath("/".join(parts))
    return Member(f"{archive}{SEPARATOR}/{name}", name, size, archive, at, entry)


def _refuse(archive: str, entry: str, what: str) -> None:
    raise SourceError(
        f"{archive} cannot be read in place: {entry!r} {what}.",
        "Expected only files and directories",
        fix=_UNPACK,
    )


def _check_size(archive: str, size: int, compressed: int) -> None:
    if size > max(_BOMB_SIZE, _BOMB_RATIO * compressed):
        raise SourceError(
            f"{archive} may be a bomb: it expands from {compressed:,} to at least {size:,} bytes.",
            f"Expected at most {_BOMB_RATIO} times its size, or {_BOMB_SIZE >> 30} GiB",
            fix=_UNPACK,
        )


def _check_count(archive: str, count: int) -> None:
    if count > _MOST_FILES:
        raise SourceError(f"{archive} contains more than {_MOST_FILES:,} files.", fix=_UNPACK)


@cached_per_process(maxsize=8)  # which shares no file's position with others
def _opened(archive: str) -> Any:
    """Returns a `ZipFile`, or the decompressed bytes of a tar, which are read in archive order."""
    return _decompressed(archive) if _is_tar(archive) else zipfile.ZipFile(buffered(archive))


def _is_tar(archive: str) -> bool:
    return archive.lower().endswith(_TARS)


def _decompressed(archive: str) -> io.BufferedIOBase:
    name = archive.lower()
    source = buffered(archive)
    if name.endswith((".gz", ".tgz")):
        return gzip.GzipFile(fileobj=source, mode="rb")
    if name.endswith((".bz2", ".tbz2")):
        return bz2.BZ2File(source)
    return lzma.LZMAFile(source) if name.endswith((".xz", ".txz")) else source
