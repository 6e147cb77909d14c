"""The first records of a shard in a store elsewhere, of which no more is fetched than is needed."""

import io
import tempfile
from collections.abc import Callable
from pathlib import Path

from my_datasets.catalog.samples.first_records import AT_ONCE, first_of
from my_datasets.core.sizes import human_size
from my_datasets.printable import PrintableError
from my_datasets.records import shard_reader

# What is fetched at once, and at all.
_BLOCK = 256 << 10
_BUFFER = 4 * _BLOCK
MOST_FETCHED = 64 << 20

# Given the first byte and the one after the last, gives the bytes between.
Fetch = Callable[[int, int], bytes]


class TooMuchError(PrintableError):
    """More of a file would have to be fetched than is."""


def first_records(fetch: Fetch, size: int, file_format: str) -> list[bytes]:
    """Returns the first records of a shard.

    The checksums of its format are compared, as far as it has any; that of the file is not known
    without reading all of it.

    Args:
      fetch: Gives parts of the shard.
      size: Its size in bytes.
      file_format: Its format.

    Raises:
      DamagedError, UnknownFormatError: As `my_datasets.records.shard_reader.records`.
      TooMuchError: The first records lie too far apart, or are too large.
    """
    file = RangedFile(fetch, size)
    if file_format == "array_record":
        return _of_array_records(file, size)
    buffered = io.BufferedReader(file, _BUFFER)
    return first_of(shard_reader.records(buffered, file_format, AT_ONCE))


class RangedFile(io.RawIOBase):
    """A file elsewhere, of which those blocks are fetched that are read."""

    def __init__(self, fetch: Fetch, size: int) -> None:
        """Fetches nothing yet; see `first_records`."""
        super().__init__()
        self._fetch = fetch
        self._size = size
        self._at = 0
        self._blocks: dict[int, bytes] = {}

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Returns the position."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Goes elsewhere; returns the position."""
        from_where = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, from_where + offset)
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Reads what fits, or what is left; returns how many bytes."""
        found = self.part(self._at, self._at + len(buffer))
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)

    def part(self, begin: int, end: int) -> bytes:
        """Returns the bytes from one position to another; fewer at the end of the file.

        Raises:
          TooMuchError: That makes too many of them.
        """
        end = min(end, self._size)
        if begin >= end:
            return b""
        first, last = begin // _BLOCK, (end - 1) // _BLOCK
        self._bring(first, last)
        found = b"".join(self._blocks[one] for one in range(first, last + 1))
        return found[begin - first * _BLOCK : end - first * _BLOCK]

    def _bring(self, first: int, last: int) -> None:
        """Fetches those blocks that are not here, in one request for each gap."""
        missing = [one for one in range(first, last + 1) if one not in self._blocks]
        if (len(self._blocks) + len(missing)) * _BLOCK > MOST_FETCHED:
            raise TooMuchError(
                f"more than {human_size(MOST_FETCHED)} of the file would have to be fetched"
            )
        while missing:
            gap = [one for at, one in enumerate(missing) if one == missing[0] + at]
            missing = missing[len(gap) :]
            begin = gap[0] * _BLOCK
            data = self._fetch(begin, min((gap[-1] + 1) * _BLOCK, self._size))
            for one in gap:
                at = one * _BLOCK - begin
                self._blocks[one] = data[at : at + _BLOCK]


def _of_array_records(file: RangedFile, size: int) -> list[bytes]:
    """Returns the first records of a shard in ArrayRecord, whose reader takes only names of files.

    It is given one with a hole in its middle. What lies in the hole has wrong checksums, so that
    the reader says so if it needs more of it.
    """
    known = _BUFFER
    with tempfile.TemporaryDirectory(prefix="first-records-") as scratch:
        path = Path(scratch) / "shard"
        while True:
            with path.open("wb") as copy:
                copy.write(file.part(0, known))
                copy.truncate(size)
                copy.seek(max(0, size - known))
                copy.write(file.part(max(0, size - known), size))
            try:
                return first_of(shard_reader.records(path, "array_record", AT_ONCE))
            except shard_reader.DamagedError:
                if 2 * known >= size:
                    raise
                known *= 2
