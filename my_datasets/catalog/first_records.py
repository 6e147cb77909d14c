"""Finds and decodes the first records of a version."""

import io
import itertools
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from my_datasets.catalog.feature_summary import in_usual_order
from my_datasets.core.sizes import human_size
from my_datasets.input_pipeline.decode.decoder import Decoder
from my_datasets.input_pipeline.read.source import examples_of
from my_datasets.metadata.dataset_info import Declared
from my_datasets.metadata.version_metadata import VersionMetadata
from my_datasets.printable import PrintableError
from my_datasets.records import shard_reader
from my_datasets.records.random_access import RecordBatch
from my_datasets.records.tf_example.columns import PADDING
from my_datasets.storage.file_systems import PositionedFile

# The maximum number of records to show, and their maximum size.
_RECORDS = 20
_BYTES = 32 << 20
# Number of records to read at once.
AT_ONCE = 4


@dataclass(frozen=True)
class Beginning:
    """The files with the first records of a split, and their format."""

    split: str
    files: tuple[Path, ...]
    file_format: str

    def records(self) -> list[bytes]:
        """Returns the first 20 records, or fewer if they are large.

        Raises:
          DamagedError, UnknownFormatError: As `my_datasets.records.shard_reader.records`.
          OSError: A file cannot be read.
        """
        parts = (shard_reader.records(one, self.file_format, AT_ONCE) for one in self.files)
        return first_of(itertools.chain.from_iterable(parts))


def first_of(parts: Iterable[Sequence[bytes]]) -> list[bytes]:
    """Returns the first 20 records of batches, or fewer if they are large; reads no others."""
    found: list[bytes] = []
    pending_bytes = 0
    for record in itertools.chain.from_iterable(parts):
        found.append(record)
        pending_bytes += len(record)
        if len(found) == _RECORDS or pending_bytes >= _BYTES:
            break
    return found


def beginning(directory: Path) -> Beginning | None:
    """Returns the files of a version's first split with examples; None if there is none.

    Raises:
      OSError, ValueError: The metadata cannot be read.
    """
    declared = Declared.read(directory)
    for split in in_usual_order(declared.splits):
        names = [one.name for one in declared.splits[split] if one.examples]
        if names:
            files = tuple(directory / name for name in names)
            return Beginning(split, files, declared.file_format)
    return None


def decoded(directory: Path, records: Sequence[bytes]) -> list[object]:
    """Decodes records of a version; returns values nested like its features.

    Raises:
      FeatureError: Only TFDS can read a feature.
      MissingDependencyError: An image decoder is not installed.
      FeatureMismatchError: A record does not match the features.
    """
    decoder = Decoder(VersionMetadata(directory).tree)
    return examples_of(decoder(batch_of(records)), len(records))


def batch_of(records: Sequence[bytes]) -> RecordBatch:
    """Returns records as a batch."""
    sizes = np.array([len(record) for record in records], np.int64)
    stops = np.cumsum(sizes)
    data = np.frombuffer(b"".join([*records, bytes(PADDING)]), np.uint8)
    return RecordBatch(data, stops - sizes, stops)


# The size of a fetched block, and the maximum per file.
_BLOCK = 256 << 10
_BUFFER = 4 * _BLOCK
MOST_FETCHED = 64 << 20

# Returns the bytes from a begin to an end.
Fetch = Callable[[int, int], bytes]


class TooMuchError(PrintableError):
    """Too much of a file would have to be fetched."""


def first_records(fetch: Fetch, size: int, file_format: str) -> list[bytes]:
    """Returns the first records of a shard, verified only by the format's own checksums, if any.

    Raises:
      DamagedError, UnknownFormatError: As `my_datasets.records.shard_reader.records`.
      TooMuchError: The first records are too large or too far apart.
    """
    file = RangedFile(fetch, size)
    if file_format == "array_record":
        return _of_array_records(file, size)
    buffered = io.BufferedReader(file, _BUFFER)
    return first_of(shard_reader.records(buffered, file_format, AT_ONCE))


class RangedFile(PositionedFile):
    """A remote file; blocks are fetched when they are read."""

    def __init__(self, fetch: Fetch, size: int) -> None:
        """Fetches nothing yet; see `first_records`."""
        super().__init__(size, self.part)
        self._fetch = fetch
        self._blocks: dict[int, bytes] = {}

    def part(self, begin: int, end: int) -> bytes:
        """Returns the bytes from `begin` to `end`, or to the end of the file.

        Raises a `TooMuchError` if too much would have been fetched.
        """
        end = min(end, self._size)
        if begin >= end:
            return b""
        first, last = begin // _BLOCK, (end - 1) // _BLOCK
        missing = [one for one in range(first, last + 1) if one not in self._blocks]
        if (len(self._blocks) + len(missing)) * _BLOCK > MOST_FETCHED:
            raise TooMuchError(
                f"more than {human_size(MOST_FETCHED)} of the file would have to be fetched"
            )
        while missing:  # with one request for each gap
            gap = [one for at, one in enumerate(missing) if one == missing[0] + at]
            missing = missing[len(gap) :]
            start = gap[0] * _BLOCK
            data = self._fetch(start, min((gap[-1] + 1) * _BLOCK, self._size))
            for one in gap:
                at = one * _BLOCK - start
                self._blocks[one] = data[at : at + _BLOCK]
        found = b"".join(self._blocks[one] for one in range(first, last + 1))
        return found[begin - first * _BLOCK : end - first * _BLOCK]


def _of_array_records(file: RangedFile, size: int) -> list[bytes]:
    """Returns the first records of an ArrayRecord shard, whose reader needs a local file.

    It reads a sparse copy with a hole in the middle. Data in the hole fails the format's checksums,
    so the reader reports when it needs more; the hole then shrinks.
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
