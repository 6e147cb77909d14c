"""Whether the bytes of a shard are those it was made with; if not, which record is damaged."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from my_datasets.comparison.version_metadata import ANEW
from my_datasets.core.issue import Issue
from my_datasets.records import index, shard_reader
from my_datasets.storage import regular_files
from my_datasets.verification.checks import files


def check(
    path: Path, file_format: str, examples: int, sha256: str | None, known: Mapping[str, str]
) -> Iterator[Issue]:
    """Yields what is wrong with a shard, of which all bytes are read.

    Args:
      path: The shard.
      file_format: Its format.
      examples: How many it is declared to have.
      sha256: Of the file as it was made; None if nobody noted it.
      known: The name of the shard that was made with a SHA-256, for all of them.
    """
    found = regular_files.sha256_of(path) if sha256 is not None else None
    if found is not None and found == sha256:
        if not index.is_of(path):
            yield files.stale_index(path, "other places")
        return
    other = known.get(found) if found is not None else None
    if other is not None:
        yield Issue(
            "swapped-shard", path.name, "The file is another shard of this version.",
            f"give each its own name back, or {ANEW}", found=other,
        )  # fmt: skip
        return
    count = 0
    try:
        for records in shard_reader.records(path, file_format):
            count += len(records)
    except shard_reader.UnknownFormatError:
        count = examples
    except shard_reader.DamagedError as error:
        yield damaged(path, error)
        return
    if count != examples:
        yield Issue(
            "count", path.name, "The shard has another number of records than its version says.",
            ANEW, f"{examples:,} records", f"{count:,} records",
        )  # fmt: skip
    elif not index.is_of(path):
        yield files.stale_index(path, "other places")
    if count == examples and sha256 is not None and found is not None:
        yield Issue(
            "other-bytes", path.name,
            "The shard is another file than when it was made, though no record is damaged.",
            ANEW, f"SHA-256 {sha256[:16]}", found[:16],
        )  # fmt: skip


def damaged(path: Path, error: shard_reader.DamagedError) -> Issue:
    """Returns what is wrong with a shard that cannot be read to its end."""
    where = f", byte {error.at:,}" if error.at is not None else ""
    return Issue("damaged", f"{path.name}, record {error.row:,}{where}", error.reason, ANEW)
