"""Whether the examples of a shard are what the features declare; and their hashes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from my_datasets.comparison.version_metadata import ANEW
from my_datasets.core.issue import Issue
from my_datasets.input_pipeline.decode.decoder import Decoder, MisfitError
from my_datasets.records import shard_reader
from my_datasets.records.random_access import RecordBatch
from my_datasets.records.tf_example import canonical
from my_datasets.records.tf_example.columns import UnreadableRecordError
from my_datasets.verification.checks import shards
from my_datasets.verification.observer import Take

# Of one shard so many are told; more of them help nobody.
_MOST_TOLD = 5
# Records that are decoded together.
_AT_ONCE = 256


def check(
    path: Path,
    file_format: str,
    decoder: Decoder | None,
    hashes: BinaryIO,
    takers: Sequence[Take] = (),
) -> list[Issue]:
    """Returns what is wrong with the examples of a shard.

    Args:
      path: The shard.
      file_format: Its format.
      decoder: Decodes examples; None to hash them only.
      hashes: What their hashes are written to, as far as it goes.
      takers: What gets their values, as long as they are what the features declare.
    """
    issues: list[Issue] = []
    row = misfits = 0
    try:
        for records in shard_reader.records(path, file_format):
            hashes.write(canonical.hashes(records).data)
            for begin in range(0, len(records) if decoder else 0, _AT_ONCE):
                values, wrong = _decoded(decoder, records[begin : begin + _AT_ONCE])
                if wrong is None:
                    for take in takers:
                        take(values)
                    continue
                misfits += 1
                if misfits <= _MOST_TOLD:
                    issues.append(_told(path, row + begin, wrong))
            row += len(records)
    except shard_reader.UnknownFormatError as error:
        issues.append(
            Issue(
                "unknown-format", path.name, "Shards of this format are not read here.",
                "build the version as tfrecord, array_record or parquet", found=str(error),
            )
        )  # fmt: skip
    except shard_reader.DamagedError as error:
        issues.append(shards.damaged(path, error))
    except UnreadableRecordError as error:
        issues.append(
            Issue(
                "no-example", f"{path.name}, record {row + error.row:,}",
                "The record is no tf.Example.", ANEW, found=error.reason,
            )
        )  # fmt: skip
    return issues


def _decoded(decoder: Decoder | None, records: Sequence[bytes]) -> tuple[Any, MisfitError | None]:
    """Returns the values of some records, or why one of them has none."""
    try:
        return decoder(RecordBatch.of(records)) if decoder is not None else None, None
    except MisfitError as error:
        return None, error


def _told(path: Path, begin: int, error: MisfitError) -> Issue:
    feature = f", feature {error.feature}" if error.feature else ""
    return Issue(
        "misfit", f"{path.name}, record {begin + error.rows[0]:,}{feature}",
        "The example is not what the features declare.", ANEW, error.expected, error.found,
    )  # fmt: skip
