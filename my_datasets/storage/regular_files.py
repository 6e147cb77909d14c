"""Opens and writes files safely in folders where others may have put links and named pipes."""

import contextlib
import errno
import hashlib
import io
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
_BINARY = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
# Bytes that are read at once.
_AT_ONCE = 1 << 20
# Characters of a file's name in the name of its partial file, which has at most 255 bytes.
_SHOWN = 40


def open_regular(path: str | os.PathLike[str]) -> io.BufferedReader:
    """Opens a file for reading; links are followed, as snapshots of hubs are made of them.

    Never blocks, as opening a named pipe otherwise would.

    Raises:
      OSError: It cannot be read, or is a named pipe, a device or a socket.
      IsADirectoryError: It is a directory.
    """
    if isinstance(path, os.PathLike) and not isinstance(path, Path):
        return cast(io.BufferedReader, cast(Any, path).open("rb"))  # in an object store
    descriptor = os.open(path, _READ | _BINARY)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def sha256_of(path: Path) -> str:
    """Returns the SHA-256 of a file, in hexadecimal."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_beginning(file: BinaryIO, most: int) -> bytes:
    """Returns the rest of a file, at most `most` bytes.

    Python's own `read(most)` allocates that many bytes first, however short the file is.
    """
    parts: list[bytes] = []
    while most > 0 and (part := file.read(min(most, _AT_ONCE))):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)


def read_regular(path: str | os.PathLike[str], most: int) -> bytes:
    """Returns the contents of a file of at most `most` bytes: a sparse file can have any size.

    Raises:
      OSError: As `open_regular`, or the file is larger.
    """
    with open_regular(path) as file:
        data = read_beginning(file, most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"larger than {most:,} bytes", os.fspath(path))
    return data


@contextlib.contextmanager
def replaced(path: Path, *, fsync: bool = True) -> Iterator[BinaryIO]:
    """Opens a file that replaces the old one only once it is completely written.

    It is written under a random name that did not exist, so nothing is written through a link. A
    link called `path` is replaced, not followed. With `fsync`, the data reach the disk before the
    name does.
    """
    partial = path.with_name(f".{path.name[:_SHOWN]}.{secrets.token_hex(8)}.partial")
    descriptor = os.open(partial, _NEW | _BINARY, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            if fsync:
                os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def sync_directory(directory: Path) -> None:
    """Syncs the names in a directory to the disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # for file systems that do not support this
            raise
    finally:
        os.close(descriptor)


def write_whole(path: Path, data: str | bytes, *, fsync: bool = True) -> None:
    """Writes a file, texts in UTF-8, to an existing folder atomically; see `replaced`."""
    with replaced(path, fsync=fsync) as file:
        file.write(data.encode() if isinstance(data, str) else data)
