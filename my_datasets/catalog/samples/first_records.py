"""The first records of a version: in which files they are, and what they hold."""

import io
import itertools
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from my_datasets.catalog.plots.feature_summary import in_usual_order
from my_datasets.core.sizes import human_size
from my_datasets.input_pipeline.decode.decoder import Decoder
from my_datasets.input_pipeline.read.source import examples_of
from my_datasets.metadata.dataset_info import Declared
from my_datasets.metadata.version_metadata import VersionMetadata
from my_datasets.printable import PrintableError
from my_datasets.records import shard_reader
from my_datasets.records.random_access import RecordBatch
from my_datasets.records.tf_example.columns import PADDING

# So many records are shown at most, and fewer if they are large: both as pages, and as a file.
_RECORDS = 20
_BYTES = 32 << 20
# Records that are read at once.
AT_ONCE = 4


@dataclass(frozen=True)
class Beginning:
    """Files that begin with the first records of a split.

    Attributes:
      split: The split.
      files: The files, one after the other.
      file_format: Their format.
    """

    split: str
    files: tuple[Path, ...]
    file_format: str

    def records(self) -> list[bytes]:
        """Returns the first records: 20 of them, fewer if there are fewer or if they are large.

        Raises:
          DamagedError, UnknownFormatError: As `my_datasets.records.shard_reader.records`.
          OSError: A file cannot be read.
        """
        parts = (shard_reader.records(one, self.file_format, AT_ONCE) for one in self.files)
        return first_of(itertools.chain.from_iterable(parts))


def first_of(parts: Iterable[Sequence[bytes]]) -> list[bytes]:
    """Returns the first of some records: 20 of them, fewer if they are large.

    Args:
      parts: The records, some at a time; no more are asked for than are needed.
    """
    found: list[bytes] = []
    held = 0
    for record in itertools.chain.from_iterable(parts):
        found.append(record)
        held += len(record)
        if len(found) == _RECORDS or held >= _BYTES:
            break
    return found


def beginning(directory: Path) -> Beginning | None:
    """Returns where the records of a version's first split are; None if it has none.

    Args:
      directory: The version's, with its shards or without them.

    Raises:
      OSError, ValueError: Its metadata cannot be read.
    """
    declared = Declared.read(directory)
    for split in in_usual_order(declared.splits):
        names = [one.name for one in declared.splits[split] if one.examples]
        if names:
            files = tuple(directory / name for name in names)
            return Beginning(split, files, declared.file_format)
    return None


def decoded(directory: Path, records: Sequence[bytes]) -> list[Any]:
    """Returns examples: values nested as the features are.

    Args:
      directory: The version's directory.
      records: The records.

    Raises:
      FeatureError: Only TFDS can read a feature.
      MissingDependencyError: There are images, and what decodes them is not installed.
      MisfitError: A record is not what the features declare.
    """
    decoder = Decoder(VersionMetadata(directory).tree)
    return examples_of(decoder(batch_of(records)), len(records))


def batch_of(records: Sequence[bytes]) -> RecordBatch:
    """Returns records as they are decoded together."""
    sizes = np.array([len(record) for record in records], np.int64)
    stops = np.cumsum(sizes)
    data = np.frombuffer(b"".join([*records, bytes(PADDING)]), np.uint8)
    return RecordBatch(data, stops - sizes, stops)


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
