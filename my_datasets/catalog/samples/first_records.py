"""The first records of a version: in which files they are, and what they hold."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from my_datasets.catalog.plots.feature_summary import in_usual_order
from my_datasets.input_pipeline.decode.decoder import Decoder
from my_datasets.input_pipeline.read.source import examples_of
from my_datasets.metadata.dataset_info import Declared
from my_datasets.metadata.features import read_tree
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
    decoder = Decoder(read_tree(directory))
    return examples_of(decoder(batch_of(records)), len(records))


def batch_of(records: Sequence[bytes]) -> RecordBatch:
    """Returns records as they are decoded together."""
    sizes = np.array([len(record) for record in records], np.int64)
    stops = np.cumsum(sizes)
    data = np.frombuffer(b"".join([*records, bytes(PADDING)]), np.uint8)
    return RecordBatch(data, stops - sizes, stops)
