"""Remembers which files this machine has verified, so that unchanged files are not hashed again.

A file is identified by its device, inode, size, and the times of its last write and last change of
status, which only root can set. If one of them differs, the file counts as unknown and is hashed.

The state folder holds one file for all processes of a user, to which each appends a line for each
verified file: a hash of the above and of the file's SHA-256. A line that is lost, or mixed with
another one, matches no file; that costs hashing a file once more, so there are no locks.
"""

import contextlib
import functools
import hashlib
import os
import secrets
import stat
from pathlib import Path

from my_datasets.storage.user_folders import state_folder

BLOCK = 4 << 20
_NAME = "verified_files"
_DIGITS = 32
_LINE = _DIGITS + 1
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
# Maximum number of lines; 6 MB. If there are more, the older half is removed.
_MOST = 200_000


class VerifiedFiles:
    """The files that were verified on this machine."""

    def __init__(self, directory: Path, most: int = _MOST) -> None:
        """Reads nothing yet; it remembers at most `most` files."""
        self._path = directory / _NAME
        self._most = most
        self._known: set[bytes] = set()
        self._read_to = (-1, -1, 0)  # device and inode of what was read, and how far

    def has(self, path: Path, sha256: str, size: int | None = None) -> bool:
        """Returns whether a file has the contents, and unless None the size, that it should have.

        A file that was verified and did not change since is not read. Any other is hashed, and
        remembered if it is the right one. Links are not followed. `sha256` is in hexadecimal.
        """
        if self.knows(path, sha256, size):
            return True
        try:
            # Opening a named pipe must not block.
            file = os.open(path, os.O_RDONLY | _NO_LINK | getattr(os, "O_NONBLOCK", 0))
        except OSError:
            return False
        try:
            before = os.fstat(file)
            if not stat.S_ISREG(before.st_mode) or size not in (None, before.st_size):
                return False
            with open(file, "rb", buffering=0, closefd=False) as source:
                if hashlib.file_digest(source, "sha256").hexdigest() != sha256:
                    return False
            # If the file was written meanwhile, the result holds now, but is not remembered.
            if _line(os.fstat(file), sha256) == _line(before, sha256):
                self.remember(file, sha256)
        except OSError:
            return False
        finally:
            os.close(file)
        return True

    def knows(self, path: Path, sha256: str, size: int | None = None) -> bool:
        """Returns whether a file was verified, and did not change since; it is never read."""
        try:
            found = path.lstat()
        except OSError:
            return False
        if not stat.S_ISREG(found.st_mode) or size not in (None, found.st_size):
            return False
        line = _line(found, sha256)
        if line not in self._known:
            self._read_more()
        return line in self._known

    def remember(self, file: int | Path, sha256: str) -> None:
        """Notes that a file, or its descriptor, was verified as it is; `sha256` is in hex."""
        found = os.fstat(file) if isinstance(file, int) else file.lstat()
        line = _line(found, sha256)
        self._known.add(line)
        # If it cannot be written, other processes hash the file once more.
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _NO_LINK
            target = os.open(self._path, flags, 0o600)
            try:
                os.write(target, line + b"\n")
                lines = os.fstat(target).st_size // _LINE
            finally:
                os.close(target)
            if lines > self._most:
                self._forget_older_half()

    def _read_more(self) -> None:
        """Reads what was written since; all of it if it is another file."""
        with contextlib.suppress(OSError), self._path.open("rb") as file:
            found = os.fstat(file.fileno())
            device, inode, end = self._read_to
            if (found.st_dev, found.st_ino) != (device, inode) or found.st_size < end:
                self._known, end = set(), 0
            file.seek(end)
            data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._known.update(whole.split())
            self._read_to = found.st_dev, found.st_ino, end + len(whole)

    def _forget_older_half(self) -> None:
        partial = self._path.with_name(f"{_NAME}.{secrets.token_hex(4)}.partial")
        try:
            lines = self._path.read_bytes().split()[-self._most // 2 :]
            partial.touch(0o600)
            partial.write_bytes(b"".join(line + b"\n" for line in lines))
            partial.replace(self._path)
        finally:
            partial.unlink(missing_ok=True)


def verified_files() -> VerifiedFiles:
    """Returns the verified files of this user's state folder.

    Raises:
      DataDirError: There is no safe state folder.
    """
    return _in(state_folder())


@functools.cache
def _in(directory: Path) -> VerifiedFiles:
    return VerifiedFiles(directory)


def _line(found: os.stat_result, sha256: str) -> bytes:
    times = found.st_mtime_ns, found.st_ctime_ns
    text = f"{found.st_dev} {found.st_ino} {found.st_size} {times} {sha256}"
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS].encode()
